"""The table of published and measured numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.report import formatting, names
from frostline.report.tables.overview import TASK
from frostline.report.tables.table import Column, ReportTable, Row

PUBLISHED = ("table", "model", "task", "train_size", "statistic", "value", "gap", "of_layers")
MEASURED = ("measured_model", "measured_tuned", "measured_size", "measured", "runs")


def published_table(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Each published number with its measured counterpart, from :func:`frostline.studies.comparison.compare`."""
    models, measured = ({row[name] for row in rows} - {None} for name in ("model", "measured_model"))
    sizes = {row.get("measured_size") for row in rows} - {None}
    other_model = any(row["measured_model"] not in (row["model"], None) for row in rows)
    other_size = any(row["train_size"] and row.get("measured_size") not in (row["train_size"], None) for row in rows)
    columns = (
        Column("table", "in", number=False, rank=lambda row: row["place"]),
        Column("model", "model" if len(models) > 1 else "", number=False),
        TASK,
        Column("train_size", "examples" if any(row["train_size"] for row in rows) else "", formatting.count),
        Column("tuned", "tuned", names.printed, number=False),
        Column("of_layers", "of\nlayers"),
        Column("statistic", "statistic", lambda text: text.replace("_", " "), number=False),
        Column("value", "published", _number, strong=True),
        Column("measured_model", "measured\nmodel" if other_model and len(measured) > 1 else "", number=False),
        Column("measured_tuned", "measured\ntuned" if other_model else "", names.printed, number=False),
        Column("measured_size", "measured\nexamples" if other_size and len(sizes) > 1 else "", formatting.count),
        Column("measured", "measured", _number, small=_runs),
        Column("runs"),
        Column("gap", "" if other_model else "measured less\npublished, points", _points),
    )
    caption = "Every published number that was measured too."
    if len(models) == 1:
        caption += f" Published for {models.pop()}."
    if other_model:
        name = f" ({measured.pop()})" if len(measured) == 1 else ""
        caption += f" Another model{name} is compared at the same share of its layers: its scores need not be the same."
    if other_size and len(sizes) == 1:
        caption += f" Measured with {sizes.pop():,} examples."
    return ReportTable(
        "published", "Published and measured", caption, columns, tuple(_row(row, n) for n, row in enumerate(rows))
    )


def _row(row: Mapping[str, Any], place: int) -> Row:
    tuned = row["tuned"]
    return Row(
        {
            **{name: row.get(name) for name in (*PUBLISHED, *MEASURED)},
            "tuned": None if tuned is None else tuned,
            "place": place,
        }
    )


def _number(value: float) -> str:
    """A number of a publication: a score or a count."""
    return f"{value:,.0f}" if abs(value) >= 1000 or (value == int(value) and value > 1) else formatting.score(value)


def _runs(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['runs']} {'run' if row['runs'] == 1 else 'runs'}"] if row["runs"] else []


def _points(gap: float) -> str:
    """A difference of scores in percentage points, or a difference of counts."""
    return f"{100 * gap:+.2f}".replace("-", "−") if abs(gap) < 1 else f"{gap:+,.0f}".replace("-", "−")
