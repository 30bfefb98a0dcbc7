"""The sentence of an answer."""

import pytest

from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.statistics.choices import Choices
from frostline.statistics.predictions import Labelled
from synthetic_answer import LAYERS, VALIDATION, answer_of, cells, clear, make_runs, point


def test_a_large_difference_is_decided() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.99 if k in (2, "all") else 0.55))
    (size,) = answer["sizes"]
    assert point(size, 0.9) == {
        **{"target": 0.9, "corrected": True, "margin": None, "verdict": "decided"},
        **dict.fromkeys(("estimate", "confident", "not_ruled_out"), "last 2"),
    }
    assert answer["sentence"].startswith(
        "Tune the last 2 of 4 layers: accuracy 0.990 against 0.990 with full fine-tuning, "
    )
    assert "cannot be told" not in answer["sentence"] and "1.4 times cheaper to train" in answer["sentence"]


def test_an_undecided_k_is_mentioned() -> None:
    noise = {0: 0.03, 1: -0.03, 2: 0.02, 3: -0.02, 4: 0.0}
    answer = answer_of(make_runs(lambda k, seed, *_: {0: 0.6, 1: 0.79, 2: 0.8, "all": 0.8}[k] + noise[seed]))
    (size,) = answer["sizes"]
    assert point(size)["verdict"] == "undecided" and point(size)["not_ruled_out"] == "last 1"
    assert size["recommended"]["trainable"] == point(size)["confident"] != "last 1"
    assert answer["sentence"].endswith(
        " Whether tuning the last layer reaches the target cannot be told from 5 seeds and 1,000 validation examples."
    )


def test_a_likely_smaller_k_comes_first_if_only_full_is_certain() -> None:
    noise = {0: 0.04, 1: -0.04, 2: 0.0}
    answer = answer_of(
        make_runs(lambda k, seed, *_: (0.9 if k == 1 else 0.85) + noise[seed] * (k == 1), ks=(1, "all"), seeds=3)
    )
    (size,) = answer["sizes"]
    assert size["recommended"]["trainable"] == "all"
    assert answer["sentence"].startswith(
        "Whether tuning the last layer reaches the target cannot be told from 3 seeds and 1,000 validation examples: it reaches "
        "accuracy 0.900 against 0.850 with full fine-tuning, 114.3 % of the gain over the majority-class baseline (95 % "
    )
    assert answer["sentence"].endswith(
        " Its interval must lie above 95 %; until then tune all layers and the embeddings."
    )


def test_without_all_the_largest_k_is_the_reference() -> None:
    answer = answer_of(make_runs(clear, ks=(0, 1, 2)))
    size = answer["sizes"][0]
    assert size["reference"] == "last 2" and not size["reference_is_full"]
    assert answer["sentence"] == (
        "Tune the last 2 of 4 layers: accuracy 0.900; no smaller k reaches 95 % of its gain over the majority-class baseline. "
        "Full fine-tuning was not run: add all to --tune."
    )


def test_pending_runs_are_counted() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, seed, rate: "pending" if seed > 2 else "ok"))
    assert answer["sentence"].endswith(" So far 12 of 20 runs have ended.")


def test_a_single_k_is_compared_with_nothing() -> None:
    assert answer_of(make_runs(clear, ks=(1,)))["sentence"] == "Tune the last layer of 4: accuracy 0.750."
    assert (
        answer_of(make_runs(clear, ks=(0,)))["sentence"]
        == "Tune the classifier head only, none of 4 layers: accuracy 0.600."
    )


def test_too_few_validation_examples() -> None:
    runs, logits = make_runs(clear)

    def sentence(rows: int) -> str:
        validation = Labelled(VALIDATION.targets[:rows], "single_label_classification", ("0", "1"), "accuracy")
        few = {name: values[:rows] for name, values in logits.items()}
        said: str = make_answer(runs, validation, few.__getitem__, Choices(), layers=LAYERS)["sentence"]
        return said

    assert sentence(9).endswith(" 9 validation examples are too few for any conclusion: label more.")
    assert "too few" not in sentence(10)


def test_one_seed_is_an_estimate() -> None:
    answer = answer_of(make_runs(clear, seeds=1))
    assert answer["sizes"][0]["recommended"]["trainable"] == "last 2"
    assert answer["sentence"].endswith(
        "One seed gives no confidence interval, so this is only an estimate: use --seeds 5."
    )
    assert answer["sizes"][0]["cells"][0]["share"]["low"] is None
    bad = answer_of(make_runs(lambda *_: 0.4, seeds=1))
    assert bad["sentence"] == (
        "Undecided: full fine-tuning reaches accuracy 0.400, and one seed does not show that this is above the majority-class "
        "baseline (0.500)."
    )


def test_a_k_with_one_seed_is_compared_on_that_seed() -> None:
    made = make_runs(
        lambda k, seed, *_: 0.9 if k != "all" or seed else 0.7,
        ks=(2, "all"),
        seeds=3,
        outcome=lambda k, seed, rate: "ok" if k == "all" or not seed else "pending",
    )
    answer = answer_of(made)
    two = cells(answer["sizes"][0])["last 2"]
    assert two["difference"]["means"] == pytest.approx([0.9, 0.7])
    assert two["difference"]["low"] is None
    assert "accuracy 0.900 against 0.700 with full fine-tuning on the one seed that both have" in answer["sentence"]


def test_operations_replace_times_that_cannot_be_compared() -> None:
    runs, logits = make_runs(clear)
    alone = [{**run, "concurrent_runs": 1 if run["trainable"] == "last 2" else 2} for run in runs]
    search = SearchOutcome(chosen="last 2", operations={"last 2": 1e9, "all": 2.5e9})
    said = answer_of((alone, logits), search=search)["sentence"]
    assert ", with 2.5 times fewer operations to train, with 100.0 % of the peak memory" in said
    alike = [{**run, "concurrent_runs": 2} for run in runs]
    assert " times cheaper to train" in answer_of((alike, logits), search=search)["sentence"]
