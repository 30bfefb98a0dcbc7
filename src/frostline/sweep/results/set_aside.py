"""Files that no longer count are set aside. They are never deleted."""

import os
from itertools import count
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import make_folder, sync
from frostline.sweep.results.inside import require_inside

DAMAGED = "damaged"  # files whose content is not what was written
RETRIED = "retried"  # results and failures of runs that are trained again
CAN_RETRY = ("failed", "diverged")  # how a run can have ended that is trained again


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file or a folder into ``folder``, and return its new path. An older one of that name there is kept.

    Raises:
        FrostlineError: It cannot be moved.
        FileNotFoundError: It does not exist, for example because another process has set it aside.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    require_inside(folder, folder.parent)
    make_folder(folder)
    names = (folder / f"{path.name}{f'.{n}' if n else ''}" for n in count())
    try:
        target = next(name for name in names if _moved(path, name))
        sync(folder)
        sync(path.parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FrostlineError(f"{path} cannot be moved to {folder} ({error.strerror}): move it yourself.") from error
    return target


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
