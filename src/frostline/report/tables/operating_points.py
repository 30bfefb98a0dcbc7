"""The table of operating points: the smallest k that reaches each target."""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import trainable, tuning
from frostline.report.tables.by_depth import learning_rates, title_of, without_layers
from frostline.report.tables.table import Column, ReportTable, Row, Value, Values
from frostline.statistics.answer import SizeAnswer
from frostline.statistics.operating_points import DECIDED, UNDEFINED
from frostline.statistics.tune import is_k


def operating_points_table(curve: SizeAnswer, main: Mapping[str, Any], *, suffix: str = "") -> ReportTable:
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
                "rule": goal(point, curve),
                "of": "margin" if point["margin"] is not None else "gain" if point["corrected"] else "score",
                **{
                    name: point[name]
                    for name in ("target", "margin", "estimate", "confident", "not_ruled_out", "verdict")
                },
                "words": conclusion(point, curve),
                "place": n,
            },
            tags=("the target",) if point == main else (),
            chosen=point == main,
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
        f"{_of_same_seeds(curve)}{learning_rates(curve)}{without_layers(curve)}"
    )
    title = title_of("Operating points", curve, suffix)
    return ReportTable(f"operating_points{suffix}", title, caption, columns, tuple(rows), style="prose")


def _of_same_seeds(curve: SizeAnswer) -> str:
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


def goal(point: Mapping[str, Any], curve: SizeAnswer) -> str:
    """The target of an operating point."""
    whole = "full" if curve["reference"] is None or curve["reference_is_full"] else trainable(curve["reference"])
    if point["margin"] is not None:
        return f"at most {point['margin']:g} below {whole}"
    of = "gain" if point["corrected"] else "score"
    return f"{formatting.target(point['target'])} of the {of} of {whole}"


def conclusion(point: Mapping[str, Any], curve: SizeAnswer) -> str:
    """The conclusion of an operating point: the smallest k that reaches the target."""
    by_mean, confident, not_ruled_out = (tuning(point[name]) for name in ("estimate", "confident", "not_ruled_out"))
    if curve["reference"] is None:
        return "Undefined: nothing was compared."
    if point["verdict"] == UNDEFINED:
        return f"Undefined: {tuning(curve['reference'])} is not shown to be above the baseline."
    if point["verdict"] == DECIDED and point["confident"] != point["not_ruled_out"]:
        return f"{capitalized(by_mean)} by mean score; intervals are not considered."
    if point["verdict"] == DECIDED:
        return _certain(point, curve)
    if all(cell["validation"]["n"] < 2 for cell in curve["cells"]):
        return f"{capitalized(by_mean)} by one seed, which gives no confidence interval."
    known = "no smaller k" if point["confident"] == curve["reference"] else confident
    seeds = next(cell["validation"]["n"] for cell in curve["cells"] if cell["trainable"] == point["not_ruled_out"])
    why = "is not ruled out" if seeds > 1 else "has one seed, so no interval rules it out"
    return f"Undecided: {known} reaches it with confidence, and {not_ruled_out} {why}."


def _certain(point: Mapping[str, Any], curve: SizeAnswer) -> str:
    """The conclusion if the smallest k with confidence is also the smallest that is not ruled out."""
    if point["confident"] == curve["reference"]:
        return f"No smaller k than {tuning(point['confident'])}."
    text = f"{capitalized(tuning(point['confident']))}: its whole interval lies above the target"
    smaller = takewhile(lambda cell: cell["trainable"] != point["confident"], curve["cells"])
    if all(cell["difference"] for cell in smaller if is_k(cell["trainable"])):
        return f"{text}, and that of every smaller k below it."
    return f"{text}; some smaller k has no results."
