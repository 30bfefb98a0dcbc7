"""The confusion matrix as a table."""

from collections.abc import Callable

from frostline.report import formatting
from frostline.report.error_analysis import Confusion
from frostline.report.tables.table import Column, ReportTable, Row, Values


def confusion_table(confusion: Confusion) -> ReportTable:
    """Counts of examples by true and predicted class. The tint of a count is its share of the true class."""

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
    caption = "A row for each true class, a column for each predicted class."
    if confusion.others:
        caption += f" Only the most confused classes are shown; the {confusion.others} others are summed."
    return ReportTable(
        "confusion", "Confusion matrix", caption, columns, tuple(rows), sortable=False, style="confusion"
    )
