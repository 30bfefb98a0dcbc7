"""Read a fitted model from its two files: facts in JSON, and arrays in safetensors."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from frostline import FrostlineError

T = TypeVar("T")


def read_saved(
    folder: Path,
    files: tuple[str, str],
    make: Callable[[dict[str, Any], Mapping[str, NDArray[Any]]], T],
    damaged: str,
) -> T | None:
    """What ``make`` returns for the facts and the arrays in a folder; None if the folder has no such facts.

    Args:
        folder: The folder.
        files: The names of the files with the facts and with the arrays.
        make: Called with the facts and the arrays.
        damaged: The message if the files are damaged, with places for the folder and the error.

    Raises:
        FrostlineError: A file is damaged.
    """
    facts, weights = (folder / name for name in files)
    if not facts.is_file():
        return None
    try:
        return make(json.loads(facts.read_bytes()), load_file(weights))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FrostlineError(damaged.format(folder, error)) from error
