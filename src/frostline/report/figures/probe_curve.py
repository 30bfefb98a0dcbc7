"""The figure of probe scores over the layers of a frozen model."""

import math

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.report import formatting, names
from frostline.report.figures.style import FAILED, QUIET, STYLE, TRAIN, VALIDATION, draw_frame, figure_of
from frostline.report.probe_sentence import ProbeFacts

VECTOR_STYLES = {
    "first": (VALIDATION, "o"),
    "mean": (TRAIN, "s"),
    "last": (FAILED, "^"),
    "word": (VALIDATION, "o"),
}  # colour and marker
MAX_LABELS = 13
APART = 1.5  # x distance between the last layer and a probe on several layers


def probe_curve(facts: ProbeFacts) -> Figure:
    """Validation score over the layers, with a line for each vector. Probes on several layers are drawn at the right."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 420)
        for vector in dict.fromkeys(probe["vector"] for probe in facts["probes"]):
            _draw_vector(
                axes, [probe for probe in facts["probes"] if probe["vector"] == vector], vector, facts["layers"]
            )
        baselines = (
            (facts["chance"], names.baseline(facts["metric"]), (4, 4)),
            (facts["tfidf_score"], "TF-IDF model", (1, 2)),
        )
        for height, name, dashes in baselines:
            if height is not None:
                axes.axhline(height, color=QUIET, linewidth=1, linestyle=(0, dashes), label=f"{name} {height:.3f}")
        _label_layers(axes, facts)
        draw_frame(axes, names.metric(facts["metric"]))
        figure.legend(loc="outside lower left", ncols=2)
        figure.set_label(f"Score of probes on validation over {facts['layers']} layers. {facts['sentence']}")
    return figure


def _draw_vector(axes: Axes, probes: list[ProbeFacts], vector: str, layers: int) -> None:
    (colour, marker), label = VECTOR_STYLES[vector], names.VECTORS[vector]
    single = [(probe["layers"][0], _height(probe)) for probe in probes if len(probe["layers"]) == 1]
    axes.plot(*zip(*single, strict=True), color=colour, marker=marker, markersize=6, linewidth=2, label=label)
    for probe in probes:
        if len(probe["layers"]) > 1:
            axes.plot(layers + APART, _height(probe), marker, color=colour, markersize=6)


def _label_layers(axes: Axes, facts: ProbeFacts) -> None:
    layers = facts["layers"]
    several = [formatting.layers(probe["layers"]) for probe in facts["probes"] if len(probe["layers"]) > 1][:1]
    ticks = list(range(0, layers + 1, -(-(layers + 1) // MAX_LABELS)))
    axes.set_xticks([*ticks, *(layers + APART for _ in several)], [*map(str, ticks), *several])
    axes.set_xlabel("after layer (0: the embeddings)")


def _height(probe: ProbeFacts) -> float:
    """The score. An undefined one is NaN, which is not drawn."""
    return math.nan if probe["validation"] is None else float(probe["validation"])
