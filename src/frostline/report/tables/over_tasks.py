"""The tables over all tasks of a model: ranks, shares, and the smallest k that reaches the target in every task."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting
from frostline.report.answer.analysis import Analysis
from frostline.report.names import printed
from frostline.report.tables.operating_points import THREE_WAYS, sufficient_columns
from frostline.report.tables.overview import MODEL, settings_sentence
from frostline.report.tables.table import Column, ReportTable, Row


def tasks_table(model: Mapping[str, Any], analysis: Analysis, suffix: str) -> ReportTable:
    """Each k over all tasks of a model: mean rank, mean share, and the worst task."""
    found = model["tasks"]
    whole = "gain" if analysis["settings"]["corrected"] else "score"
    columns = (
        Column("recipe", "tuned", printed, number=False, rank=lambda row: row["place"]),
        Column("tuned_layers"),
        Column("mean_rank", "mean\nrank", lambda value: f"{value:.1f}"),
        Column("mean_share", f"mean share\nof the {whole}", formatting.percent),
        Column("worst_share", "worst\nshare", formatting.percent),
        Column("worst_task", "worst\ntask", number=False),
        Column("tasks", "tasks"),
    )
    rows = [Row({**row, "place": n}) for n, row in enumerate(found["rows"])]
    layers = f", {model['layers']} layers" if model["layers"] else ""
    excluded = f" Excluded by choice: {', '.join(found['left_out'])}." if found["left_out"] else ""
    caption = (
        f"{model['model']}{layers}, over {len(found['tasks'])} tasks. Rank 1 is the best mean of a task; ties share their "
        f"ranks. Shares are of full fine-tuning’s {whole}, as the mean over tasks and for the worst task.{excluded}"
    )
    return ReportTable(f"over_tasks{suffix}", f"{model['model']} over all tasks", caption, columns, tuple(rows))


def points_over_tasks_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target in every task, for each model."""
    rows = [
        Row(
            {
                **{name: model[name] for name in ("model", "layers")},
                **point,
                "left_out": ", ".join(model["tasks"]["left_out"]) or None,
            },
            chosen=point["target"] == analysis["settings"]["target"],
        )
        for model in analysis["models"]
        if model["tasks"]
        for point in model["tasks"]["points"]
    ]
    columns = (
        MODEL,
        Column("layers", "layers"),
        Column("target", "share\nof full", formatting.target),
        *sufficient_columns(),
        Column("left_out", "tasks\nexcluded", number=False),
    )
    caption = (
        "The smallest number of tuned layers that reaches each share of full fine-tuning in every task. "
        f"{THREE_WAYS} {settings_sentence(analysis)}"
    )
    return ReportTable("points_over_tasks", "Operating points over all tasks", caption, columns, tuple(rows))
