"""Read and write the files of a folder that may come from others, atomically and durably.

All files, folders and locks that frostline makes, replaces, moves or removes go through this module. Each function has a keyword
``inside``: the folder that the path must not lead out of. A link on the way that does, and a file that cannot be written, raise a
FrostlineError. A path that the user has named is its own ``inside``. A test lists the few modules that write otherwise.

New content is written under a temporary name and flushed to disk. Then one operation of the file system publishes it, and the
folder is flushed to disk, too. A reader finds the old or the new content, and a power failure does not lose it.

Records in JSON, TOML and safetensors carry their own checksum, so that every changed, missing or additional byte is recognized.
In JSON it is the last key, in TOML a comment in the last line: it covers all bytes before it. In safetensors it is in the
metadata, and covers all bytes, with zeros in its own place. It protects against damage, not against forgery.

Locks between processes are files that the operating system locks, and frees when a process ends or is killed.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import xxhash

from frostline import FrostlineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

R = TypeVar("R")

# Error numbers of the system.
DISK_FULL, NOT_ALLOWED = (errno.ENOSPC, errno.EDQUOT), (errno.EACCES, errno.EPERM, errno.EROFS)
CANNOT_WRITE = (*DISK_FULL, *NOT_ALLOWED)
MAKE_WRITABLE = "make it writable, or choose another folder"
ID_LENGTH = 8  # of the name of a temporary file or folder
LEFT_OVER = re.compile(rf"\..+\.[0-9a-f]{{{ID_LENGTH}}}\.part", re.DOTALL)
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
        OSError: The file cannot be read.
        ValueError: It is no ordinary file, or it has more than ``limit`` bytes.
    """
    require_inside(path, inside)
    return read_file(path, limit)


def read_file(path: Path, limit: int) -> bytes:
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
    """Write a file atomically, replacing an existing one. Missing parent folders are created."""
    with _written(path, content, inside) as temporary:
        os.replace(temporary, path)


def create_file(path: Path, content: bytes, *, inside: Path) -> bool:
    """Write a new file atomically. An existing file is left unchanged. Missing parent folders are created.

    Returns:
        Whether the file was created. Of several processes that create one file, one gets True.
    """
    with _written(path, content, inside) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # With two links, the existing file is this one: a network file system has repeated the request.
            return temporary.stat().st_nlink > 1
    return True


