"""The cells of a curve: which runs count, the learning rate that represents each k, and their summary.

- diverged: no score, because the loss became infinite or NaN.
- degenerate: the same prediction for every row.
- collapsed: far below the other runs of its cell. The distance to the median of the runs above chance is more than half of the
  best gain over the baseline, and more than the sample of rows explains.
- at chance: as collapsed, and with less than a tenth of the best gain. If the best gain is clear, all runs of a cell may be at
  chance.
- undefined: no score, because the metric is not defined on the rows of the run, such as equal numbers. That is no failure.

The best gain is that of the best run of the curve. A weak run among weak runs has not failed. Excluding it would make its cell
look better than it is. Runs that are not above the baseline are counted separately, whether they failed or not.

A mean includes the runs that have a score and did not fail, if they are at least half of those with a score. Otherwise the mean
includes every run with a score.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from statistics import median
from typing import Any

import numpy as np

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Difference, Failures, Point, Rate, SizeAnswer
from frostline.statistics.inference import DIFFERENCE, Pair, Summary, failure_interval, ratio, summarize
from frostline.statistics.metrics import METRICS
from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult

AT_CHANCE = 0.1  # a run with less than this share of the best gain is at chance
COLLAPSED = 0.5  # a collapsed run is at least this share of the best gain below the others
CLEAR = 4.0  # a larger distance, in the largest standard error of an accuracy on these rows, is not due to the sample of rows
ROUNDING = 1e-9  # tolerance for scores that are exactly on a threshold
FAILURES = ("diverged", "degenerate", "at chance", "collapsed")
UNDEFINED = "undefined"
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
    texts = min((evidence.texts_of([run.run]) or 0 for run in scored(done(runs))), default=0)
    if not texts or evidence.metric not in METRICS:
        return 0.0
    return CLEAR * (1 - METRICS[evidence.metric].lowest) / 2 / sqrt(texts)


def with_outcomes(runs: Sequence[RunResult], chance: float | None, clear: float = 0.0) -> list[RunResult]:
    """The runs of one curve, each with its ``outcome`` and whether it is ``above_baseline``.

    Args:
        runs: Rows of the results table.
        chance: The score of the constant baseline; None: unknown.
        clear: See :func:`clear_distance`.

    Returns:
        The runs with ``outcome`` (``ok``, ``UNDEFINED``, one of ``FAILURES``, or None if unfinished) and ``above_baseline``
        (None: unknown).
    """
    floor, thresholds = _thresholds(runs, chance, clear)
    return [
        replace(
            run,
            outcome=_outcome(run, floor, thresholds.get(_cell_of(run), -inf)) if run.status == "done" else None,
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
    cells: dict[tuple[Any, Any], list[float]] = {_cell_of(run): [] for run in ended}
    for run in ended:
        if run.outcome not in ("diverged", "degenerate"):
            cells[_cell_of(run)].append(run.score)
    thresholds = {}
    for cell, values in cells.items():
        others = [value for value in values if value > floor + ROUNDING] or ([] if gain >= clear else values)
        thresholds[cell] = median(others) - max(COLLAPSED * gain, clear) if others else inf
    return floor, thresholds


def _cell_of(run: RunResult) -> tuple[Any, Any]:
    return run.recipe, run.learning_rate


def _outcome(run: RunResult, floor: float | None, threshold: float) -> str:
    if run.outcome in ("diverged", "degenerate"):
        return run.outcome
    if not scored([run]):
        return UNDEFINED if run.outcome == "ok" else "diverged"
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
        undefined=sum(run.outcome == UNDEFINED for run in runs),
        runs=len(runs),
        interval=failure_interval(failed, len(runs)) if runs else None,
        not_above_baseline=known.count(False) if known else None,
    )


def outcomes_at_each_size(
    runs: Sequence[RunResult], curves: Sequence[SizeAnswer], chance: float | None
) -> list[RunResult]:
    """The runs of all train sizes with their outcomes. An outcome depends on the other runs of the same size."""
    return [
        run
        for curve in curves
        for run in with_outcomes(
            [run for run in runs if run.train_size == curve.train_size], chance, curve.clear_distance
        )
    ]


def failures_by_rate(runs: Sequence[RunResult], settings: AnalysisSettings) -> list[Rate]:
    """The runs that have ended at each learning rate, the largest train size first."""
    groups: dict[tuple[int | None, Recipe, float | None], list[RunResult]] = {}
    for run in runs:
        if run.status in ("done", "failed"):
            groups.setdefault((run.train_size, run.recipe, run.learning_rate), []).append(run)
    order = sorted(groups, key=lambda key: (-(key[0] or 0), key[1].order, key[2] or 0.0))
    return [
        Rate(
            train_size=size,
            recipe=recipe,
            learning_rate=rate,
            failures=failures(ended := done(groups[size, recipe, rate])),
            errors=len(groups[size, recipe, rate]) - len(ended),
            mean=_mean_of([run.validation_best for run in counted(ended, settings)]),
            mean_with_failures=_mean_of([run.validation_best for run in scored(ended)]),
        )
        for size, recipe, rate in order
    ]


def runs_at_best_learning_rate(
    cells: Mapping[Recipe, Sequence[RunResult]],
    chance: float | None,
    settings: AnalysisSettings,
    selected: Mapping[Recipe, float],
) -> dict[Recipe, list[RunResult]]:
    """The runs of each k at the learning rate that represents it.

    By default that is the k's own best learning rate on validation. With ``one_learning_rate`` it is the best one of the largest
    k, if the k has runs with it. For a way that trains at a multiple of these learning rates, it is the same multiple of the best
    one. A learning rate that a search ``selected`` takes precedence over both.
    """
    best = {k: best_learning_rate(runs, chance, settings) for k, runs in cells.items()}
    largest = next((k for k in reversed(list(cells)) if k.is_k), None)
    if settings.one_learning_rate and largest is not None:
        best |= {k: rate for k, runs in cells.items() if (rate := _alike(k, runs, cells[largest], best[largest]))}
    best |= {k: rate for k, rate in selected.items() if _has(cells.get(k, ()), rate)}
    return {k: [run for run in runs if run.learning_rate == best[k]] for k, runs in cells.items()}


def best_learning_rate(runs: Sequence[RunResult], chance: float | None, settings: AnalysisSettings) -> float | None:
    """The learning rate with the best mean score.

    The means are over the seeds that have finished at every learning rate. If these are fewer than half of the seeds of some
    learning rate, each mean is over all seeds. A diverged run counts with the baseline's score, or with the lowest one of these
    runs if that is below it. Other failed runs count with their score, unless ``settings`` excludes them. A learning rate at
    which all runs diverged or are degenerate comes last. Of equal means, that with most runs that did not fail is the best.
    """
    by_rate: dict[float | None, list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.learning_rate or 0.0):
        by_rate.setdefault(run.learning_rate, []).append(run)
    ended = {rate: finished for rate, some in by_rate.items() if (finished := done(some))}
    seeds = [{run.seed for run in some} for some in ended.values()]
    shared = set[Any].intersection(*seeds) if seeds else set()
    shared = shared if 2 * len(shared) >= max(map(len, seeds), default=0) else set()
    least = min([chance or 0.0, *(run.score for run in scored(done(runs)))])

    def mean(rate: float | None) -> float:
        compared = [run for run in ended.get(rate, ()) if run.seed in shared or not shared]
        if settings.failed_below is not None:
            compared = near_the_best(compared, settings.failed_below)
        good = {id(run) for run in scored(compared)}
        values = [run.score if id(run) in good else least for run in compared]
        return float(np.mean(values)) if values else -np.inf

    def worth(rate: float | None) -> tuple[bool, float, int]:
        outcomes = [run.outcome for run in by_rate[rate]]
        return any(one in ANSWERS for one in outcomes), mean(rate), outcomes.count("ok")

    return max(by_rate, key=worth)


def _alike(k: Recipe, runs: Sequence[RunResult], others: Sequence[RunResult], best: float | None) -> float | None:
    """The learning rate among those of ``runs`` that stands for the ``best`` one of ``others``; None if there is none."""
    ours, theirs = (sorted({run.learning_rate or 0.0 for run in some}) for some in (runs, others))
    if k.is_way and best is not None and len(ours) == len(theirs) and all([*ours, *theirs]):
        factors = np.array(ours) / theirs
        if np.allclose(factors, factors[0]):
            return ours[theirs.index(best)]
    return best if _has(runs, best) else None


def _has(runs: Sequence[RunResult], learning_rate: float | None) -> bool:
    """Whether one of these runs has this learning rate."""
    return any(run.learning_rate == learning_rate for run in runs)


def by_depth(runs: Sequence[RunResult]) -> dict[Recipe, list[RunResult]]:
    """The runs of each k, in the order of :attr:`frostline.statistics.recipe.Recipe.order`.

    The runs of a k are sorted by train size, learning rate and seed, so the order of the table's rows does not matter.
    """

    def order(run: RunResult) -> tuple[Any, ...]:
        size, rate = run.train_size or 0, run.learning_rate or 0.0
        return run.recipe.order, size, rate, isinstance(run.seed, str), run.seed

    cells: dict[Recipe, list[RunResult]] = {}
    for run in sorted(runs, key=order):
        cells.setdefault(run.recipe, []).append(run)
    return cells


def counted(runs: Sequence[RunResult], settings: AnalysisSettings) -> list[RunResult]:
    """The finished runs that a cell's means include."""
    return succeeded(runs) if settings.failed_below is None else near_the_best(runs, settings.failed_below)


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """The runs of one k at the learning rate that represents it.

    Attributes:
        runs: All runs of the grid.
        ended: The finished runs, with their outcomes.
        good: The runs that the means include.
        learning_rates: Every learning rate that was tried for this k.
        at_other_rates: The runs that the means of the other ones would include.
    """

    runs: Sequence[RunResult]
    ended: Sequence[RunResult]
    good: Sequence[RunResult]
    learning_rates: Sequence[float | None]
    at_other_rates: Sequence[RunResult] = ()


