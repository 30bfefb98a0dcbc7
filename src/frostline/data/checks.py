"""Plain facts about the data, to be printed and kept: nothing here refuses anything."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from frostline.data.examples import Examples, Indices, Texts
from frostline.data.tasks import REGRESSION, Task
from frostline.data.wording import listed

SHOWN_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """Of one split: rows by label (empty for regression), lengths in characters (both texts of a pair together)."""

    source: str
    rows: int
    label_counts: dict[str, int]
    target_range: tuple[float, float] | None
    characters: dict[str, float]
    empty_texts: int
    empty_rows: tuple[int, ...]  # the first ten, as numbered in the file


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a report says of the data. ``repeated``: rows whose text stands earlier in the same split; ``shared``:
    rows of the second split whose text stands in the first; ``conflicting``: training texts with several targets."""

    splits: dict[str, SplitReport]
    repeated: dict[str, int]
    shared: dict[str, int]
    conflicting: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """What a user should hear of before training; nothing where all is well."""
        said = []
        for pair, count in self.shared.items():
            first, second = pair.split("/")
            if count:
                rows = self.splits[second].rows
                have = "row has" if rows == 1 else "rows have"
                said.append(f"Warning: {count:,} of {rows:,} {second} {have} a text that {first} has too.")
        if self.conflicting:
            stand = "text stands" if self.conflicting == 1 else "texts stand"
            said.append(f"Warning: {self.conflicting:,} training {stand} there with more than one label.")
        for split, facts in self.splits.items():
            unseen = [label for label, count in facts.label_counts.items() if not count]
            if unseen:
                said.append(f"No {split} row has the label {listed(unseen)}.")
            if facts.empty_texts:
                where = ", ".join(str(row) for row in facts.empty_rows)
                more = ", ..." if facts.empty_texts > len(facts.empty_rows) else ""
                one = facts.empty_texts == 1
                have, are = ("row has", "it is") if one else ("rows have", "they are")
                said.append(f"{facts.empty_texts:,} {split} {have} an empty text (row {where}{more}); {are} kept.")
        return said


def report_on(splits: Mapping[str, Examples], task: Task) -> DataReport:
    """The facts of all splits, which are given in the order train, validation, test."""
    keys = {split: _keys(examples) for split, examples in splits.items()}
    return DataReport(
        splits={split: _split_report(examples, task) for split, examples in splits.items()},
        repeated={split: len(rows) - len(set(rows)) for split, rows in keys.items()},
        shared={f"{one}/{two}": len(overlap(splits[one], splits[two])) for one, two in combinations(splits, 2)},
        conflicting=conflicting(splits["train"]),
    )


def overlap(train: Texts, other: Texts) -> Indices:
    """Positions in ``other`` of the rows whose text (and pair) stands in ``train`` too."""
    known = set(_keys(train))
    return np.array([i for i, key in enumerate(_keys(other)) if key in known], dtype=np.int64)


def conflicting(examples: Examples) -> int:
    """How many different texts (with their pair) stand there with more than one target."""
    text_and_target = set(zip(_keys(examples), examples.targets.tolist(), strict=True))
    return sum(count > 1 for count in Counter(key for key, _ in text_and_target).values())


def _keys(texts: Texts) -> list[Any]:
    return list(texts.texts) if texts.pairs is None else list(zip(texts.texts, texts.pairs, strict=True))


def _split_report(examples: Examples, task: Task) -> SplitReport:
    texts, pairs = examples.texts, examples.pairs
    lengths = np.array([len(text) for text in texts])
    empty = np.array([not text.strip() for text in texts])
    if pairs is not None:
        lengths = lengths + [len(pair) for pair in pairs]
        empty = empty | [not pair.strip() for pair in pairs]
    classes = task.problem_type != REGRESSION
    counts = np.bincount(examples.targets, minlength=len(task.labels)).tolist() if classes else []
    bounds = (float(examples.targets.min()), float(examples.targets.max()))
    return SplitReport(
        source=examples.name,
        rows=len(examples),
        label_counts=dict(zip(task.labels, counts, strict=True)),
        target_range=None if classes else bounds,
        characters={
            "min": float(lengths.min()),
            "median": float(np.median(lengths)),
            "mean": float(lengths.mean()),
            "percentile_95": float(np.percentile(lengths, 95)),
            "max": float(lengths.max()),
        },
        empty_texts=int(empty.sum()),
        empty_rows=tuple(examples.rows[empty][:SHOWN_ROWS].tolist()),
    )
