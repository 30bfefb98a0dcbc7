"""Locks between processes: files that the operating system locks, and frees when a process ends or is killed."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from frostline import FrostlineError
from frostline.data.files import require_inside

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers
ELSEWHERE = "choose a folder on another file system"


def file_lock(path: Path, timeout: float = -1, *, inside: Path) -> FileLock:
    """The lock of a file, which is created with its folder. It can be tried for ``timeout`` seconds; by default, it waits.

    Without locks, it raises an OSError. filelock would otherwise take the file's existence as the lock, which a killed process on
    another machine leaves forever.

    Raises:
        FrostlineError: A link on the way to the file leads out of the folder ``inside``.
    """
    require_inside(path.parent, inside)  # a file that is a link is refused when it is locked
    return FileLock(path, timeout=timeout, fallback_to_soft=False)


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
    lock = file_lock(path, inside=inside)
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