def create_folder(folder: Path, files: Mapping[str, bytes], *, inside: Path) -> bool:
    """Write a new folder with these files atomically. An existing folder is left unchanged. Missing parents are created.

    Returns:
        Whether the folder was created. Of several processes that create one folder, one gets True.
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
    aside. A process that is killed between these two renames leaves both beside the target, as ``.NAME.<id>.part``.

    Raises:
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


def publish_tensors(folder: Path, name: str, write: Callable[[Path], object], *, inside: Path) -> Path:
    """Let a library ``write`` a file of tensors, whose name is then ``name`` and its checksum. Returns its path."""
    require_inside(folder, inside)
    temporary = _temporary_name(folder / f"{name}safetensors")
    try:
        write(temporary)
        sync(temporary)
        target = folder / f"{name}{file_checksum(temporary)}.safetensors"
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync(folder)
    return target


def move(path: Path, target: Path, *, inside: Path) -> bool:
    """Rename a file or folder, and flush that to disk.

    Returns:
        Whether it was moved. It is not if there is a target, even one that was made meanwhile.
    """
    for one in (path.parent, target.parent):  # a link itself may be moved
        require_inside(one, inside)
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
    for folder in {path.parent, target.parent}:
        sync(folder)
    return True


def remove(path: Path, *, inside: Path) -> None:
    """Remove a file, or a folder with all files in it, if it is there. A link is removed, not what it points to."""
    require_inside(path.parent, inside)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _replace_folder(aside: Path, target: Path) -> None:
    """Give ``aside`` the name of ``target``, and remove an older folder of that name."""
    old = _temporary_name(target)
    try:
        while True:
            with suppress(FileNotFoundError):
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
    shutil.rmtree(old, ignore_errors=True)


def copy_folder(folder: Path, target: Path, *, inside: Path) -> None:
    """Copy a folder, in place of ``target`` if that exists. Files are linked, so they need no more space, if the disk can.

    Raises:
        FrostlineError: The target holds runs.
    """
    if (target / "sweep.toml").exists():
        raise FrostlineError(f"{target} holds runs, and the model would replace it: move it away.")

    def linked(source: str, copy: str) -> str:
        try:
            os.link(source, copy)
        except OSError:
            shutil.copy2(source, copy)
        return copy

    with new_folder(target, inside=inside, replace=True) as aside:
        shutil.copytree(folder, aside, dirs_exist_ok=True, copy_function=linked)


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
    """Create a folder if it is missing, and check that it is writable, before a long computation is lost."""
    require_inside(folder, inside)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FrostlineError(f"{folder} cannot be written into ({error.strerror}): {MAKE_WRITABLE}.") from error


def require_writable(folder: Path) -> None:
    """Check that a folder can be made and written into, as far as that is known before it is made.

    Raises:
        FrostlineError: It, or the nearest folder above it that exists, is not writable.
    """
    try:
        place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    except PermissionError as error:
        raise FrostlineError(f"{folder} cannot be written into ({error.strerror}): {MAKE_WRITABLE}.") from error
    if not place.is_dir():
        raise FrostlineError(f"{folder} is a file, or in a file: give a folder instead.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise FrostlineError(f"{folder} cannot be written into ({place} is not writable): {MAKE_WRITABLE}.")


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
def _written(path: Path, content: bytes, inside: Path) -> Iterator[Path]:
    """A temporary file with this content in the folder of ``path``, which is flushed to disk in the end."""
    require_inside(path, inside)
    temporary = _temporary_name(path)
    with _explained(path):
        _make_durable(path.parent)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
            sync(path.parent)
        finally:
            with suppress(OSError):  # report the first error, not an error of the cleanup
                temporary.unlink()


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


FILES, CARD = "files", "README.md"
SAVED_BYTES = 2**30  # of a record, which may have all words of a TF-IDF model
MOST = 1e150  # the largest number in JSON: its square and the sum of many are finite
END = b"\n}\n"  # how a JSON object of :func:`frostline.data.files.json_bytes` ends
KEY = "checksum"
IN_JSON, IN_TOML, IN_ARRAYS = f',\n "{KEY}": "%s"'.encode() + END, f"# {KEY}: %s\n".encode(), f'"{KEY}":"'.encode()
BLANK = b"0" * 32


def checksum(content: bytes) -> str:
    """The checksum of these bytes."""
    return xxhash.xxh3_128_hexdigest(content)


def file_checksum(path: Path) -> str:
    """The checksum of a file's content, which need not fit into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def seal(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON with a checksum."""
    return _with_checksum(json_bytes(facts).removesuffix(END), IN_JSON)


def write_sealed(path: Path, facts: Mapping[str, Any], *, inside: Path) -> None:
    """Write facts as JSON with a checksum, atomically. Numbers that are not finite become null."""
    replace_file(path, seal(with_nulls(facts)), inside=inside)


def unseal(content: bytes) -> dict[str, Any]:
    """The facts that :func:`seal` wrote.

    Raises:
        ValueError: The content is not exactly what :func:`seal` wrote.
    """
    _without_checksum(content, IN_JSON)
    facts: dict[str, Any] = parsed(content)
    del facts[KEY]
    return facts


def unseal_as(kind: type[R], content: bytes) -> R:
    """The record that :func:`seal` wrote, of this kind.

    Raises:
        ValueError: The content is not exactly what :func:`seal` wrote, or has another form.
    """
    return validated(kind, unseal(content))


