"""Several tasks of one model: ranks, the worst task, and the smallest k that reaches the target in every task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from frostline.data.parsing import normalized_name
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.curve import Curve
from frostline.statistics.tune import FULL, is_k

Share = Mapping[str, Any] | None  # of full fine-tuning's score or gain: estimate, low, high
Shares = Mapping[str, Mapping[str, Share]]  # task -> k -> share


def across_tasks(curves: Sequence[Curve], settings: AnalysisSettings) -> dict[str, Any] | None:
    """Each k over all tasks of a model; None for fewer than two tasks or two k.

    Args:
        curves: Each with its ``task``.
        settings: Targets, tasks to leave out, and whether shares are of the gain.

    Returns:
        A dictionary with these keys:

        - ``rows``: for each k that every task has, its mean rank (1 is best, ties share), its mean share of full fine-tuning,
          its worst share and the task of that;
        - ``points``: the smallest k that reaches each target in every task that counts;
        - ``left_out``: tasks excluded by choice;
        - ``undefined``: tasks in which full fine-tuning is not significantly above the baseline. Shares of its gain have no
          meaning there, so these tasks do not count;
        - ``raw``: tasks whose baseline is unknown. Their shares are of the score.
    """
    tasks = {curve["task"]: curve for curve in curves if curve["reference"] == FULL}
    if len(tasks) < 2:
        return None
    cells = {task: {cell["trainable"]: cell for cell in curve["cells"]} for task, curve in tasks.items()}
    first = next(iter(cells.values()))
    names = [k for k in first if is_k(k) and all(_mean(some, k) is not None for some in cells.values())]
    if len(names) < 2:
        return None
    ranks = {
        task: dict(zip(names, stats.rankdata([-(_mean(some, k) or 0.0) for k in names]), strict=True))
        for task, some in cells.items()
    }
    left_out = [
        task for task in tasks if normalized_name(task) in {normalized_name(name) for name in settings.leave_out}
    ]
    raw = [task for task, some in cells.items() if settings.corrected and some[FULL]["share_corrected"] is None]
    shares = {
        task: {
            k: cell["share_corrected" if settings.corrected and task not in raw else "share"]
            for k, cell in some.items()
        }
        for task, some in cells.items()
    }
    undefined = [task for task, some in shares.items() if _estimate(some[FULL]) is None]
    counting = [task for task in tasks if task not in (*left_out, *undefined)]
    return {
        "tasks": list(tasks),
        "left_out": left_out,
        "undefined": [task for task in undefined if task not in left_out],
        "raw": [task for task in raw if task in counting],
        "rows": [_row(k, first[k]["tuned_layers"], shares, counting, ranks) for k in names],
        "points": [_operating_point(names, shares, counting, target) for target in settings.targets],
    }


def _mean(cells: Mapping[str, Any], k: str) -> float | None:
    value: float | None = cells[k]["comparable"] if k in cells else None
    return value


def _estimate(share: Share) -> float | None:
    return None if share is None else share["estimate"]


def _row(
    k: str, layers: int, shares: Shares, counting: Sequence[str], ranks: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    known = {task: value for task in counting if (value := _estimate(shares[task][k])) is not None}
    worst = min(known, key=lambda task: known[task], default=None)
    return {
        "trainable": k,
        "tuned_layers": layers,
        "mean_rank": float(np.mean([ranks[task][k] for task in counting])) if counting else None,
        "mean_share": float(np.mean(list(known.values()))) if known else None,
        "worst_share": None if worst is None else known[worst],
        "worst_task": worst,
        "tasks": len(known),
    }


def _operating_point(names: Sequence[str], shares: Shares, counting: Sequence[str], target: float) -> dict[str, Any]:
    """The smallest k that reaches the target in every task: by its means, with 95 % confidence, or not ruled out."""

    def reaches(k: str, end: str, unknown: bool) -> bool:
        values = [None if share is None else share[end] for share in (shares[task][k] for task in counting)]
        return bool(values) and all(unknown if value is None else value >= target for value in values)

    estimate, confident, not_ruled_out = (
        next((k for k in names if k == FULL or reaches(k, end, unknown)), None)
        for end, unknown in (("estimate", False), ("low", False), ("high", True))
    )
    return {"target": target, "estimate": estimate, "confident": confident, "not_ruled_out": not_ruled_out}
