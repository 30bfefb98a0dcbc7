"""The errors of the recommended model on validation: the confusion matrix, and the examples with the largest loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from frostline.data.examples import Examples

MAX_CLASSES = 12  # in a confusion matrix
MAX_CHARACTERS = 600  # of a printed text


@dataclass(frozen=True)
class Confusion:
    """Counts ``[C, C]`` by true class (rows) and predicted class (columns).

    The last row and column sum ``others`` classes, so C counts these as one class.
    """

    labels: tuple[str, ...]
    counts: NDArray[np.int64]
    others: int

    def share(self, row: int, column: int) -> float:
        """The share of a true class that was predicted as this class."""
        total = int(self.counts[row].sum())
        return float(self.counts[row, column] / total) if total else 0.0


@dataclass(frozen=True)
class PredictionError:
    """One validation example. In regression ``label`` and ``predicted`` are numbers, and the probabilities are None."""

    row: int
    text: str
    pair: str | None
    label: str
    predicted: str
    probability: float | None  # of the prediction
    probability_of_label: float | None
    loss: float


def confusion(targets: NDArray[Any], predictions: NDArray[Any], labels: Sequence[str]) -> Confusion:
    """The confusion matrix. Of many classes it has the most confused ones, and the sum of the others."""
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (targets, predictions), 1)
    if len(labels) <= MAX_CLASSES:
        return Confusion(tuple(labels), counts, 0)
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")
    shown, others = np.sort(order[: MAX_CLASSES - 2]), order[MAX_CLASSES - 2 :]
    groups: list[list[int]] = [*([n] for n in shown.tolist()), others.tolist()]
    merged = np.array([[counts[np.ix_(one, two)].sum() for two in groups] for one in groups])
    return Confusion((*(labels[n] for n in shown), f"{len(others)} others"), merged, len(others))


def largest_errors(
    examples: Examples, logits: NDArray[np.float32], labels: Sequence[str], count: int = 10
) -> list[PredictionError]:
    """The examples with the largest loss. For a classifier these are misclassified examples only."""
    errors = _residuals(examples, logits) if not labels else _misclassified(examples, logits, labels)
    return sorted(errors, key=lambda error: (-error.loss, error.row))[:count]


def _misclassified(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str]) -> list[PredictionError]:
    log_p = log_softmax(logits.astype(np.float64), axis=1)  # [examples, C]
    predicted = logits.argmax(1)
    return [
        PredictionError(
            **shown(examples, n),
            label=labels[target],
            predicted=labels[predicted[n]],
            probability=float(np.exp(log_p[n, predicted[n]])),
            probability_of_label=float(np.exp(log_p[n, target])),
            loss=float(-log_p[n, target]),
        )
        for n, target in enumerate(examples.targets.tolist())
        if target != predicted[n]
    ]


def _residuals(examples: Examples, logits: NDArray[np.float32]) -> list[PredictionError]:
    return [
        PredictionError(
            **shown(examples, n),
            label=f"{target:.4g}",
            predicted=f"{logits[n, 0]:.4g}",
            probability=None,
            probability_of_label=None,
            loss=float((logits[n, 0] - target) ** 2),
        )
        for n, target in enumerate(examples.targets.tolist())
    ]


def shown(examples: Examples, n: int) -> dict[str, Any]:
    """The row, the text and the pair of one example, as keywords of an error."""
    pair = None if examples.pairs is None else _shortened(examples.pairs[n])
    return {"row": int(examples.rows[n]), "text": _shortened(examples.texts[n]), "pair": pair}


def _shortened(text: str) -> str:
    """The beginning of a long text, with its length."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} … ({len(text):,} characters)"
