"""The first steps of a race, and whether a plan knows them."""

import pytest

from frostline.search.opening import opening
from frostline.search.trials import Step
from synthetic_race import LAYERS, RISING, board, run_race, settings


def test_the_first_steps() -> None:
    head, rates, full = opening(settings(head_learning_rates=(1e-3, 1e-2)))
    assert [(trial.recipe, trial.learning_rate, trial.seed) for trial in head.trials] == [
        ("head only", 1e-3, 0),
        ("head only", 1e-3, 1),
        ("head only", 1e-2, 0),
        ("head only", 1e-2, 1),
    ]
    assert [(trial.recipe, trial.learning_rate) for trial in rates.trials] == [("last 2", 1e-4), ("last 2", 2e-4)]
    assert [(trial.recipe, trial.learning_rate) for trial in full.trials] == [("full", 1e-4), ("full", 5e-5)]
    assert full.why == "Train full fine-tuning."


@pytest.mark.parametrize(("reference", "workers"), [(2, 1), (6, 2), ("full", 1), ("full", 4)])
def test_a_race_begins_with_them_if_scores_change_nothing(reference: int | str, workers: int) -> None:
    """The middle learning rate is the best by little."""
    ks = tuple(range(reference if isinstance(reference, int) else LAYERS + 1))
    known = board(ks=ks, reference=reference, workers=workers, budget=80.0)
    _, steps = run_race(known, lambda trial: RISING[trial.recipe] - 0.001 * (trial.learning_rate != 1e-4))
    wanted = list(opening(known.settings))
    assert len(wanted) == 3
    assert steps[:3] == wanted


def test_no_trial_is_in_two_steps() -> None:
    steps: list[Step] = list(opening(settings(ks=(0,), reference=1)))
    trials = [trial for step in steps for trial in step.trials]
    assert len(set(trials)) == len(trials)
