"""What the recommended model gets wrong on validation: which classes it takes for which, and its worst rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from frostline.data import Examples

MOST_CLASSES = 12  # in a matrix that one can read
MOST_TEXT = 600  # characters of a text that are shown


@dataclass(frozen=True)
class Confusion:
    """Counts by true class (rows) and predicted class (columns); ``rest`` classes are together in the last of each."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]  # [shown classes (+ 1), the same]
    rest: int

    def share(self, row: int, column: int) -> float:
        """Of the rows of a true class, how many got this prediction."""
        total = int(self.counts[row].sum())
        return float(self.counts[row, column] / total) if total else 0.0


@dataclass(frozen=True)
class Mistake:
    """One validation row; a probability is None in regression, where ``label`` and ``predicted`` are numbers."""

    row: int
    text: str
    pair: str | None
    label: str
    predicted: str
    probability: float | None  # of what was predicted
    probability_of_label: float | None
    loss: float


def confusion(targets: NDArray[Any], predictions: NDArray[Any], labels: Sequence[str]) -> Confusion:
    """The confusion matrix; of very many classes those that are confused most, the others added up."""
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (targets, predictions), 1)
    if len(labels) <= MOST_CLASSES:
        return Confusion(tuple(labels), counts, 0)
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")
    shown, others = np.sort(order[: MOST_CLASSES - 2]), order[MOST_CLASSES - 2 :]
    groups: list[list[int]] = [*([n] for n in shown.tolist()), others.tolist()]
    small = np.array([[counts[np.ix_(one, two)].sum() for two in groups] for one in groups])
    return Confusion((*(labels[n] for n in shown), f"{len(others)} others"), small, len(others))


def mistakes(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str], most: int = 10) -> list[Mistake]:
    """The rows with the highest loss, of a classifier only those that it gets wrong."""
    found = _wrong_numbers(examples, logits) if not labels else _wrong_classes(examples, logits, labels)
    return sorted(found, key=lambda mistake: (-mistake.loss, mistake.row))[:most]


def _wrong_classes(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str]) -> list[Mistake]:
    logs = log_softmax(logits.astype(np.float64), axis=1)  # [rows, C]
    predicted = logits.argmax(1)
    return [
        Mistake(
            row=int(examples.rows[n]),
            text=_short(examples.texts[n]),
            pair=None if examples.pairs is None else _short(examples.pairs[n]),
            label=labels[target],
            predicted=labels[predicted[n]],
            probability=float(np.exp(logs[n, predicted[n]])),
            probability_of_label=float(np.exp(logs[n, target])),
            loss=float(-logs[n, target]),
        )
        for n, target in enumerate(examples.targets.tolist())
        if target != predicted[n]
    ]


def _wrong_numbers(examples: Examples, logits: NDArray[np.float32]) -> list[Mistake]:
    return [
        Mistake(
            row=int(examples.rows[n]),
            text=_short(examples.texts[n]),
            pair=None if examples.pairs is None else _short(examples.pairs[n]),
            label=f"{target:.4g}",
            predicted=f"{logits[n, 0]:.4g}",
            probability=None,
            probability_of_label=None,
            loss=float((logits[n, 0] - target) ** 2),
        )
        for n, target in enumerate(examples.targets.tolist())
    ]


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … ({len(text):,} characters)"
