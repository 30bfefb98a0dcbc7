"""Facts about the data for the report, and warnings. No data are refused here."""

import re
from collections import defaultdict
from collections.abc import Mapping
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from frostline.data.examples import Examples, Texts
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.tags import NO_WORD
from frostline.data.task import Task
from frostline.data.wording import SHOWN_ROWS, counted, first_rows, listed, quoted, visible

RARE, SIMILAR = 0.05, 0.85  # a typo's rows, relative to those of the right label; its similarity with that one
UNREADABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")  # control characters but tabs, line ends and form feeds
TWICE = re.compile(
    "[\xc2-\xf4][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
)  # how the bytes of a UTF-8 letter look in cp1252 and latin1
CONFLICTS = {TOKENS: "several lists of tags", MULTI_LABEL: "several lists of labels"}


class Lengths(BaseModel):
    """Statistics of lengths."""

    model_config = ConfigDict(strict=True, frozen=True)

    median: float
    percentile_95: float


class SplitReport(BaseModel):
    """Facts about one split.

    Attributes:
        rows: The number of rows.
        label_counts: The number of rows of each label, or of words with each tag; empty for regression.
        without_label: The number of rows without any label.
        characters: Statistics of the text lengths in characters. The two texts of a pair count together.
        empty_texts: The number of rows with an empty text.
        empty_rows: The row numbers of the first ten empty texts.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    rows: NonNegativeInt
    label_counts: dict[str, NonNegativeInt]
    without_label: NonNegativeInt
    characters: Lengths
    empty_texts: NonNegativeInt
    empty_rows: list[int]


class DataReport(BaseModel):
    """Facts about all splits.

    Attributes:
        splits: Facts about each split.
        repeated: By split, the number of rows whose text reads like an earlier one of the same split.
        shared: By pair of splits ``first/second``, the number of rows of the second whose text reads like one of the first.
        conflicting: The number of training texts with more than one target.
        conflicting_rows: The row numbers of up to ten training rows with such texts.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    splits: dict[str, SplitReport]
    repeated: dict[str, NonNegativeInt]
    shared: dict[str, NonNegativeInt]
    conflicting: NonNegativeInt
    conflicting_rows: list[int]

    def sentences(self, task_type: str) -> list[str]:
        """Warnings and notes for the user, a sentence each; empty if nothing is unusual."""
        found, unit = [], "sentence" if task_type == TOKENS else "text"
        for pair, count in self.shared.items():
            first, second = pair.split("/")
            if count:
                rows = _of_rows(count, self.splits[second].rows, second)
                too_high = f": scores on {second} are too high, so remove them from {first}" if first == "train" else ""
                found.append(f"Warning: {rows} a {unit} that is also in {first}{too_high}.")
        if self.conflicting:
            have = counted(self.conflicting, f"training {unit} has", f"training {unit}s have")
            labels = CONFLICTS.get(task_type, "more than one label")
            also = "" if task_type == TOKENS else ", or give the second text of a pair with --text-pair-column"
            where = first_rows(self.conflicting_rows) + (", ..." if len(self.conflicting_rows) == SHOWN_ROWS else "")
            found.append(f"Warning: {have} {labels} (rows {where}): correct what is wrong{also}.")
        if task_type == CLASSIFICATION:
            found += _probable_typos(self.splits["train"].label_counts)
        for split, facts in self.splits.items():
            if absent := [label for label, count in facts.label_counts.items() if not count]:
                found.append(f"No {split} row has the label {listed(absent)}.")
            if facts.without_label:
                found.append(f"{_of_rows(facts.without_label, facts.rows, split)} no label.")
            if facts.empty_texts:
                where = ", ".join(map(str, facts.empty_rows)) + (", ..." if facts.empty_texts > SHOWN_ROWS else "")
                have = counted(facts.empty_texts, f"{split} row has", f"{split} rows have")
                row, they = ("row", "it is") if facts.empty_texts == 1 else ("rows", "they are")
                found.append(f"{have} an empty text ({row} {where}); {they} not removed.")
        return found


