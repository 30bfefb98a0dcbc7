"""The confusion matrix as a table."""

from collections.abc import Callable

from frostline.report import formatting
from frostline.report.error_analysis import Confusion
from frostline.report.tables.table import Column, ReportTable, Row, Values


def confusion_table(confusion: Confusion, *, of_words: bool = False) -> ReportTable:
    """Counts of examples by true and predicted class. The tint of a count is its share of the true class.

    With ``of_words``, these are counts of words by type of entity, or by plain tag.
    """

    def shade(column: int) -> Callable[[Values], tuple[str, float]]:
        def shade_of(values: Values) -> tuple[str, float]:
            row = values["place"]
            return "right" if row == column else "", confusion.share(row, column)

        return shade_of

    rows = [
        Row(
            {
                **{"true": label, "place": n},
                **{f"predicted {other}": int(confusion.counts[n, m]) for m, other in enumerate(confusion.labels)},
            }
        )
        for n, label in enumerate(confusion.labels)
    ]
    columns = (
        Column("true", "true", number=False, user_text="value"),
        *(
            Column(f"predicted {label}", label, formatting.count, shade=shade(n), user_text="title")
            for n, label in enumerate(confusion.labels)
        ),
    )
    label = "type" if of_words else "class"
    caption = f"A row for each true {label}, a column for each predicted {label}."
    if of_words:
        caption += " The first word of an entity and the words after it count alike."
    if confusion.others:
        caption += f" Only the most confused classes are shown; the {confusion.others} others are summed."
    return ReportTable(
        "confusion", "Confusion matrix", caption, columns, tuple(rows), sortable=False, style="confusion"
    )
