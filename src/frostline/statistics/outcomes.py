"""Which runs failed, and how. Reports count failed runs and show which runs each mean includes.

- diverged: no score, because the loss became infinite or NaN.
- degenerate: the same prediction for every row.
- collapsed: far below the other runs of its cell. The distance to the median of the runs above chance is more than half of the
  best gain over the baseline, and more than the sample of rows explains.
- at chance: as collapsed, and with less than a tenth of the best gain. If the best gain is clear, all runs of a cell may be at
  chance.

The best gain is that of the best run of the curve. A weak run among weak runs has not failed. Excluding it would make its cell
look better than it is. Runs that are not above the baseline are counted separately, whether they failed or not.

A mean includes the runs that have a score and did not fail, if they are at least half of those with a score. Otherwise the mean
includes every run with a score.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf, isfinite, sqrt
from statistics import median
from typing import Any

from frostline.statistics.answer import Failures
from frostline.statistics.evidence import Evidence
from frostline.statistics.inference import failure_interval
from frostline.statistics.metrics import METRICS
from frostline.statistics.run_result import RunResult

AT_CHANCE = 0.1  # a run with less than this share of the best gain is at chance
COLLAPSED = 0.5  # a collapsed run is at least this share of the best gain below the others
CLEAR = 4.0  # a larger distance, in the largest standard error of an accuracy on these rows, is not due to the sample of rows
ROUNDING = 1e-9  # tolerance for scores that are exactly on a threshold
FAILURES = ("diverged", "degenerate", "at chance", "collapsed")
ANSWERS = ("ok", "at chance", "collapsed")  # the predictions of these runs differ between rows


def done(runs: Iterable[RunResult]) -> list[RunResult]:
    """The finished runs."""
    return [run for run in runs if run.status == "done"]


def scored(runs: Iterable[RunResult]) -> list[RunResult]:
    """The runs that have a score."""
    return [run for run in runs if run.validation_best is not None and isfinite(run.validation_best)]


def clear_distance(runs: Iterable[RunResult], evidence: Evidence) -> float:
    """The approximate smallest difference between two runs of a curve that the sample of validation rows does not explain.

    0 if the number of rows or the metric is unknown.
    """
    rows = min((evidence.rows_of([run.run]) or 0 for run in scored(done(runs))), default=0)
    if not rows or evidence.metric not in METRICS:
        return 0.0
    return CLEAR * (1 - METRICS[evidence.metric].lowest) / 2 / sqrt(rows)


def with_outcomes(runs: Sequence[RunResult], chance: float | None, clear: float = 0.0) -> list[RunResult]:
    """The runs of one curve, each with its ``outcome`` and whether it is ``above_baseline``.

    Args:
        runs: Rows of the results table.
        chance: The score of the constant baseline; None: unknown.
        clear: See :func:`clear_distance`.

    Returns:
        The runs with ``outcome`` (``ok``, one of ``FAILURES``, or None if unfinished) and ``above_baseline`` (None: unknown).
    """
    floor, thresholds = _thresholds(runs, chance, clear)
    return [
        replace(
            run,
            outcome=_outcome(run, floor, thresholds.get(_cell(run), -inf)) if run.status == "done" else None,
            above_baseline=None if chance is None or not scored([run]) else run.score > chance,
        )
        for run in runs
    ]


def _thresholds(
    runs: Sequence[RunResult], chance: float | None, clear: float
) -> tuple[float | None, dict[tuple[Any, Any], float]]:
    """Two thresholds: a failed run up to the first score is at chance. A run below the second one, of its cell, has failed."""
    ended = scored(done(runs))
    if chance is None or not ended:
        return None, {}
    gain = max(0.0, max(run.score for run in ended) - chance)
    floor = chance + AT_CHANCE * gain
    cells: dict[tuple[Any, Any], list[float]] = {_cell(run): [] for run in ended}
    for run in ended:
        if run.outcome not in ("diverged", "degenerate"):
            cells[_cell(run)].append(run.score)
    thresholds = {}
    for cell, values in cells.items():
        others = [value for value in values if value > floor + ROUNDING] or ([] if gain >= clear else values)
        thresholds[cell] = median(others) - max(COLLAPSED * gain, clear) if others else inf
    return floor, thresholds


def _cell(run: RunResult) -> tuple[Any, Any]:
    return run.recipe, run.learning_rate


def _outcome(run: RunResult, floor: float | None, threshold: float) -> str:
    if run.outcome in ("diverged", "degenerate"):
        return run.outcome
    if not scored([run]):
        return "diverged"
    if floor is None or run.score >= threshold - ROUNDING:
        return "ok"
    return "at chance" if run.score <= floor + ROUNDING else "collapsed"


def succeeded(cell: Sequence[RunResult]) -> list[RunResult]:
    """The runs that a cell's means include."""
    with_score = scored(cell)
    good = [run for run in with_score if run.outcome == "ok"]
    return good if 2 * len(good) >= len(with_score) else with_score


def near_the_best(cell: Sequence[RunResult], share: float) -> list[RunResult]:
    """The runs that score more than ``share`` of the best run of their cell, and not 0; all runs with a score if there are none.

    Some papers exclude failed runs by this criterion.
    """
    known = scored(cell)
    best = max((run.score for run in known), default=0.0)
    return [run for run in known if run.score != 0 and run.score > share * best] or known


def failures(runs: Sequence[RunResult]) -> Failures:
    """The number of failed runs by kind, the interval of the failure rate, and the number of runs not above the baseline."""
    counts = {name.replace(" ", "_"): sum(run.outcome == name for run in runs) for name in FAILURES}
    failed = sum(counts.values())
    known = [run.above_baseline for run in runs if run.above_baseline is not None]
    return Failures(
        **counts,
        failed=failed,
        runs=len(runs),
        interval=failure_interval(failed, len(runs)) if runs else None,
        not_above_baseline=known.count(False) if known else None,
    )


def failure_table(runs: Sequence[RunResult], by: Mapping[str, Callable[[RunResult], Any]]) -> list[dict[str, Any]]:
    """The failures of each group of runs, sorted by group. ``by`` maps the columns that define a group to their values."""
    groups: dict[tuple[Any, ...], list[RunResult]] = {}
    for run in runs:
        groups.setdefault(tuple(column(run) for column in by.values()), []).append(run)
    return [{**dict(zip(by, group, strict=True)), **asdict(failures(groups[group]))} for group in sorted(groups)]
