"""The figure of scores over train size, a line for each k."""

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from frostline.report import names
from frostline.report.figures.style import (
    FAILED,
    QUIET,
    STYLE,
    TRAIN,
    VALIDATION,
    draw_frame,
    figure_of,
    log_axis_of_sizes,
)
from frostline.statistics.answer import Cell, SizeAnswer

SHIFT = 1.035  # factor between the positions of two k at one train size, so that their points do not overlap


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
    sizes = sorted(curves, key=lambda curve: curve["train_size"])
    depths = list(dict.fromkeys(cell["trainable"] for size in reversed(sizes) for cell in size["cells"]))
    colours = LinearSegmentedColormap.from_list("k", [VALIDATION, "#8b7d9b", TRAIN])
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 430)
        for n, name in enumerate(depths):
            shift = SHIFT ** (n - (len(depths) - 1) / 2)
            known = [(size["train_size"] * shift, cell) for size in sizes if (cell := size.cell(name))]
            _draw_depth(axes, known, colours(n / max(1, len(depths) - 1)), names.trainable(name))
        if chance is not None:
            axes.axhline(chance, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        log_axis_of_sizes(axes, [size["train_size"] for size in sizes])
        title = names.score_title(metric, [cell for size in sizes for cell in size["cells"]])
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
        moved = (cell["comparable"] or 0.0) - (
            cell["validation"]["mean"] or 0.0
        )  # with folds, to what all rows would give
        for point in cell["points"]:
            if point["validation_best"] is not None:
                shown = {"color": colour, "marker": "o"} if point["in_mean"] else {"color": FAILED, "marker": "x"}
                axes.plot([x], [point["validation_best"] + moved], markersize=4, alpha=0.45, **shown)
    means = [(x, cell["comparable"]) for x, cell in cells if cell["comparable"] is not None]
    axes.plot([x for x, _ in means], [y for _, y in means], color=colour, linewidth=1.8, label=label)
