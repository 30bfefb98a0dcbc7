"""The table over train sizes: from which size full fine-tuning is better, and how its distance from k changes."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.report import formatting
from frostline.report.names import printed
from frostline.report.tables.by_depth import interval_below
from frostline.report.tables.table import Column, ReportTable, Row, Value


def train_sizes_table(group: Mapping[str, Any], suffix: str) -> ReportTable:
    """Each k over the train sizes of one model and task of an analysis."""
    found = group["train_sizes"]
    slopes = {row["recipe"]: row for row in found["interaction"]}
    spreads = {row["recipe"]: row for row in found["spread"]}
    rows = [
        Row(
            {
                "recipe": row["recipe"],
                "full_better_from": row["full_better_from"],
                **_prefixed("slope", slopes.get(row["recipe"]), ("slope", "low", "high", "p", "p_holm")),
                **_prefixed("spread", spreads.get(row["recipe"]), ("ratio", "p", "p_holm")),
                "place": n,
            }
        )
        for n, row in enumerate(found["pays_from"])
    ]
    columns = (
        Column("recipe", "tuned", printed, number=False, rank=lambda row: row["place"]),
        Column("full_better_from", "full is better\nfrom … examples", formatting.count),
        Column(
            *("slope_slope", "change of the\ndifference per\ntenfold examples", formatting.difference),
            small=interval_below("slope_low", "slope_high", formatting.difference_interval),
        ),
        *(Column("slope_low"), Column("slope_high"), Column("slope_p")),
        Column("slope_p_holm", "p-value of\nthe change\n(Holm)", formatting.p_value),
        Column("spread_ratio", "spread between\nseeds relative\nto full", formatting.times),
        Column("spread_p"),
        Column("spread_p_holm", "p-value of\nthe spread\n(Holm)", formatting.p_value),
    )
    caption = (
        "Compared with full fine-tuning over all train sizes. The difference is the score of k less that of full fine-tuning: "
        "if it falls, full fine-tuning gains more from more examples. The spread is the standard deviation between seeds, with "
        "failed runs, pooled over the sizes; below 1, k varies less than full fine-tuning."
    )
    return ReportTable(
        f"sizes{suffix}", f"Train sizes, {group['model']}, {group['task']}", caption, columns, tuple(rows)
    )


def _prefixed(prefix: str, row: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Value]:
    return {f"{prefix}_{name}": None if row is None else row[name] for name in names}
