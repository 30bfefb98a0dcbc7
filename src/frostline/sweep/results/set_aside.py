"""Files that no longer count are set aside. They are never deleted."""

from itertools import count
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import make_folder, move

DAMAGED = "damaged"  # files whose content is not what was written
RETRIED = "retried"  # results and failures of runs that are trained again
CAN_RETRY = ("failed", "diverged")  # how a run can have ended that is trained again


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file or a folder of a sweep into ``folder``, beside it, and return its new path. An older one there is kept.

    Raises:
        FrostlineError: It cannot be moved.
        FileNotFoundError: It does not exist, for example because another process has set it aside.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    out = folder.parent
    make_folder(folder, inside=out)
    names = (folder / f"{path.name}{f'.{n}' if n else ''}" for n in count())
    try:
        target = next(name for name in names if move(path, name, inside=out, replace=False))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FrostlineError(f"{path} cannot be moved to {folder} ({error.strerror}): move it yourself.") from error
    return target
