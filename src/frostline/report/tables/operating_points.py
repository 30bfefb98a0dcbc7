"""The table of operating points: the smallest k that reaches each target."""

from collections.abc import Callable, Mapping
from typing import Any

from frostline.report.names import trainable
from frostline.report.tables import rules
from frostline.report.tables.by_depth import title_of
from frostline.report.tables.table import Column, ReportTable, Row, Value, Values
from frostline.statistics.curve import Curve


def operating_points_table(curve: Curve, main: Mapping[str, Any], *, suffix: str = "") -> ReportTable:
    """The smallest k that reaches each share of full fine-tuning, and the smallest k within the margin.

    Args:
        curve: One train size of an answer.
        main: The operating point that the answer is about.
        suffix: The end of the file name, which is unique on a page with several curves.
    """
    order = {cell["trainable"]: n for n, cell in enumerate(curve["cells"])}

    def place(name: str) -> Callable[[Values], Value]:
        return lambda row: order.get(str(row[name]))

    points = sorted(curve["operating_points"], key=lambda point: (point["margin"] is not None, not point["corrected"]))
    rows = [
        Row(
            {
                "rule": rules.goal(point, curve),
                "of": "margin" if point["margin"] is not None else "gain" if point["corrected"] else "score",
                **{
                    name: point[name]
                    for name in ("target", "margin", "estimate", "confident", "not_ruled_out", "verdict")
                },
                "words": rules.conclusion(point, curve),
                "place": n,
            },
            tags=("the target",) if point is main else (),
            chosen=point is main,
        )
        for n, point in enumerate(points)
    ]
    columns = (
        Column("rule", "target", number=False, rank=lambda row: row["place"]),
        *(Column("of", number=False), Column("target"), Column("margin")),
        *sufficient_columns(place),
        Column("verdict", number=False),
        Column("words", "conclusion", number=False),
    )
    caption = (
        f"The smallest number of tuned layers that reaches each target. {THREE_WAYS} "
        f"{_of_same_seeds(curve)}{rules.learning_rates(curve)}{rules.without_layers(curve)}"
    )
    title = title_of("Operating points", curve, suffix)
    return ReportTable(f"operating_points{suffix}", title, caption, columns, tuple(rows), style="prose")


def _of_same_seeds(curve: Curve) -> str:
    """A sentence if the k have different numbers of seeds; else empty."""
    seeds = {cell["validation"]["n"] for cell in curve["cells"] if cell["validation"]["n"]}
    if len(seeds) < 2:
        return ""
    return "Shares compare runs of the same seeds, so they can differ from those of the mean scores. "


THREE_WAYS = (
    "By mean: its mean score does. With confidence: its whole 95 % confidence interval lies above the target. Not ruled out: "
    "a part of the interval does."
)


def sufficient_columns(place: Callable[[str], Callable[[Values], Value]] | None = None) -> tuple[Column, ...]:
    """The smallest k by mean, with confidence, and not ruled out. ``place`` gives the order of k for sorting."""

    def column(name: str, title: str, *, strong: bool = False) -> Column:
        rank = place(name) if place else None
        return Column(name, title, trainable, number=False, rank=rank, strong=strong)

    return (
        column("estimate", "by\nmean"),
        column("confident", "with\nconfidence", strong=True),
        column("not_ruled_out", "not\nruled out"),
    )
