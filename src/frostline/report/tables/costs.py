"""The tables of costs by k, and of forecast and measured costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frostline.report import formatting
from frostline.report.tables.by_depth import (
    TUNED,
    comparable_column,
    learning_rates,
    rows_by_depth,
    title_of,
    without_layers,
)
from frostline.report.tables.failures import TRAIN_SIZE
from frostline.report.tables.table import Column, ReportTable, Row, Value, Values
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.training.specification import RunSpec


def costs_table(curve: SizeAnswer, *, suffix: str = "") -> ReportTable:
    """The mean score and the cost of a run of each k."""

    def values(cell: Cell) -> dict[str, Value]:
        shown = ("trainable_parameters", "seconds", "shared_seconds", "times_cheaper", "peak_memory_bytes")
        return {
            "mean": cell["comparable"],
            **{name: cell[name] for name in shown},
        }

    def shared(row: Values) -> list[str]:
        return [f"+ {formatting.seconds(float(row['shared_seconds']))}"] if row["shared_seconds"] else []

    columns = (
        TUNED,
        comparable_column(curve, "mean"),
        Column("trainable_parameters", "trainable\nparameters", formatting.parameters),
        Column("seconds", "training time\n(+ shared)", formatting.seconds, small=shared),
        Column("shared_seconds"),
        Column("times_cheaper", "times\ncheaper", formatting.times),
        Column("peak_memory_bytes", "peak\nmemory", formatting.size),
    )
    caption = (
        "Shared: a run's share of the forward pass over the frozen layers, which “times cheaper” includes. "
        f"{learning_rates(curve)}{without_layers(curve)}"
    )
    if len({cell["concurrent_runs"] for cell in curve["cells"] if cell["concurrent_runs"]}) > 1:
        caption += (
            " Some runs were trained concurrently and others alone. A run trained alone uses all cores, so its time is not "
            "comparable and is left out."
        )
    title = title_of("Cost by tuned layers", curve, suffix)
    return ReportTable(f"costs{suffix}", title, caption, columns, rows_by_depth(curve, values))


def forecast_table(calls: Sequence[Mapping[str, Any]], results: Iterable[Mapping[str, Any]]) -> ReportTable:
    """Forecast and measured time and memory: a row for each cell, for the forward pass, and in total.

    Args:
        calls: The recorded forecasts, one for each call of the command.
        results: The facts of finished runs.
    """
    cells = {(cell["trainable"], cell["train_size"]): cell for call in calls for cell in call["predicted"]["cells"]}
    rows = [
        *_cell_rows(cells, _measured_costs(results)),
        *_total_rows([call for call in calls if call["measured"]]),
    ]
    for place, row in enumerate(rows):
        row |= {"place": place, "ratio": row["predicted"] / row["measured"] if row["measured"] else None}
    several = len({size for _, size in cells}) > 1
    columns = (
        *(TUNED, TRAIN_SIZE if several else Column("train_size"), Column("runs", "runs", formatting.count)),
        Column("predicted", "forecast", formatting.seconds),
        Column("measured", "measured", formatting.seconds),
        Column("ratio", "forecast /\nmeasured", formatting.ratio, strong=True),
        Column("predicted_bytes", "memory,\nforecast", formatting.size),
        Column("measured_bytes", "memory,\nmeasured", formatting.size),
    )
    caption = (
        "Training time of a run by tuned layers, of the forward pass over the frozen layers, and in total; memory is the peak. "
        "The forecast is made before the first run, from operation counts and a few timed steps."
    )
    return ReportTable("predicted", "Forecast and measured cost", caption, columns, tuple(Row(row) for row in rows))


def _measured_costs(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """The costs of finished runs by k and train size."""
    costs: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for facts in results:
        spec = RunSpec.model_validate(facts["spec"])
        if "run_seconds" in facts["cost"]:  # results older than forecasts have none
            costs.setdefault((spec.trainable, spec.train_size), []).append(facts["cost"])
    return costs


def _cell_rows(
    cells: Mapping[tuple[str, int], Mapping[str, Any]], costs: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    rows = []
    for (name, size), cell in sorted(cells.items(), key=lambda item: -item[0][1]):
        measured = costs.get((name, size), [])
        rows.append(
            {
                **{"tuned": name, "train_size": size, "runs": len(measured), "predicted": cell["seconds"]},
                "measured": sum(cost["run_seconds"] for cost in measured) / len(measured) if measured else None,
                "predicted_bytes": cell["memory_bytes"],
                "measured_bytes": max((cost["peak_memory_bytes"] for cost in measured), default=None),
            }
        )
    return rows


def _total_rows(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows for the forward pass and for everything, over all calls that finished."""
    rows = []
    for name, key in (("forward pass", "forward_pass_seconds"), ("total", "seconds")):
        if calls:
            predicted, measured = (sum(call[which][key] for call in calls) for which in ("predicted", "measured"))
            rows.append({"tuned": name, "predicted": predicted, "measured": measured})
    return rows
