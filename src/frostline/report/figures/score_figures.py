"""Figures of scores: over the number of tuned layers, over train size; of a model: its probabilities, its predicted numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, product
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from frostline.data.wording import capitalized
from frostline.report import formatting, names
from frostline.report.figures.drawing import (
    DASHED,
    FAILED,
    QUIET,
    STYLE,
    TRAIN,
    VALIDATION,
    draw_frame,
    figure_of,
)
from frostline.statistics.answer import Calibration, Cell, SizeAnswer
from frostline.statistics.cells import UNDEFINED
from frostline.statistics.inference import failure_interval
from frostline.statistics.recipe import FULL, NAMED

APART = (FULL, NAMED)  # drawn to the right of the largest number of layers
MAX_LABELS = 9  # with more k, only some of them are labelled
SHIFT = 1.035  # factor between the positions of two k at one train size, so that their points do not overlap
LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")  # one for each training length


def validation_curve(size: SizeAnswer, *, metric: str, chance: float | None = None) -> Figure:
    """The score over the number of tuned layers, for one train size of an answer. Nothing is smoothed.

    A point is a run, the line joins the means, a bar is the 95 % confidence interval of a mean. A cross is a failed run.
    Full fine-tuning has its own place at the right. Each training length has a line of its own, beside the others.

    Args:
        size: The curve of the train size.
        metric: The name of the metric in results.
        chance: The score of the best constant prediction.
    """
    cells = [_comparable(cell) for cell in on_axis(size.cells)]
    lengths = [length for _, length in sorted({(cell.recipe.epochs or 0.0, cell.recipe.length) for cell in cells})]
    lines = dict(zip(lengths, cycle(LINES), strict=False))
    depths, recommended = _positions(cells), size.recommended
    gap = float(np.diff(sorted({*depths})).min()) if len({*depths}) > 1 else 1.0
    middle, beside = (len(lengths) - 1) / 2, 0.5 * gap / max(1, len(lengths))
    places = [x + beside * (lengths.index(cell.recipe.length) - middle) for cell, x in zip(cells, depths, strict=True)]
    low, high = _limits(cells, chance)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 420)
        axes.set_ylim(low, high)
        for cell, x in zip(cells, places, strict=True):
            if recommended and cell.recipe == recommended.recipe:
                half = 0.34 * gap / len(lengths)
                axes.axvspan(x - half, x + half, color=QUIET, alpha=0.14, linewidth=0)
        if chance is not None and chance > low:
            axes.axhline(chance, **DASHED)
        style: dict[str, Any] = {"color": TRAIN, "linewidth": 1.2, "marker": "s", "markersize": 4, "alpha": 0.85}
        _lines(axes, cells, places, "train_last", lines, **style)
        for cell, x in zip(cells, places, strict=True):
            _draw_cell(axes, cell, x, low + 0.03 * (high - low), high)
        _lines(axes, cells, places, "validation", lines, color=VALIDATION, linewidth=2, marker="o", markersize=6)
        _label_depths(axes, cells, depths)
        draw_frame(axes, names.score_title(metric, size.cells))
        means_of = [f"validation, mean, {length}".removesuffix(", ") for length in lines]
        handles: list[Line2D | Patch] = [
            *(
                Line2D([], [], color=VALIDATION, marker="o", markersize=7, linewidth=2, linestyle=line, label=label)
                for line, label in zip(lines.values(), means_of, strict=True)
            ),
            Line2D([], [], color=VALIDATION, marker="o", markersize=4, alpha=0.7, linewidth=0, label="one run"),
            Patch(color=VALIDATION, alpha=0.22, linewidth=0, label="95 % CI of the mean"),
            Line2D([], [], color=TRAIN, marker="s", markersize=4, linewidth=1.2, label="train, last epoch"),
        ]
        if chance is not None:
            label = f"{names.baseline(metric)} {formatting.score(chance)}{'' if chance > low else ', below'}"
            handles.append(Line2D([], [], **DASHED, label=label))
        if any(point.outcome not in ("ok", UNDEFINED) for cell in cells for point in cell.points):
            handles.append(Line2D([], [], color=FAILED, marker="x", markersize=7, linewidth=0, label="failed run"))
        longer: dict[str, Any] = {"handlelength": 3.5} if len(lengths) > 1 else {}  # shows the dashes beside the marker
        figure.legend(handles=handles, loc="outside lower left", ncols=2, **longer)
        means = [f"{names.printed(one.recipe)} {formatting.score(one.comparable)}" for one in size.cells]
        mark = capitalized(names.mark_of_choice(size.decision))
        advice = f" {mark}: {names.printed(recommended.recipe)}." if recommended else ""
        figure.set_label(f"Mean {names.metric(metric)} on validation over tuned layers: {', '.join(means)}.{advice}")
    return figure


def on_axis(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that have a place on the axis, which other ways to tune have not."""
    return [cell for cell in cells if not cell.recipe.is_way]


