"""Data as a sweep loads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.kinds import DataSettings
from frostline.data.load import Data, load_data


def loaded(*, folds: int | str = 0, data_seed: int = 0, **options: Any) -> Data:
    """The data that these settings name. Tables and files can stand for ``train``, ``validation`` and ``test``."""
    tables = {name: options.pop(name) for name in ("train", "validation", "test") if name in options}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    return load_data(DataSettings(**plain), tables, folds=folds, data_seed=data_seed)


def frame(rows: int, first: int = 0) -> pd.DataFrame:
    """A table of different texts with two labels in turn."""
    return pd.DataFrame(
        {"text": [f"text {i}" for i in range(first, first + rows)], "label": ["no", "yes"] * (rows // 2)}
    )


def sentence_of(call: Callable[..., object], *given: object, **options: object) -> str:
    """The one sentence with which a call refuses what it is given."""
    with pytest.raises(FrostlineError) as caught:
        call(*given, **options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


def refused(**options: Any) -> str:
    """The one sentence that says what is wrong with the data."""
    return sentence_of(loaded, **options)
