"""Which runs failed, and how. Failed runs are counted and shown; the report says which of them are in a mean.

- diverged: no score, because the loss became infinite or NaN.
- degenerate: it predicts the same for every row.
- collapsed: far below the other runs of its cell. That means below the median of those that learned anything by half of the
  best gain over the baseline, and by more than the rows explain.
- at chance: as collapsed, with less than a tenth of that gain. If the gain is clear, a whole cell may be at chance.

The best gain is that of the best run of the curve. A weak run among weak runs has not failed: excluding it would flatter its
cell. Runs that are not above the baseline are counted apart, whether they failed or not.

A mean is taken over the runs that have a score and did not fail, if they are at least half of the cell. Otherwise the cell as
a whole has not learned, and the mean is taken over every run that has a score.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isfinite, sqrt
from statistics import median
from typing import Any

from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.inference.intervals import failure_interval
from frostline.statistics.metrics import METRICS

AT_CHANCE = 0.1  # share of the best gain
COLLAPSED = 0.5  # share of the best gain that a collapsed run lies below the others
CLEAR = 4.0  # standard errors of an accuracy on these rows, at most: a larger difference is not due to the rows
ROUNDING = 1e-9  # a score on a threshold is classified the same wherever the scores begin
FAILURES = ("diverged", "degenerate", "at chance", "collapsed")
ANSWERS = ("ok", "at chance", "collapsed")  # the predictions of these runs differ between rows


def done(runs: Iterable[Run]) -> list[Run]:
    """The finished runs."""
    return [run for run in runs if run["status"] == "done"]


def scored(runs: Iterable[Run]) -> list[Run]:
    """The runs that have a score."""
    return [run for run in runs if run["validation_best"] is not None and isfinite(run["validation_best"])]


def clear_distance(runs: Iterable[Run], evidence: Evidence) -> float:
    """The approximate difference between two runs of a curve that is more than their validation rows can cause.

    0 if the number of rows or the metric is unknown.
    """
    rows = min((evidence.rows_of([run["run"]]) or 0 for run in scored(done(runs))), default=0)
    if not rows or evidence.metric not in METRICS:
        return 0.0
    return CLEAR * (1 - METRICS[evidence.metric].lowest) / 2 / sqrt(rows)


def with_outcomes(runs: Sequence[Run], chance: float | None, clear: float = 0.0) -> list[dict[str, Any]]:
    """The runs of one curve, each with its ``outcome`` and whether it is ``above_baseline``.

    Args:
        runs: Rows of the results table.
        chance: The score of the constant baseline; None: unknown.
        clear: See :func:`clear_distance`.

    Returns:
        Rows with ``outcome`` (``ok``, one of ``FAILURES``, or None if unfinished) and ``above_baseline`` (None: unknown).
    """
    floor, thresholds = _thresholds(runs, chance, clear)
    return [
        {
            **run,
            "outcome": _outcome(run, floor, thresholds.get(_cell(run), -inf)) if run["status"] == "done" else None,
            "above_baseline": None if chance is None or not scored([run]) else run["validation_best"] > chance,
        }
        for run in runs
    ]


def _thresholds(
    runs: Sequence[Run], chance: float | None, clear: float
) -> tuple[float | None, dict[tuple[Any, Any], float]]:
    """The score up to which a failed run is at chance, and for each cell the score below which a run has failed."""
    ended = scored(done(runs))
    if chance is None or not ended:
        return None, {}
    gain = max(0.0, max(run["validation_best"] for run in ended) - chance)
    floor = chance + AT_CHANCE * gain
    cells: dict[tuple[Any, Any], list[float]] = {_cell(run): [] for run in ended}
    for run in ended:
        if run.get("outcome") not in ("diverged", "degenerate"):
            cells[_cell(run)].append(run["validation_best"])
    thresholds = {}
    for cell, values in cells.items():
        others = [value for value in values if value > floor + ROUNDING] or ([] if gain >= clear else values)
        thresholds[cell] = median(others) - max(COLLAPSED * gain, clear) if others else inf
    return floor, thresholds


def _cell(run: Run) -> tuple[Any, Any]:
    return run["trainable"], run["learning_rate"]


def _outcome(run: Run, floor: float | None, threshold: float) -> str:
    if run.get("outcome") in ("diverged", "degenerate"):
        return str(run["outcome"])
    if not scored([run]):
        return "diverged"
    if floor is None or run["validation_best"] >= threshold - ROUNDING:
        return "ok"
    return "at chance" if run["validation_best"] <= floor + ROUNDING else "collapsed"


def succeeded(cell: Sequence[Run]) -> list[Run]:
    """The runs that a cell's means are taken over."""
    with_score = scored(cell)
    good = [run for run in with_score if run["outcome"] == "ok"]
    return good if 2 * len(good) >= len(with_score) else with_score


def near_the_best(cell: Sequence[Run], share: float) -> list[Run]:
    """The runs that score more than ``share`` of the best of their cell, and not 0; all if there are none.

    Some papers exclude failed runs by this criterion.
    """
    known = scored(cell)
    best = max((run["validation_best"] for run in known), default=0.0)
    return [run for run in known if run["validation_best"] != 0 and run["validation_best"] > share * best] or known


def failures(runs: Sequence[Run]) -> dict[str, Any]:
    """How many of these runs failed in each way, the interval of the failure rate, and how many do not beat the baseline."""
    counts = {name.replace(" ", "_"): sum(run["outcome"] == name for run in runs) for name in FAILURES}
    failed = sum(counts.values())
    known = [run["above_baseline"] for run in runs if run.get("above_baseline") is not None]
    return {
        **counts,
        **{"failed": failed, "runs": len(runs)},
        "interval": list(failure_interval(failed, len(runs))) if runs else None,
        "not_above_guessing": known.count(False) if known else None,
    }


def failure_table(runs: Sequence[Run], by: Mapping[str, Callable[[Run], Any]]) -> list[dict[str, Any]]:
    """Failures of every group of runs, in the order of the groups; ``by`` gives the columns that define a group."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(column(run) for column in by.values()), []).append(run)
    return [{**dict(zip(by, group, strict=True)), **failures(groups[group])} for group in sorted(groups)]