def _positions(cells: Sequence[Cell]) -> list[float]:
    """The position of each k: its number of layers. Full fine-tuning and named parts have their own places at the right."""
    layers = [cell.tuned_layers or 0 for cell in cells if cell.recipe.trained not in APART]
    last, step = max(layers, default=0), max(1.0, (max(layers, default=0) - min(layers, default=0)) / 6)
    apart = dict.fromkeys(cell.recipe.trained for cell in cells if cell.recipe.trained in APART)
    beyond = {name: last + 1.5 * step * (n + bool(layers)) for n, name in enumerate(apart)}
    return [float(beyond.get(cell.recipe.trained, cell.tuned_layers or 0)) for cell in cells]


def _label_depths(axes: Axes, cells: Sequence[Cell], places: Sequence[float]) -> None:
    known = dict(zip(places, (cell.recipe.trained for cell in cells), strict=True))
    every = -(-len(known) // MAX_LABELS)
    shown = [x for n, (x, recipe) in enumerate(known.items()) if n % every == 0 or recipe in APART]
    axes.set_xticks(shown, [names.depth(known[x]) for x in shown])
    margin = 0.6 if len(known) > 1 else 2.0
    axes.set_xlim(min(places) - margin, max(places) + margin)
    named = "; named: by name" if any(recipe == NAMED for recipe in known.values()) else ""
    axes.set_xlabel(f"tuned last layers\n(0: classifier head only; full: embeddings too{named})")


def _comparable(cell: Cell) -> Cell:
    """The cell with its scores on validation as they would be on all rows: with folds, some are easier than others."""
    known = cell.validation
    if cell.comparable is None or known.mean is None or cell.comparable == known.mean:
        return cell
    moved = cell.comparable - known.mean
    low, high = (end if end is None else end + moved for end in (known.low, known.high))
    points = [
        replace(one, validation_best=None if one.validation_best is None else one.validation_best + moved)
        for one in cell.points
    ]
    return replace(cell, validation=replace(known, mean=cell.comparable, low=low, high=high), points=points)


def _limits(cells: Sequence[Cell], chance: float | None) -> tuple[float, float]:
    """Limits of the score that show every run in a mean.

    The baseline and the ends of intervals may lie outside, so that differences between k remain visible.
    """
    in_mean = [point for cell in cells for point in cell.points if point.in_mean]
    seen = [score for point in in_mean for score in (point.validation_best, point.train_last) if score is not None]
    seen = seen or [0.0, 1.0]
    low, high = min(seen), max(seen)
    spread = max(high - low, 0.02)
    if chance is not None and chance > low - 1.5 * spread:
        low = min(low, chance)
    ends = [end for cell in cells for end in (cell.validation.low, cell.validation.high)]
    inside = [end for end in ends if end is not None and low - 0.8 * spread < end < high + 0.8 * spread]
    low, high = min([low, *inside]), max([high, *(min(end, 1.0) for end in inside)])  # no metric exceeds 1
    return low - 0.06 * spread, high + 0.06 * spread


def _lines(
    axes: Axes, cells: Sequence[Cell], places: Sequence[float], name: str, lines: Mapping[str, Any], **style: Any
) -> None:
    """Draw a line through the means of each length. Full fine-tuning and named parts are not joined to the rest."""
    for (length, line), apart in product(lines.items(), ("", *APART)):
        means = [
            (x, getattr(cell, name).mean)
            for cell, x in zip(cells, places, strict=True)
            if (cell.recipe.trained if cell.recipe.trained in APART else "") == apart
            and cell.recipe.length == length
            and getattr(cell, name).mean is not None
        ]
        axes.plot([x for x, _ in means], [y for _, y in means], linestyle=line, **style)


def _draw_cell(axes: Axes, cell: Cell, x: float, floor: float, ceiling: float) -> None:
    """Draw the runs of one k and the interval of their mean.

    A failed run without a score is drawn at ``floor``, and one with a score beyond the axes at their end: what is drawn far
    outside of them leaves no room for the figure.
    """
    summary = cell.validation
    if summary.low is not None and summary.high is not None:
        ends = [summary.low, summary.high]
        axes.plot([x, x], ends, color=VALIDATION, linewidth=9, alpha=0.22, solid_capstyle="butt")
    points = [point for point in cell.points if point.outcome != UNDEFINED]
    spots = x + np.linspace(-1, 1, len(points) + 2)[1:-1] * 0.26 * min(1.0, len(points) / 4)
    for spot, point in zip(spots, points, strict=True):
        score = point.validation_best
        if point.outcome == "ok" and score is not None:
            axes.plot(spot, score, "o", color=VALIDATION, markersize=4, alpha=0.7, markeredgewidth=0)
        else:
            height = floor if score is None else min(max(floor, score), ceiling)
            axes.plot(spot, height, "x", color=FAILED, markersize=7, markeredgewidth=1.8, clip_on=False)


def learning_curves(
    curves: Sequence[SizeAnswer], *, metric: str, chance: float | None = None, task: str = ""
) -> Figure:
    """The score over train size: a line through the means of each k, a point for each run, a cross for each failed run.

    Args:
        curves: The curve of each train size.
        metric: The name of the metric in results.
        chance: The score of the best constant prediction.
        task: The name of the task for the title, if a page has several.
    """
    sizes = sorted(curves, key=lambda curve: curve.train_size or 0)
    depths = list(dict.fromkeys(cell.recipe for size in reversed(sizes) for cell in size.cells))
    colours = LinearSegmentedColormap.from_list("k", [VALIDATION, "#8b7d9b", TRAIN])
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 430)
        for n, name in enumerate(depths):
            shift = SHIFT ** (n - (len(depths) - 1) / 2)
            known = [(size.train_size * shift, _comparable(cell)) for size in sizes if (cell := size.cell(name))]
            _draw_depth(axes, known, colours(n / max(1, len(depths) - 1)), names.printed(name))
        if chance is not None:
            axes.axhline(chance, **DASHED)
        axes.set_xscale("log")
        numbers = [one.train_size for one in sizes if one.train_size]
        axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
        axes.minorticks_off()
        axes.set_xlabel("training examples")
        title = names.score_title(metric, [cell for size in sizes for cell in size.cells])
        draw_frame(axes, f"{task}, {title}" if task else title)
        figure.legend(loc="outside lower left", ncols=3)
        figure.set_label(
            f"{names.metric(metric)} of every run{f' on {task}' if task else ''} over {len(sizes)} train sizes, with a line "
            "through the means of each k."
        )
    return figure


