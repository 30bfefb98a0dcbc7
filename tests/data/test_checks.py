"""Facts about the data, and warnings about unusual data."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from frostline.data.kinds import REGRESSION
from frostline.report.explanations import in_train
from loaded import loaded, sentence_of


def test_unusual_data_are_reported() -> None:
    train = pd.DataFrame({"text": ["a", "b", "b", " ", "NA", "c"], "label": ["x", "x", "y", "y", "x", "y"]})
    data = loaded(train=train, validation=pd.DataFrame({"text": ["A ", "d"], "label": ["x", "x"]}), test="none")
    assert data.notes[-4:] == (
        "Warning: 1 of 2 validation rows has a text that is also in train: scores on validation are too high, so remove them "
        "from train.",
        "Warning: 1 training text has more than one label (rows 2, 3): correct what is wrong, or give the second text "
        "of a pair with --text-pair-column.",
        "1 train row has an empty text (row 4); it is not removed.",
        "No validation row has the label 'y'.",
    )
    assert data.report.repeated == {"train": 1, "validation": 0} and data.report.conflicting == 1
    assert data.report.splits["train"].label_counts == {"x": 3, "y": 3}
    assert data.report.splits["train"].characters.median == 1
    assert json.loads(json.dumps(data.report.model_dump()))["shared"] == {"train/validation": 1}


def test_rows_of_train_are_no_validation_rows(tmp_path: Path) -> None:
    """Neither the same file under another name of its path, nor a copy; a part of it is a warning, and a remark of the answer."""
    rows = pd.DataFrame({"text": [f"text {n}" for n in range(40)], "label": ["x", "y"] * 20})
    rows.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    shouted = rows.assign(text=rows.text.str.upper())
    for split, other in (("validation", rows), ("test", rows[::-1]), ("test", shouted)):
        sentence = sentence_of(loaded, train=rows, **{split: other})
        assert sentence.startswith(f"The rows of {split} are those of train") and f"leave out --{split}" in sentence
    paths = {"train": str(tmp_path / "t.csv"), "validation": str(tmp_path / "link.csv")}
    assert "are those of train" in sentence_of(loaded, **paths)
    other = pd.DataFrame({"text": [f"text {n}" for n in range(30, 50)], "label": ["x", "y"] * 10})
    report = loaded(train=rows, validation=other, test="none").report
    assert in_train(report) == " Of the validation texts, 50 % are also in train, so all scores are too high."
    assert in_train(loaded(train=rows, validation=other[10:], test="none").report) == ""
    numbers = other.assign(text=np.arange(30, 50.0))  # as pandas stores them beside a missing cell
    assert (
        loaded(train=rows.assign(text=range(40)), validation=numbers, test="none").report.shared["train/validation"]
        == 10
    )


def test_at_most_ten_rows_of_conflicting_texts_are_named() -> None:
    texts = [f"text {n // 2}" for n in range(40)]
    data = loaded(train=pd.DataFrame({"text": texts, "label": ["x", "y"] * 20}), test="none")
    assert data.report.conflicting > 10 and len(data.report.conflicting_rows) == 10
    rows = ", ".join(map(str, data.report.conflicting_rows))
    assert any(f"training texts have more than one label (rows {rows}, ...): correct" in note for note in data.notes)


def test_a_rare_label_that_resembles_a_frequent_one_may_be_a_typo() -> None:
    def warnings(**rows: int) -> list[str]:
        labels = [label for label, count in rows.items() for _ in range(count)]
        train = pd.DataFrame({"text": [f"text {n}" for n in range(len(labels))], "label": labels})
        return [note for note in loaded(train=train, test="none").notes if "typo" in note]

    (warning,) = warnings(positive=400, negative=400, postive=8)
    assert "training rows have the label 'postive', and" in warning and "have 'positive': correct it" in warning
    assert not warnings(positive=400, negative=15)  # another word
    assert not warnings(positive=400, postive=200)  # frequent, so meant
    assert not warnings(level_one_1=400, level_one_2=15)  # another number


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("5 \x80", "5 €".encode("cp1252").decode("latin1").split()[1]),
        ("and so on\x85", "\x85"),
        ("\x1b[31mred", "\x1b[31mred"),
        ("caf\ufffd noir", "caf\ufffd"),
        ("a café noir".encode().decode("cp1252"), "cafÃ©"),
        ("the “best” 5 €".encode().decode("latin1"), "â\x80\x9cbestâ\x80\x9d"),
        ("a café noir", None),
        ("« CAFÉ » – l’été, 5 €", None),
        ("tab\tline\nend\r form\f", None),
        ("가나다 👍🏻 \u200b", None),
        ("", None),
    ],
)
def test_texts_that_were_decoded_wrongly_are_named(text: str, word: str | None) -> None:
    texts = [f"text {n}" for n in range(20)]
    train = pd.DataFrame({"text": [*texts, text], "label": [0, 1, 0] * 7})
    validation = pd.DataFrame({"text": ["a", "b"], "label": [0, 1]})
    data = loaded(train=train, validation=validation, test="none")
    found = [note for note in data.notes if "wrongly decoded" in note]
    assert len(found) == (word is not None)
    if word is not None:
        assert found[0].startswith(
            "Warning: 1 of 21 train rows has a text with control characters or wrongly decoded letters"
        )
        assert f"such as {word!r} (row 21): correct them in The training data" in found[0]


def test_numbers_that_are_all_the_same_are_named() -> None:
    """A correlation with them is undefined, so that runs which are scored on them seem to fail."""
    rows = pd.DataFrame(
        {"text": [f"text {n}" for n in range(60)], "label": [0.5 if n % 30 else n + 1.5 for n in range(60)]}
    )
    options = {"train": rows, "test": "none", "task_type": REGRESSION}
    same = pd.DataFrame({"text": [f"other {n}" for n in range(12)], "label": [0.5] * 12})
    alone = loaded(validation=same, **options).notes
    assert "all 12 validation rows have the number 0.5, so no score on them says anything" in " ".join(alone)
    assert re.search("in [34] of 5 folds all rows have the same number", " ".join(loaded(folds=5, **options).notes))
    other = loaded(**(options | {"train": rows.assign(label=rows.index + 0.5)}), folds=5)
    assert "Warning" not in " ".join(other.notes)


@pytest.mark.parametrize(
    ("first", "step", "warned"),
    [(1.7e9, 1.0, "which rounds these numbers by up to"), (1.7e9, 1e8, ""), (0.1, 0.2, ""), (2020.0, 1.0, "")],
)
def test_numbers_with_more_digits_than_models_have_are_named(first: float, step: float, warned: str) -> None:
    """Such as times in seconds: predictions of them are rounded to multiples of 128."""
    rows = pd.DataFrame(
        {"text": [f"text {n}" for n in range(60)], "label": [first + n * step + 0.5 for n in range(60)]}
    )
    notes = " ".join(loaded(train=rows, test="none", task_type=REGRESSION).notes)
    assert warned in notes and ("float32" in notes) == bool(warned)
