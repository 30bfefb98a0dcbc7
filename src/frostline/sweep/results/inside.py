"""Read the folder of a sweep as data that may come from others: no link leads out of it, and no file is read without a limit."""

import os
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import read_bounded

RECORD_BYTES = 64 * 2**20  # of a record in JSON or TOML
ARRAY_BYTES = 16 * 2**30  # of predictions or examples


def require_inside(path: Path, out: Path) -> None:
    """Refuse a path in the folder ``out`` that leads out of it through a symbolic link. ``out`` itself may be a link.

    Raises:
        FrostlineError: The path, or a folder between it and ``out``, is a link that points out of ``out``.
    """
    inner, outer = os.fspath(path), os.fspath(out)
    while len(inner) > len(outer):
        if os.path.islink(inner):
            target, home = os.path.realpath(inner), os.path.realpath(outer)
            if os.path.commonpath([target, home]) != home:
                raise FrostlineError(
                    f"{inner} is a link to {target}, outside of the folder of the sweep: put a copy in its place, or remove it."
                )
        inner = os.path.dirname(inner)


def read_inside(path: Path, out: Path, limit: int = RECORD_BYTES) -> bytes:
    """The content of a file in the folder ``out``.

    Raises:
        FrostlineError: A link leads out of the folder.
        OSError: The file cannot be read.
        ValueError: It is no ordinary file, or it has more than ``limit`` bytes.
    """
    require_inside(path, out)
    return read_bounded(path, limit)
