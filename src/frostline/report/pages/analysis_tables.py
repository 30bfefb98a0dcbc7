"""The tables of an analysis page: those over all results, and those of each model and task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from frostline.data.files import file_name
from frostline.report.answer.across_groups import GroupAnalysis
from frostline.report.answer.analysis import Analysis
from frostline.report.tables.costs import costs_table
from frostline.report.tables.failures import failures_table, rates_table
from frostline.report.tables.operating_points import operating_points_table
from frostline.report.tables.over_tasks import points_over_tasks_table, tasks_table
from frostline.report.tables.overview import above_full_table, answers_table, failures_by_depth_table
from frostline.report.tables.published import published_table
from frostline.report.tables.recommendations import recommendations_table
from frostline.report.tables.scores import scores_table, shares_table
from frostline.report.tables.table import ReportTable
from frostline.report.tables.train_sizes import train_sizes_table
from frostline.statistics.answer import SizeAnswer


def overall_tables(analysis: Analysis, rows: Sequence[Mapping[str, Any]]) -> dict[str, ReportTable | None]:
    """The tables over all models and tasks. ``rows`` are published and measured numbers."""
    several = [model for model in analysis["models"] if model["tasks"]]
    return {
        "recommendations": recommendations_table(analysis),
        "answers": answers_table(analysis),
        "published": published_table(rows) if rows else None,
        "points": points_over_tasks_table(analysis) if several else None,
        **{
            f"tasks{n}": tasks_table(model, analysis, f"_{file_name(model['model'])}")
            for n, model in enumerate(several)
        },
        "above": above_full_table(analysis) if analysis["above_full"] else None,
        "failures": failures_by_depth_table(analysis),
    }


def with_tables(group: GroupAnalysis) -> dict[str, Any]:
    """A model on a task with its tables; ``suffix`` ends the names of their files."""
    over_sizes = train_sizes_table(group, group["suffix"]) if group["train_sizes"] else None
    sizes = [_size_with_tables(size, group) for size in group["sizes"]]
    rates = rates_table(group, group["suffix"])
    own = [over_sizes] if over_sizes else []
    return {
        **group,
        "sizes": sizes,
        "train_sizes_table": over_sizes,
        "rates_table": rates,
        "tables": [*(table for size in sizes for table in size["tables"]), *own, rates],
    }


def _size_with_tables(size: SizeAnswer, group: GroupAnalysis) -> dict[str, Any]:
    suffix, metric = curve_suffix(group, size), group["metric"]
    examples = f", {size['train_size']:,} examples" if size["train_size"] else ""
    size = replace(size, about=f"{group['task']}, {group['model']}{examples}")
    main = size.deciding_point
    tables = [
        scores_table(size, metric, suffix=suffix),
        shares_table(size, metric, suffix=suffix),
        *([costs_table(size, suffix=suffix)] if _has_costs(size) else []),
        failures_table(size, suffix=suffix),
        operating_points_table(size, main, suffix=suffix),
    ]
    return {**size, "suffix": suffix, "tables": tables}


def curve_suffix(group: GroupAnalysis, size: SizeAnswer) -> str:
    """The end of the file names of one model, task and train size."""
    return f"{group['suffix']}_{size['train_size']}" if size["train_size"] else str(group["suffix"])


def _has_costs(size: SizeAnswer) -> bool:
    """Whether the training time of some k is known."""
    return any(cell["seconds"] is not None for cell in size["cells"])
