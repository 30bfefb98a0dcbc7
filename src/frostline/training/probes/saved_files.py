"""A fitted model in two files: facts in JSON, and arrays in safetensors, whose checksum is in the facts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from frostline import FrostlineError
from frostline.data.files import FILES, read_record, replace_file, require_recorded, write_record

T = TypeVar("T")


def write_saved(
    folder: Path, files: tuple[str, str], facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write the files that :func:`read_saved` reads."""
    record, weights = (folder / name for name in files)
    replace_file(weights, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}), inside=folder)
    write_record(record, facts, [weights], inside=folder)


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
    record, weights = (folder / name for name in files)
    if not record.is_file():
        return None
    try:
        facts = read_record(record)
        require_recorded(folder, {FILES: {files[1]: facts.pop(FILES).get(files[1])}}, optional=lambda name: False)
        return make(facts, load_file(weights))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise FrostlineError(damaged.format(folder, error)) from error
