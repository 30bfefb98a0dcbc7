"""The table of choices on the terminal: the recommended one, full fine-tuning, and what lies around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frostline.report import formatting

RECOMMENDED, DOMINATED = "recommended", "dominated"


@dataclass(frozen=True)
class Line:
    """A line of the table, and ``recommended``, ``dominated`` or an empty string."""

    text: str
    kind: str = ""


def choices_table(size: Mapping[str, Any], rows: int) -> list[Line]:
    """A header and at most this many rows, at most 80 characters wide unless a name is long.

    If there are more choices than rows, the least interesting ones are left out, and the last row counts them.

    Args:
        size: One train size of an answer.
        rows: At least 4.
    """
    options = size["options"] or [_of_cell(cell) for cell in size["cells"]]
    chosen = size["decision"] and size["decision"]["choice"]
    shown = options
    if len(options) > rows:
        first = by_interest(options, chosen, size["reference"])[: rows - 1]
        shown = [option for option in options if option["choice"] in first]
    reference = "full" if size["reference_is_full"] or not size["reference"] else size["reference"]
    head = ("", "choice", "score", f"points below {reference}", "cost", "sure", "")
    table = [_row(option, chosen, size["reference"]) for option in shown]
    lines = _aligned([head, *table])
    kinds = ["", *(row[-1] for row in table)]
    left_out = len(options) - len(shown)
    more = [Line(f"  … {left_out} more in the report")] if left_out else []
    return [*(Line(text, kind) for text, kind in zip(lines, kinds, strict=True)), *more]


def by_interest(options: Sequence[Mapping[str, Any]], chosen: str | None, reference: str | None) -> list[str]:
    """The names of all choices, the most interesting ones first.

    The recommended choice and full fine-tuning come first, then the best score, then the neighbours of the recommended choice.
    All others follow by their distance from it. Those that are dominated come last.
    """
    order = [option["choice"] for option in options]
    centre = order.index(chosen) if chosen in order else len(order) - 1
    best = max(options, key=lambda option: -1.0 if option["score"] is None else option["score"])["choice"]
    dominated = {option["choice"] for option in options if option["dominated_by"]}
    first = [name for name in (chosen, reference, best, *order[max(0, centre - 1) : centre + 2]) if name in order]
    others = sorted(order, key=lambda name: (name in dominated, abs(order.index(name) - centre)))
    return list(dict.fromkeys([*first, *others]))


def _of_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A k of an answer without a decision: only its score is known."""
    unknown = dict.fromkeys(("below_full", "low", "high", "cost_of_full", "probability", "dominated_by"))
    return {"choice": cell["trainable"], "score": cell["validation"]["mean"], **unknown}


def _row(option: Mapping[str, Any], chosen: str | None, reference: str | None) -> tuple[str, ...]:
    from frostline.report.names import trainable

    name, cost, sure = option["choice"], option["cost_of_full"], option["probability"]
    kind = RECOMMENDED if name == chosen else DOMINATED if option["dominated_by"] else ""
    return (
        ">" if name == chosen else "",
        trainable(name),
        formatting.score(option["score"]),
        "" if name == reference else _below(option),
        "" if cost is None else f"{100 * cost:.0f} %",
        "" if sure is None or name == reference else formatting.short_probability(sure),
        kind,
    )


def _below(option: Mapping[str, Any]) -> str:
    """The points below full fine-tuning with their 95 % interval."""
    if option["below_full"] is None:
        return ""
    below, low, high = (formatting.points(option[name]) for name in ("below_full", "low", "high"))
    return f"{below} ({low} to {high})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as text. Names and kinds are aligned to the left, numbers to the right; empty columns are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or column[0] == "choice"]
    widths = [max(map(len, column)) for column in columns]
    left = [column[0] in ("", "choice") for column in columns]
    return [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]