def constant_targets(splits: Mapping[str, Examples], folds: npt.NDArray[np.int64] | None) -> list[str]:
    """A warning for every split of numbers, and for the folds of train, in which all numbers are the same."""
    found = [
        f"Warning: all {len(part):,} {split} rows have the number {part.targets[0]:g}, so no score on them says anything: give "
        f"others with --{split}."
        for split, part in splits.items()
        if split != "train" and np.ptp(part.targets) == 0
    ]
    count = 0 if folds is None else int(folds.max()) + 1
    constant = [n for n in range(count) if np.ptp(splits["train"].targets[folds == n]) == 0]
    if constant:
        found.append(
            f"Warning: in {len(constant)} of {count} folds all rows have the same number, so a run that is scored there has no "
            "score: give fewer --folds, or more rows with other numbers."
        )
    return found


def rounded_targets(train: Examples) -> list[str]:
    """A warning if float32, in which models predict, has not enough digits for the numbers of the training rows."""
    spread, error = float(np.std(train.targets)), float(np.abs(train.targets - train.targets.astype(np.float32)).max())
    if not 0 < spread < 100 * error:
        return []
    return [
        f"Warning: models predict in float32, which rounds these numbers by up to {error:.3g}, and their standard deviation is "
        f"only {spread:.3g}: subtract about {np.mean(train.targets):.3g} from all of them."
    ]


def notes_on_groups(splits: Mapping[str, Examples], column: str) -> list[str]:
    """A warning for every two splits with a group in common, and one for validation rows of a single group.

    Only splits that the user gives have groups in common. Rows of a single group cannot be resampled.
    """
    groups = {split: [group for group in part.seen_groups() or () if group] for split, part in splits.items()}
    known, found = {split: set(own) for split, own in groups.items()}, []
    for first, second in combinations(splits, 2):
        if count := sum(group in known[first] for group in groups[second]):
            rows = _of_rows(count, len(splits[second]), second)
            too_high = f": scores on {second} may be too high for others" if first == "train" else ""
            found.append(f"Warning: {rows} the same {quoted(column)} as rows of {first}{too_high}.")
    part = splits.get("validation")
    if part is not None and len(part) > 1 and len(np.unique(part.together())) == 1:
        found.append(
            f"Warning: all {len(part):,} validation rows have the same {quoted(column)}, so that no interval of a score is known."
        )
    return found


def _are_empty(texts: Texts) -> npt.NDArray[np.bool_]:
    """``[N]``: whether a text, or one of a pair, has nothing to read."""
    pairs = texts.pairs or texts.texts
    return np.array([not (text.strip() and pair.strip()) for text, pair in zip(texts.texts, pairs, strict=True)])


def notes_on_new(texts: Texts) -> list[str]:
    """Notes on texts to predict: those that cannot be read, and those that are empty."""
    found, empty = garbled(texts, "new"), texts.rows[_are_empty(texts)]
    if len(empty):
        found.append(f"{_of_rows(len(empty), len(texts), 'new')} an empty text (row {first_rows(empty)}).")
    return found


def garbled(texts: Texts, what: str) -> list[str]:
    """A warning if texts were probably decoded wrongly. ``what`` they are: a split, or new rows to predict."""
    rows = zip(texts.rows.tolist(), texts.texts, texts.pairs or ("",) * len(texts), strict=True)
    found = [(row, word) for row, *both in rows for word in map(_garbled_word, both) if word is not None]
    if not found:
        return []
    where = list(dict.fromkeys(row for row, _ in found))
    return [
        f"Warning: {_of_rows(len(where), len(texts), what)} a text with control characters or wrongly decoded letters, such as "
        f"{quoted(found[0][1])} (row {first_rows(where)}): correct them in {texts.name}, or the encoding that it is read with."
    ]


