"""The tables of the data: examples by split and by class."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.tables.table import Column, ReportTable, Row, Values


def splits_table(data: Mapping[str, Any]) -> ReportTable:
    """Examples by split, with what the data checks counted; ``data`` is ``data`` of answer.json."""
    report = data["report"]
    rows = [
        Row(
            {
                **{"split": name, "rows": split["rows"], "empty_texts": split["empty_texts"]},
                **{f"characters_{which}": split["characters"][which] for which in ("median", "percentile_95")},
                "truncated": data["truncated"].get(name),
                "repeated": report["repeated"].get(name, 0),
                "in_train": report["shared"].get(f"train/{name}"),
            }
        )
        for name, split in report["splits"].items()
    ]
    columns = (
        Column("split", "split", number=False),
        Column("rows", "examples", formatting.count),
        Column("characters_median", "characters,\nmedian", formatting.count),
        Column("characters_percentile_95", "characters,\n95th percentile", formatting.count),
        Column("truncated", "truncated", formatting.percent),
        Column("repeated", "duplicates in\nthe split", formatting.count),
        Column("in_train", "also in\ntrain", formatting.count),
        Column("empty_texts", "empty\ntexts", formatting.count),
    )
    caption = f"An example is truncated if it has more than {data['max_length']} tokens."
    return ReportTable("splits", "Examples by split", caption, columns, tuple(rows))


def classes_table(data: Mapping[str, Any], labels: Sequence[str], task_type: str) -> ReportTable:
    """Examples by class or label in each split, or words by tag."""
    counted, label = {TOKENS: ("words", "tag"), MULTI_LABEL: ("examples", "label")}.get(
        task_type, ("examples", "class")
    )
    splits = data["report"]["splits"]

    def share(split: str) -> Callable[[Values], list[str]]:
        whole = splits[split]["rows"] if task_type == MULTI_LABEL else sum(splits[split]["label_counts"].values())
        return lambda row: [formatting.percent(row[f"rows_{split}"] / whole)] if whole else []

    rows = [
        Row(
            {
                "class": name,
                "place": n,
                **{f"rows_{split}": splits[split]["label_counts"].get(name, 0) for split in splits},
                "truncated": data["truncated_by_class"].get(name),
            }
        )
        for n, name in enumerate(labels)
    ]
    columns = (
        Column("class", label, number=False, rank=lambda row: row["place"], user_text="value"),
        *(Column(f"rows_{split}", split, formatting.count, small=share(split)) for split in splits),
        Column("truncated", "truncated in train", formatting.percent),
    )
    caption = f"The number of {counted}, with its share of the split."
    return ReportTable("classes", f"{capitalized(counted)} by {label}", caption, columns, tuple(rows), style="classes")
