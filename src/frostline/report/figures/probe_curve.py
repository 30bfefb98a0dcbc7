"""The figure of probe scores over the layers of a frozen model."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import formatting, names
from frostline.report.figures.style import FAILED, QUIET, STYLE, TRAIN, VALIDATION, draw_frame, figure_of

Facts = Mapping[str, Any]
VECTORS = {  # what a probe reads: colour, marker, label
    "first": (VALIDATION, "o", "first token"),
    "mean": (TRAIN, "s", "mean of all tokens"),
    "last": (FAILED, "^", "last token"),
}
MAX_LABELS = 13
APART = 1.5  # distance of several layers together from the last single layer


def probe_curve(facts: Facts) -> Figure:
    """Validation score over the layers, a line for each vector; several layers together stand apart at the right."""
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(600, 400)
        for vector in VECTORS:
            _draw_vector(
                axes, [probe for probe in facts["probes"] if probe["vector"] == vector], vector, facts["layers"]
            )
        baselines = (
            (facts["chance"], names.baseline(facts["metric"]), (4, 4)),
            (facts["words"], "TF-IDF baseline", (1, 2)),
        )
        for height, name, dashes in baselines:
            if height is not None:
                axes.axhline(height, color=QUIET, linewidth=1, linestyle=(0, dashes), label=f"{name} {height:.3f}")
        _label_layers(axes, facts)
        draw_frame(axes, names.metric(facts["metric"]))
        figure.legend(loc="outside lower left", ncols=3)
        figure.set_label(f"Score of probes on validation over {facts['layers']} layers. {facts['sentence']}")
    return figure


def _draw_vector(axes: Axes, probes: list[Facts], vector: str, layers: int) -> None:
    colour, marker, label = VECTORS[vector]
    single = [(probe["layers"][0], _height(probe)) for probe in probes if len(probe["layers"]) == 1]
    axes.plot(*zip(*single, strict=True), color=colour, marker=marker, markersize=6, linewidth=2, label=label)
    for probe in probes:
        if len(probe["layers"]) > 1:
            axes.plot(layers + APART, _height(probe), marker, color=colour, markersize=6)


def _label_layers(axes: Axes, facts: Facts) -> None:
    layers = facts["layers"]
    several = [formatting.layers(probe["layers"]) for probe in facts["probes"] if len(probe["layers"]) > 1][:1]
    ticks = list(range(0, layers + 1, -(-(layers + 1) // MAX_LABELS)))
    axes.set_xticks([*ticks, *(layers + APART for _ in several)], [*map(str, ticks), *several])
    axes.set_xlabel("after layer (0: the embeddings)")


def _height(probe: Facts) -> float:
    """The score; NaN, which is not drawn, if it is undefined."""
    return math.nan if probe["validation"] is None else float(probe["validation"])
