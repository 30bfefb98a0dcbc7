"""A disk on which one operation fails, or at which the process is killed."""

import errno
import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from frostline import FrostlineError

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
