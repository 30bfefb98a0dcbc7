"""The learning rate that represents each k."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.outcomes import done, near_the_best, scored
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult


def runs_at_best_learning_rate(
    cells: Mapping[str, Sequence[RunResult]], chance: float | None, settings: AnalysisSettings
) -> dict[str, list[RunResult]]:
    """The runs of each k at the learning rate that represents it.

    By default that is the k's own best learning rate on validation. With ``one_learning_rate`` it is the best one of the largest
    k, if the k has runs with it. For a way that trains at a multiple of these learning rates, it is the same multiple of the best
    one. A learning rate that a search selected takes precedence over both.
    """
    best = {k: best_learning_rate(runs, chance, settings) for k, runs in cells.items()}
    largest = next((k for k in reversed(list(cells)) if Recipe(k).is_k), None)
    if settings.one_learning_rate and largest is not None:
        best |= {k: rate for k, runs in cells.items() if (rate := _alike(k, runs, cells[largest], best[largest]))}
    best |= {k: rate for k, rate in settings.learning_rates.items() if _has(cells.get(k, ()), rate)}
    return {k: [run for run in runs if run.learning_rate == best[k]] for k, runs in cells.items()}


def best_learning_rate(runs: Sequence[RunResult], chance: float | None, settings: AnalysisSettings) -> float | None:
    """The learning rate with the best mean score.

    The means are over the seeds that have finished at every learning rate. If these are fewer than half of the seeds of some
    learning rate, each mean is over all seeds. A diverged run counts with the baseline's score. Other failed runs count with
    their score, unless ``settings`` excludes them.
    """
    by_rate: dict[float | None, list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.learning_rate or 0.0):
        by_rate.setdefault(run.learning_rate, []).append(run)
    ended = {rate: finished for rate, some in by_rate.items() if (finished := done(some))}
    seeds = [{run.seed for run in some} for some in ended.values()]
    shared = set[Any].intersection(*seeds) if seeds else set()
    shared = shared if 2 * len(shared) >= max(map(len, seeds), default=0) else set()

    def mean(rate: float | None) -> float:
        compared = [run for run in ended.get(rate, ()) if run.seed in shared or not shared]
        if settings.failed_below is not None:
            compared = near_the_best(compared, settings.failed_below)
        good = {id(run) for run in scored(compared)}
        values = [run.score if id(run) in good else (chance or 0.0) for run in compared]
        return float(np.mean(values)) if values else -np.inf

    return max(by_rate, key=mean)


def _alike(k: str, runs: Sequence[RunResult], others: Sequence[RunResult], best: float | None) -> float | None:
    """The learning rate among those of ``runs`` that stands for the ``best`` one of ``others``; None if there is none."""
    ours, theirs = (sorted({run.learning_rate or 0.0 for run in some}) for some in (runs, others))
    if Recipe(k).is_way and best is not None and len(ours) == len(theirs) and all([*ours, *theirs]):
        factors = np.array(ours) / theirs
        if np.allclose(factors, factors[0]):
            return ours[theirs.index(best)]
    return best if _has(runs, best) else None


def _has(runs: Sequence[RunResult], learning_rate: float | None) -> bool:
    """Whether one of these runs has this learning rate."""
    return any(run.learning_rate == learning_rate for run in runs)
