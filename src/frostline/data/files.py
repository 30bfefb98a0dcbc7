"""Atomic file writing: a reader always finds either the old or the new content, never a part of it."""

import errno
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from frostline import FrostlineError


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing an existing one. Missing parent folders are created.

    Raises:
        FrostlineError: The file cannot be written, or the disk is full.
    """
    os.replace(_write_temporary(path, content), path)


def create_file(path: Path, content: bytes) -> None:
    """Write a new file atomically. An existing file is left unchanged.

    Raises:
        FrostlineError: The file cannot be written, or the disk is full.
    """
    temporary = _write_temporary(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        temporary.unlink(missing_ok=True)


def replace_folder(aside: Path, target: Path) -> None:
    """Move the complete folder ``aside`` to ``target``, then remove an older folder there."""
    if not target.exists():
        os.rename(aside, target)
        return
    old = aside.with_suffix(".old")
    os.rename(target, old)
    try:
        os.rename(aside, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as JSON, atomically. Numbers that are not finite become null."""
    replace_file(path, json_bytes(with_nulls(facts)))


def json_bytes(facts: Mapping[str, Any]) -> bytes:
    """Facts as indented JSON.

    Raises:
        ValueError: A number is not finite, which JSON cannot express.
    """
    return (json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def with_nulls(value: Any) -> Any:
    """The facts with None instead of each number that is not finite."""
    if isinstance(value, Mapping):
        return {name: with_nulls(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(folder: Path) -> None:
    """Create a folder if it is missing, and check that it is writable.

    Called before long computations, so that they are not lost.

    Raises:
        FrostlineError: The folder cannot be created, or files cannot be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FrostlineError(f"{folder} cannot be written into ({error.strerror}): choose another --out.") from error


def file_name(name: str) -> str:
    """The name of a model or task as a safe file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "data"


def _write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file in the folder of ``path``. Returns its path."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):  # report the first error, not an error of the cleanup
            temporary.unlink()
        if error.errno == errno.ENOSPC:
            raise FrostlineError(
                f"The disk is full: {path} could not be written. Free disk space and run the same command again; "
                "results of finished runs are safe."
            ) from error
        raise FrostlineError(f"{path} cannot be written ({error.strerror}): choose another --out.") from error
    return temporary
