"""A disk on which one operation fails, or at which the process is killed."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

CHANGES = ("open", "mkdir", "fsync", "replace", "rename", "link", "unlink", "rmdir")  # functions of ``os``
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

    with patch.multiple(os, **{name: counted(name) for name in CHANGES}), patch("io.open", opening):
        yield disk
