"""Reads the tables that a page offers."""

import csv
import io
from pathlib import Path


def raw(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table's CSV."""
    return list(csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text())))
