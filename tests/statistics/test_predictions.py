"""Evidence with folds: each run is scored on the rows of one fold. A model that is scored on all rows tells how easy each is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frostline.statistics.decision import JointEstimate, dominating
from frostline.statistics.posterior import SeedNoise
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.statistics.run_result import Alternative, RunResult

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


def cells_of(made: Made) -> dict[Recipe, list[RunResult]]:
    return {
        HEAD_ONLY: [made.run("head only", 0, 30)],
        Recipe(1): [made.run("last 1", 2, 48)],
        FULL: [made.run("full", 0, 45), made.run("full", 1, 45)],
    }


def test_a_choice_with_an_easy_fold_is_not_better(made: Made) -> None:
    """Last 1 has the easy fold alone. On the rows that are hard for the probe, it scores no higher than full."""
    cells, probe = cells_of(made), made.on_all_rows("probe", 33, 33, 51)
    found = {choice.name: choice for choice in JointEstimate.of(cells, DEPTH, [Recipe(probe)], made.evidence).choices}
    assert found["last 1"].score == pytest.approx(0.8) and found["full"].score == pytest.approx(0.75)
    assert found["last 1"].comparable < found["full"].comparable and found["probe"].comparable == pytest.approx(0.65)
    alone = made.evidence.observed([*cells.values()], DEPTH)
    np.testing.assert_allclose(alone.means, [0.5, 0.8, 0.75])  # nothing tells how easy a fold is
    _, one, full, _ = made.evidence.observed([*cells.values(), [Alternative(probe)]], [*DEPTH, None]).means
    assert one < full and found["full"].expected > found["last 1"].expected
    assert dominating(found["full"], list(found.values())) is None


def test_the_score_on_a_fold_is_moved_by_the_regression_on_a_probe(made: Made) -> None:
    """The oracle is the textbook's: the slope is the covariance of right answers on the fold over their variance."""
    cells, probe = cells_of(made), made.on_all_rows("probe", 33, 33, 51)
    found = made.evidence.observed([*cells.values(), [Alternative(probe)]], [*DEPTH, None])
    right = {name: (rows[:, 0] > rows[:, 1]).astype(float) for name, rows in made.logits.items()}
    for (n, seed), run in {
        (0, "0"): "head only/0",
        (1, "2"): "last 1/2",
        (2, "0"): "full/0",
        (2, "1"): "full/1",
    }.items():
        fold = ~np.isnan(made.logits[run][:, 0])
        ours, theirs = right[run][fold], right[probe][fold]
        slope = max(0.0, np.cov(ours, theirs)[0, 1] / np.var(theirs, ddof=1))
        moved = ours.mean() - slope * (theirs.mean() - right[probe].mean())
        assert found.scores[n][seed] == pytest.approx(moved, abs=0.02), run  # a group has one or two rows


def test_a_model_at_chance_is_moved_hardly_and_moves_no_other(made: Made) -> None:
    """Head only is right on every other row, whatever is hard. Its two folds differ by chance, which says nothing of full's."""
    probe = made.on_all_rows("probe", 40, 40, 40)
    head = [made.run("head only", fold, 30) for fold in (0, 2)]
    for run, right in zip(head, (36, 24), strict=True):
        rows = made.logits[run.run]
        known = np.flatnonzero(~np.isnan(rows[:, 0]))
        correct = np.zeros(SIZE, bool)
        correct[np.random.default_rng(0).permutation(SIZE)[:right]] = True
        rows[known] = np.stack([correct, ~correct], 1)
    found = made.evidence.observed([head, [made.run("full", 0, 45)], [Alternative(probe)]], [0.0, 1.0, None])
    np.testing.assert_allclose(found.means[1:], [0.75, 40 / 60])
    assert [*found.scores[0].values()] == pytest.approx([0.6, 0.4], abs=0.02)


def test_rows_of_folds_are_not_counted_as_spread_over_seeds(made: Made) -> None:
    """The scores of three folds differ as those of so many rows do. What the seeds add is then close to its prior."""
    random = np.random.default_rng(0)
    spreads = []
    for own_rows in (True, False):
        cells = [
            [made.run(name, fold, int(random.binomial(SIZE, 0.7))) for fold in range(FOLDS)]
            for name in ("last 1", "full")
        ]
        observed = made.evidence.observed(cells, DEPTH[:2])
        observed = observed if own_rows else replace(observed, squares_of_rows=None)
        spreads.append(SeedNoise.of(observed).pooled ** 0.5)
    assert spreads[0] < 0.8 * spreads[1]


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
    assert observed.squares_of_rows is None


def test_a_text_in_two_rows_of_a_fold_counts_once(made: Made) -> None:
    """Every row twice, in the same fold, says no more than every row once."""
    cells, probe = [*cells_of(made).values()], [Alternative(made.on_all_rows("probe", 33, 33, 51))]
    twice = np.tile(np.arange(FOLDS * SIZE), 2)
    split = replace(made.evidence.split, targets=made.evidence.split.targets[twice], alike=twice)
    both = made.evidence, RunPredictions(split, lambda name: made.logits[name][twice])
    ours, theirs = (one.observed([*cells, probe], [*DEPTH, None]) for one in both)
    np.testing.assert_allclose(theirs.means, ours.means)
    np.testing.assert_allclose(theirs.row_covariance, ours.row_covariance)
    np.testing.assert_allclose(theirs.squares_of_rows, ours.squares_of_rows)
    assert len({repr((one.pair(cells[0], cells[2]), one.summary(cells[2]), one.alone("full/1"))) for one in both}) == 1


def test_the_predictions_of_a_run_are_read_once(made: Made) -> None:
    runs, read = [made.run("full", fold, 40) for fold in (0, 1)], list[str]()
    evidence = RunPredictions(made.evidence.split, lambda name: (read.append(name), made.logits[name])[1])
    assert evidence.rows_of(run.run for run in runs) == 2 * SIZE and evidence.pair(runs[:1], runs[1:])
    assert sorted(read) == ["full/0", "full/1"]


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
    weak = RunResult(recipe=FULL, run="weak", seed=0)  # 40 of 60 are right by chance in one of a hundred runs
    logits["weak"] = (
        np.where(np.arange(FOLDS * SIZE) < SIZE, 1.0, np.nan)[:, None]
        * np.eye(2)[np.where(np.arange(FOLDS * SIZE) % 3, targets, 1 - targets)]
    )
    assert evidence.learned([weak]) and not evidence.learned([weak], among=100)
