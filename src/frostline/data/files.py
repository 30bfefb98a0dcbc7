"""Read and write the files of a folder that may come from others, atomically and durably.

All files, folders and locks that frostline makes, replaces, moves or removes go through this module and ``locks``. Each function
has a keyword ``inside``: the folder that the path must not lead out of. It refuses a link on the way that does. A path that the
user has named is its own ``inside``. A test lists the few modules that write otherwise.

New content is written under a temporary name and flushed to disk. Then one operation of the file system publishes it, and the
folder is flushed to disk, too. A reader finds the old or the new content, and a power failure does not lose it.
"""

import errno
import glob
import json
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from frostline import FrostlineError

# Error numbers of the system.
DISK_FULL, NOT_ALLOWED = (errno.ENOSPC, errno.EDQUOT), (errno.EACCES, errno.EPERM, errno.EROFS)
CANNOT_WRITE = (*DISK_FULL, *NOT_ALLOWED)
MAKE_WRITABLE = "make it writable, or choose another folder"
ID_LENGTH = 8  # of the name of a temporary file or folder
LEFT_OVER = re.compile(rf"\..+\.[0-9a-f]{{{ID_LENGTH}}}\.part", re.DOTALL)
BETWEEN_RENAMES = 60.0  # seconds, in which a process that lives has made both
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # some network file systems cannot flush a folder
RECORD_BYTES = 64 * 2**20  # of a record in JSON or TOML that is read
ARRAY_BYTES = 16 * 2**30  # of predictions or examples that are read


def require_inside(path: Path, inside: Path) -> None:
    """Refuse a path in the folder ``inside`` that leads out of it. ``inside`` itself may be a link.

    Raises:
        FrostlineError: The path, or a folder between it and ``inside``, is a link that points out of ``inside``. Or the path
            goes up with ``..``.
    """
    parts, inner = path.relative_to(inside).parts, os.fspath(inside)
    if ".." in parts:
        raise FrostlineError(f"{path} leads out of the folder {inside}: give a name without `..`.")
    for part in parts:
        inner = os.path.join(inner, part)
        if os.path.islink(inner):
            target, home = os.path.realpath(inner), os.path.realpath(inside)
            if os.path.commonpath([target, home]) != home:
                raise FrostlineError(
                    f"{inner} is a link to {target}, outside of the folder {inside}: put a copy in its place, or remove it."
                )


def read_inside(path: Path, inside: Path, limit: int = RECORD_BYTES) -> bytes:
    """The content of a file in the folder ``inside``.

    Raises:
        FrostlineError: A link leads out of the folder.
        OSError: The file cannot be read.
        ValueError: It is no ordinary file, or it has more than ``limit`` bytes.
    """
    require_inside(path, inside)
    return read_file(path, limit)


def read_file(path: Path, limit: int = RECORD_BYTES) -> bytes:
    """The content of a file that may be a link, as in the cache of the hub.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no ordinary file, or it has more than ``limit`` bytes.
    """
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path.name} is no ordinary file")
    if facts.st_size > limit:
        raise ValueError(f"{path.name} has {facts.st_size:,} bytes, more than the {limit:,} that are read")
    return path.read_bytes()


def replace_file(path: Path, content: bytes, *, inside: Path) -> None:
    """Write a file atomically, replacing an existing one. Missing parent folders are created.

    Raises:
        FrostlineError: The file cannot be written, or the disk is full, or a link leads out of ``inside``.
    """
    require_inside(path, inside)
    with _explained(path), _temporary_file(path, content) as temporary:
        os.replace(temporary, path)
        sync(path.parent)


