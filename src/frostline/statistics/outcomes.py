"""Which runs failed, and how. A failed run is counted and shown; whether it is in a mean is said beside the mean.

- diverged: no score, since the loss was no longer finite;
- degenerate: it predicts the same for every row (only its predictions show that);
- at chance, collapsed: far below the other runs of its cell (by half of what the best run of its curve gains over guessing
  and by more than the rows explain, below the median of those that have learned at all), with less than a tenth of that
  gain, or with more. Where that gain is clear, a whole cell may be at chance.

A weak run among weak runs has not failed: leaving it out would flatter its cell (docs/statistics.md). How many runs are not
above guessing is counted apart, whether they failed or not.

A mean is of the runs that have a score and did not fail, where those are at least half of the cell. Where they are fewer
the cell as a whole has not learned, and every run that has a score is in the mean.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isfinite, sqrt
from statistics import median
from typing import Any

from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.intervals import failure_interval
from frostline.statistics.metrics import is_known, lowest

AT_CHANCE = 0.1  # of the gain of the best run
COLLAPSED = 0.5  # so much of it below the others
CLEAR = 4.0  # standard errors, as the rows leave an accuracy at most: what is farther apart is so by more than them
ROUNDING = 1e-9  # so that a score on the line falls on the same side of it wherever the scores begin
FAILURES = ("diverged", "degenerate", "at chance", "collapsed")
ANSWERS = ("ok", "at chance", "collapsed")  # a model that says different things of different rows, however badly


def done(runs: Iterable[Run]) -> list[Run]:
    """The runs that have ended."""
    return [run for run in runs if run["status"] == "done"]


def scored(runs: Iterable[Run]) -> list[Run]:
    """Those that have a score."""
    return [run for run in runs if run["validation_best"] is not None and isfinite(run["validation_best"])]


def clear_distance(runs: Iterable[Run], evidence: Evidence) -> float:
    """By how much two of the ``runs`` of a curve have to differ for it to be by more than the rows that they are scored on,
    about; 0 where nobody knows how many those are, or the metric."""
    rows = min((evidence.rows_of([run["run"]]) or 0 for run in scored(done(runs))), default=0)
    if not rows or not is_known(evidence.metric):
        return 0.0
    return CLEAR * (1 - lowest(evidence.metric)) / 2 / sqrt(rows)


def judged(runs: Sequence[Run], chance: float | None, clear: float = 0.0) -> list[dict[str, Any]]:
    """The runs of one curve, each with its ``outcome``: ok, one of ``FAILURES``, or None where it has not finished; and
    whether it is ``above_guessing``, None where that is not known. ``clear``: see :func:`clear_distance`."""
    ended = scored(done(runs))
    best = max((run["validation_best"] for run in ended), default=None)
    floor: float | None = None
    least: dict[Any, float] = {}
    if chance is not None and best is not None:
        gain = max(0.0, best - chance)
        floor = chance + AT_CHANCE * gain
        cells: dict[Any, list[float]] = {_cell(run): [] for run in ended}
        for run in ended:
            if run.get("outcome") not in ("diverged", "degenerate"):
                cells[_cell(run)].append(run["validation_best"])
        for cell, values in cells.items():
            others = [value for value in values if value > floor + ROUNDING] or ([] if gain >= clear else values)
            least[cell] = median(others) - max(COLLAPSED * gain, clear) if others else inf
    return [
        {
            **run,
            "outcome": _outcome(run, floor, least.get(_cell(run), -inf)) if run["status"] == "done" else None,
            "above_guessing": None if chance is None or not scored([run]) else run["validation_best"] > chance,
        }
        for run in runs
    ]


def _cell(run: Run) -> tuple[Any, Any]:
    return run["trainable"], run["learning_rate"]


def _outcome(run: Run, floor: float | None, least: float) -> str:
    if run.get("outcome") in ("diverged", "degenerate"):
        return str(run["outcome"])
    if not scored([run]):
        return "diverged"
    if floor is None or run["validation_best"] >= least - ROUNDING:
        return "ok"
    return "at chance" if run["validation_best"] <= floor + ROUNDING else "collapsed"


def succeeded(cell: Sequence[Run]) -> list[Run]:
    """The runs that a cell's means are of."""
    with_score = scored(cell)
    good = [run for run in with_score if run["outcome"] == "ok"]
    return good if 2 * len(good) >= len(with_score) else with_score


def near_the_best(cell: Sequence[Run], share: float) -> list[Run]:
    """The runs above ``share`` of the best of their cell, and not 0: how a paper may leave failures out; all, where that
    leaves none."""
    known = scored(cell)
    best = max((run["validation_best"] for run in known), default=0.0)
    return [run for run in known if run["validation_best"] != 0 and run["validation_best"] > share * best] or known


def failures(runs: Sequence[Run]) -> dict[str, Any]:
    """How many of these runs failed, each way, and the rate with Clopper and Pearson's interval; and how many are not above
    guessing, None where nobody knows what guessing scores."""
    counts = {name.replace(" ", "_"): sum(run["outcome"] == name for run in runs) for name in FAILURES}
    failed = sum(counts.values())
    known = [run["above_guessing"] for run in runs if run.get("above_guessing") is not None]
    return {
        **counts,
        **{"failed": failed, "runs": len(runs), "interval": _interval(failed, len(runs))},
        "not_above_guessing": known.count(False) if known else None,
    }


def failure_table(runs: Sequence[Run], by: Mapping[str, Callable[[Run], Any]]) -> list[dict[str, Any]]:
    """Failures of every group of runs, in the order of the groups; ``by`` gives the columns that make a group."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(column(run) for column in by.values()), []).append(run)
    return [{**dict(zip(by, group, strict=True)), **failures(groups[group])} for group in sorted(groups)]


def _interval(failed: int, runs: int) -> list[float] | None:
    return list(failure_interval(failed, runs)) if runs else None
