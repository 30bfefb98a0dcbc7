"""Durable file writing: a reader finds the old content of a file or the new one, never a part of it."""

import errno
import json
import math
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from frostline import FrostlineError


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, in place of an older one; missing parent folders are created.

    Raises:
        FrostlineError: The file cannot be written, or the disk is full.
    """
    os.replace(_write_temporary(path, content), path)


def create_file(path: Path, content: bytes) -> None:
    """Write a new file atomically; an existing file of this name stays as it is.

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


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write plain facts as JSON, atomically; a number that is not finite becomes null."""
    replace_file(path, json_bytes(with_nulls(facts)))


def json_bytes(facts: Mapping[str, Any]) -> bytes:
    """Plain facts as indented JSON.

    Raises:
        ValueError: A number is not finite, which JSON cannot express.
    """
    return (json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def with_nulls(value: Any) -> Any:
    """Plain facts with None in place of each number that is not finite."""
    if isinstance(value, Mapping):
        return {name: with_nulls(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(folder: Path) -> None:
    """Create a folder if it is missing, and check that it is writable before any long work starts.

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
    """The name of a model or task in characters that are safe in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "data"


def _write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file beside ``path``; returns its path."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):  # report the first error, not that of cleaning up
            temporary.unlink()
        if error.errno == errno.ENOSPC:
            raise FrostlineError(
                f"The disk is full: {path} could not be written. Free disk space and run the same command again; "
                "results of finished runs are safe."
            ) from error
        raise FrostlineError(f"{path} cannot be written ({error.strerror}): choose another --out.") from error
    return temporary
