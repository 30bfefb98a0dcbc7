"""The page of linear probes, with a table and a figure for every label column."""

from collections.abc import Sequence
from pathlib import Path

from frostline.data.files import file_name, replace_file, write_json
from frostline.report.figures.files import save_figures
from frostline.report.figures.probe_curve import probe_curve
from frostline.report.names import model_name
from frostline.report.pages.sentences import headline
from frostline.report.pages.templates import render
from frostline.report.probe_sentence import ProbeFacts
from frostline.report.tables.probes import probe_table
from frostline.report.tables.table import save_tables


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
        model=model_name(probes[0]["model"]),
    )
    save_tables(out, tables.values())
    write_json(out / "probes.json", {"probes": probes}, inside=out)
    replace_file(page, text.encode(), inside=out)
    return page


def suffixes(probes: Sequence[ProbeFacts]) -> list[str]:
    """The end of the file names of each label column: its name, or a number if the name is not unique."""
    if len(probes) == 1:
        return [""]
    names = [file_name(facts["columns"]["label"]) for facts in probes]
    return [f"_{name if names.count(name) == 1 else n}" for n, name in enumerate(names, 1)]