def create_file(path: Path, content: bytes, *, inside: Path) -> bool:
    """Write a new file atomically. An existing file is left unchanged. Missing parent folders are created.

    Returns:
        Whether the file was created. Of several processes that create one file, one gets True.

    Raises:
        FrostlineError: The file cannot be written, or the disk is full, or a link leads out of ``inside``.
    """
    require_inside(path, inside)
    with _explained(path), _temporary_file(path, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # With two links, the existing file is this one: a network file system has repeated the request.
            if temporary.stat().st_nlink == 1:
                return False
        sync(path.parent)
    return True


def create_folder(folder: Path, files: Mapping[str, bytes], *, inside: Path) -> bool:
    """Write a new folder with these files atomically. An existing folder is left unchanged. Missing parents are created.

    Returns:
        Whether the folder was created. Of several processes that create one folder, one gets True.

    Raises:
        FrostlineError: The folder cannot be written, or the disk is full, or a link leads out of ``inside``.
    """
    require_inside(folder, inside)
    with _explained(folder):
        try:
            with new_folder(folder, inside=inside) as aside:
                for name, content in files.items():
                    (aside / name).write_bytes(content)
        except FileExistsError:
            if not os.path.lexists(folder):  # its parent is a file
                raise
            return False
    return True


@contextmanager
def new_folder(target: Path, *, inside: Path, replace: bool = False) -> Iterator[Path]:
    """A new folder under a random name beside ``target``, which gets that name when the context ends without an error.

    Libraries may write into the new folder: nobody else knows its name, so it has no links.

    Everything in it is flushed to disk before. Missing parents are created. With ``replace``, an older folder is first moved
    aside. A process that is killed between these two renames leaves no folder of that name, but both beside it: the new one as
    ``.NAME.<id>.part``, the older one as ``.NAME.<id>.old``. Rename one of them, or write the folder again a minute later: that
    removes both.

    Raises:
        FrostlineError: A link leads out of ``inside``.
        FileExistsError: There is a ``target``, maybe from another process, and it is not to be replaced. It is unchanged.
    """
    require_inside(target, inside)
    aside = _temporary_name(target)
    try:
        _make_durable(aside.parent)
        aside.mkdir()
        yield aside
        for path in (*sorted(aside.rglob("*")), aside):
            sync(path)
        if replace:
            _replace_folder(aside, target)
        else:
            try:
                os.rename(aside, target)  # fails if there is a file, or a folder that is not empty
            except OSError as error:
                if not os.path.lexists(target):
                    raise
                raise FileExistsError(error.errno, error.strerror, str(target)) from error
        sync(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def temporary_path(path: Path, *, inside: Path) -> Iterator[Path]:
    """A path that does not exist, for a library that writes a file beside ``path``. What is there in the end is removed.

    :func:`move` gives the file its name.
    """
    require_inside(path, inside)
    temporary = _temporary_name(path)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def move(path: Path, target: Path, *, inside: Path, replace: bool = True) -> bool:
    """Rename a file or folder, and flush that to disk. A file takes the place of an older file.

    Returns:
        Whether it was moved. Without ``replace``, it is not if there is a target, even one that was made meanwhile.

    Raises:
        FrostlineError: A link leads out of ``inside``.
        OSError: It cannot be moved.
    """
    for one in (path.parent, target.parent):  # a link itself may be moved
        require_inside(one, inside)
    if replace:
        os.replace(path, target)
    elif not _moved(path, target):
        return False
    for folder in {path.parent, target.parent}:
        sync(folder)
    return True


def _moved(path: Path, target: Path) -> bool:
    """Move a file or a folder. False if there is a target, also if another process has just moved it there."""
    if os.path.lexists(target):
        return False
    is_folder = path.is_dir() and not path.is_symlink()
    try:
        if is_folder:
            os.rename(path, target)  # fails if there is a folder that is not empty
        else:
            target.touch(exist_ok=False)  # a rename would replace a file
            os.replace(path, target)
    except OSError as error:
        if isinstance(error, FileExistsError) or (is_folder and os.path.lexists(target)):
            return False
        if not is_folder:
            target.unlink(missing_ok=True)
        raise
    return True


def remove(path: Path, *, inside: Path) -> None:
    """Remove a file, or a folder with all files in it, if it is there. A link is removed, not what it points to.

    Raises:
        FrostlineError: A link leads out of ``inside``.
        OSError: A file cannot be removed. Of a folder, what cannot be removed stays.
    """
    require_inside(path.parent, inside)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _replace_folder(aside: Path, target: Path) -> None:
    """Give ``aside`` the name of ``target``, and remove an older folder of that name."""
    old = aside.with_suffix(".old")
    os.utime(aside)
    left = _left_between_renames(aside, target)
    try:
        while True:
            with suppress(FileNotFoundError):
                os.utime(target)  # so that another process sees when it was moved
                os.rename(target, old)
            try:
                os.rename(aside, target)
                break
            except OSError:
                if not os.path.lexists(target):
                    raise
                shutil.rmtree(old)  # meanwhile another process has written its own, which is replaced in turn
    except OSError:
        if old.exists() and not os.path.lexists(target):
            os.rename(old, target)
        raise
    for path in (old, *left):
        shutil.rmtree(path, ignore_errors=True)


def _left_between_renames(aside: Path, target: Path) -> list[Path]:
    """The pairs of folders that killed processes have left. A pair that has just been made is of a process that lives."""
    now, found = aside.stat().st_mtime, list[Path]()  # times of one file system are compared, not clocks of machines
    for old in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * ID_LENGTH}.old"):
        part = old.with_suffix(".part")
        if part.is_dir() and now - old.stat().st_mtime > BETWEEN_RENAMES:
            found += [old, part]
    return found


def is_left_over(path: Path) -> bool:
    """Whether a path has the name of a temporary file or folder of this module."""
    return LEFT_OVER.fullmatch(path.name) is not None


def write_json(path: Path, facts: Mapping[str, Any], *, inside: Path) -> None:
    """Write facts as JSON, atomically. Numbers that are not finite become null."""
    replace_file(path, json_bytes(with_nulls(facts)), inside=inside)


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


def make_folder(folder: Path, *, inside: Path) -> None:
    """Create a folder if it is missing, and check that it is writable.

    Called before long computations, so that they are not lost.

    Raises:
        FrostlineError: The folder cannot be created, or files cannot be written into it, or a link leads out of ``inside``.
    """
    require_inside(folder, inside)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FrostlineError(f"{folder} cannot be written into ({error.strerror}): {MAKE_WRITABLE}.") from error


def file_name(name: str) -> str:
    """The name of a model or task as a safe file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "data"


def sync(path: Path) -> None:
    """Flush the content of a file, or the list of files in a folder, to disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    opened = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC or not path.is_dir():
            raise
    finally:
        os.close(opened)


def _make_durable(folder: Path) -> None:
    """Create a folder and its missing parents, and flush them to disk."""
    if not folder.is_dir():
        _make_durable(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:ID_LENGTH]}.part")


@contextmanager
def _temporary_file(path: Path, content: bytes) -> Iterator[Path]:
    """A temporary file with this content in the folder of ``path``."""
    temporary = _temporary_name(path)
    _make_durable(path.parent)
    try:
        _write(temporary, content)
        yield temporary
    finally:
        with suppress(OSError):  # report the first error, not an error of the cleanup
            temporary.unlink()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Explain what to do if ``path`` cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise FrostlineError(
                f"The disk is full: {path} could not be written. Free disk space and run the same command again; "
                "results of finished runs are safe."
            ) from error
        raise FrostlineError(f"{path} cannot be written ({error.strerror}): {MAKE_WRITABLE}.") from error
