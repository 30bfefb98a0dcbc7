"""The figure of quality against cost, with the Pareto front of each cost."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import names
from frostline.report.figures.cost_curve import unit_of
from frostline.report.figures.depth_axis import MAX_LABELS
from frostline.report.figures.style import QUIET, STYLE, VALIDATION, figure_of
from frostline.report.names import COSTS
from frostline.statistics.curve import Curve
from frostline.statistics.pareto import comparable_costs


def pareto_fronts(curve: Curve, *, metric: str, narrow: bool = False) -> Figure:
    """The mean score over each cost, with a panel for each cost and a point for each k.

    Points on the Pareto front are filled and joined. Only comparable costs are drawn, and an unknown cost has no panel.
    ``narrow`` draws for the width of a phone.
    """
    cells = curve["cells"]
    prices = {name: comparable_costs(cells, name) for name in COSTS}
    known_costs = {name: cost for name, cost in COSTS.items() if any(price is not None for price in prices[name])}
    with matplotlib.rc_context(STYLE):
        panels = max(1, len(known_costs))
        figure, axes = (
            figure_of(360, 300 * panels, panels) if narrow else figure_of(346 * panels, 330, panels, side_by_side=True)
        )
        texts = []
        for panel, (name, cost) in zip(axes, known_costs.items(), strict=False):
            known = [
                (price, cell["comparable"], cell["trainable"])
                for cell, price in zip(cells, prices[name], strict=True)
                if cell["comparable"] is not None and price is not None
            ]
            unit, scale = unit_of(max((price for price, _, _ in known), default=1.0), cost.units)
            front = curve["pareto"][name]
            _draw_panel(panel, [(price / scale, mean, k) for price, mean, k in known], front)
            panel.set_xlabel(f"{cost.title}, {unit}" if unit else cost.title)
            panel.margins(0.16, 0.16)
            texts.append(f"{cost.title}: {', '.join(map(names.trainable, front)) or 'none'}")
        for n, panel in enumerate(axes):
            if narrow or n == 0:
                panel.set_title(names.score_title(metric, cells), pad=10)
            panel.tick_params(labelleft=narrow or n == 0)
        figure.set_label(
            f"Mean {names.metric(metric)} on validation over cost. Pareto front by cost: {'; '.join(texts)}."
        )
    return figure


def _draw_panel(axes: Axes, points: Sequence[tuple[float, float, str]], front: Sequence[str]) -> None:
    """Draw points (cost, mean, k). Those on the ``front`` are filled and joined."""
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
    """Draw the label of a point, on the side away from the line of the front."""
    if on_front:
        axes.annotate(text, point, (-5, 4), textcoords="offset points", fontsize=11, ha="right", va="bottom")
    else:
        axes.annotate(text, point, (5, -4), textcoords="offset points", fontsize=11, ha="left", va="top")
