"""Sentences after the recommendation: the certainty of a search, missing and failed runs, named parts."""

from dataclasses import replace

import pytest

from frostline.statistics.run_group import SearchOutcome
from synthetic_answer import Made, answer_of, cells, clear, make_runs, with_named


def test_a_skipped_k_is_mentioned_if_it_is_smaller_than_the_recommended_one() -> None:
    def sentence(made: Made, *skipped: str) -> str:
        said: str = answer_of(made, search=SearchOutcome(skipped=skipped)).sentence
        return said

    two = make_runs(lambda k, *_: {0: 0.6, 2: 0.9, "full": 0.9}[k], ks=(0, 2, "full"))
    assert sentence(two, "last 1", "last 3").endswith(" Tuning the last layer was not tried.")
    assert "not tried" not in sentence(two, "last 3")
    full = make_runs(lambda k, *_: 0.9 if k == "full" else 0.6, ks=(0, "full"))
    assert sentence(full, "last 1", "last 2", "last 4").endswith(
        " Tuning the last 1 to 2 layers and tuning the last 4 layers were not tried."
    )


def test_a_k_without_a_usable_run_is_mentioned() -> None:
    failed = make_runs(clear, outcome=lambda k, *_: "diverged" if k == 1 else "ok")
    assert answer_of(failed).sentence.endswith(" 5 of 5 runs of tuning the last layer failed.")


@pytest.mark.parametrize(("seconds", "doubted"), [(5.4, False), (5.6, True)])
def test_times_are_doubted_if_fewer_layers_took_longer(seconds: float, doubted: bool) -> None:
    """Full fine-tuning took 5 seconds."""
    runs, logits = make_runs(clear)
    slow = [replace(run, **({"train_seconds": seconds} if run.recipe == "last 1" else {})) for run in runs]
    said = answer_of((slow, logits)).sentence
    remark = (
        " Do not trust the training times: tuning the last layer took 112 % of the time of full fine-tuning, so other programs "
        "probably slowed some runs down."
    )
    assert said.endswith(remark) == doubted and ("Do not trust" in said) == doubted
    alone = [
        replace(run, **({"concurrent_runs": 2} if run.recipe == "last 1" else {"concurrent_runs": 1})) for run in slow
    ]
    assert "Do not trust" not in answer_of((alone, logits)).sentence  # their times are not compared


@pytest.mark.parametrize(
    ("on_train", "unfitted"), [(0.934, False), (0.933, True), (0.9, True), (0.3, True), (None, False)]
)
def test_more_epochs_are_advised_if_training_examples_are_not_fitted(on_train: float | None, unfitted: bool) -> None:
    """Full fine-tuning reaches .9 on validation."""
    runs, logits = make_runs(clear)
    runs = [replace(run, **({"train_last": on_train} if run.recipe == "full" else {})) for run in runs]
    said = answer_of((runs, logits)).sentence
    remark = (
        f" Full fine-tuning scores {on_train or 0:.3f} on examples that it was trained on and 0.900 on validation. It has not "
        "fitted its examples yet, so a higher --num-train-epochs may help."
    )
    assert said.endswith(remark) == unfitted and ("epochs" in said) == unfitted


def test_more_epochs_are_not_advised_where_little_is_left_to_learn_or_no_layer_is_trained() -> None:
    perfect, logits = make_runs(lambda k, *_: {0: 0.6, 1: 0.8}.get(k, 0.98))
    perfect = [replace(run, train_last=0.97) for run in perfect]
    assert "epochs" not in answer_of((perfect, logits)).sentence
    heads, logits = make_runs(lambda *_: 0.8, ks=(0,))
    heads = [replace(run, train_last=0.7) for run in heads]
    assert "epochs" not in answer_of((heads, logits)).sentence


def test_named_parts_are_separate_from_the_k_of_the_same_cost() -> None:
    runs, logits = make_runs(with_named, ks=(0, 1, 2, "full", "named"))
    size = answer_of((runs, logits)).sizes[0]
    without = answer_of(make_runs(clear)).sizes[0]
    assert [cell.recipe for cell in size.cells] == ["head only", "last 1", "last 2", "full", "named"]
    assert cells(size)["named"].tuned_layers == cells(size)["last 2"].tuned_layers == 2
    assert [cells(size)[name].validation.n for name in ("last 2", "named")] == [5, 5]
    assert cells(size)["named"].validation.mean == pytest.approx(0.89)
    assert size.recommended.recipe == without.recommended.recipe == "last 2"
    assert [p.estimate for p in size.operating_points] == [p.estimate for p in without.operating_points]
    assert size.sentence.endswith(
        " The named parts reach accuracy 0.890 against 0.900 with full fine-tuning, 97.5 % of the gain over the majority-class "
        "baseline (95 % confidence interval 94.7 to 100.3)."
    )


@pytest.mark.parametrize("best", ["last 2", "full"])
def test_named_parts_are_neither_the_reference_nor_recommended(best: str) -> None:
    """This holds even if they are the best, or include lower layers than any k."""
    ks = (0, 2, "full", "named") if best == "full" else (0, 2, "named")
    runs, logits = make_runs(lambda k, *_: {0: 0.6, 2: 0.7, "full": 0.9, "named": 0.97}[k], ks=ks)
    for reach, embeddings in ((4, False), (4, True)):
        some = [
            replace(run, tuned_layers=reach, tune_embeddings=embeddings) if run.recipe == "named" else run
            for run in runs
        ]
        size = answer_of((some, logits)).sizes[0]
        assert size.reference == best and size.reference_is_full == (best == "full")
        assert size.recommended.recipe == best
        assert "named" not in {
            getattr(p, how) for p in size.operating_points for how in ("estimate", "confident", "not_ruled_out")
        }
        assert ("Full fine-tuning was not run" in size.sentence) == (best != "full")


def test_named_parts_alone_are_compared_with_nothing() -> None:
    answer = answer_of(make_runs(with_named, ks=("named",)))
    size = answer.sizes[0]
    assert size.reference is None and not size.reference_is_full and not size.learned
    assert size.recommended.recipe == "named" and cells(size)["named"].share is None
    assert {p.verdict for p in size.operating_points} == {"undefined"}
    assert answer.sentence == (
        "The named parts reach accuracy 0.890 (5 seeds, 95 % confidence interval 0.880 to 0.900; majority-class baseline 0.500). "
        "Nothing was compared: add numbers of layers and full to --tune to compare."
    )
    one = answer_of(make_runs(with_named, ks=("named",), seeds=1)).sentence
    assert one.startswith(
        "The named parts reach accuracy 0.890 (one seed; majority-class baseline 0.500). Nothing was compared"
    )


def test_named_parts_beside_failed_or_pending_runs() -> None:
    failed = make_runs(with_named, ks=(1, "named"), outcome=lambda k, *_: "diverged" if k == 1 else "ok")
    assert "Nothing was compared: no other run has succeeded so far." in answer_of(failed).sentence
    pending = make_runs(with_named, ks=(1, "named"), outcome=lambda k, *_: "pending" if k == "named" else "ok")
    runs = [
        replace(run, tuned_layers=None, tune_embeddings=None) if run.recipe == "named" else run for run in pending[0]
    ]
    said = answer_of((runs, pending[1])).sentence
    assert said.startswith("Tune the last layer of 4") and "The named parts cannot be compared" in said
    nothing = make_runs(with_named, ks=("named",), outcome=lambda *_: "diverged")
    assert answer_of(nothing).sentence.startswith("There is no answer: all 5")