def _garbled_word(text: str) -> str | None:
    """The first word of a text that was probably decoded wrongly; None if there is none.

    It has a control character or U+FFFD, or the text is UTF-8 that was read as cp1252 or latin1.
    """
    if found := UNREADABLE.search(text):
        return next((word for word in text.split() if UNREADABLE.search(word)), found[0])  # U+0085 is white space
    if TWICE.search(text):
        for encoding in ("latin1", "cp1252"):
            try:
                text.encode(encoding).decode()
            except UnicodeError:
                continue
            return next(word for word in text.split() if not word.isascii())
    return None


def _probable_typos(counts: Mapping[str, int]) -> list[str]:
    """Warnings about rare labels whose names are almost those of frequent ones, and differ not only in their digits."""
    warnings = []
    names = {label: visible("".join(one for one in label if not one.isdigit())) for label in counts}
    for label, rows in counts.items():
        for other, of_other in counts.items():
            alike = names[label] != names[other] and 0 < rows <= RARE * of_other
            if alike and SequenceMatcher(None, names[label], names[other]).ratio() >= SIMILAR:
                have = counted(rows, "training row has", "training rows have")
                warnings.append(
                    f"Warning: {have} the label {quoted(label)}, and {of_other:,} have {quoted(other)}: "
                    "correct it if it is a typo."
                )
                break
    return warnings


def _of_rows(count: int, rows: int, split: str) -> str:
    """How many rows of a split, with the verb ``have``."""
    return f"{count:,} of {rows:,} {split} {'row' if rows == 1 else 'rows'} {'has' if count == 1 else 'have'}"


def report_on(splits: Mapping[str, Examples], task: Task) -> DataReport:
    """The facts about all splits. ``splits`` must be in the order train, validation, test."""
    conflicts = conflicting(splits["train"])
    keys = {split: examples.read_alike() for split, examples in splits.items()}
    known = {split: set(own) for split, own in keys.items()}
    return DataReport(
        splits={split: _split_report(examples, task) for split, examples in splits.items()},
        repeated={split: examples.repeats for split, examples in splits.items()},
        shared={f"{one}/{two}": sum(key in known[one] for key in keys[two]) for one, two in combinations(splits, 2)},
        conflicting=len(conflicts),
        conflicting_rows=[row for rows in conflicts for row in rows][:SHOWN_ROWS],
    )


def conflicting(examples: Examples) -> list[list[int]]:
    """The row numbers of each text (or pair of texts) that occurs with more than one target, or list of tags."""
    rows, targets = defaultdict(list), defaultdict(set)
    for key, row, target in zip(examples.keys(), examples.rows.tolist(), examples.targets, strict=True):
        rows[key].append(row)
        targets[key].add(target.tobytes())
    return [rows[key] for key, different in targets.items() if len(different) > 1]


def _split_report(examples: Examples, task: Task) -> SplitReport:
    texts, pairs = examples.texts, examples.pairs
    lengths = np.array([len(text) for text in texts])
    if pairs is not None:
        lengths = lengths + [len(pair) for pair in pairs]
    empty, classes = _are_empty(examples), task.task_type != REGRESSION
    if examples.has_label_sets:
        counts = examples.targets.sum(0)
    else:
        known = examples.targets[examples.targets != NO_WORD] if classes else []  # [N], or all words
        counts = np.bincount(np.asarray(known, np.int64), minlength=len(task.labels))
    return SplitReport(
        rows=len(examples),
        label_counts=dict(zip(task.labels, counts.tolist(), strict=True)) if classes else {},
        without_label=int((~examples.targets.any(1)).sum()) if examples.has_label_sets else 0,
        characters=Lengths(median=float(np.median(lengths)), percentile_95=float(np.percentile(lengths, 95))),
        empty_texts=int(empty.sum()),
        empty_rows=examples.rows[empty][:SHOWN_ROWS].tolist(),
    )
