"""Sentences for results without a recommendation."""

import pytest

from frostline.statistics.run_group import SearchOutcome
from synthetic_answer import answer_of, cells, clear, make_runs


def test_no_run_has_succeeded() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda *_: "diverged"))
    assert answer.sizes[0].recommended is None
    assert answer.sentence == (
        "There is no answer: all 20 finished runs diverged or predict a constant. To learn the task, train with more epochs, "
        "another learning rate or more examples."
    )
    pending = answer_of(make_runs(clear, outcome=lambda *_: "pending"))
    assert pending.sentence == "There is no answer: no run has finished."


def test_nothing_learned_is_no_answer() -> None:
    answer = answer_of(make_runs(lambda k, seed, *_: 0.49 + 0.01 * (seed % 3)))
    assert not answer.sizes[0].learned
    assert answer.sentence.startswith("Undecided: full fine-tuning reaches accuracy 0.4")
    assert answer.sentence.endswith(
        "and 5 seeds do not show that this is above the majority-class baseline (0.500). To learn the task, train with more "
        "epochs, another learning rate or more examples."
    )
    assert all(p.verdict == "undefined" for p in answer.sizes[0].operating_points if p.corrected)


def test_the_seeds_behind_a_mean_are_counted() -> None:
    def but_one(k: int | str, seed: int, rate: float) -> str:
        return "ok" if seed == 0 else "diverged"

    weak = answer_of(make_runs(lambda *_: 0.51, outcome=but_one))
    assert "and 1 of 5 seeds (the others failed) does not show" in weak.sentence
    later = answer_of(make_runs(lambda *_: 0.51, outcome=lambda k, seed, rate: "ok" if seed < 1 else "pending"))
    assert "and 1 of 5 seeds (the others failed or have not run) does not show" in later.sentence
    sentence = answer_of(make_runs(clear, outcome=but_one)).sentence
    assert sentence.endswith(
        " 4 of 5 runs of tuning the last 2 layers failed and 4 of 5 runs of full fine-tuning failed."
    )


def test_a_run_whose_predictions_are_above_the_baseline_has_learned() -> None:
    def score(k: int | str, seed: int, rate: float, size: int) -> float:
        return {0: 0.5, 1: 0.5, 2: 0.86}.get(k, 0.9 if seed else 0.7)  # type: ignore[call-overload, no-any-return]

    answer = answer_of(make_runs(score, seeds=2))
    size = answer.sizes[0]
    full, two = cells(size)["full"], cells(size)["last 2"]
    assert size.learned and full.validation.low < 0.5  # the mean of two seeds is not significant
    assert two.share_corrected.estimate == pytest.approx(0.36 / 0.3, abs=0.01)
    assert two.share_corrected.low is two.share_corrected.high is None
    assert answer.sentence.startswith(
        "Tune the last 2 of 4 layers: accuracy 0.860 against 0.800 with full fine-tuning, at "
    )


def test_a_k_above_the_baseline_is_recommended_if_full_is_not_above_it() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.6 if k == 2 else 0.51, seeds=3))
    assert not answer.sizes[0].learned
    assert all(cell.share_corrected.estimate is None for cell in answer.sizes[0].cells)
    assert answer.sizes[0].recommended.recipe == "last 2"
    assert answer.sentence == (
        "Tune the last 2 of 4 layers: accuracy 0.600, which is above the majority-class baseline. Full fine-tuning reaches "
        "accuracy 0.510, and 3 seeds do not show that this is above the majority-class baseline (0.500). To compare "
        "fairly, train with more epochs, another learning rate or more examples."
    )


def test_a_reference_that_learned_nothing_does_not_hide_the_failures_of_others() -> None:
    def worse(k: int | str, seed: int, rate: float) -> str:
        return "degenerate" if k == 2 else "ok"

    answer = answer_of(make_runs(lambda k, *_: 0.6 if k == 0 else 0.51, seeds=3, outcome=worse))
    assert answer.sentence.startswith("Tune the classifier head only, none of 4 layers: accuracy 0.600, which is above")
    assert answer.sentence.endswith(" 3 of 3 runs of tuning the last 2 layers failed.")


def test_before_full_has_run_there_is_no_answer_yet() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, *_: "pending" if k == "full" else "ok"))
    assert answer.sizes[0].recommended is None
    assert answer.sentence == (
        "No answer yet: full fine-tuning, the reference of every comparison, has not run. The best so far, tuning the "
        "last 2 layers, reaches accuracy 0.900. So far 15 of 20 runs have ended."
    )
    rates = make_runs(clear, rates=(1e-4, 2e-4), outcome=lambda k, *_: "pending" if k == "full" else "ok")
    assert answer_of(rates).sentence.endswith("So far 30 of 40 runs have ended.")
    beside = make_runs(
        lambda k, *_: 0.9 if k == "named" else 0.8,
        ks=(0, "named", "full"),
        outcome=lambda k, *_: "pending" if k == "full" else "ok",
    )
    assert "The best so far, tuning the classifier head only, reaches accuracy 0.800." in answer_of(beside).sentence
    awaited = answer_of(make_runs(clear, ks=(0, 1)), search=SearchOutcome(awaited="full"))
    assert awaited.sentence.startswith("No answer yet: full fine-tuning")
    assert awaited.sizes[0].recommended.recipe == "last 1"  # a search that is interrupted saves it


def test_a_larger_k_that_has_not_run_takes_no_answer_away_from_a_search_that_is_over() -> None:
    made = make_runs(clear, outcome=lambda k, *_: "pending" if k == "full" else "ok")
    answer = answer_of(made, search=SearchOutcome(over=True))
    assert answer.sizes[0].reference == "last 2"
    assert answer.sizes[0].recommended.recipe == "last 2"
    assert answer.sentence.startswith("Tune the last 2 of 4 layers, the largest k with a score: accuracy 0.900")
    assert answer.sentence.endswith(" So far 15 of 20 runs have ended.")
