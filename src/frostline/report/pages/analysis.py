"""The page of an analysis of many results, with its tables and figures."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.data.files import file_name, replace_file, write_json
from frostline.report.answer.across_groups import GroupAnalysis
from frostline.report.answer.analysis import Analysis
from frostline.report.figures.cost_curve import cost_curve
from frostline.report.figures.files import save_figures, svg
from frostline.report.figures.learning_curves import learning_curves
from frostline.report.figures.pareto_fronts import pareto_fronts
from frostline.report.figures.relative_change import relative_change
from frostline.report.figures.train_and_validation import train_and_validation
from frostline.report.figures.validation_curve import validation_curve
from frostline.report.pages.analysis_settings import settings_in_words
from frostline.report.pages.analysis_tables import curve_suffix, has_costs, overall_tables, with_tables
from frostline.report.pages.templates import render
from frostline.report.tables.table import save_tables
from frostline.statistics.curve import Curve

MAX_WIDE = 6  # with more groups, only figures for phones are drawn, so that the page stays small


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
    svgs = {name: svg(figure, name) for name, figure in figures.items()}
    text = render(
        "analysis.html.j2",
        title=title,
        analysis=analysis,
        groups=groups,
        tables=tables,
        figures={name: Markup(text) for name, text in svgs.items()},
        publication=publication,
        settings_in_words=settings_in_words(analysis),
    )
    save_figures(out, figures, svgs)
    of_groups = (table for group in groups for table in group["tables"])
    save_tables(out, [*(table for table in tables.values() if table), *of_groups])
    plain = {**analysis, "groups": [{k: v for k, v in group.items() if k != "suffix"} for group in analysis["groups"]]}
    write_json(out / "analysis.json", plain, inside=out)
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
    """Every figure of the page by name; ``_narrow`` ones are for phones."""
    groups = analysis["groups"]
    found: dict[str, Figure | None] = {
        "relative_change": relative_change(groups),
        "relative_change_narrow": relative_change(groups, columns=1),
    }
    for group in groups:
        for size in group["sizes"]:
            found |= _size_figures(group, size, widths=("", "_narrow") if len(groups) <= MAX_WIDE else ("_narrow",))
        if group["train_sizes"]:
            found[f"learning_curves{group['suffix']}"] = learning_curves(
                group["sizes"], metric=group["metric"], chance=group["chance"], task=group["task"]
            )
        found[f"train_and_validation{group['suffix']}"] = train_and_validation(group)
    known = {name: figure for name, figure in found.items() if figure is not None}
    return {name if (wide := name.removesuffix("_narrow")) in known else wide: figure for name, figure in known.items()}


def _size_figures(group: GroupAnalysis, size: Curve, *, widths: Sequence[str]) -> dict[str, Figure]:
    """The figures of one train size of a model and task; empty if it has a single k."""
    found: dict[str, Figure] = {}
    if len(size["cells"]) < 2:
        return found
    suffix, metric = curve_suffix(group, size), group["metric"]
    for width in widths:
        narrow = bool(width)
        found[f"validation_curve{suffix}{width}"] = validation_curve(
            size, metric=metric, chance=group["chance"], narrow=narrow
        )
        if has_costs(size):
            found[f"pareto_fronts{suffix}{width}"] = pareto_fronts(size, metric=metric, narrow=narrow)
    if has_costs(size):
        found[f"cost_curve{suffix}"] = cost_curve(size)
    return found
