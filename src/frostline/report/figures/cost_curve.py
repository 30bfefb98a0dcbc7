"""The figure of costs over the number of tuned layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import formatting
from frostline.report.figures.depth_axis import draw_depth_axis, on_axis, positions, smallest_step
from frostline.report.figures.style import STYLE, VALIDATION, figure_of
from frostline.report.names import COSTS
from frostline.statistics.cells import CellSummary
from frostline.statistics.curve import Curve

MAX_NUMBERS = 8  # with more bars, only some of them have their number


def cost_curve(size: Curve) -> Figure:
    """Training time, trainable parameters and peak memory over the number of tuned layers, for one train size."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(360, 410, len(COSTS))
        figure.set_layout_engine("constrained", hspace=0.09)
        cells = on_axis(size["cells"])
        places = positions(cells)
        texts = []
        for panel, (name, cost) in zip(axes, COSTS.items(), strict=True):
            values = [cell[name] for cell in cells]
            largest = max((value for value in values if value is not None), default=1.0)
            unit, scale = unit_of(largest, cost.units)
            heights = [None if value is None else value / scale for value in values]
            _bars(panel, places, heights, _numbered(cells, size.get("recommended")))
            panel.set_title(f"{cost.title}, {unit}" if unit else cost.title, pad=14)
            draw_depth_axis(panel, cells, places, "tuned last layers" if panel is axes[-1] else "")
            known = [f"{c['trainable']} {_short(h)}" for c, h in zip(cells, heights, strict=True) if h is not None]
            texts.append(f"{panel.get_title('left')}: {', '.join(known)}")
        figure.set_label("Cost over tuned layers. " + "; ".join(texts) + ".")
    return figure


def unit_of(value: float, units: Mapping[str, float]) -> tuple[str, float]:
    """The largest unit in which ``value`` is at least 1, with its size; the smallest unit if there is none."""
    return next((pair for pair in units.items() if pair[1] <= value), list(units.items())[-1])


def _numbered(cells: Sequence[CellSummary], recommended: Mapping[str, Any] | None) -> set[int]:
    """The bars that have their number: all of them, or of many bars the first, the last and the recommended one."""
    count = len(cells)
    if count <= MAX_NUMBERS:
        return set(range(count))
    name = recommended["trainable"] if recommended else None
    return {0, count - 1, *(n for n, cell in enumerate(cells) if cell["trainable"] == name)}


def _bars(axes: Axes, places: Sequence[float], heights: Sequence[float | None], numbered: set[int]) -> None:
    width = 0.55 * smallest_step(places)
    highest = max((height for height in heights if height is not None), default=1.0) or 1.0
    for n, (x, height) in enumerate(zip(places, heights, strict=True)):
        axes.bar(x, height or 0.0, width, color=VALIDATION, alpha=0.75, linewidth=0)
        if n in numbered:
            spot = (x, height or 0.0)
            axes.annotate(_short(height), spot, (0, 3), textcoords="offset points", ha="center", fontsize=11)
    axes.set_ylim(0, highest * 1.1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _short(number: float | None) -> str:
    """A number with at most three digits, which fits above a bar."""
    return formatting.UNKNOWN if number is None else f"{number:.2g}" if number < 10 else f"{number:.0f}"
