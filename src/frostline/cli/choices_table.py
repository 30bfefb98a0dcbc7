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
    from frostline.report.names import whole

    choices = size["choices"] or [_of_cell(cell) for cell in size["cells"]]
    chosen = size["decision"] and size["decision"]["choice"]
    shown = choices
    if len(choices) > rows:
        first = by_interest(choices, chosen, size["reference"])[: rows - 1]
        shown = [choice for choice in choices if choice["choice"] in first]
    reference = "full" if size["reference_is_full"] or not size["reference"] else size["reference"]
    layers = "layers" if whole(size) == "all layers" else f"of {reference}"
    head = ("", "choice", "score", f"points below {reference}", layers, "sure", "")
    table = [_row(choice, chosen, size["reference"]) for choice in shown]
    lines = _aligned([head, *table])
    kinds = ["", *(row[-1] for row in table)]
    left_out = len(choices) - len(shown)
    more = [Line(f"  … {left_out} more in the report")] if left_out else []
    return [*(Line(text, kind) for text, kind in zip(lines, kinds, strict=True)), *more]


def by_interest(choices: Sequence[Mapping[str, Any]], chosen: str | None, reference: str | None) -> list[str]:
    """The names of all choices, the most interesting ones first.

    The recommended choice and full fine-tuning come first, then the best score, then the neighbours of the recommended choice.
    All others follow by their distance from it. Those that are dominated come last.
    """
    order = [choice["choice"] for choice in choices]
    centre = order.index(chosen) if chosen in order else len(order) - 1
    best = max(choices, key=lambda choice: -1.0 if choice["score"] is None else choice["score"])["choice"]
    dominated = {choice["choice"] for choice in choices if choice["dominated_by"]}
    first = [name for name in (chosen, reference, best, *order[max(0, centre - 1) : centre + 2]) if name in order]
    others = sorted(order, key=lambda name: (name in dominated, abs(order.index(name) - centre)))
    return list(dict.fromkeys([*first, *others]))


def _of_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A k of an answer without a decision: only its score is known."""
    unknown = dict.fromkeys(("below_full", "low", "high", "cost_of_full", "probability", "dominated_by"))
    return {"choice": cell["trainable"], "score": cell["validation"]["mean"], **unknown}


def _row(choice: Mapping[str, Any], chosen: str | None, reference: str | None) -> tuple[str, ...]:
    from frostline.report.names import trainable

    name, cost, sure = choice["choice"], choice["cost_of_full"], choice["probability"]
    kind = RECOMMENDED if name == chosen else DOMINATED if choice["dominated_by"] else ""
    return (
        ">" if name == chosen else "",
        trainable(name),
        formatting.score(choice["score"]),
        "" if name == reference else _below(choice),
        "" if cost is None else f"{100 * cost:.0f} %",
        "" if sure is None or name == reference else formatting.short_probability(sure),
        kind,
    )


def _below(choice: Mapping[str, Any]) -> str:
    """The points below full fine-tuning with their 95 % interval."""
    if choice["below_full"] is None:
        return ""
    below, low, high = (formatting.points(choice[name]) for name in ("below_full", "low", "high"))
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
