"""The figures of a sweep, from its answer. Every seed is a point, every failure is a mark, nothing is smoothed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from frostline.report import formatting
from frostline.report.figures.drawing import FAILED, QUIET, STYLE, TRAIN, VALIDATION, figure_of

Cell = Mapping[str, Any]
COSTS: Mapping[
    str, tuple[str, Mapping[str, float]]
] = {  # columns of a cell: what to call them, and their units with their worth
    "seconds": ("training time of a run", {"hours": 3600, "minutes": 60, "seconds": 1}),
    "trainable_parameters": ("trainable parameters", {"billions": 1e9, "millions": 1e6, "thousands": 1e3, "": 1}),
    "peak_memory_bytes": ("peak memory", {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1}),
}
APART = ("all", "named")  # what is no step of k
MOST_LABELS = 9  # ticks along k; with more layers only some are labelled


def validation_curve(
    size: Mapping[str, Any], *, metric: str, chance: float | None = None, narrow: bool = False
) -> Figure:
    """Score over tuned layers, for one train size of an answer.

    A point is a run, the line joins the means, a bar is the 95 % interval of a mean over seeds, a cross a run that
    diverged or predicts one class. Full stands apart at the right. ``narrow`` draws for a phone.
    """
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(360, 370) if narrow else figure_of(600, 410)
        cells, places = size["cells"], _places(size["cells"])
        low, high = _limits(cells, chance)
        axes.set_ylim(low, high)
        _mark_recommended(axes, size, places)
        if chance is not None and chance > low:
            axes.axhline(chance, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        _line(axes, cells, places, "train_last", color=TRAIN, linewidth=1.2, marker="s", markersize=4, alpha=0.85)
        for cell, x in zip(cells, places, strict=True):
            _cell(axes, cell, x, low + 0.03 * (high - low))
        _line(axes, cells, places, "validation", color=VALIDATION, linewidth=2, marker="o", markersize=6)
        named = "; named: by name" if any(cell["trainable"] == "named" for cell in cells) else ""
        _axis_of_k(
            axes, cells, places, f"tuned last layers{'' if narrow else f' (0: head only; all: embeddings too{named})'}"
        )
        axes.set_title(metric.replace("_", " "), pad=10)
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(handles=_legend(cells, chance, low), loc="outside lower left", ncols=2 if narrow else 3)
        figure.set_label(_in_words(size, metric))
    return figure


def cost_curve(size: Mapping[str, Any]) -> Figure:
    """Seconds of a run, parameters trained and peak memory over tuned layers, for one train size of an answer."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(360, 410, len(COSTS))
        figure.set_layout_engine("constrained", hspace=0.09)
        cells, places = size["cells"], _places(size["cells"])
        said = []
        for panel, (name, (title, units)) in zip(axes, COSTS.items(), strict=True):
            values = [cell[name] for cell in cells]
            top = max((value for value in values if value is not None), default=1.0)
            unit, worth = unit_of(top, units)
            heights = [None if value is None else value / worth for value in values]
            _bars(panel, places, heights, _labelled(size))
            panel.set_title(f"{title}, {unit}" if unit else title, pad=14)
            _axis_of_k(panel, cells, places, name="tuned last layers" if panel is axes[-1] else "")
            known = [f"{c['trainable']} {_short(h)}" for c, h in zip(cells, heights, strict=True) if h is not None]
            said.append(f"{panel.get_title('left')}: {', '.join(known)}")
        figure.set_label("Cost over tuned layers. " + "; ".join(said) + ".")
    return figure


