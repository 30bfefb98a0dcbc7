"""The figure of differences from full fine-tuning over the number of frozen layers, after Lee, Tang and Lin (2019)."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import names
from frostline.report.answer.across_groups import GroupAnalysis
from frostline.report.figures.style import FAILED, QUIET, STYLE, TRAIN, VALIDATION
from frostline.statistics.recipe import Recipe

COLOURS = (VALIDATION, TRAIN, FAILED, "#4a8f5b", "#8b6fb0", "#7d7d7d")  # one for each model
MARKERS = ("o", "s", "^", "D", "v", "P")


def relative_change(groups: Sequence[GroupAnalysis]) -> Figure | None:
    """The mean of each k less that of full fine-tuning, in percentage points, over the number of frozen first layers.

    Each task has a panel, each model a line. A bar is the 95 % confidence interval of a difference. Full fine-tuning is drawn at
    -1, because not even the embeddings are frozen. The figure follows Figure 1 of Lee, Tang and Lin (2019). None if no task
    has full fine-tuning and another k.
    """
    shown = [group for group in groups if _changes(group)]
    tasks = list(dict.fromkeys(group["task"] for group in shown))
    models = list(dict.fromkeys(group["model"] for group in shown))
    if not tasks:
        return None
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(300 * columns / 72, (210 * rows + 50) / 72), dpi=72)
        figure.patch.set_alpha(0)
        for n, task in enumerate(tasks):
            axes = figure.add_subplot(rows, columns, n + 1)
            of_task = [group for group in shown if group["task"] == task]
            for group in of_task:
                _draw_line(axes, group, models.index(group["model"]))
            axes.axhline(0, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
            axes.set_title(f"{task}, {names.metric(of_task[0]['metric'])}", pad=8)
            axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
            axes.spines["left"].set_visible(False)
            if n >= len(tasks) - columns:
                axes.set_xlabel("frozen first layers")
        handles, labels = _legend(figure)
        figure.legend(handles, labels, loc="outside lower left", ncols=min(4, len(models)))
        figure.set_label(_alt_text(shown))
    return figure


def _changes(group: GroupAnalysis) -> list[tuple[int, Mapping[str, Any]]]:
    """The number of frozen layers and the difference from full fine-tuning for each k, at the largest train size."""
    size = group["sizes"][0]
    if not size["reference_is_full"] or not group["layers"]:
        return []
    return [
        (group["layers"] - cell["tuned_layers"], cell["difference"])
        for cell in size["cells"]
        if Recipe(cell["recipe"]).k is not None and cell["difference"]
    ]


def _draw_line(axes: Axes, group: GroupAnalysis, number: int) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    points = sorted(_changes(group), key=lambda point: point[0])
    axes.plot([-1], [0.0], color=colour, marker=marker, markersize=4)  # full fine-tuning, not joined to the rest
    axes.plot(
        [x for x, _ in points],
        [100 * difference["estimate"] for _, difference in points],
        **{"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.4, "label": group["model"]},
    )
    for x, difference in points:
        if difference["low"] is not None:
            ends = [100 * difference["low"], 100 * difference["high"]]
            axes.plot([x, x], ends, color=colour, linewidth=3, alpha=0.25, solid_capstyle="butt")


def _legend(figure: Figure) -> tuple[list[Any], list[str]]:
    """Handles and labels of the lines in all panels, each model once."""
    found = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    return list(found.values()), list(found)


def _alt_text(groups: Sequence[GroupAnalysis]) -> str:
    """The lowest point of each line in words, for screen readers."""
    parts = []
    for group in groups:
        frozen, difference = min(_changes(group), key=lambda change: change[1]["estimate"])
        parts.append(f"{group['model']} on {group['task']} {100 * difference['estimate']:.1f} with {frozen} frozen")
    return f"Change in percentage points over frozen layers; the lowest of each line: {'; '.join(parts)}."
