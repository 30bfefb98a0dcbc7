"""Data as a sweep loads them."""

from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.data.kinds import DataSettings
from frostline.data.load import Data, load_data


def loaded(*, folds: int | str = 0, data_seed: int = 0, **options: Any) -> Data:
    """The data that these settings name. Tables and files can stand for ``train``, ``validation`` and ``test``."""
    tables = {name: options.pop(name) for name in ("train", "validation", "test") if name in options}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    return load_data(DataSettings(**plain), tables, folds=folds, data_seed=data_seed)


def refused(**options: Any) -> str:
    """The one sentence that says what is wrong with the data."""
    with pytest.raises(FrostlineError) as caught:
        loaded(**options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)
