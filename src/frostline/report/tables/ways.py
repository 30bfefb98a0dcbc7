"""The table of ways to tune: each beside the last k layers at the same cost."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting
from frostline.report.names import trainable
from frostline.report.tables.by_depth import comparable_column, title_of
from frostline.report.tables.table import Column, ReportTable, Row, Values
from frostline.statistics.answer import SizeAnswer
from frostline.statistics.tune import is_way
from frostline.training.ways.way import Way

CAPTION = (
    "Each way beside the largest k that costs at most as much, by the share of layers that run in training: the points that it "
    "is expected to score above that k, their 95 % interval, and the probability that it scores higher. Time and memory are "
    "measured. Each way that tunes layers has as many learning rates as every k above 0. Ways that train only a head have "
    "learning rates of their own. Each is shown at its best one. Before any run, a way is expected to score as that k, because "
    "the best of many ways partly looks best by luck."
)
NO_K = " Where nothing is beside a way, no k costs as little: add head, or fewer last layers, to --ways."
NO_RUN = " A way that has no usable run is beside nothing."


def ways_table(curve: SizeAnswer, results: Mapping[str, Any], *, suffix: str = "") -> ReportTable | None:
    """A row for each way; None if there are none.

    Args:
        curve: One train size of an answer.
        results: The facts of finished runs by digest.
        suffix: The end of the file name, unique for each train size.
    """
    choices = {choice["choice"]: choice for choice in curve["choices"]}
    recommended = curve.get("recommended")
    rows = [
        Row(
            {
                "way": cell["trainable"],
                "fields": Way.model_validate(results[cell["points"][0]["run"]]["spec"]["way"]).in_words
                if cell["points"]
                else "",
                "score": cell["comparable"],
                **_beside(choices.get(cell["trainable"])),
                **{name: cell[name] for name in ("trainable_parameters", "seconds", "peak_memory_bytes")},
            },
            ("recommended",) if recommended and recommended["trainable"] == cell["trainable"] else (),
            bool(recommended and recommended["trainable"] == cell["trainable"]),
        )
        for cell in curve["cells"]
        if is_way(cell["trainable"])
    ]
    alone = [row.values["way"] for row in rows if not row.values["k"]]
    caption = CAPTION + NO_K * any(way in choices for way in alone) + NO_RUN * any(way not in choices for way in alone)
    columns = (
        Column("way", "way", number=False, strong=True, user_text="value"),
        Column("fields", "what it changes", number=False),
        comparable_column(curve, "score"),
        Column("k", "beside", trainable, number=False),
        Column("above", "expected\npoints above", formatting.points, small=lambda row: _interval(row)),
        *(Column("low"), Column("high")),
        Column("probability", "probability\nof more", formatting.percent),
        Column("trainable_parameters", "trainable\nparameters", formatting.parameters),
        Column("seconds", "training\ntime", formatting.seconds),
        Column("peak_memory_bytes", "peak\nmemory", formatting.size),
    )
    return (
        ReportTable(f"ways{suffix}", title_of("Ways to tune", curve, suffix), caption, columns, tuple(rows))
        if rows
        else None
    )


def _beside(choice: Mapping[str, Any] | None) -> dict[str, Any]:
    """The comparison of a choice with the last k layers at the same cost."""
    beside = (choice and choice["beside_k"]) or {}
    return {"k": beside.get("choice"), **{name: beside.get(name) for name in ("above", "low", "high", "probability")}}


def _interval(row: Values) -> list[str]:
    if row["low"] is None:
        return []
    return [f"{formatting.points(row['low'])} to {formatting.points(row['high'])}"]
