"""The figure of a search over several models: quality against the cost of training."""

from collections.abc import Mapping

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from frostline.report import formatting, names
from frostline.report.figures.drawing import STYLE, draw_frame, figure_of, style_of
from frostline.statistics.answer import Answer, ModelsAnswer

WIDTH, HEIGHT, LINE = 470, 330, 17  # pixels; LINE is the height of a line of the legend


def against_training(answer: ModelsAnswer, answers: Mapping[str, Answer]) -> Figure | None:
    """The expected score of every choice of every model over the operations of training it once; None without any.

    What trains no layer has no such operations and stands at the left edge.
    """
    # of each choice its operations, its expected score, and whether it is what is recommended with its model
    found = dict[str, list[tuple[float, float, bool]]]()
    for name, own in answers.items():
        operations = own.search["operations"] if own.search else {}
        best = own.decision.choice if own.decision else None
        choices = own.sizes[0].choices
        if choices:
            found[name] = [(operations.get(one.choice, 0.0), one.expected, one.choice == best) for one in choices]
    costs = [cost for points in found.values() for cost, _, _ in points if cost > 0]
    if not costs:
        return None
    least = min(costs) / 2
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(WIDTH, HEIGHT + LINE * len(found))
        parts = []
        for n, (model, points) in enumerate(found.items()):
            style = {**style_of(n), "linestyle": "none"}
            axes.plot([], [], label=model, **style)
            for cost, expected, chosen in sorted(points):
                axes.plot(max(cost, least), expected, markersize=9 if chosen else 5, **style)
                parts.append(f"{model} {formatting.score(expected)} at {cost:.1e}{', recommended' if chosen else ''}")
        axes.set_xscale("log")
        narrow = max(costs) < 30 * min(costs)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=6))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.set_xlabel("operations of training once")
        axes.margins(0.08)
        draw_frame(axes, names.metric(answer.metric))
        figure.legend(loc="outside lower left", ncols=1)
        figure.set_label(
            f"Expected {names.metric(answer.metric)} over operations of training once: {'; '.join(parts)}."
        )
    return figure
