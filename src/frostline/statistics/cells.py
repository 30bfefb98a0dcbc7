"""The cells of a curve: the runs of each k, and their summary in plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.inference.pair import DIFFERENCE, Pair
from frostline.statistics.inference.ratio import ratio
from frostline.statistics.inference.summary import summarize
from frostline.statistics.outcomes import failures, near_the_best, scored, succeeded

FULL, NAMED = "all", "named"  # in ``trainable`` of results.csv


def by_depth(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each k by its printed name: k = 0 first, full fine-tuning last, then named parts, which have no k.

    Within a k the runs are in the order of train size, learning rate and seed, whatever the order of the table's rows.
    """
    cells: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (_depth(run), _order(run))):
        cells.setdefault(run["trainable"], []).append(run)
    return cells


def _order(run: Run) -> tuple[Any, ...]:
    return run["train_size"] or 0, run["learning_rate"] or 0.0, isinstance(run["seed"], str), run["seed"]


def _depth(run: Run) -> tuple[bool, bool, int]:
    return run["trainable"] == NAMED, run["trainable"] == FULL, run["tuned_layers"] or 0


def counted(runs: Sequence[Run], choices: Choices) -> list[Run]:
    """The finished runs that the means of a cell are taken over."""
    return succeeded(runs) if choices.failed_below is None else near_the_best(runs, choices.failed_below)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The runs of one k at the learning rate at which it is shown.

    Attributes:
        runs: All of the grid.
        ended: The finished ones, with their outcomes.
        good: Those that the means are taken over.
        learning_rates: All that were tried.
    """

    runs: Sequence[Run]
    ended: Sequence[Run]
    good: Sequence[Run]
    learning_rates: Sequence[float | None]


def describe(cell: Cell, evidence: Evidence, comparison: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in plain values, as in answer.json; ``comparison`` is what :func:`describe_comparison` returned."""
    runs, ended, good = cell.runs, cell.ended, cell.good
    in_means = {id(run) for run in good}
    return {
        "trainable": runs[0]["trainable"],
        **{name: next((run[name] for run in [*ended, *runs]), None) for name in ("tuned_layers", "tune_embeddings")},
        "learning_rate": runs[0]["learning_rate"],
        "learning_rates_tried": [rate for rate in cell.learning_rates if rate is not None],
        "runs": len(ended),
        "failures": failures(ended),
        "errors": sum(run["status"] == "failed" for run in runs),
        "validation": evidence.summary(good),
        "validation_with_failures": _summary("validation_best", scored(ended)),
        "validation_last": _summary("validation_last", good),
        "train_last": _summary("train_last", good),
        "points": [
            {
                **{name: run.get(name) for name in ("seed", "validation_best", "train_last", "outcome", "run")},
                "in_mean": id(run) in in_means,
            }
            for run in ended
        ],
        **comparison,
        **_costs(ended, good),
    }


def _costs(ended: Sequence[Run], good: Sequence[Run]) -> dict[str, Any]:
    """Parameters, mean times and memory of the runs in the means."""
    concurrent = max((run["abreast"] for run in good if run.get("abreast")), default=None)
    # The mean time is over the runs with the most workers side by side: a run alone uses all cores and takes longer.
    timed = [run for run in good if (run.get("abreast") or None) == concurrent]
    return {
        "trainable_parameters": next((run.get("trainable_parameters") for run in ended), None),
        "seconds": _mean("train_seconds", timed),
        "abreast": concurrent,
        "shared_seconds": _mean("cache_seconds", good),
        "peak_memory_bytes": _mean("peak_memory_bytes", good),
    }


def _mean(name: str, runs: Sequence[Run]) -> float | None:
    values = _values(name, runs)
    return float(np.mean(values)) if values else None


def _summary(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    return asdict(summarize(np.array(_values(name, runs), dtype=float)))


def _values(name: str, runs: Sequence[Run]) -> list[float]:
    return [run[name] for run in runs if run.get(name) is not None]


def describe_comparison(
    pair: Pair | None, chance: float | None, learned: bool | None, pairing_gain: float | None
) -> dict[str, Any]:
    """The comparison of a cell with full fine-tuning in plain values, as in answer.json.

    Args:
        pair: Both means and their errors; None if one side has no runs.
        chance: The score of the constant baseline; None: unknown.
        learned: Whether full fine-tuning is significantly above the baseline; None: not tested.
        pairing_gain: See :func:`frostline.statistics.inference.pair.pairing_gain`.
    """
    return {
        "share": asdict(ratio(pair)) if pair else None,
        "share_corrected": asdict(ratio(pair, chance, learned)) if pair and chance is not None else None,
        "difference": _difference(pair),
        "pairing_gain": pairing_gain,
    }


def _difference(pair: Pair | None) -> dict[str, Any] | None:
    """The cell less full fine-tuning: both means, interval, p-value, standard error and its degrees of freedom."""
    if pair is None:
        return None
    value, means = float(pair.means[0] - pair.means[1]), pair.means.tolist()
    _, error, freedom = pair.contrast(DIFFERENCE) if pair.runs > 1 else (value, np.nan, np.nan)
    if not np.isfinite(error):  # one seed, or a score that is undefined for some groups of rows
        return {"means": means, "estimate": value, **dict.fromkeys(("low", "high", "p", "error", "freedom"))}
    low, high = pair.interval(DIFFERENCE)
    return {
        **{"means": means, "estimate": value, "low": low, "high": high, "p": pair.p_value(DIFFERENCE)},
        **{"error": error, "freedom": freedom},
    }
