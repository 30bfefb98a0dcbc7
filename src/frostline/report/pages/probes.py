"""The page of a probing: a curve over the layers for every column of labels, with table and figure beside it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.report import formatting
from frostline.report.figures.drawing import FAILED, QUIET, STYLE, TRAIN, VALIDATION, figure_of, save_figures, svg
from frostline.report.pages.templates import render
from frostline.report.sentences import headline
from frostline.report.tables.table import Column, Row, Table, save_tables
from frostline.sweep.results.store import file_name, replace, write_facts

Facts = Mapping[str, Any]
VECTORS = {"first": (VALIDATION, "o"), "mean": (TRAIN, "s"), "last": (FAILED, "^")}  # a colour and a mark each


def write_probes(out: Path, found: Sequence[Facts]) -> Path:
    """Write ``out``/report.html, probes.json, tables/ and figures/; gives the page's path."""
    named = list(zip(suffixes(found), found, strict=True))
    figures = {f"probe_curve{suffix}": probe_curve(facts) for suffix, facts in named}
    tables = {f"probes{suffix}": probe_table(facts, suffix) for suffix, facts in named}
    page = out / "report.html"
    svgs = {name: svg(figure, name) for name, figure in figures.items()}
    text = render(
        "probes.html.j2",
        found=[{**facts, "suffix": suffix, "headline": headline(facts["sentence"])} for suffix, facts in named],
        figures={name: Markup(text) for name, text in svgs.items()},
        tables=tables,
        model=formatting.model_name(found[0]["model"]),
    )
    save_figures(out, figures, svgs)
    save_tables(out, tables.values())
    write_facts(out / "probes.json", {"probes": found})
    replace(page, text.encode())
    return page


def suffixes(found: Sequence[Facts]) -> list[str]:
    """What sets the files of one column of labels apart: its name, or a number where that does not tell them apart."""
    if len(found) == 1:
        return [""]
    names = [file_name(facts["columns"]["label"]) for facts in found]
    return [f"_{name if names.count(name) == 1 else n}" for n, name in enumerate(names, 1)]


def probe_table(facts: Facts, suffix: str = "") -> Table:
    """A row for every probe."""
    metric = formatting.metric(facts["metric"])
    best = (facts["best"]["layers"], facts["best"]["vector"])
    rows = [
        Row(
            {**probe, "layers": formatting.layers(probe["layers"]), "place": n},
            tags=("the best on training rows",) * ((probe["layers"], probe["vector"]) == best),
            chosen=(probe["layers"], probe["vector"]) == best,
        )
        for n, probe in enumerate(facts["probes"])
    ]
    columns = (
        Column("layers", "after layer", rank=lambda row: row["place"]),
        Column("vector", "vector", number=False),
        Column("unseen", f"{metric},\nunseen training rows", formatting.score),
        Column("validation", f"{metric},\nvalidation", formatting.score, strong=True),
        Column("strength", "penalty\na row", lambda strength: f"{strength:.2g}"),
    )
    caption = (
        f"A {facts['kind']} probe on one vector of each text after so many layers (0: the embeddings), {facts['train_rows']:,} "
        f"training rows, {facts['validation_rows']:,} validation rows. Guessing reaches {facts['chance']:.3f}"
        + ("." if facts["words"] is None else f", words and pairs of words alone {facts['words']:.3f}.")
    )
    return Table(f"probes{suffix}", "Probes", caption, columns, tuple(rows))


def probe_curve(facts: Facts) -> Figure:
    """Validation score over the layers, a line for each vector; the last layers together stand apart at the right."""
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(600, 400)
        layers = facts["layers"]
        for vector, (colour, mark) in VECTORS.items():
            some = [probe for probe in facts["probes"] if probe["vector"] == vector]
            single = [(probe["layers"][0], _drawn(probe)) for probe in some if len(probe["layers"]) == 1]
            axes.plot(
                *zip(*single, strict=True), color=colour, marker=mark, markersize=6, linewidth=2, label=_said(vector)
            )
            for probe in some:
                if len(probe["layers"]) > 1:
                    axes.plot(layers + 1.5, _drawn(probe), mark, color=colour, markersize=6)
        for height, name, dots in ((facts["chance"], "guessing", (4, 4)), (facts["words"], "words alone", (1, 2))):
            if height is not None:
                axes.axhline(height, color=QUIET, linewidth=1, linestyle=(0, dots), label=f"{name} {height:.3f}")
        together = [formatting.layers(probe["layers"]) for probe in facts["probes"] if len(probe["layers"]) > 1][:1]
        every = -(-(layers + 1) // 13)
        ticks = list(range(0, layers + 1, every))
        axes.set_xticks([*ticks, *(layers + 1.5 for _ in together)], [*map(str, ticks), *together])
        axes.set_xlabel("after layer (0: the embeddings)")
        axes.set_title(formatting.metric(facts["metric"]), pad=10)
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=3)
        figure.set_label(f"Score of probes on validation over {layers} layers. {facts['sentence']}")
    return figure


def _drawn(probe: Facts) -> float:
    """Its score; where it has none nothing is drawn."""
    return math.nan if probe["validation"] is None else float(probe["validation"])


def _said(vector: str) -> str:
    return {"first": "first token", "mean": "mean of all tokens", "last": "last token"}[vector]