def _draw_depth(axes: Axes, cells: Sequence[tuple[float, Cell]], colour: Any, label: str) -> None:
    """Draw the runs and means of one k; ``cells`` are pairs of position and cell."""
    for x, cell in cells:
        for point in cell.points:
            if point.validation_best is not None:
                shown = {"color": colour, "marker": "o"} if point.outcome == "ok" else {"color": FAILED, "marker": "x"}
                axes.plot([x], [point.validation_best], markersize=4, alpha=0.45, **shown)
    means = [(x, cell.comparable) for x, cell in cells if cell.comparable is not None]
    axes.plot([x for x, _ in means], [y for _, y in means], color=colour, linewidth=1.8, label=label)


def reliability(calibration: Calibration) -> Figure:
    """Accuracy over mean confidence in each bin, before and after temperature scaling, with the line where both are equal.

    The bars are Clopper-Pearson intervals (95 %) of the accuracy. ``calibration`` is that of answer.json.
    """
    before, after = calibration.before, calibration.after
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(420, 420)
        lowest = min(min(*part.confidence, *part.accuracy) for part in (before, after))
        axes.plot([lowest, 1], [lowest, 1], **DASHED)
        for part, name, colour, marker in (
            (before, "as trained", VALIDATION, "o"),
            (after, "with temperature (cross-fitted)", TRAIN, "s"),
        ):
            label = f"{name}: error {formatting.score(part.error)}"
            axes.plot(part.confidence, part.accuracy, marker, color=colour, markersize=6, label=label)
            for confidence, accuracy, count in zip(part.confidence, part.accuracy, part.texts, strict=True):
                ends = failure_interval(round(accuracy * count), count)
                axes.plot([confidence] * 2, ends, color=colour, alpha=0.3, linewidth=1)
        axes.set_xlabel("mean probability of the predicted class")
        axes.set_title("accuracy", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.legend(loc="outside lower left")
        figure.set_label(
            "Accuracy over mean probability of the predicted class. Expected calibration error "
            f"{formatting.score(before.error)} as trained, {formatting.score(after.error)} with a cross-fitted temperature."
        )
    return figure


def predictions_over_targets(targets: NDArray[Any], predictions: NDArray[Any]) -> Figure:
    """Predicted over true values ``[examples]``, with the line where both are equal."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(420, 400)
        ends = [float(min(targets.min(), predictions.min())), float(max(targets.max(), predictions.max()))]
        axes.plot(ends, ends, **DASHED)
        axes.plot(targets, predictions, "o", color=VALIDATION, markersize=4, alpha=0.4, markeredgewidth=0)
        axes.set_xlabel("true")
        axes.set_title("predicted", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.set_label(f"Predicted over true values of {len(targets):,} validation examples.")
    return figure
