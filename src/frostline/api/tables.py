"""Tables that Python users give as objects, for example as a ``DataFrame``, instead of as files."""

import os
from collections.abc import Mapping
from typing import Any

from frostline.sweep.inputs import SPLITS


def split_off_tables(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the tables in ``settings`` from the values that a specification can have.

    Returns:
        The tables by split, and all other settings. Paths in these are text.
    """
    tables = {
        name: settings[name]
        for name in SPLITS
        if name in settings and not isinstance(settings[name], str | os.PathLike | None)
    }
    plain = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in settings.items()
        if name not in tables
    }
    return tables, plain
