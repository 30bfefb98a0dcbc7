"""The smallest settings of a sweep, with others added, and the message if they are refused."""

from typing import Any

import pytest

from frostline import FrostlineError
from frostline.sweep.settings import Settings, make_settings

LEAST: dict[str, Any] = {"model": "m", "train": "t.csv", "tune": "0,1,all", "out": "o"}


def spec(**values: Any) -> Settings:
    return make_settings({**LEAST, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        spec(**values)
    assert "\n" not in str(caught.value)
    return str(caught.value)
