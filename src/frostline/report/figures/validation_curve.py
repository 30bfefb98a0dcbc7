"""The figure of scores over the number of tuned layers. Every run is a point, and nothing is smoothed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from frostline.report import formatting, names
from frostline.report.figures.style import FAILED, QUIET, STYLE, TRAIN, VALIDATION, draw_frame, figure_of
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.tune import FULL, NAMED, is_way

APART = (FULL, NAMED)  # drawn to the right of the largest number of layers
MAX_LABELS = 9  # with more k, only some of them are labelled


def validation_curve(size: SizeAnswer, *, metric: str, chance: float | None = None) -> Figure:
    """The score over the number of tuned layers, for one train size of an answer.

    A point is a run, the line joins the means, a bar is the 95 % confidence interval of a mean. A cross is a failed run.
    Full fine-tuning has its own place at the right.

    Args:
        size: The curve of the train size.
        metric: The name of the metric in results.
        chance: The score of the best constant prediction.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 420)
        cells = [_comparable(cell) for cell in on_axis(size["cells"])]
        places = _positions(cells)
        low, high = _limits(cells, chance)
        axes.set_ylim(low, high)
        _mark_recommended(axes, cells, size.get("recommended"), places)
        if chance is not None and chance > low:
            axes.axhline(chance, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        _line(axes, cells, places, "train_last", color=TRAIN, linewidth=1.2, marker="s", markersize=4, alpha=0.85)
        for cell, x in zip(cells, places, strict=True):
            _draw_cell(axes, cell, x, low + 0.03 * (high - low), high)
        _line(axes, cells, places, "validation", color=VALIDATION, linewidth=2, marker="o", markersize=6)
        _draw_depth_axis(axes, cells, places, _label(cells))
        draw_frame(axes, names.score_title(metric, size["cells"]))
        figure.legend(handles=_legend(cells, metric, chance, low), loc="outside lower left", ncols=2)
        figure.set_label(_alt_text(size, metric))
    return figure


def on_axis(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that have a place on the axis, which other ways to tune have not."""
    return [cell for cell in cells if not is_way(cell["trainable"])]


def _positions(cells: Sequence[Cell]) -> list[float]:
    """The position of each k: its number of layers. Full fine-tuning and named parts have their own places at the right."""
    layers = [cell["tuned_layers"] for cell in cells if cell["trainable"] not in APART]
    last, step = max(layers, default=0), max(1.0, (max(layers, default=0) - min(layers, default=0)) / 6)
    apart = [cell["trainable"] for cell in cells if cell["trainable"] in APART]
    beyond = {name: last + 1.5 * step * (n + bool(layers)) for n, name in enumerate(apart)}
    return [float(beyond[cell["trainable"]] if cell["trainable"] in APART else cell["tuned_layers"]) for cell in cells]


def _smallest_step(places: Sequence[float]) -> float:
    """The smallest distance between two positions."""
    return float(np.diff(sorted(places)).min()) if len(places) > 1 else 1.0


def _draw_depth_axis(axes: Axes, cells: Sequence[Cell], places: Sequence[float], label: str) -> None:
    every = -(-len(cells) // MAX_LABELS)
    shown = [n for n, cell in enumerate(cells) if n % every == 0 or cell["trainable"] in APART]
    labels = [names.depth(cells[n]["trainable"]) for n in shown]
    axes.set_xticks([places[n] for n in shown], labels)
    margin = 0.6 if len(places) > 1 else 2.0
    axes.set_xlim(min(places) - margin, max(places) + margin)
    axes.set_xlabel(label)


def _comparable(cell: Cell) -> Cell:
    """The cell with its scores on validation as they would be on all rows: with folds, some are easier than others."""
    mean = cell["validation"]["mean"]
    if cell["comparable"] == mean:
        return cell
    moved = cell["comparable"] - mean
    known = cell.validation
    low, high = (end if end is None else end + moved for end in (known.low, known.high))
    points = [replace(one, validation_best=one.validation_best and one.validation_best + moved) for one in cell.points]
    return replace(cell, validation=replace(known, mean=cell.comparable, low=low, high=high), points=points)


def _label(cells: Iterable[Cell]) -> str:
    named = "; named: by name" if any(cell["trainable"] == NAMED for cell in cells) else ""
    return f"tuned last layers\n(0: classifier head only; all: embeddings too{named})"


def _limits(cells: Sequence[Cell], chance: float | None) -> tuple[float, float]:
    """Limits of the score that show every run in a mean.

    The baseline and the ends of intervals may lie outside, so that differences between k remain visible.
    """
    in_mean = [point for cell in cells for point in cell["points"] if point["in_mean"]]
    seen = [point[name] for point in in_mean for name in ("validation_best", "train_last") if point[name] is not None]
    seen = seen or [0.0, 1.0]
    low, high = min(seen), max(seen)
    spread = max(high - low, 0.02)
    if chance is not None and chance > low - 1.5 * spread:
        low = min(low, chance)
    ends = [cell["validation"][side] for cell in cells for side in ("low", "high")]
    inside = [end for end in ends if end is not None and low - 0.8 * spread < end < high + 0.8 * spread]
    low, high = min([low, *inside]), max([high, *(min(end, 1.0) for end in inside)])  # no metric exceeds 1
    return low - 0.06 * spread, high + 0.06 * spread


def _mark_recommended(
    axes: Axes, cells: Sequence[Cell], recommended: Mapping[str, Any] | None, places: Sequence[float]
) -> None:
    for cell, x in zip(cells, places, strict=True):
        if recommended and cell["trainable"] == recommended["trainable"]:
            half = 0.34 * _smallest_step(places)
            axes.axvspan(x - half, x + half, color=QUIET, alpha=0.14, linewidth=0)


def _line(axes: Axes, cells: Sequence[Cell], places: Sequence[float], name: str, **style: Any) -> None:
    """Draw a line through the means. Full fine-tuning and named parts are not joined to the rest."""
    for apart in ("", *APART):
        means = [
            (x, cell[name]["mean"])
            for cell, x in zip(cells, places, strict=True)
            if (cell["trainable"] if cell["trainable"] in APART else "") == apart and cell[name]["mean"] is not None
        ]
        axes.plot([x for x, _ in means], [y for _, y in means], **style)


def _draw_cell(axes: Axes, cell: Cell, x: float, floor: float, ceiling: float) -> None:
    """Draw the runs of one k and the interval of their mean.

    A failed run without a score is drawn at ``floor``, and one with a score beyond the axes at their end: what is drawn far
    outside of them leaves no room for the figure.
    """
    summary = cell["validation"]
    if summary["low"] is not None:
        ends = [summary["low"], summary["high"]]
        axes.plot([x, x], ends, color=VALIDATION, linewidth=9, alpha=0.22, solid_capstyle="butt")
    points = cell["points"]
    spots = x + np.linspace(-1, 1, len(points) + 2)[1:-1] * 0.26 * min(1.0, len(points) / 4)
    for spot, point in zip(spots, points, strict=True):
        score = point["validation_best"]
        if point["outcome"] == "ok":
            axes.plot(spot, score, "o", color=VALIDATION, markersize=4, alpha=0.7, markeredgewidth=0)
        else:
            height = floor if score is None else min(max(floor, score), ceiling)
            axes.plot(spot, height, "x", color=FAILED, markersize=7, markeredgewidth=1.8, clip_on=False)


def _legend(cells: Iterable[Cell], metric: str, chance: float | None, low: float) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=VALIDATION, marker="o", markersize=7, linewidth=2, label="validation, mean"),
        Line2D([], [], color=VALIDATION, marker="o", markersize=4, alpha=0.7, linewidth=0, label="one run"),
        Patch(color=VALIDATION, alpha=0.22, linewidth=0, label="95 % CI of the mean"),
        Line2D([], [], color=TRAIN, marker="s", markersize=4, linewidth=1.2, label="train, last epoch"),
    ]
    if chance is not None:
        where = "" if chance > low else ", below"
        label = f"{names.baseline(metric)} {formatting.score(chance)}{where}"
        handles.append(Line2D([], [], color=QUIET, linestyle=(0, (4, 4)), linewidth=1, label=label))
    if any(point["outcome"] != "ok" for cell in cells for point in cell["points"]):
        handles.append(Line2D([], [], color=FAILED, marker="x", markersize=7, linewidth=0, label="failed run"))
    return handles


def _alt_text(size: SizeAnswer, metric: str) -> str:
    """The means in words, for screen readers."""
    means = [f"{names.trainable(cell['trainable'])} {formatting.score(cell['comparable'])}" for cell in size["cells"]]
    recommended = size.get("recommended")
    advice = f" Recommended: {names.trainable(recommended['trainable'])}." if recommended else ""
    return f"Mean {names.metric(metric)} on validation over tuned layers: {', '.join(means)}.{advice}"
