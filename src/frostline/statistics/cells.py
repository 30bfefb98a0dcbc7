"""The cells of a curve: the runs of each k, and their summary as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.inference import DIFFERENCE, Pair, ratio, summarize
from frostline.statistics.outcomes import failures, near_the_best, scored, succeeded
from frostline.statistics.recipe import Recipe

CellSummary = Mapping[str, Any]  # one of ``cells`` in answer.json, from :func:`describe`


def by_depth(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each k by its printed name, in the order of :func:`frostline.statistics.tune.sort_key`.

    The runs of a k are sorted by train size, learning rate and seed, so the order of the table's rows does not matter.
    """
    cells: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (Recipe(run["recipe"]).order, _order(run))):
        cells.setdefault(run["recipe"], []).append(run)
    return cells


def _order(run: Run) -> tuple[Any, ...]:
    return run["train_size"] or 0, run["learning_rate"] or 0.0, isinstance(run["seed"], str), run["seed"]


def counted(runs: Sequence[Run], settings: AnalysisSettings) -> list[Run]:
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

    runs: Sequence[Run]
    ended: Sequence[Run]
    good: Sequence[Run]
    learning_rates: Sequence[float | None]


def describe(cell: CellRuns, evidence: Evidence, comparison: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as plain values, as in answer.json; ``comparison`` comes from :func:`describe_comparison`."""
    runs, ended, good = cell.runs, cell.ended, cell.good
    in_means = {id(run) for run in good}
    return {
        "recipe": runs[0]["recipe"],
        **{name: next((run[name] for run in [*ended, *runs]), None) for name in ("tuned_layers", "tune_embeddings")},
        "tuned_share": _mean("tuned_share", ended),
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
    """The number of trainable parameters, and mean times and memory."""
    concurrent = max((run["concurrent_runs"] for run in good if run.get("concurrent_runs")), default=None)
    # Only runs with the same number of concurrent runs have comparable times: a run that is trained alone uses all cores.
    timed = [run for run in good if (run.get("concurrent_runs") or None) == concurrent]
    return {
        "trainable_parameters": next((run.get("trainable_parameters") for run in ended), None),
        "seconds": _mean("train_seconds", timed),
        "concurrent_runs": concurrent,
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
    """The comparison of a cell with full fine-tuning as plain values, as in answer.json.

    Args:
        pair: Both means and their errors; None if one of them has no runs.
        chance: The score of the constant baseline; None: unknown.
        learned: Whether full fine-tuning is significantly above the baseline; None: not tested.
        pairing_gain: See :func:`frostline.statistics.inference.pairing_gain`.
    """
    return {
        "share": asdict(ratio(pair)) if pair else None,
        "share_corrected": asdict(ratio(pair, chance, learned)) if pair and chance is not None else None,
        "difference": _difference(pair),
        "pairing_gain": pairing_gain,
    }


def _difference(pair: Pair | None) -> dict[str, Any] | None:
    """The cell's mean minus that of full fine-tuning, with its interval, p-value, standard error and degrees of freedom."""
    if pair is None:
        return None
    value, means = float(pair.means[0] - pair.means[1]), pair.means.tolist()
    _, error, degrees_of_freedom = pair.contrast(DIFFERENCE) if pair.runs > 1 else (value, np.nan, np.nan)
    if not np.isfinite(error):  # one seed, or a score that is undefined for some groups of rows
        return {"means": means, "estimate": value, **dict.fromkeys(("low", "high", "p", "error", "degrees_of_freedom"))}
    low, high = pair.interval(DIFFERENCE)
    return {
        **{"means": means, "estimate": value, "low": low, "high": high, "p": pair.p_value(DIFFERENCE)},
        **{"error": error, "degrees_of_freedom": degrees_of_freedom},
    }
