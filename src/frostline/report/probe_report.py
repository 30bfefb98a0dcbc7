"""The page of linear probes on frozen features, with a table and a figure for every label column."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from frostline.data.files import file_name, replace_file, write_json
from frostline.report import formatting, names
from frostline.report.explanations import ProbeFacts, headline
from frostline.report.figures.drawing import (
    FAILED,
    QUIET,
    STYLE,
    TRAIN,
    VALIDATION,
    draw_frame,
    figure_of,
    save_figures,
)
from frostline.report.pages.templates import render
from frostline.report.tables.table import Column, ReportTable, Row, save_tables

VECTOR_STYLES = {
    "first": (VALIDATION, "o"),
    "mean": (TRAIN, "s"),
    "last": (FAILED, "^"),
    "word": (VALIDATION, "o"),
}  # colour and marker
MAX_LABELS = 13
APART = 1.5  # x distance between the last layer and a probe on several layers


def write_probes(out: Path, probes: Sequence[ProbeFacts]) -> Path:
    """Write report.html, probes.json, tables/ and figures/ into ``out``, and return the path of the page.

    ``probes`` are the facts of every label column.
    """
    named = list(zip(suffixes(probes), probes, strict=True))
    figures = {f"probe_curve{suffix}": probe_curve(facts) for suffix, facts in named}
    tables = {f"probes{suffix}": probe_table(facts, suffix) for suffix, facts in named}
    page = out / "report.html"
    text = render(
        "probes.html.j2",
        found=[{**facts, "suffix": suffix, "headline": headline(facts["sentence"])} for suffix, facts in named],
        figures=save_figures(out, figures),
        tables=tables,
        model=names.model_name(probes[0]["model"]),
    )
    save_tables(out, tables.values())
    write_json(out / "probes.json", {"probes": probes}, inside=out)
    replace_file(page, text.encode(), inside=out)
    return page


def suffixes(probes: Sequence[ProbeFacts]) -> list[str]:
    """The end of the file names of each label column: its name, or a number if the name is not unique."""
    if len(probes) == 1:
        return [""]
    columns = [file_name(facts["columns"]["label"]) for facts in probes]
    return [f"_{name if columns.count(name) == 1 else n}" for n, name in enumerate(columns, 1)]


def probe_table(facts: ProbeFacts, suffix: str = "") -> ReportTable:
    """A row for every probe."""
    metric, best = names.metric(facts["metric"]), facts["best"]

    def is_best(probe: ProbeFacts) -> bool:
        return (probe["layers"], probe["vector"]) == (best["layers"], best["vector"])

    columns = (
        Column("layers", "after layer", of=lambda probe: formatting.layers(probe["layers"]), rank="place"),
        Column("vector", "token", number=False),
        Column("held_out", f"{metric}, held-out\ntraining examples", formatting.score),
        Column("validation", f"{metric},\nvalidation", formatting.score, strong=True),
        Column("penalty", "penalty per\nexample", lambda penalty: f"{penalty:.2g}"),
    )
    tfidf = "." if facts["tfidf_score"] is None else f", TF-IDF model {facts['tfidf_score']:.3f}."
    read = "the first token of each word" if best["vector"] == "word" else "one vector of each example"
    caption = (
        f"A {facts['kind']} probe on {read} after each layer (0: the embeddings), {facts['train_rows']:,} "
        f"training and {facts['validation_rows']:,} validation examples. "
        f"{names.baseline(facts['metric']).capitalize()} {facts['chance']:.3f}{tfidf}"
    )
    tag = "best on held-out training examples"
    rows = (Row(probe, (tag,) * is_best(probe), is_best(probe)) for probe in facts["probes"])
    return ReportTable(f"probes{suffix}", "Probes", caption, columns, tuple(rows))


def probe_curve(facts: ProbeFacts) -> Figure:
    """Validation score over the layers, with a line for each vector. Probes on several layers are drawn at the right."""
    layers, probes = facts["layers"], facts["probes"]
    single = [probe for probe in probes if len(probe["layers"]) == 1]
    several = [probe for probe in probes if len(probe["layers"]) > 1]

    def height(probe: ProbeFacts) -> float:  # NaN is not drawn
        return math.nan if probe["validation"] is None else float(probe["validation"])

    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(470, 420)
        for vector in dict.fromkeys(probe["vector"] for probe in probes):
            colour, marker = VECTOR_STYLES[vector]
            points = [(one["layers"][0], height(one)) for one in single if one["vector"] == vector]
            line: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6}
            axes.plot(*zip(*points, strict=True), **line, linewidth=2, label=names.VECTORS[vector])
            for probe in (one for one in several if one["vector"] == vector):
                axes.plot(layers + APART, height(probe), **line)
        baselines = (
            (facts["chance"], names.baseline(facts["metric"]), (4, 4)),
            (facts["tfidf_score"], "TF-IDF model", (1, 2)),
        )
        for score, name, dashes in baselines:
            if score is not None:
                axes.axhline(score, color=QUIET, linewidth=1, linestyle=(0, dashes), label=f"{name} {score:.3f}")
        ticks = list(range(0, layers + 1, -(-(layers + 1) // MAX_LABELS)))
        at_right = [formatting.layers(one["layers"]) for one in several[:1]]
        axes.set_xticks([*ticks, *(layers + APART for _ in at_right)], [*map(str, ticks), *at_right])
        axes.set_xlabel("after layer (0: the embeddings)")
        draw_frame(axes, names.metric(facts["metric"]))
        figure.legend(loc="outside lower left", ncols=2)
        figure.set_label(f"Score of probes on validation over {layers} layers. {facts['sentence']}")
    return figure
