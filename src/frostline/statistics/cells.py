"""The cells of a curve: which learning rate each k is shown at, and what its runs say."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.intervals import DIFFERENCE, Pair, Ratio, ratio, summarize
from frostline.statistics.outcomes import done, failures, near_the_best, scored, succeeded

FULL, NAMED = "all", "named"  # as the results table calls them
COSTS = ("seconds", "trainable_parameters", "peak_memory_bytes")


def by_depth(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each k by its printed name, the head alone first, full last; named parts, which are no step between
    the two, after them. Within a k by size, rate and seed, so that the order of a table's rows does not matter."""
    cells: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (_rank(run), _place(run))):
        cells.setdefault(run["trainable"], []).append(run)
    return cells


def _place(run: Run) -> tuple[Any, ...]:
    return run["train_size"] or 0, run["learning_rate"] or 0.0, isinstance(run["seed"], str), run["seed"]


def _rank(run: Run) -> tuple[bool, bool, int]:
    return run["trainable"] == NAMED, run["trainable"] == FULL, run["tuned_layers"] or 0


def at_rate(cells: Mapping[str, Sequence[Run]], chance: float | None, choices: Choices) -> dict[str, list[Run]]:
    """The runs of each k at the learning rate it is shown at: its best on validation, or by choice the best of full, where it
    has runs at that, or the one at which a search compared it."""
    best = {k: best_rate(runs, chance, choices) for k, runs in cells.items()}
    deepest = next((k for k in reversed(list(cells)) if k != NAMED), None)
    if choices.one_rate and deepest is not None:
        best |= {
            k: best[deepest] for k, runs in cells.items() if any(r["learning_rate"] == best[deepest] for r in runs)
        }
    best |= {k: rate for k, rate in choices.rates.items() if any(r["learning_rate"] == rate for r in cells.get(k, ()))}
    return {k: [run for run in runs if run["learning_rate"] == best[k]] for k, runs in cells.items()}


def best_rate(runs: Sequence[Run], chance: float | None, choices: Choices) -> float | None:
    """The learning rate with the best mean, over the seeds that have ended at every rate where these are at least half of the
    most that one has; a run that diverged counts as guessing, and all failures count, unless they are left out by choice."""
    by_rate: dict[float | None, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run["learning_rate"] or 0.0):
        by_rate.setdefault(run["learning_rate"], []).append(run)
    ended = {rate: some for rate, all_of_it in by_rate.items() if (some := done(all_of_it))}
    seeds = [{run["seed"] for run in some} for some in ended.values()]
    shared = set[Any].intersection(*seeds) if seeds else set()
    shared = shared if 2 * len(shared) >= max(map(len, seeds), default=0) else set()

    def mean(rate: float | None) -> float:
        alike = [run for run in ended.get(rate, ()) if run["seed"] in shared or not shared]
        if choices.failed_below is not None:
            alike = near_the_best(alike, choices.failed_below)
        good = {id(run) for run in scored(alike)}
        values = [run["validation_best"] if id(run) in good else (chance or 0.0) for run in alike]
        return float(np.mean(values)) if values else -np.inf

    return max(by_rate, key=mean)


def counted(runs: Sequence[Run], choices: Choices) -> list[Run]:
    """The finished runs that the means of a cell are of."""
    return succeeded(runs) if choices.failed_below is None else near_the_best(runs, choices.failed_below)


def describe(
    runs: Sequence[Run],
    ended: Sequence[Run],
    good: Sequence[Run],
    rates: Sequence[float | None],
    evidence: Evidence,
    both: Pair | None,
    gain: float | None,
    learned: bool | None,
) -> dict[str, Any]:
    """A cell in plain values: ``runs`` of the grid, ``ended`` with their outcomes, ``good`` those in the means.

    ``both``: its comparison with full; ``gain``: what pairing gave; ``learned``: whether full is surely above guessing, None
    where nobody can tell.
    """

    in_means = {id(run) for run in good}
    together = max((run["abreast"] for run in good if run.get("abreast")), default=None)
    alike = [run for run in good if (run.get("abreast") or None) == together]  # one by itself takes more of the clock

    def mean(name: str, some: Sequence[Run] = good) -> float | None:
        values = [run[name] for run in some if run.get(name) is not None]
        return float(np.mean(values)) if values else None

    def summary(name: str, some: Sequence[Run]) -> dict[str, Any]:
        return asdict(summarize(np.array([run[name] for run in some if run.get(name) is not None], dtype=float)))

    return {
        "trainable": runs[0]["trainable"],
        **{name: next((run[name] for run in [*ended, *runs]), None) for name in ("tuned_layers", "tune_embeddings")},
        "learning_rate": runs[0]["learning_rate"],
        "learning_rates_tried": [rate for rate in rates if rate is not None],
        "runs": len(ended),
        "failures": failures(ended),
        "errors": sum(run["status"] == "failed" for run in runs),
        "validation": evidence.summary(good),
        "validation_with_failures": summary("validation_best", scored(ended)),
        "validation_last": summary("validation_last", good),
        "train_last": summary("train_last", good),
        "points": [
            {
                **{name: run.get(name) for name in ("seed", "validation_best", "train_last", "outcome", "run")},
                "in_mean": id(run) in in_means,
            }
            for run in ended
        ],
        "share": _plain(ratio(both)) if both else None,
        "share_corrected": _plain(ratio(both, evidence.chance, learned))
        if both and evidence.chance is not None
        else None,
        "difference": _difference(both),
        "pairing_gain": gain,
        "trainable_parameters": next((run.get("trainable_parameters") for run in ended), None),
        "seconds": mean("train_seconds", alike),
        "abreast": together,
        "shared_seconds": mean("cache_seconds"),
        "peak_memory_bytes": mean("peak_memory_bytes"),
    }


def _plain(share: Ratio) -> dict[str, float | None]:
    return asdict(share)


def _difference(both: Pair | None) -> dict[str, float | None] | None:
    """The cell less full, both over the runs that are compared: means, interval, p-value, standard error and its degrees of
    freedom."""
    if both is None:
        return None
    value, means = float(both.means[0] - both.means[1]), both.means.tolist()
    _, error, freedom = both.contrast(DIFFERENCE) if both.runs > 1 else (value, np.nan, np.nan)
    if not np.isfinite(error):  # one seed, or a score that is not defined for some of the rows
        return {"means": means, "estimate": value, **dict.fromkeys(("low", "high", "p", "error", "freedom"))}
    low, high = both.interval(DIFFERENCE)
    return {
        **{"means": means, "estimate": value, "low": low, "high": high, "p": both.p_value(DIFFERENCE)},
        **{"error": error, "freedom": freedom},
    }
