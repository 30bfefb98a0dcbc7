"""The figures of a search over several models: quality against the cost of training, and against that of predictions."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from frostline.report import formatting, names
from frostline.report.figures.drawing import STYLE, draw_frame, figure_of, of_model
from frostline.statistics.answer import Answer, ModelsAnswer

WIDTH, HEIGHT, LINE = 470, 330, 17  # pixels; LINE is the height of a line of the legend
# of each choice its operations, its expected score, and whether it is what is recommended with its model
Points = Sequence[tuple[float, float, bool]]


def against_training(answer: ModelsAnswer, answers: Mapping[str, Answer]) -> Figure | None:
    """The expected score of every choice of every model over the operations of training it once; None without any.

    What trains no layer has no such operations and stands at the left edge.
    """
    found: dict[str, Points] = {}
    for name, own in answers.items():
        operations = own.search["operations"] if own.search else {}
        chosen = own.decision.choice if own.decision else None
        found[name] = [
            (operations.get(one.choice, 0.0), one.expected, one.choice == chosen) for one in own.sizes[0].choices
        ]
    return _figure(answer, found, "operations of training once", "A large mark is what is recommended with a model.")


def against_inference(answer: ModelsAnswer) -> Figure | None:
    """The expected score of the best choice of every model over the operations of predicting one text; None for fewer
    than two models."""
    found: dict[str, Points] = {
        one.model: [(one.inference_operations, one.expected, True)] for one in answer.models if one.expected is not None
    }
    if len(found) < 2:
        return None
    return _figure(answer, found, "operations of predicting one text", "")


def _figure(answer: ModelsAnswer, found: Mapping[str, Points], x: str, about: str) -> Figure | None:
    found = {model: points for model, points in found.items() if points}
    costs = [cost for points in found.values() for cost, _, _ in points if cost > 0]
    if not costs:
        return None
    least = min(costs) / 2
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(WIDTH, HEIGHT + LINE * len(found))
        parts = []
        for n, (model, points) in enumerate(found.items()):
            style = {**of_model(n), "linestyle": "none"}
            axes.plot([], [], label=model, **style)
            for cost, expected, chosen in sorted(points):
                axes.plot(max(cost, least), expected, markersize=9 if chosen else 5, **style)
                parts.append(f"{model} {formatting.score(expected)} at {cost:.1e}{', recommended' if chosen else ''}")
        axes.set_xscale("log")
        narrow = max(costs) < 30 * min(costs)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=6))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.set_xlabel(x)
        axes.margins(0.08)
        draw_frame(axes, names.metric(answer.metric))
        figure.legend(loc="outside lower left", ncols=1)
        figure.set_label(f"Expected {names.metric(answer.metric)} over {x}: {'; '.join(parts)}. {about}".strip())
    return figure
