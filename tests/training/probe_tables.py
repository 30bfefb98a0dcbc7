"""Tables for tests of probes: sentences with two label columns."""

from pathlib import Path
from typing import Any

from tiny import sentences, write_csv

EXACT = {"precision": "float32"}


def write_probe_tables(folder: Path) -> dict[str, Any]:
    """Settings with a training and a validation file. ``label`` is the sentiment, ``words`` the number of words."""
    files = {}
    for split, count, seed in (("train", 120, 0), ("validation", 60, 1)):
        rows = [{**row, "words": str(len(row["text"].split()))} for row in sentences(count, seed=seed)]
        files[split] = write_csv(folder / f"{split}.csv", rows)
    return {**files, "text_column": "text"}
