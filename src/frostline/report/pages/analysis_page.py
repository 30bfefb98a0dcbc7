"""The page of an analysis of many results, with its tables and figures."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from frostline.data.files import file_name, replace_file, write_json
from frostline.report import formatting
from frostline.report.answer.analysis import Analysis, GroupAnalysis
from frostline.report.figures.drawing import save_figures
from frostline.report.figures.score_figures import learning_curves, relative_change, validation_curve
from frostline.report.pages.templates import render
from frostline.report.tables.analysis_tables import (
    above_full_table,
    answers_table,
    failures_by_depth_table,
    points_over_tasks_table,
    published_table,
    recommendations_table,
    tasks_table,
    train_sizes_table,
)
from frostline.report.tables.curve_tables import (
    costs_table,
    failures_table,
    operating_points_table,
    rates_table,
    renamed,
    scores_table,
    shares_table,
)
from frostline.report.tables.table import ReportTable, save_tables
from frostline.statistics.answer import SizeAnswer, plain


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
    out, suffixes = Path(out), _suffixes(analysis.groups)
    pages = {key: folder / "report.html" for key, folder in (folders or {}).items() if folder}
    links = {key: os.path.relpath(page, out) for key, page in pages.items() if page.exists()}
    groups = [
        _with_tables(group, suffix, links.get((group.model, group.task)))
        for group, suffix in zip(analysis.groups, suffixes, strict=True)
    ]
    figures, tables = _figures(groups), _overall_tables(analysis, rows)
    text = render(
        "analysis.html.j2",
        title=title,
        analysis=analysis,
        groups=groups,
        tables=tables,
        figures=save_figures(out, figures),
        publication=publication,
        settings_in_words=_settings_in_words(analysis),
    )
    of_groups = (table for group in groups for table in group.tables)
    save_tables(out, [*tables.values(), *of_groups])
    write_json(out / "analysis.json", plain(analysis), inside=out)
    replace_file(out / "report.html", text.encode(), inside=out)
    return out / "report.html"


def _suffixes(groups: Sequence[GroupAnalysis]) -> list[str]:
    """For each group, a unique suffix of the names of its tables and figures."""
    taken: dict[str, int] = {}
    found = []
    for group in groups:
        suffix = f"_{file_name(group.model)}_{file_name(group.task)}"
        taken[suffix.lower()] = number = taken.get(suffix.lower(), 0) + 1
        found.append(suffix if number == 1 else f"{suffix}-{number}")
    return found


def _overall_tables(analysis: Analysis, rows: Sequence[Mapping[str, Any]]) -> dict[str, ReportTable]:
    """The tables over all models and tasks. ``rows`` are published and measured numbers."""
    several = [model for model in analysis.models if model.tasks]
    tables = {
        "recommendations": recommendations_table(analysis),
        "answers": answers_table(analysis),
        "failures": failures_by_depth_table(analysis),
    }
    if rows:
        tables["published"] = published_table(rows)
    if several:
        tables["points"] = points_over_tasks_table(analysis)
    for n, model in enumerate(several):
        tables[f"tasks{n}"] = tasks_table(model, analysis, f"_{file_name(model.model)}")
    if analysis.above_full:
        tables["above"] = above_full_table(analysis)
    return tables


@dataclass(frozen=True)
class _Size:
    """A train size with its tables; ``suffix`` ends the names of their files."""

    answer: SizeAnswer
    suffix: str
    tables: list[ReportTable]


@dataclass(frozen=True)
class _Group:
    """A model on a task with its tables, and the page of its sweep."""

    of: GroupAnalysis
    suffix: str
    link: str | None
    sizes: list[_Size]
    rates: ReportTable
    over_sizes: ReportTable | None

    @property
    def tables(self) -> list[ReportTable]:
        own = [self.over_sizes] if self.over_sizes else []
        return [*(table for size in self.sizes for table in size.tables), *own, self.rates]


def _with_tables(group: GroupAnalysis, suffix: str, link: str | None) -> _Group:
    about = f"{group.model}, {group.task}"
    over_sizes = renamed(train_sizes_table(group), suffix, about) if group.train_sizes else None
    sizes = [_size_with_tables(size, group, suffix) for size in group.sizes]
    return _Group(group, suffix, link, sizes, renamed(rates_table(group.rates), suffix, about), over_sizes)


def _size_with_tables(size: SizeAnswer, group: GroupAnalysis, suffix: str) -> _Size:
    examples = f", {size.train_size:,} examples" if size.train_size else ""
    suffix = f"{suffix}_{size.train_size}" if size.train_size else suffix
    costs = [costs_table(size)] if any(cell.seconds is not None for cell in size.cells) else []
    tables = [
        scores_table(size, group.metric),
        shares_table(size, group.metric),
        *(*costs, failures_table(size), operating_points_table(size)),
    ]
    about = f"{group.task}, {group.model}{examples}"
    return _Size(size, suffix, [renamed(table, suffix, about) for table in tables])


def _figures(groups: Sequence[_Group]) -> dict[str, Figure]:
    """Every figure of the page by name. A curve with a single k has none."""
    found = {"relative_change": relative_change([group.of for group in groups])}
    for group in groups:
        metric, chance = group.of.metric, group.of.chance
        for size in (size for size in group.sizes if len(size.answer.cells) > 1):
            found[f"validation_curve{size.suffix}"] = validation_curve(size.answer, metric=metric, chance=chance)
        if group.of.train_sizes:
            curves = [size.answer for size in group.sizes]
            found[f"learning_curves{group.suffix}"] = learning_curves(
                curves, metric=metric, chance=chance, task=group.of.task
            )
    return {name: figure for name, figure in found.items() if figure is not None}


def _settings_in_words(analysis: Analysis) -> list[str]:
    """A sentence for each setting that may change a conclusion."""
    settings = analysis.settings
    rates = (
        "Each k is shown at its own best learning rate. If several were tried, the best one was chosen by the scores that are "
        "shown, which are therefore slightly optimistic."
    )
    if settings.one_learning_rate:
        rates = "Every k is shown at the learning rate that is best for full fine-tuning."
    failures = "Failed runs are counted, and left out of a mean if at least half of its runs succeeded."
    if settings.failed_below is not None:
        share = formatting.target(settings.failed_below)
        failures = (
            f"Runs with at most {share} of the best score of their cell, or a score of 0, are left out of the means."
        )
    excluded = " and ".join(settings.leave_out)
    reached = "A number of layers reaches the target with confidence if its whole 95 % confidence interval does."
    if settings.by_mean:
        reached = "A number of layers reaches the target if its mean score does."
    shares = "Shares are of full fine-tuning’s score, without subtracting a baseline."
    if settings.corrected:
        shares = "Shares are of full fine-tuning’s gain over the best constant prediction (the baseline)."
    tasks = "No task is excluded."
    if excluded:
        tasks = f"Excluded where tasks are combined: {excluded}."
    unknown = ", ".join(dict.fromkeys(group.task for group in analysis.groups if group.chance is None))
    known = f"The baseline of {unknown} is unknown: shares there are of full fine-tuning’s score."
    return [rates, failures, tasks, reached, shares, *([known] if unknown else [])]