def validated(kind: type[R], facts: Any, *, strict: bool | None = True) -> R:
    """Plain facts as a record of this kind, a pydantic model or a dataclass.

    No value is converted, unless ``strict`` is None: then settings in a record are read like those of a user.

    Raises:
        ValueError: They have another form; the message says where.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(facts, default=str), strict=strict)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def parsed(content: bytes) -> Any:
    """JSON that may come from others: its numbers are finite and not so large that computing with them overflows.

    Raises:
        ValueError: It is no such JSON, or is nested too deep.
    """

    def bounded(text: str) -> float | int:
        number = int(text) if text.lstrip("-").isdecimal() else float(text)
        if not abs(number) <= (MOST if isinstance(number, float) else 2**63):
            raise ValueError(f"it has the number {text[:40]}")
        return number

    try:
        return json.loads(content, parse_float=bounded, parse_int=bounded, parse_constant=bounded)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def write_record(path: Path, facts: Mapping[str, Any], files: Iterable[Path], *, inside: Path) -> None:
    """Write facts as JSON with a checksum. They get the sizes and checksums of other files in their folder, too."""
    sums = {
        file.relative_to(path.parent).as_posix(): (file.stat().st_size, file_checksum(file))
        for file in files
        if file != path
    }
    write_sealed(path, {**facts, FILES: sums}, inside=inside)


def read_record(path: Path) -> dict[str, Any]:
    """The facts that :func:`write_record` wrote, with the sizes and checksums. The other files are not verified.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not what was written.
    """
    facts = unseal(read_file(path, SAVED_BYTES))
    if not isinstance(facts.get(FILES), dict):
        raise ValueError(f"{path.name} has no checksums of files")
    return facts


def require_recorded(
    folder: Path, files: Mapping[str, Any], *, optional: Callable[[str], bool] = lambda name: False
) -> None:
    """Verify the files of a folder whose sizes and checksums a record has. Files that are ``optional`` may be missing.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is missing, or is not what was written.
    """
    for name, recorded in files.items():
        parts, file = PurePosixPath(name).parts, folder / name
        if (
            not parts
            or ".." in parts
            or parts[0] == "/"
            or "\\" in name
            or not (isinstance(recorded, list) and recorded)
        ):
            raise ValueError(f"the record names {name!r}")
        if optional(name) and not file.exists():
            continue
        if not file.is_file():
            raise ValueError(f"{name} is missing")
        if file.stat().st_size != recorded[0] or [file_checksum(file)] != recorded[1:]:  # a wrong size is no work
            raise ValueError(f"the checksum of {name} is wrong")


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a saved model by name. A card may be edited and hidden files come from tools: they are not recorded."""
    found = ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: path for name, path in found if path.name != CARD and not f"/{name}".count("/.")}


def unrecorded(folder: Path, record: str, recorded: Iterable[str]) -> list[str]:
    """The files of a saved model that its record, the file ``record``, does not name."""
    return sorted(files_in(folder).keys() - {record, *recorded})


def seal_toml(text: str) -> bytes:
    """A text in TOML with a checksum."""
    return _with_checksum(text.encode(), IN_TOML)


def unseal_toml(content: bytes) -> str:
    """The text that :func:`seal_toml` was given.

    Raises:
        ValueError: The content is not exactly what :func:`seal_toml` wrote.
    """
    return _without_checksum(content, IN_TOML).decode()


def seal_arrays(arrays: Mapping[str, "NDArray[Any]"]) -> bytes:
    """Arrays as safetensors with a checksum."""
    import numpy as np
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, {KEY: BLANK.decode()})
    return content.replace(BLANK, checksum(content).encode(), 1)


def unseal_arrays(content: bytes) -> dict[str, "NDArray[Any]"]:
    """The arrays that :func:`seal_arrays` was given. Their order may differ.

    Raises:
        ValueError: The content is not exactly what :func:`seal_arrays` wrote.
        SafetensorError: It was never safetensors.
    """
    from safetensors.numpy import load

    before, key, rest = content.partition(IN_ARRAYS)
    written, after = rest[: len(BLANK)], rest[len(BLANK) :]
    if checksum(before + key + BLANK + after).encode() != written:
        raise ValueError("its checksum is wrong")
    return load(content)


def _with_checksum(body: bytes, form: bytes) -> bytes:
    return body + form % checksum(body).encode()


def _without_checksum(content: bytes, form: bytes) -> bytes:
    """What :func:`_with_checksum` was given."""
    body = content[: -len(form % BLANK)]
    if _with_checksum(body, form) != content:
        raise ValueError("its checksum is wrong")
    return body


NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers
ELSEWHERE = "choose a folder on another file system"


@contextmanager
def locked(path: Path, instead: str, *, inside: Path) -> Iterator[None]:
    """Hold the lock of a file. Wait while another process has it.

    Args:
        path: The file, which is created with its folder.
        instead: What to do if its file system has no locks.
        inside: The folder that the path must not lead out of.

    Raises:
        FrostlineError: Its file system has no locks, or the file is a link.
    """
    from filelock import FileLock

    require_inside(path.parent, inside)  # a file that is a link is refused when it is locked
    # filelock would otherwise take the file's existence as the lock, which a killed process on another machine leaves forever
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FrostlineError(f"{path} is a link, which may lead elsewhere: remove it.") from error
        if error.errno not in NO_LOCKS:
            raise
        raise FrostlineError(
            f"{path} cannot be locked ({error.strerror}), because its file system has no locks: {instead}."
        ) from error
    try:
        yield
    finally:
        lock.release()
