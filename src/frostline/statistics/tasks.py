"""Several tasks of one model: ranks, the worst case, and the number of layers that is enough for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from frostline.data.folding import plain
from frostline.statistics.cells import FULL, NAMED
from frostline.statistics.choices import Choices

Curve = Mapping[str, Any]  # what ``compare`` gives, with its ``task``
Share = Mapping[str, Any] | None  # of full's score or gain: estimate, low, high


def over_tasks(curves: Sequence[Curve], choices: Choices) -> dict[str, Any] | None:
    """What each k does over all tasks; None for fewer than two tasks or values of k. Never the best of a chosen few.

    ``undefined``: tasks in which full is not surely above guessing, so that no share of its gain has a meaning; they count
    nowhere. ``raw``: tasks of which nobody says what guessing scores, where shares are of full's score. ``rows``: for each k
    that every task has, its mean rank (1 is best, ties share), its mean share of full, its worst share and where that is;
    ``points``: the smallest k that is enough in every task that counts.
    """
    tasks = {curve["task"]: curve for curve in curves if curve["reference"] == FULL}
    if len(tasks) < 2:
        return None
    cells = {task: {cell["trainable"]: cell for cell in curve["cells"]} for task, curve in tasks.items()}
    first = next(iter(cells.values()))
    names = [k for k in first if k != NAMED and all(_mean(some, k) is not None for some in cells.values())]
    if len(names) < 2:
        return None
    ranks = {
        task: dict(zip(names, stats.rankdata([-(_mean(some, k) or 0.0) for k in names]), strict=True))
        for task, some in cells.items()
    }
    left_out = [task for task in tasks if plain(task) in {plain(name) for name in choices.leave_out}]
    raw = [task for task, some in cells.items() if choices.corrected and some[FULL]["share_corrected"] is None]
    shares = {
        task: {
            k: cell["share_corrected" if choices.corrected and task not in raw else "share"] for k, cell in some.items()
        }
        for task, some in cells.items()
    }
    undefined = [task for task, some in shares.items() if _estimate(some[FULL]) is None]
    looked_at = [task for task in tasks if task not in (*left_out, *undefined)]
    layers = {k: first[k]["tuned_layers"] for k in names}
    return {
        "tasks": list(tasks),
        "left_out": left_out,
        "undefined": [task for task in undefined if task not in left_out],
        "raw": [task for task in raw if task in looked_at],
        "rows": [_row(k, layers[k], shares, looked_at, ranks) for k in names],
        "points": [_enough(names, shares, looked_at, target) for target in choices.targets],
    }


def _mean(cells: Mapping[str, Any], k: str) -> float | None:
    value: float | None = cells[k]["validation"]["mean"] if k in cells else None
    return value


def _estimate(share: Share) -> float | None:
    return None if share is None else share["estimate"]


def _row(
    k: str,
    layers: int,
    shares: Mapping[str, Mapping[str, Share]],
    looked_at: Sequence[str],
    ranks: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    known = {task: value for task in looked_at if (value := _estimate(shares[task][k])) is not None}
    worst = min(known, key=lambda task: known[task], default=None)
    return {
        "trainable": k,
        "tuned_layers": layers,
        "mean_rank": float(np.mean([ranks[task][k] for task in looked_at])) if looked_at else None,
        "mean_share": float(np.mean(list(known.values()))) if known else None,
        "worst_share": None if worst is None else known[worst],
        "worst_task": worst,
        "tasks": len(known),
    }


def _enough(
    names: Sequence[str], shares: Mapping[str, Mapping[str, Share]], looked_at: Sequence[str], target: float
) -> dict[str, Any]:
    """The smallest k that reaches the target in every task: by the means, surely, possibly."""

    def reaches(k: str, end: str, unknown: bool) -> bool:
        values = [None if share is None else share[end] for share in (shares[task][k] for task in looked_at)]
        return bool(values) and all(unknown if value is None else value >= target for value in values)

    estimate, sure, possible = (
        next((k for k in names if k == FULL or reaches(k, end, unknown)), None)
        for end, unknown in (("estimate", False), ("low", False), ("high", True))
    )
    return {"target": target, "estimate": estimate, "sure": sure, "possible": possible}