def learning_curves(answer: Mapping[str, Any]) -> Figure:
    """Mean validation score over train size, a line for each k."""
    sizes = sorted(answer["sizes"], key=lambda size: size["train_size"])
    names = list(dict.fromkeys(cell["trainable"] for size in reversed(sizes) for cell in size["cells"]))
    ramp = LinearSegmentedColormap.from_list("k", [VALIDATION, "#8b7d9b", TRAIN])
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(400, 420)
        for n, name in enumerate(names):
            found = [(size["train_size"], formatting.cell_of(size, name)) for size in sizes]
            known = [(x, cell["validation"]) for x, cell in found if cell and cell["validation"]["mean"] is not None]
            colour = ramp(n / max(1, len(names) - 1))
            x, mean = [x for x, _ in known], [summary["mean"] for _, summary in known]
            axes.plot(x, mean, color=colour, marker="o", markersize=5, label=formatting.trainable(name))
        axes.set_xscale("log")
        ticks = [size["train_size"] for size in sizes]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("training examples")
        axes.set_title(answer["metric"].replace("_", " "), pad=10)
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=4)
        figure.set_label(f"Mean {answer['metric']} on validation over {len(sizes)} train sizes, a line for each k.")
    return figure


def predictions_over_targets(targets: NDArray[Any], predictions: NDArray[Any]) -> Figure:
    """Regression: what is predicted over what is true, with the line where both are equal."""
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(420, 400)
        ends = [float(min(targets.min(), predictions.min())), float(max(targets.max(), predictions.max()))]
        axes.plot(ends, ends, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        axes.plot(targets, predictions, "o", color=VALIDATION, markersize=4, alpha=0.4, markeredgewidth=0)
        axes.set_xlabel("true")
        axes.set_title("predicted", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.set_label(f"Predictions over true values for {len(targets):,} validation rows.")
    return figure


def unit_of(top: float, units: Mapping[str, float]) -> tuple[str, float]:
    """The largest unit in which ``top`` is at least 1, with its worth; else the smallest."""
    return next((pair for pair in units.items() if pair[1] <= top), list(units.items())[-1])


def _places(cells: Sequence[Cell]) -> list[float]:
    """Where each k stands on the axis; full a step and a half beyond the last, and named parts beyond that."""
    layers = [cell["tuned_layers"] for cell in cells if cell["trainable"] not in APART]
    last, step = max(layers, default=0), max(1.0, (max(layers, default=0) - min(layers, default=0)) / 6)
    apart = [cell["trainable"] for cell in cells if cell["trainable"] in APART]
    beyond = {name: last + 1.5 * step * (n + bool(layers)) for n, name in enumerate(apart)}
    return [float(beyond[cell["trainable"]] if cell["trainable"] in APART else cell["tuned_layers"]) for cell in cells]


def _step(places: Sequence[float]) -> float:
    """The smallest distance between two k on the axis."""
    return float(np.diff(sorted(places)).min()) if len(places) > 1 else 1.0


def _limits(cells: Sequence[Cell], chance: float | None) -> tuple[float, float]:
    """Limits that show every run that a mean is of. What lies far from them (guessing, the end of an interval) stays
    outside, so that differences between k can be seen."""
    good = [point for cell in cells for point in cell["points"] if point["in_mean"]]
    seen = [point[name] for point in good for name in ("validation_best", "train_last") if point[name] is not None]
    seen = seen or [0.0, 1.0]
    low, high = min(seen), max(seen)
    spread = max(high - low, 0.02)
    if chance is not None and chance > low - 1.5 * spread:
        low = min(low, chance)
    ends = [cell["validation"][side] for cell in cells for side in ("low", "high")]
    inside = [end for end in ends if end is not None and low - 0.8 * spread < end < high + 0.8 * spread]
    low, high = min([low, *inside]), max([high, *(min(end, 1.0) for end in inside)])  # no metric is above 1
    return low - 0.06 * spread, high + 0.06 * spread


def _mark_recommended(axes: Axes, size: Mapping[str, Any], places: Sequence[float]) -> None:
    for cell, x in zip(size["cells"], places, strict=True):
        if size.get("recommended") and cell["trainable"] == size["recommended"]["trainable"]:
            half = 0.34 * _step(places)
            axes.axvspan(x - half, x + half, color=QUIET, alpha=0.14, linewidth=0)


def _line(axes: Axes, cells: Sequence[Cell], places: Sequence[float], name: str, **style: Any) -> None:
    """Means joined by a line, full and named parts not joined to the rest."""
    for alone in ("", *APART):
        mean = [
            (x, cell[name]["mean"])
            for cell, x in zip(cells, places, strict=True)
            if (cell["trainable"] if cell["trainable"] in APART else "") == alone and cell[name]["mean"] is not None
        ]
        axes.plot([x for x, _ in mean], [y for _, y in mean], **style)


def _cell(axes: Axes, cell: Cell, x: float, floor: float) -> None:
    """The runs of one k, and the interval of their mean. A failed run is a cross; with no score, or a far lower one, it lies
    on the floor."""
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
            height = floor if score is None else max(floor, score)
            axes.plot(spot, height, "x", color=FAILED, markersize=7, markeredgewidth=1.8, clip_on=False)


def _axis_of_k(axes: Axes, cells: Sequence[Cell], places: Sequence[float], name: str) -> None:
    every = -(-len(cells) // MOST_LABELS)
    shown = [n for n, cell in enumerate(cells) if n % every == 0 or cell["trainable"] in APART]
    labels = [cells[n]["trainable"].removeprefix("last ") for n in shown]
    axes.set_xticks([places[n] for n in shown], labels if name else [""] * len(labels))
    margin = 0.6 if len(places) > 1 else 2.0
    axes.set_xlim(min(places) - margin, max(places) + margin)
    axes.set_xlabel(name)


def _labelled(size: Mapping[str, Any]) -> set[int]:
    """Which bars bear their number: all, or the ends and the recommended where they are many."""
    count = len(size["cells"])
    if count <= 8:
        return set(range(count))
    name = size["recommended"]["trainable"] if size.get("recommended") else None
    return {0, count - 1, *(n for n, cell in enumerate(size["cells"]) if cell["trainable"] == name)}


def _bars(axes: Axes, places: Sequence[float], heights: Sequence[float | None], labelled: set[int]) -> None:
    width = 0.55 * _step(places)
    top = max((height for height in heights if height is not None), default=1.0) or 1.0
    for n, (x, height) in enumerate(zip(places, heights, strict=True)):
        axes.bar(x, height or 0.0, width, color=VALIDATION, alpha=0.75, linewidth=0)
        if n in labelled:
            spot = (x, height or 0.0)
            axes.annotate(_short(height), spot, (0, 3), textcoords="offset points", ha="center", fontsize=11)
    axes.set_ylim(0, top * 1.1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _short(number: float | None) -> str:
    """Three digits at most: over a bar there is little room."""
    return formatting.UNKNOWN if number is None else f"{number:.2g}" if number < 10 else f"{number:.0f}"


def _legend(cells: Iterable[Cell], chance: float | None, low: float) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=VALIDATION, marker="o", markersize=7, linewidth=2, label="validation, mean"),
        Line2D([], [], color=VALIDATION, marker="o", markersize=4, alpha=0.7, linewidth=0, label="one seed"),
        Patch(color=VALIDATION, alpha=0.22, linewidth=0, label="its 95 % interval"),
        Line2D([], [], color=TRAIN, marker="s", markersize=4, linewidth=1.2, label="train, at the end"),
    ]
    if chance is not None:
        where = "" if chance > low else ", below"
        label = f"guessing {formatting.score(chance)}{where}"
        handles.append(Line2D([], [], color=QUIET, linestyle=(0, (4, 4)), linewidth=1, label=label))
    if any(point["outcome"] != "ok" for cell in cells for point in cell["points"]):
        handles.append(Line2D([], [], color=FAILED, marker="x", markersize=7, linewidth=0, label="failed run"))
    return handles


def _in_words(size: Mapping[str, Any], metric: str) -> str:
    means = [
        f"{formatting.trainable(cell['trainable'])} {formatting.score(cell['validation']['mean'])}"
        for cell in size["cells"]
    ]
    recommended = size.get("recommended")
    advice = f" Recommended: {formatting.trainable(recommended['trainable'])}." if recommended else ""
    return f"Mean {metric} on validation over tuned layers: {', '.join(means)}.{advice}"
