"""The figure of quality against cost: what no other choice beats."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import formatting
from frostline.report.figures.curves import COSTS, MOST_LABELS, unit_of
from frostline.report.figures.drawing import QUIET, STYLE, VALIDATION, figure_of
from frostline.statistics.points import prices


def pareto_fronts(curve: Mapping[str, Any], *, metric: str, narrow: bool = False) -> Figure:
    """Mean score over each cost, a panel for each, a point for each k; those that no other beats are full, and joined.

    Seconds are those that the front compares; a cost that nobody knows has no panel.
    ``narrow`` draws for a phone.
    """
    cells = curve["cells"]
    costs = {cost: COSTS[cost] for cost in COSTS if any(price is not None for price in prices(cells, cost))}
    with matplotlib.rc_context(STYLE):
        panels = max(1, len(costs))
        figure, axes = (
            figure_of(360, 300 * panels, panels) if narrow else figure_of(346 * panels, 330, panels, abreast=True)
        )
        said = []
        for panel, (cost, (title, units)) in zip(axes, costs.items(), strict=False):
            known = [
                (price, cell["validation"]["mean"], cell["trainable"])
                for cell, price in zip(cells, prices(cells, cost), strict=True)
                if cell["validation"]["mean"] is not None and price is not None
            ]
            unit, worth = unit_of(max((price for price, _, _ in known), default=1.0), units)
            front = curve["pareto"][cost]
            _panel(panel, [(price / worth, mean, name) for price, mean, name in known], front)
            panel.set_xlabel(f"{title}, {unit}" if unit else title)
            panel.margins(0.16, 0.16)
            said.append(f"{title}: {', '.join(map(formatting.trainable, front)) or 'none'}")
        for n, panel in enumerate(axes):
            if narrow or n == 0:
                panel.set_title(metric.replace("_", " "), pad=10)
            panel.tick_params(labelleft=narrow or n == 0)
        figure.set_label(
            f"Mean {metric} on validation over cost. Choices that no other beats, by cost: {'; '.join(said)}."
        )
    return figure


def _panel(axes: Axes, points: Sequence[tuple[float, float, str]], front: Sequence[str]) -> None:
    on = sorted((price, mean) for price, mean, name in points if name in front)
    axes.plot([x for x, _ in on], [y for _, y in on], color=VALIDATION, linewidth=1.6, alpha=0.7, zorder=1)
    for price, mean, name in points:
        fill = VALIDATION if name in front else "none"
        axes.plot(price, mean, "o", color=VALIDATION, markerfacecolor=fill, markersize=7, markeredgewidth=1.4)
        if name in front or len(points) <= MOST_LABELS:
            _label(axes, name.removeprefix("last "), (price, mean), beaten=name not in front)
    axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
    axes.spines["left"].set_visible(False)


def _label(axes: Axes, text: str, point: tuple[float, float], *, beaten: bool) -> None:
    """On the side where the line of the front is not."""
    if beaten:
        axes.annotate(text, point, (5, -4), textcoords="offset points", fontsize=11, ha="left", va="top")
    else:
        axes.annotate(text, point, (-5, 4), textcoords="offset points", fontsize=11, ha="right", va="bottom")
