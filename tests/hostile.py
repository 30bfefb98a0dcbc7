"""Random changes of files, and a disk that fails."""

import errno
import io
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from frostline import FrostlineError

PIECES = (
    *(b"", b"\x00", b"\n", b"\r\n", b'"', b"'", b",", b"\t", b"[", b"]", b"{", b"}", b"=", b"#", b"\\", b"\xff", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\\u0000", b"../", b"/etc/passwd", b"1e999", b"-1", b"NaN", b"null", b"9" * 40, b"O\n\n", b"B-", b"I-"),
    "\u2028".encode(), "é".encode() * 3, b"A" * 2000, b"[" * 1500,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 10**30, "", "../x", "é", "\ud800", [], {}, [[]], {"": None}, "nan", float("nan")),
    *("/etc/passwd", ["x"] * 3, {"x": 1}, 2**63, -0.0),
)
CHANGING = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four changes: bytes flipped, removed, repeated, moved or inserted."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        size = len(changed)
        start = rng.randrange(size + 1)
        end = min(size, start + rng.choice((1, 1, 2, 8, 64, 1024)))
        kind = rng.randrange(6)
        if kind == 0 and start < size:
            changed[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[start:end]
        elif kind == 2:
            changed[start:start] = changed[start:end] * rng.choice((1, 3))
        elif kind == 3:
            changed[start:end] = rng.choice(PIECES)
        elif kind == 4:
            changed[start:start] = rng.choice(PIECES)
        else:
            del changed[start:]
    return bytes(changed)


def with_another_byte(content: bytes, rng: random.Random) -> bytes:
    """The content with one byte that has another value."""
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    return bytes(changed)


def flip(path: Path, at: float = 0.5) -> None:
    """Change one bit of a file; ``at`` is the share of the file before it."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(content)


def with_other_value(facts: Any, rng: random.Random) -> Any:
    """JSON-like facts with one value replaced, one key removed, or one key added, at a random place."""
    if not isinstance(facts, dict | list) or not facts or rng.random() < 0.15:
        return rng.choice(VALUES)
    copy: Any = facts.copy()
    keys: Sequence[Any] = list(copy) if isinstance(copy, dict) else range(len(copy))
    key = rng.choice(keys)
    kind = rng.randrange(8)
    if kind == 0:
        del copy[key]
    elif kind == 1 and isinstance(copy, dict):
        copy[rng.choice(("../x", "", "é", "seed"))] = rng.choice(VALUES)
    else:
        copy[key] = with_other_value(copy[key], rng)
    return copy


class Watch:
    """The paths that this process has changed outside of a folder, while it was watched."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.outside: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in CHANGING:
            return
        if event == "open" and not (
            isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            return
        within = (
            arguments[1] if event in ("os.remove", "os.rmdir") else -1
        )  # the folder, if it is given as a descriptor
        for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
            if isinstance(path, str | bytes | os.PathLike):
                folder = os.readlink(f"/proc/self/fd/{within}") if within >= 0 else ""
                real = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
                if os.path.commonpath([real, self.folder]) != self.folder:
                    self.outside.append(real)


_WATCH: list[Watch] = []  # an audit hook stays for the life of the process, so there is one


@contextmanager
def changes_nothing_outside(folder: Path) -> Iterator[None]:
    """Fail if this process writes, moves or removes a file that is not in the folder."""
    if not _WATCH:
        _WATCH.append(Watch())
    watch = _WATCH[0]
    watch.folder, watch.outside = os.path.realpath(folder), []
    try:
        yield
    finally:
        watch.folder = None
    assert not watch.outside, watch.outside


CHANGES = ("open", "mkdir", "fsync", "replace", "rename", "link", "unlink", "rmdir", "posix_fallocate")  # of ``os``
HOW = ("ENOSPC", "EIO", "kill")


class Disk:
    """Counts the operations that change files, and lets the one with number ``fails`` fail."""

    def __init__(self, fails: int, how: str) -> None:
        self.fails, self.how, self.count = fails, how, 0

    def operation(self) -> None:
        """One more operation begins."""
        self.count += 1
        if self.count == self.fails:
            if self.how == "kill":
                os._exit(9)
            number = getattr(errno, self.how)
            raise OSError(number, os.strerror(number), "a file")


class _Written:
    """A file that was opened for writing. A write that fails has written half of the content."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: bytes) -> None:
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        self.disk.operation()
        self.file.write(content[len(content) // 2 :])


@contextmanager
def failing(fails: int, how: str) -> Iterator[Disk]:
    """Within this context, the operation with this number fails. 0 lets none fail."""
    disk, opened = Disk(fails, how), io.open

    def counted(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            disk.operation()
            return real(*args, **more)

        return call

    def opening(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if "w" not in mode:
            return opened(file, mode, *args, **more)
        disk.operation()
        made = opened(file, mode, *args, **more)
        return _Written(made, disk) if "b" in mode else made

    changes = {name: counted(name) for name in CHANGES if hasattr(os, name)}
    with patch.multiple(os, **changes), patch("io.open", opening), patch("builtins.open", opening):
        yield disk


def fail_at(
    number: int,
    how: str,
    operation: Callable[[], object],
    errors: tuple[type[Exception], ...] = (OSError, FrostlineError),
) -> int:
    """Carry out an operation on a disk that fails, in a fork if the process is killed. Returns the number of operations.

    Args:
        number: Which operation of the disk fails; 0: none.
        how: One of ``HOW``.
        operation: What is carried out.
        errors: What it may raise then.
    """
    if how != "kill":
        with failing(number, how) as disk:
            try:
                operation()
            except errors:
                assert number
        return disk.count
    with warnings.catch_warnings():  # Python warns of forks with threads; those of pytest-xdist are never used
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        with failing(number, how):
            operation()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    return 0


@contextmanager
def without_locks(number: int = errno.ENOLCK) -> Iterator[None]:
    """A file system whose locks fail with this error."""

    def refuse(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    with patch("fcntl.flock", refuse):
        yield


@contextmanager
def nobody_reads() -> Iterator[io.TextIOWrapper]:
    """A stream whose reader has ended: writing into it is an error."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    yield stream
    with suppress(BrokenPipeError):
        stream.close()
