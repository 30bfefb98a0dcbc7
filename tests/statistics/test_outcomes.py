"""Which runs count as failed."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.cells import clear_distance, failures, succeeded, with_outcomes
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from synthetic_results import answer, by_name, one


def outcomes(cell: Sequence[float], best: float, chance: float = 0.5) -> list[str]:
    runs = [*(one("1", seed, score) for seed, score in enumerate(cell)), one("full", 0, best)]
    return [run.outcome for run in with_outcomes(runs, chance) if run.recipe.short == "1"]


def test_a_run_far_below_its_cell_has_failed() -> None:
    assert outcomes([0.84, 0.85, 0.50, 0.86, 0.55], 0.9) == ["ok", "ok", "at chance", "ok", "collapsed"]
    assert outcomes([0.50, 0.51, 0.49, 0.86, 0.85], 0.9) == ["at chance"] * 3 + ["ok"] * 2
    assert outcomes([0.51, 0.52], 0.9) == ["at chance"] * 2
    assert outcomes([0.86, 0.5], 0.9) == ["ok", "at chance"]


def test_a_weak_run_among_weak_runs_has_not_failed() -> None:
    """Scores are above and below a tenth of the best gain (.54). The mean includes all of them."""
    weak = [0.525, 0.535, 0.53, 0.545, 0.55]
    assert outcomes(weak, 0.9) == ["ok"] * 5
    cell = by_name(answer([*(one("1", n, s) for n, s in enumerate(weak)), one("full", 0, 0.9)], 0.5))["1"]
    assert (cell.validation.n, cell.validation.mean) == (5, pytest.approx(np.mean(weak)))


def test_a_difference_that_the_sample_of_rows_explains_is_no_failure() -> None:
    """Four standard errors on 200 rows are .14. Without the number of rows, smaller differences count too."""
    near = [*(one("1", n, score) for n, score in enumerate((0.48, 0.555, 0.575))), one("full", 0, 0.53)]
    far = [one("1", 3, 0.42), *near]
    flat = [*(one("1", n, score) for n, score in enumerate((0.97, 0.97, 0.96, 0.30))), one("full", 0, 0.97)]
    lost = [one("1", 0, 0.52), one("1", 1, 0.51), one("full", 0, 0.80)]
    weak = [one("1", n, score, outcome="degenerate" if n else "ok") for n, score in enumerate((0.42, 0.43))]
    for rows, runs, failed in (
        (None, near, {"1-0"}),
        (200, near, set()),
        (None, far, {"1-0", "1-3"}),
        (200, far, {"1-3"}),
        (100, far, set()),
        (300, flat, {"1-3"}),
        (200, lost, {"1-0", "1-1"}),
        (40, lost, set()),
        (200, weak, {"1-1"}),  # a degenerate run has failed whatever its score
    ):
        evidence = Scores("accuracy", 0.95 if runs is flat else 0.5, rows=rows)
        found = with_outcomes(runs, evidence.chance, clear_distance(runs, evidence))
        assert {run.run for run in found if run.outcome != "ok"} == failed
        got = compare(runs, evidence, AnalysisSettings())
        assert got.clear_distance == (pytest.approx(2 / math.sqrt(rows)) if rows else 0)
        assert sum(cell.failures.failed for cell in got.cells) == len(failed)


def test_the_clear_distance_depends_on_the_fewest_rows_and_the_metric() -> None:
    class Folds(Scores):
        def texts_of(self, runs: Iterable[str]) -> int:
            return {"1-0": 64, "1-1": 100, "1-2": 16}[next(iter(runs))]

    runs = [one("1", 0, 0.8), one("1", 1, 0.7), one("1", 2, None), one("1", 3, 0.9, status="pending")]
    assert clear_distance(runs, Folds("accuracy", 0.5)) == 4 * 0.5 / 8
    assert clear_distance(runs, Folds("matthews_correlation", 0.0)) == 4 * 1.0 / 8
    assert clear_distance(runs, Folds("bleu", 0.0)) == clear_distance([], Folds("accuracy", 0.5)) == 0


def test_a_run_is_compared_with_runs_of_the_same_k_and_learning_rate() -> None:
    runs = [
        one("1", n, s, learning_rate=rate)
        for rate, base in ((1e-4, 0.8), (1e-3, 0.55))
        for n, s in enumerate([base] * 3)
    ]
    assert {run.outcome for run in with_outcomes([*runs, one("full", 0, 0.85)], 0.5)} == {"ok"}


def test_runs_not_above_the_baseline_are_counted_even_if_they_failed() -> None:
    runs = with_outcomes(
        [one(0, seed, score) for seed, score in enumerate((0.45, 0.5, 0.53))] + [one("full", 0, 0.9)], 0.5
    )
    weak = failures([run for run in runs if run.recipe.short != "full"])
    assert (weak.not_above_baseline, weak.at_chance, weak.runs) == (2, 3, 3)  # a cell that has not learned
    assert failures(with_outcomes([one(0, 0, 0.45)], None)).not_above_baseline is None


def test_a_mean_is_over_the_runs_that_succeeded_if_they_are_at_least_half() -> None:
    good, bad = (one(0, 0, score, outcome=outcome) for score, outcome in ((0.8, "ok"), (0.5, "collapsed")))
    assert succeeded([good, bad]) == [good]
    assert succeeded([good, bad, bad]) == [good, bad, bad]
