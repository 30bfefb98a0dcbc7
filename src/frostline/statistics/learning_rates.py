"""The learning rate at which each k is shown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from frostline.statistics.cells import NAMED
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Run
from frostline.statistics.outcomes import done, near_the_best, scored


def at_shown_rates(cells: Mapping[str, Sequence[Run]], chance: float | None, choices: Choices) -> dict[str, list[Run]]:
    """The runs of each k at the learning rate at which it is shown.

    That is the best of this k on validation, or by choice the best of the largest k, if this k has runs with it. A learning
    rate at which a search compared this k comes before both.
    """
    best = {k: best_learning_rate(runs, chance, choices) for k, runs in cells.items()}
    deepest = next((k for k in reversed(list(cells)) if k != NAMED), None)
    if choices.one_rate and deepest is not None:
        best |= {
            k: best[deepest] for k, runs in cells.items() if any(r["learning_rate"] == best[deepest] for r in runs)
        }
    best |= {k: rate for k, rate in choices.rates.items() if any(r["learning_rate"] == rate for r in cells.get(k, ()))}
    return {k: [run for run in runs if run["learning_rate"] == best[k]] for k, runs in cells.items()}


def best_learning_rate(runs: Sequence[Run], chance: float | None, choices: Choices) -> float | None:
    """The learning rate with the best mean score.

    The means are over the seeds that have finished at every learning rate, if these are at least half of the most that one
    has. A diverged run counts as the baseline's score. Other failed runs count too, unless ``choices`` excludes them.
    """
    by_rate: dict[float | None, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run["learning_rate"] or 0.0):
        by_rate.setdefault(run["learning_rate"], []).append(run)
    ended = {rate: finished for rate, some in by_rate.items() if (finished := done(some))}
    seeds = [{run["seed"] for run in some} for some in ended.values()]
    shared = set[Any].intersection(*seeds) if seeds else set()
    shared = shared if 2 * len(shared) >= max(map(len, seeds), default=0) else set()

    def mean(rate: float | None) -> float:
        compared = [run for run in ended.get(rate, ()) if run["seed"] in shared or not shared]
        if choices.failed_below is not None:
            compared = near_the_best(compared, choices.failed_below)
        good = {id(run) for run in scored(compared)}
        values = [run["validation_best"] if id(run) in good else (chance or 0.0) for run in compared]
        return float(np.mean(values)) if values else -np.inf

    return max(by_rate, key=mean)
