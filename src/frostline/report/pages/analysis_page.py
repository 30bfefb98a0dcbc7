"""The page of an analysis of many results, with its tables and figures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from frostline.data.files import file_name, write_json
from frostline.report import formatting
from frostline.report.answer.analysis import Analysis
from frostline.report.pages.curves import curves_of
from frostline.report.pages.templates import write_report_page
from frostline.report.tables.analysis_tables import (
    answers_table,
    points_over_tasks_table,
    recommendations_table,
)
from frostline.report.tables.table import ReportTable
from frostline.statistics.answer import TaskAnswer
from frostline.statistics.run_group import RunGroup


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a page says of a published study.

    Attributes:
        study: The :class:`frostline.studies.protocol.Protocol`, with its question, source, contradictions and differences.
        gaps: A sentence on how far measured means are from the published ones; empty if none was measured.
        table: The published numbers with their measured counterparts; None if there are none.
    """

    study: Any
    gaps: str
    table: ReportTable | None


def write_analysis(
    out: str | Path, analysis: Analysis, runs: Sequence[RunGroup], title: str, publication: Publication | None = None
) -> Path:
    """Write report.html, analysis.json, tables/ and figures/ into ``out``, and return the path of the page.

    Args:
        out: The folder.
        analysis: What :func:`frostline.report.answer.analysis.analyze` returned.
        runs: What it is about. The page links to the pages of sweeps.
        title: The title of the page.
        publication: The published study that the results are compared with.
    """
    out, answers = Path(out), analysis.groups
    pages = {(group.model, group.task): group.folder / "report.html" for group in runs if group.folder}
    groups = [
        curves_of(group, price=analysis.settings.price, suffix=suffix, about=f"{group.task}, {group.model}")
        for group, suffix in zip(answers, _suffixes(answers), strict=True)
    ]
    tables = _overall_tables(analysis)
    figures = {name: figure for group in groups for name, figure in group.figures.items()}
    published = [publication.table] if publication and publication.table else []
    written = [*tables.values(), *published, *(table for group in groups for table in group.tables)]
    write_json(out / "analysis.json", to_jsonable_python(analysis), inside=out)
    return write_report_page(
        out,
        "analysis.html.j2",
        written,
        figures,
        title=title,
        analysis=analysis,
        models={group.model: group.layers for group in answers},
        tasks=list(dict.fromkeys(group.task for group in answers)),
        groups=groups,
        links={key: os.path.relpath(page, out) for key, page in pages.items() if page.exists()},
        tables=tables,
        publication=publication,
        settings_in_words=_settings_in_words(analysis),
    )


def _suffixes(groups: Sequence[TaskAnswer]) -> list[str]:
    """For each group, a unique suffix of the names of its tables and figures."""
    taken: dict[str, int] = {}
    found = []
    for group in groups:
        suffix = f"_{file_name(group.model)}_{file_name(group.task)}"
        taken[suffix.lower()] = number = taken.get(suffix.lower(), 0) + 1
        found.append(suffix if number == 1 else f"{suffix}-{number}")
    return found


def _overall_tables(analysis: Analysis) -> dict[str, ReportTable]:
    """The tables over all models and tasks, by name."""
    tables = [recommendations_table(analysis), answers_table(analysis)]
    if analysis.over_tasks:
        tables.append(points_over_tasks_table(analysis))
    return {table.name: table for table in tables}


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
