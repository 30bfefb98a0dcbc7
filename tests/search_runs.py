"""What the tests of a search share."""

from pathlib import Path
from typing import Any

from frostline.sweep.results.folder import Folder


def runs_in(out: Path) -> dict[tuple[Any, ...], Any]:
    return {(row["trainable"], row["learning_rate"], row["seed"]): row for row in Folder(out).rows()}
