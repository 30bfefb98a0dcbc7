"""The figure of quality against cost, with the Pareto front of each cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import names
from frostline.report.figures.cost_curve import COSTS, unit_of
from frostline.report.figures.depth_axis import MAX_LABELS
from frostline.report.figures.style import QUIET, STYLE, VALIDATION, figure_of
from frostline.statistics.pareto import comparable_costs


def pareto_fronts(curve: Mapping[str, Any], *, metric: str, narrow: bool = False) -> Figure:
    """The mean score over each cost, with a panel for each cost and a point for each k.

    Points on the Pareto front are filled and joined. Seconds are those that the front compares; a cost that is unknown
    has no panel. ``narrow`` draws for the width of a phone.
    """
    cells = curve["cells"]
    costs = {cost: COSTS[cost] for cost in COSTS if any(price is not None for price in comparable_costs(cells, cost))}
    with matplotlib.rc_context(STYLE):
        panels = max(1, len(costs))
        figure, axes = (
            figure_of(360, 300 * panels, panels) if narrow else figure_of(346 * panels, 330, panels, abreast=True)
        )
        texts = []
        for panel, (cost, (title, units)) in zip(axes, costs.items(), strict=False):
            known = [
                (price, cell["validation"]["mean"], cell["trainable"])
                for cell, price in zip(cells, comparable_costs(cells, cost), strict=True)
                if cell["validation"]["mean"] is not None and price is not None
            ]
            unit, worth = unit_of(max((price for price, _, _ in known), default=1.0), units)
            front = curve["pareto"][cost]
            _draw_panel(panel, [(price / worth, mean, name) for price, mean, name in known], front)
            panel.set_xlabel(f"{title}, {unit}" if unit else title)
            panel.margins(0.16, 0.16)
            texts.append(f"{title}: {', '.join(map(names.trainable, front)) or 'none'}")
        for n, panel in enumerate(axes):
            if narrow or n == 0:
                panel.set_title(names.metric(metric), pad=10)
            panel.tick_params(labelleft=narrow or n == 0)
        figure.set_label(
            f"Mean {names.metric(metric)} on validation over cost. Pareto front by cost: {'; '.join(texts)}."
        )
    return figure


def _draw_panel(axes: Axes, points: Sequence[tuple[float, float, str]], front: Sequence[str]) -> None:
    """The points (cost, mean, k), those of the ``front`` filled and joined."""
    on_front = sorted((price, mean) for price, mean, name in points if name in front)
    prices, means = [x for x, _ in on_front], [y for _, y in on_front]
    axes.plot(prices, means, color=VALIDATION, linewidth=1.6, alpha=0.7, zorder=1)
    for price, mean, name in points:
        fill = VALIDATION if name in front else "none"
        axes.plot(price, mean, "o", color=VALIDATION, markerfacecolor=fill, markersize=7, markeredgewidth=1.4)
        if name in front or len(points) <= MAX_LABELS:
            _label(axes, names.depth(name), (price, mean), on_front=name in front)
    axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
    axes.spines["left"].set_visible(False)


def _label(axes: Axes, text: str, point: tuple[float, float], *, on_front: bool) -> None:
    """The label of a point, on the side away from the line of the front."""
    if on_front:
        axes.annotate(text, point, (-5, 4), textcoords="offset points", fontsize=11, ha="right", va="bottom")
    else:
        axes.annotate(text, point, (5, -4), textcoords="offset points", fontsize=11, ha="left", va="top")
