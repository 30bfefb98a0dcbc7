"""Rows held out for validation and test, and folds."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.load import Data, load_data
from frostline.data.specification import DataSpec


def frame(rows: int, first: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {"text": [f"text {i}" for i in range(first, first + rows)], "label": ["no", "yes"] * (rows // 2)}
    )


def load(**options: Any) -> Data:
    return load_data(DataSpec(**options))


def refusal(**options: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        load(**options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


def test_folds_hold_out_no_rows() -> None:
    data = load(train=frame(50), folds=5)
    assert data.folds is not None and np.bincount(data.folds).tolist() == [10] * 5 and data.train_rows == 40
    assert data.validation is data.train and data.test is None and len(data.train) == 50
    notes = " ".join(data.notes)
    assert (
        "All 50 rows are validation rows, in 5 folds" in notes
        and "as requested" not in notes
        and "No rows are held out" in notes
    )
    assert data.report.shared == {}
    tested = load(train=frame(50), folds=5, test=frame(10, 100))
    assert tested.test is not None and len(tested.train) == 50
    assert "leave out either validation or folds" in refusal(train=frame(50), validation=frame(10, 100), folds=5)
    assert "holds out no rows" in refusal(train=frame(50), held_out_share=0.2, folds=5)
    assert "10 folds of 40 rows leave 4 in one" in refusal(train=frame(40), folds=10)


def test_automatic_folds_are_for_few_rows() -> None:
    assert load(train=frame(100), folds="auto").folds is not None
    others = {"validation": frame(10, 200)}, {"held_out_share": 0.2}
    for more in ({"train": frame(2000)}, {"train": frame(20)}, *({"train": frame(100), **one} for one in others)):
        data = load(**more, folds="auto")
        assert data.folds is None and data.train_rows == len(data.train)


def test_a_tenth_is_held_out_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(load(train=frame(50), test="none").validation) == 5
    monkeypatch.setattr("frostline.data.held_out.MOST_HELD_OUT", 3)
    assert len(load(train=frame(50), test="none").validation) == 3
    assert len(load(train=frame(50), test="none", held_out_share=0.1).validation) == 5  # as asked


def test_a_held_out_share_must_leave_training_rows() -> None:
    assert "for each of test and validation leaves no training rows: give less than 0.5." in refusal(
        train=frame(50), held_out_share=0.5
    )
    assert "for each of validation leaves" in refusal(train=frame(50), test=frame(10, 100), held_out_share=1.0)
    assert load(train=frame(50), test="hold out", held_out_share=0.6, folds=3).train_rows < 20


def test_too_few_rows_to_hold_out() -> None:
    rare = pd.concat([frame(40), pd.DataFrame({"text": ["rare", "rarer"], "label": ["maybe", "maybe"]})])
    sentence = refusal(train=rare)
    assert "the label 'maybe' has too few rows" in sentence and "--validation FILE" in sentence
