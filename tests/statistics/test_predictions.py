"""Evidence with folds: each run is scored on the rows of one fold. Effects of folds come from choices that share folds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.decision import JointEstimate, dominating
from frostline.statistics.predictions import RATIO, Labelled, RunPredictions, fold_effects
from frostline.statistics.recipe import FULL, Recipe
from frostline.statistics.run_result import WORDS, Alternative, RunResult

FOLDS, SIZE = 3, 60
DEPTH = [0.0, 0.5, 1.2]


class Made:
    """Predictions of runs on folds of which the last one is easier."""

    def __init__(self) -> None:
        self.logits: dict[str, np.ndarray[Any, Any]] = {}
        targets = np.zeros(FOLDS * SIZE, int)
        self.evidence = RunPredictions(
            Labelled(targets, "text-classification", ("a", "b"), "accuracy"), self.logits.get
        )

    def run(self, name: str, fold: int, right: int) -> RunResult:
        """A run that is right on this many rows of its fold."""
        rows = np.full((FOLDS * SIZE, 2), np.nan)
        rows[fold * SIZE :][:SIZE] = [(0.0, 1.0)] * (SIZE - right) + [(1.0, 0.0)] * right
        self.logits[f"{name}/{fold}"] = rows
        return RunResult(recipe=Recipe(name), run=f"{name}/{fold}", seed=fold)

    def on_all_rows(self, name: str, *right: int) -> str:
        parts = [[(0.0, 1.0)] * (SIZE - one) + [(1.0, 0.0)] * one for one in right]
        self.logits[name] = np.array([row for part in parts for row in part])
        return name


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_choice_with_an_easy_fold_is_not_better(made: Made) -> None:
    """Last 1 is three rows behind full on their common fold. Its mean is higher only because it also had the easy fold."""
    head = [made.run("head only", 0, 30), made.run("head only", 2, 42)]
    one = [made.run("last 1", 0, 42), made.run("last 1", 2, 54)]
    full = [made.run("full", 0, 45)]
    cells = {"head only": head, "last 1": one, "full": full}
    found = {choice.name: choice for choice in JointEstimate.of(cells, DEPTH, [], made.evidence).choices}
    assert found["last 1"].score == pytest.approx(0.8) and found["full"].score == pytest.approx(0.75)
    effect = 0.1 * 2 / (2 + 1)  # of each fold: two choices share both
    assert found["last 1"].comparable == pytest.approx(0.8)
    assert found["full"].comparable == pytest.approx(0.75 + effect)
    assert dominating(found["full"], list(found.values())) is None
    assert found["full"].expected > found["last 1"].expected


def test_a_model_scored_on_all_rows_tells_how_easy_folds_are(made: Made) -> None:
    cells = {
        "head only": [made.run("head only", 0, 30)],
        "last 1": [made.run("last 1", 2, 42)],
        "full": [made.run("full", 0, 45)],
    }
    alone = made.evidence.observed([*cells.values()], DEPTH)
    np.testing.assert_allclose(alone.means, [0.5, 0.7, 0.75])  # no choice was scored on two folds
    probe = Alternative(made.on_all_rows("probe", 30, 36, 48))
    with_probe = made.evidence.observed([*cells.values(), [probe]], [*DEPTH, None])
    assert with_probe.measured == pytest.approx([0.5, 0.7, 0.75, 38 / 60])
    head, one, full, of_probe = with_probe.means
    assert of_probe == pytest.approx(38 / 60)  # scored on all folds, so it needs no correction
    assert one < 0.7 and head > 0.5 and full - head == pytest.approx(0.25)
    assert with_probe.fold_parameters > 0


def test_a_model_of_words_does_not_tell_how_easy_folds_are(made: Made) -> None:
    """What is hard for it is hardly harder for a pretrained model."""
    runs = [[made.run("head only", 0, 30)], [made.run("last 1", 2, 42)], [made.run("full", 0, 45)]]
    words = Alternative(made.on_all_rows(WORDS, 30, 36, 48))
    observed = made.evidence.observed([*runs, [words]], [*DEPTH, None])
    np.testing.assert_allclose(observed.means, observed.measured)
    assert observed.fold_parameters == 0


def test_a_choice_on_one_fold_makes_none_on_all_folds_less_certain(made: Made) -> None:
    """All runs are right on every row, so the pseudo-rows are all that is uncertain about them: one for each choice."""
    cells = [[made.run("last 1", fold, SIZE) for fold in range(FOLDS)], [made.run("full", 0, SIZE)]]
    covariance = made.evidence.observed(cells, DEPTH[:2]).row_covariance
    assert covariance is not None
    np.testing.assert_allclose(covariance, np.diag([1 / (FOLDS * SIZE), 1 / SIZE]) ** 2, atol=1e-12)


def test_scores_of_the_same_rows_are_left_alone(made: Made) -> None:
    names = [made.on_all_rows(name, *right) for name, right in (("one", (30, 40, 50)), ("two", (31, 39, 52)))]
    observed = made.evidence.observed([[Alternative(name)] for name in names], [0.0, 1.0])
    np.testing.assert_allclose(observed.means, [120 / 180, 122 / 180])
    assert observed.fold_parameters == 0


def test_the_predictions_of_a_run_are_read_once(made: Made) -> None:
    runs, read = [made.run("full", fold, 40) for fold in (0, 1)], list[str]()
    evidence = RunPredictions(made.evidence.split, lambda name: (read.append(name), made.logits[name])[1])
    assert evidence.rows_of(run.run for run in runs) == 2 * SIZE and evidence.pair(runs[:1], runs[1:])
    assert sorted(read) == ["full/0", "full/1"]


def test_equal_folds_change_no_difference(made: Made) -> None:
    cells = [
        [made.run(name, fold, right + 5 * fold) for fold in range(FOLDS)]
        for name, right in (("head only", 30), ("last 1", 38), ("full", 44))
    ]
    observed = made.evidence.observed(cells, DEPTH)
    np.testing.assert_allclose(observed.means, observed.measured)
    spread = [np.std(list(one.values())) for one in observed.scores]
    assert max(spread) < np.std([0, 5 / 60, 10 / 60])  # the common part of the spread over seeds is gone


@pytest.mark.parametrize(
    ("folds", "right", "learned"),
    [
        ([2], 54, False),  # nine tenths of the last fold are of one class, and half of all rows
        ([2, 2], 54, False),
        ([2], 60, True),
        ([0], 54, True),
        ([0, 1, 2], 40, True),
    ],
)
def test_runs_have_learned_more_than_a_constant_on_their_own_rows(folds: list[int], right: int, learned: bool) -> None:
    targets = np.array([0, 1] * SIZE + [0] * (SIZE * 9 // 10) + [1] * (SIZE // 10))
    logits = {}
    for n, fold in enumerate(folds):
        rows = np.full((FOLDS * SIZE, 2), np.nan)
        given = targets[fold * SIZE :][:SIZE].copy()
        given[right:] = 1 - given[right:]
        rows[fold * SIZE :][:SIZE] = np.eye(2)[given]
        logits[str(n)] = rows
    evidence = RunPredictions(Labelled(targets, "text-classification", ("a", "b"), "accuracy"), logits.get)
    runs = [RunResult(recipe=FULL, run=str(n), seed=n) for n in range(len(folds))]
    assert evidence.learned(runs) is learned


def test_the_effect_of_one_shared_choice_is_shrunk() -> None:
    """One choice scores .8 and .9 on two folds: half of the deviations is its own with a ratio of 1."""
    scores = np.array([[0.8], [0.9], [0.82]])
    found, parameters = fold_effects(scores, ["last 2", "last 2", "full"], ["one", "two", "one"])
    expected = 0.05 / (1 + RATIO)
    np.testing.assert_allclose(found[:, 0], [-expected, expected, -expected], atol=1e-12)
    assert 0 < parameters < 1


def test_many_choices_that_agree_leave_little_doubt() -> None:
    names = [f"last {k}" for k in range(9)]
    choices, folds = [*names, *names, "full"], ["one"] * 9 + ["two"] * 9 + ["two"]
    scores = np.array([[0.7 + 0.01 * k] for k in range(9)] + [[0.8 + 0.01 * k] for k in range(9)] + [[0.85]])
    found, _ = fold_effects(scores, choices, folds)
    np.testing.assert_allclose(found[-1], 0.05, rtol=0.12)
    assert 0.85 - found[-1, 0] < 0.81


def test_without_a_shared_choice_nothing_is_known() -> None:
    found, parameters = fold_effects(np.array([[0.7], [0.9]]), ["last 2", "full"], ["one", "two"])
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    assert abs(parameters) < 1e-12


@given(st.integers(0, 2**32 - 1))
def test_effects_sum_to_zero_and_ignore_the_level_of_choices(seed: int) -> None:
    random = np.random.default_rng(seed)
    choices, folds = random.integers(0, 4, 12).tolist(), random.integers(0, 5, 12).tolist()
    scores = random.normal(size=(12, 3))
    found, _ = fold_effects(scores, choices, folds)
    levels = random.normal(size=4)[choices][:, None]
    np.testing.assert_allclose(fold_effects(scores + levels, choices, folds)[0], found, atol=1e-9)
    first = [folds.index(fold) for fold in set(folds)]
    np.testing.assert_allclose(found[first].sum(0), 0, atol=1e-9)
    np.testing.assert_allclose(fold_effects(2 * scores, choices, folds)[0], 2 * found, atol=1e-9)
