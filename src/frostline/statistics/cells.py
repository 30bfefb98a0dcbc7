"""The cells of a curve: the runs of each k, and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Difference, Point
from frostline.statistics.evidence import Evidence
from frostline.statistics.inference import DIFFERENCE, Pair, Summary, ratio, summarize
from frostline.statistics.outcomes import failures, near_the_best, scored, succeeded
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult


def by_depth(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The runs of each k by its printed name, in the order of :func:`frostline.statistics.tune.sort_key`.

    The runs of a k are sorted by train size, learning rate and seed, so the order of the table's rows does not matter.
    """
    cells: dict[str, list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: (Recipe(run.recipe).order, _order(run))):
        cells.setdefault(run.recipe, []).append(run)
    return cells


def _order(run: RunResult) -> tuple[Any, ...]:
    return run.train_size or 0, run.learning_rate or 0.0, isinstance(run.seed, str), run.seed


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
    """

    runs: Sequence[RunResult]
    ended: Sequence[RunResult]
    good: Sequence[RunResult]
    learning_rates: Sequence[float | None]


def summarize_cell(
    cell: CellRuns, evidence: Evidence, pair: Pair | None, learned: bool | None, pairing_gain: float | None
) -> Cell:
    """The summary of a cell and its comparison with full fine-tuning.

    Args:
        cell: Its runs.
        evidence: Their scores.
        pair: Its mean and that of full fine-tuning; None if one of them has no runs.
        learned: Whether full fine-tuning is significantly above the baseline; None: not tested.
        pairing_gain: See :func:`frostline.statistics.inference.pairing_gain`.
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
        tuned_share=_mean([run.tuned_share for run in ended]),
        learning_rate=runs[0].learning_rate,
        learning_rates_tried=[rate for rate in cell.learning_rates if rate is not None],
        runs=len(ended),
        failures=failures(ended),
        errors=sum(run.status == "failed" for run in runs),
        validation=evidence.summary(good),
        validation_with_failures=_summary([run.validation_best for run in scored(ended)]),
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
        pairing_gain=pairing_gain,
        trainable_parameters=ended[0].trainable_parameters if ended else None,
        seconds=_mean([run.train_seconds for run in timed]),
        concurrent_runs=concurrent,
        shared_seconds=_mean([run.cache_seconds for run in good]),
        peak_memory_bytes=_mean([run.peak_memory_bytes for run in good]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
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
