"""Rows, columns and titles of the tables with one row for each k of a curve."""

from collections.abc import Callable, Mapping
from typing import Any

from frostline.report import formatting, names
from frostline.report.tables.table import Column, Row, Value, Values
from frostline.statistics.alternatives import ALTERNATIVES
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.curve import BEST_OF_FULL

TUNED = Column("tuned", "tuned", names.trainable, number=False, rank=lambda row: row["place"])


def rows_by_depth(curve: SizeAnswer, values: Callable[[Cell], Mapping[str, Value]]) -> tuple[Row, ...]:
    """A row for each k with the values of its cell. The recommended row is highlighted."""
    recommended = curve.get("recommended")
    rows = []
    for place, cell in enumerate(curve["cells"]):
        name = cell["trainable"]
        chosen = bool(recommended and recommended["trainable"] == name)
        tags = ["recommended"] if chosen else []
        if name == curve["reference"]:
            tags.append("full" if cell["tune_embeddings"] else "reference")
        rows.append(Row({"tuned": name, "place": place, **values(cell)}, tuple(tags), chosen))
    return tuple(rows)


def title_of(title: str, curve: SizeAnswer, suffix: str) -> str:
    """A title that is unique on its page.

    In an analysis it contains the task, model and train size; on a sweep's page, the train size except for the first one.
    """
    about = curve.get("about") or (f"{curve['train_size']:,} examples" if suffix else "")
    return f"{title}, {about}" if about else title


def interval_columns(title: str, low: str, high: str, show: Callable[[Any, Any], str]) -> tuple[Column, ...]:
    """Two columns that are printed as one interval."""
    return Column(low, title, whole=lambda row: show(row[low], row[high])), Column(high)


def interval_below(low: str, high: str, show: Callable[[Any, Any], str]) -> Callable[[Values], list[str]]:
    """An interval as small print below a value."""
    return lambda row: [show(row[low], row[high])]


def comparable_column(curve: SizeAnswer, key: str) -> Column:
    """The mean score of each k, to be compared with those of others: with folds, without the effects of its folds."""
    title = "mean without\nfold effects" if names.rows_differ(curve["cells"]) else "mean\nscore"
    return Column(key, title, formatting.score)


def learning_rates_of(cell: Cell) -> dict[str, Value]:
    """The learning rate that represents a cell, and all that were tried."""
    tried = " ".join(f"{rate:g}" for rate in cell["learning_rates_tried"])
    return {"learning_rate": cell["learning_rate"], "learning_rates_tried": tried}


def learning_rate_columns() -> tuple[Column, ...]:
    """The columns for :func:`learning_rates_of`."""
    rate = Column("learning_rate", "learning\nrate", formatting.learning_rate, small=_tried)
    return rate, Column("learning_rates_tried", number=False)


def _tried(row: Values) -> list[str]:
    """The learning rates that were tried, two on each line so that the column stays narrow."""
    tried = [formatting.learning_rate(float(rate)) for rate in str(row["learning_rates_tried"]).split()]
    lines = [", ".join(tried[n : n + 2]) for n in range(0, len(tried), 2)]
    return ",\n".join([f"of {lines[0]}", *lines[1:]]).splitlines() if len(tried) > 1 else []


def without_layers(curve: SizeAnswer) -> str:
    """A sentence if what is recommended trains no layer, so that it is in no table by k; else empty."""
    chosen = (curve["decision"] or {}).get("choice")
    if chosen not in ALTERNATIVES:
        return ""
    return f" The recommended {names.trainable(chosen)} trains no layer; it is in the table of choices."


def learning_rates(curve: SizeAnswer) -> str:
    """A sentence on the learning rates of a table by k. k = 0 (classifier head only) has its own learning rates."""
    by_k = {cell["trainable"]: set(cell["learning_rates_tried"]) for cell in curve["cells"]}
    of_head = by_k.pop(names.HEAD_ONLY, set()) if len(by_k) > 1 else set()
    tried = set().union(*by_k.values())
    if not tried | of_head:
        return "The learning rates are unknown."
    own = of_head if of_head != tried else set()
    if len(tried) < 2 and len(own) < 2:
        text = f"Learning rate {formatting.learning_rate(*(tried or of_head))}"
        return f"{text}; {formatting.learning_rate(*own)} for k = 0." if own and tried else f"{text}."
    if curve["learning_rate_rule"] == BEST_OF_FULL:
        text = "Every k is shown at the learning rate that is best for full fine-tuning"
        return f"{text}; k = 0 at its own best." if own else f"{text}."
    return "Each k is shown at its own best learning rate on validation."


def reference(curve: SizeAnswer) -> str:
    """A clause on the reference of every comparison."""
    return "Nothing was compared" if curve["reference"] is None else f"Compared with {names.tuning(curve['reference'])}"
