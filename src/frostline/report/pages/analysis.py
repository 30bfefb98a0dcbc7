"""The page of an analysis of many results, with its tables and figures."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from frostline.data.files import file_name, replace_file, write_json
from frostline.report.answer.analysis import Analysis
from frostline.report.figures.files import save_figures
from frostline.report.figures.learning_curves import learning_curves
from frostline.report.figures.relative_change import relative_change
from frostline.report.figures.validation_curve import validation_curve
from frostline.report.pages.analysis_settings import settings_in_words
from frostline.report.pages.analysis_tables import curve_suffix, overall_tables, with_tables
from frostline.report.pages.templates import render
from frostline.report.tables.table import save_tables
from frostline.statistics.answer import plain


def write_analysis(
    out: str | Path,
    analysis: Analysis,
    *,
    title: str,
    publication: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    folders: Mapping[tuple[str, str], Path | None] | None = None,
) -> Path:
    """Write report.html, analysis.json, tables/ and figures/ into ``out``, and return the path of the page.

    Args:
        out: The folder.
        analysis: What :func:`frostline.report.answer.analysis.analyze` returned.
        title: The title of the page.
        publication: Title, source, question, contradictions and differences of a published study.
        rows: Published and measured numbers, from :func:`frostline.studies.comparison.compare`.
        folders: The folder of each sweep, by model and task. The page links to the page in it.
    """
    out, analysis = Path(out), {**analysis, "groups": _with_suffixes(analysis["groups"])}
    pages = {key: folder / "report.html" for key, folder in (folders or {}).items() if folder}
    links = {key: os.path.relpath(page, out) for key, page in pages.items() if page.exists()}
    groups = [
        {**with_tables(group), "link": links.get((group["model"], group["task"]))} for group in analysis["groups"]
    ]
    figures, tables = _figures(analysis), overall_tables(analysis, rows)
    text = render(
        "analysis.html.j2",
        title=title,
        analysis=analysis,
        groups=groups,
        tables=tables,
        figures=save_figures(out, figures),
        publication=publication,
        settings_in_words=settings_in_words(analysis),
    )
    of_groups = (table for group in groups for table in group["tables"])
    save_tables(out, [*(table for table in tables.values() if table), *of_groups])
    facts = {**analysis, "groups": [{k: v for k, v in group.items() if k != "suffix"} for group in analysis["groups"]]}
    write_json(out / "analysis.json", plain(facts), inside=out)
    replace_file(out / "report.html", text.encode(), inside=out)
    return out / "report.html"


def _with_suffixes(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups, each with a unique suffix for the names of its tables and figures."""
    taken: dict[str, int] = {}
    found = []
    for group in groups:
        suffix = f"_{file_name(group['model'])}_{file_name(group['task'])}"
        taken[suffix.lower()] = taken.get(suffix.lower(), 0) + 1
        number = taken[suffix.lower()]
        found.append({**group, "suffix": suffix if number == 1 else f"{suffix}-{number}"})
    return found


def _figures(analysis: Analysis) -> dict[str, Figure]:
    """Every figure of the page by name. A curve with a single k has none."""
    found = {"relative_change": relative_change(analysis["groups"])}
    for group in analysis["groups"]:
        metric, chance = group["metric"], group["chance"]
        for size in (size for size in group["sizes"] if len(size["cells"]) > 1):
            name = f"validation_curve{curve_suffix(group, size)}"
            found[name] = validation_curve(size, metric=metric, chance=chance)
        if group["train_sizes"]:
            name = f"learning_curves{group['suffix']}"
            found[name] = learning_curves(group["sizes"], metric=metric, chance=chance, task=group["task"])
    return {name: figure for name, figure in found.items() if figure is not None}
