"""The tables of an analysis page: those of everything, and those of each model and task."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.data.files import file_name
from frostline.report.tables.costs import costs_table
from frostline.report.tables.failures import failures_table, rates_table
from frostline.report.tables.operating_points import operating_points_table
from frostline.report.tables.over_tasks import points_over_tasks_table, tasks_table
from frostline.report.tables.overview import above_full_table, answers_table, failures_by_depth_table
from frostline.report.tables.published import published_table
from frostline.report.tables.rules import other_rules
from frostline.report.tables.scores import scores_table, shares_table
from frostline.report.tables.table import Table
from frostline.report.tables.train_sizes import train_sizes_table
from frostline.statistics.curve import main_point

Analysis = Mapping[str, Any]
Group = Mapping[str, Any]  # a model on a task, with the ``suffix`` of its names


def overall_tables(analysis: Analysis, rows: Sequence[Mapping[str, Any]]) -> dict[str, Table | None]:
    """The tables over all models and tasks; ``rows`` are published numbers beside measured ones."""
    several = [model for model in analysis["models"] if model["tasks"]]
    return {
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


def with_tables(group: Group) -> dict[str, Any]:
    """A model on a task with its tables."""
    learning = train_sizes_table(group, group["suffix"]) if group["learning"] else None
    sizes = [_size_with_tables(size, group) for size in group["sizes"]]
    rates = rates_table(group, group["suffix"])
    own = [learning] if learning else []
    return {
        **group,
        "sizes": sizes,
        "learning_table": learning,
        "rates_table": rates,
        "tables": [*(table for size in sizes for table in size["tables"]), *own, rates],
    }


def _size_with_tables(size: Mapping[str, Any], group: Group) -> dict[str, Any]:
    suffix, metric = size_suffix(group, size), group["metric"]
    examples = f", {size['train_size']:,} examples" if size["train_size"] else ""
    size = {**size, "about": f"{group['task']}, {group['model']}{examples}"}
    main = main_point(size)
    tables = [
        scores_table(size, metric, suffix=suffix),
        shares_table(size, metric, suffix=suffix),
        *([costs_table(size, suffix=suffix)] if has_costs(size) else []),
        failures_table(size, suffix=suffix),
        operating_points_table(size, main, suffix=suffix),
    ]
    return {**size, "suffix": suffix, "tables": tables, "rules": other_rules(size, main)}


def size_suffix(group: Group, size: Mapping[str, Any]) -> str:
    """The suffix of the names of tables and figures of one train size."""
    return f"{group['suffix']}_{size['train_size']}" if size["train_size"] else str(group["suffix"])


def has_costs(size: Mapping[str, Any]) -> bool:
    """Whether the training time of some k is known."""
    return any(cell["seconds"] is not None for cell in size["cells"])