def summarize_cell(cell: CellRuns, evidence: Evidence, pair: Pair | None, learned: bool | None) -> Cell:
    """The summary of a cell and its comparison with full fine-tuning.

    Args:
        cell: Its runs.
        evidence: Their scores.
        pair: Its mean and that of full fine-tuning; None if one of them has no runs.
        learned: Whether full fine-tuning is significantly above the baseline; None: not tested.
    """
    runs, ended, good = cell.runs, cell.ended, cell.good
    in_means, chance = {id(run) for run in good}, evidence.chance
    known = (ended or runs)[0]
    concurrent = max((run.concurrent_runs for run in good if run.concurrent_runs), default=None)
    # Only runs with the same number of concurrent runs have comparable times: a run that is trained alone uses all cores.
    timed = [run for run in good if (run.concurrent_runs or None) == concurrent]
    return Cell(
        recipe=runs[0].recipe,
        tuned_layers=known.tuned_layers,
        tune_embeddings=known.tune_embeddings,
        tuned_share=_mean_of([run.tuned_share for run in ended]),
        learning_rate=runs[0].learning_rate,
        num_train_epochs=runs[0].num_train_epochs,
        learning_rates_tried=[rate for rate in cell.learning_rates if rate is not None],
        validation_rows=evidence.rows_of(run.run for run in good),
        runs=len(ended),
        failures=failures(ended),
        errors=sum(run.status == "failed" for run in runs),
        validation=evidence.summary(good),
        validation_last=_summary([run.validation_last for run in good]),
        train_last=_summary([run.train_last for run in good]),
        points=[
            Point(
                seed=run.seed,
                validation_best=run.validation_best,
                train_last=run.train_last,
                outcome=run.outcome,
                run=run.run,
                in_mean=id(run) in in_means,
            )
            for run in ended
        ],
        share=ratio(pair) if pair else None,
        share_corrected=ratio(pair, chance, learned) if pair and chance is not None else None,
        difference=_difference(pair) if pair else None,
        trainable_parameters=ended[0].trainable_parameters if ended else None,
        seconds=_mean_of([run.train_seconds for run in timed]),
        concurrent_runs=concurrent,
        shared_seconds=_mean_of([run.cache_seconds for run in good]),
        peak_memory_bytes=_mean_of([run.peak_memory_bytes for run in good]),
    )


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _summary(values: Sequence[float | None]) -> Summary:
    return summarize(np.array([value for value in values if value is not None], dtype=float))


def _difference(pair: Pair) -> Difference:
    """The cell's mean minus that of full fine-tuning."""
    ours, theirs = pair.means.tolist()
    value = float(pair.means[0] - pair.means[1])
    _, error, degrees_of_freedom = pair.contrast(DIFFERENCE) if pair.runs > 1 else (value, np.nan, np.nan)
    if not np.isfinite(error):  # one seed, or a score that is undefined for some groups of rows
        return Difference(means=(ours, theirs), estimate=value)
    low, high = pair.interval(DIFFERENCE)
    return Difference(
        means=(ours, theirs),
        estimate=value,
        low=low,
        high=high,
        p=pair.p_value(DIFFERENCE),
        error=error,
        degrees_of_freedom=degrees_of_freedom,
    )
