"""Facts about the data, and warnings about unusual data."""

import json
from typing import Any

import pandas as pd

from frostline.data.checks import overlap
from frostline.data.load import Data, load_data
from frostline.data.specification import DataSpec


def load(**options: Any) -> Data:
    return load_data(DataSpec(**options))


def test_unusual_data_are_reported() -> None:
    train = pd.DataFrame({"text": ["a", "b", "b", " ", "NA", "c"], "label": ["x", "x", "y", "y", "x", "y"]})
    data = load(train=train, validation=pd.DataFrame({"text": ["a", "d"], "label": ["x", "x"]}), test="none")
    assert data.notes[-4:] == (
        "Warning: 1 of 2 validation rows has a text that is also in train.",
        "Warning: 1 training text has more than one label (rows 2, 3): correct what is wrong, or give the second text "
        "of a pair with --text-pair-column.",
        "1 train row has an empty text (row 4); it is not removed.",
        "No validation row has the label 'y'.",
    )
    assert data.report.repeated == {"train": 1, "validation": 0} and data.report.conflicting == 1
    assert data.report.splits["train"].label_counts == {"x": 3, "y": 3}
    assert data.report.splits["train"].characters["max"] == 2
    assert json.loads(json.dumps(data.report.as_dict()))["shared"] == {"train/validation": 1}
    assert overlap(data.train, data.validation).tolist() == [0]


def test_at_most_ten_rows_of_conflicting_texts_are_named() -> None:
    texts = [f"text {n // 2}" for n in range(40)]
    data = load(train=pd.DataFrame({"text": texts, "label": ["x", "y"] * 20}), test="none")
    assert data.report.conflicting > 10 and len(data.report.conflicting_rows) == 10
    rows = ", ".join(map(str, data.report.conflicting_rows))
    assert any(f"training texts have more than one label (rows {rows}, ...): correct" in note for note in data.notes)


def test_a_rare_label_that_resembles_a_frequent_one_may_be_a_typo() -> None:
    def warnings(**rows: int) -> list[str]:
        labels = [label for label, count in rows.items() for _ in range(count)]
        train = pd.DataFrame({"text": [f"text {n}" for n in range(len(labels))], "label": labels})
        return [note for note in load(train=train, test="none").notes if "typo" in note]

    (warning,) = warnings(positive=400, negative=400, postive=8)
    assert "training rows have the label 'postive', and" in warning and "have 'positive': correct it" in warning
    assert not warnings(positive=400, negative=15)  # another word
    assert not warnings(positive=400, postive=200)  # frequent, so meant
    assert not warnings(level_one_1=400, level_one_2=15)  # another number
