"""What is reported of linear probes on frozen features, and their page, with a table and a figure."""

import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from frostline.data.files import write_json
from frostline.data.wording import counted, model_name
from frostline.report import formatting, names
from frostline.report.explanations import headline
from frostline.report.figures.drawing import QUIET, STYLE, draw_frame, figure_of, style_of
from frostline.report.formatting import score
from frostline.report.pages.templates import write_report_page
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.training.result import ProbeReport, ReportedProbe

MAX_LABELS = 13
APART = 1.5  # x distance between the last layer and a probe on several layers


def probe_sentence(report: ProbeReport) -> str:
    """The score of the best probe, and whether it is significantly better than the constant baseline."""
    best, metric = report.best, names.metric(report.metric)
    if best.validation is None or report.low is None or report.high is None:
        return (
            f"No probe has a defined {metric}: it predicts the same for every example, or there are too few "
            "validation examples."
        )
    examples = counted(report.validation_rows, "validation example")
    layers = f"layer{'s' if len(best.layers) > 1 else ''} {formatting.layers(best.layers)} of {report.layers}"
    probe = f"{report.kind} probe on the {names.VECTORS[best.vector]} after {layers}"
    scores = f"{metric} {score(best.validation)} (95 % interval {formatting.interval(report.low, report.high)})"
    baseline = names.baseline(report.metric)
    tfidf = "" if report.tfidf_score is None else f", the TF-IDF model {score(report.tfidf_score)}"
    better = "" if report.low > report.chance else "not "
    return (
        f"With {examples}, frozen features are {better}significantly better than the {baseline}. The best on held-out training "
        f"examples, a {probe}, reaches {scores}. On the same examples, the {baseline} reaches {score(report.chance)}{tfidf}."
    )


def write_probes(out: Path, report: ProbeReport) -> Path:
    """Write report.html, probes.json, tables/ and figures/ into ``out``; returns the page's path."""
    table = probe_table(report)
    write_json(out / "probes.json", report.model_dump(), inside=out)
    return write_report_page(
        out,
        "probes.html.j2",
        [table],
        {"probe_curve": probe_curve(report)},
        probe=report,
        headline=headline(report.sentence),
        table_of_probes=table,
        model=model_name(report.model),
    )


def probe_table(report: ProbeReport) -> ReportTable:
    """A row for every probe."""
    metric, best = names.metric(report.metric), report.best
    columns = (
        Column("layers", "after layer", of=lambda probe: formatting.layers(probe.layers), rank="place"),
        Column("vector", "token", number=False),
        Column("held_out", f"{metric}, held-out\ntraining examples", formatting.score),
        Column("validation", f"{metric},\nvalidation", formatting.score, strong=True),
        Column("penalty", "penalty per\nexample", lambda penalty: f"{penalty:.2g}"),
    )
    tfidf = "." if report.tfidf_score is None else f", TF-IDF model {score(report.tfidf_score)}."
    read = "the first token of each word" if best.vector == "word" else "one vector of each example"
    caption = (
        f"A {report.kind} probe on {read} after each layer (0: the embeddings), {report.train_rows:,} "
        f"training and {report.validation_rows:,} validation examples. "
        f"{names.baseline(report.metric).capitalize()} {score(report.chance)}{tfidf}"
    )
    tag = "best on held-out training examples"
    rows = (Row(probe, (tag,) * (probe == best), probe == best) for probe in report.probes)
    return ReportTable("probes", "Probes", caption, columns, tuple(rows))


def probe_curve(report: ProbeReport) -> Figure:
    """Validation score over the layers, with a line for each vector. Probes on several layers are drawn at the right."""
    layers, probes = report.layers, report.probes
    single = [probe for probe in probes if len(probe.layers) == 1]
    several = [probe for probe in probes if len(probe.layers) > 1]

    def height(probe: ReportedProbe) -> float:  # NaN is not drawn
        return math.nan if probe.validation is None else float(probe.validation)

    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 420)
        for n, vector in enumerate(dict.fromkeys(probe.vector for probe in probes)):
            points = [(one.layers[0], height(one)) for one in single if one.vector == vector]
            line: dict[str, Any] = {**style_of(n), "markersize": 6}
            axes.plot(*zip(*points, strict=True), **line, linewidth=2, label=names.VECTORS[vector])
            for probe in (one for one in several if one.vector == vector):
                axes.plot(layers + APART, height(probe), **line)
        baselines = (
            (report.chance, names.baseline(report.metric), (4, 4)),
            (report.tfidf_score, "TF-IDF model", (1, 2)),
        )
        for height_of, name, dashes in baselines:
            if height_of is not None:
                axes.axhline(
                    height_of, color=QUIET, linewidth=1, linestyle=(0, dashes), label=f"{name} {score(height_of)}"
                )
        ticks = list(range(0, layers + 1, -(-(layers + 1) // MAX_LABELS)))
        at_right = [formatting.layers(one.layers) for one in several[:1]]
        axes.set_xticks([*ticks, *(layers + APART for _ in at_right)], [*map(str, ticks), *at_right])
        axes.set_xlabel("after layer (0: the embeddings)")
        draw_frame(axes, names.metric(report.metric))
        figure.legend(loc="outside lower left", ncols=2)
        figure.set_label(f"Score of probes on validation over {layers} layers. {report.sentence}")
    return figure
