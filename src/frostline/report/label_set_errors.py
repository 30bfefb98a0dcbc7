"""The errors of a recommended model that predicts any number of labels: the texts with the largest loss."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.data.examples import Examples
from frostline.data.kinds import MULTI_LABEL
from frostline.report.error_analysis import shown
from frostline.statistics.metrics import predict
from frostline.statistics.outputs import OUTPUTS

MAX_TEXTS = 10


@dataclass(frozen=True)
class WrongLabel:
    """A label that is missed, or that is predicted although the text does not have it."""

    label: str
    missed: bool
    probability: float


@dataclass(frozen=True)
class WrongText:
    """A text with wrong labels, those with the largest loss first."""

    row: int
    text: str
    pair: str | None
    labels: Sequence[str]
    wrong: Sequence[WrongLabel]
    loss: float


@dataclass(frozen=True)
class LabelSetErrors:
    """The number of texts with a wrong label, of missed labels and of labels predicted wrongly; and the worst texts."""

    texts: int
    missed: int
    extra: int
    worst: Sequence[WrongText]


def label_set_errors(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str]) -> LabelSetErrors:
    """The errors of logits ``[n, C]`` where a label is predicted from probability 0.5 on."""
    targets, predicted = examples.targets.astype(np.bool_), predict(logits, MULTI_LABEL)
    probability = OUTPUTS[MULTI_LABEL](logits.astype(np.float64))
    losses = np.logaddexp(0.0, np.where(targets, -logits, logits).astype(np.float64))  # [n, C]
    wrong = targets != predicted

    def text(n: int) -> WrongText:
        order = [c for c in np.argsort(-losses[n], kind="stable").tolist() if wrong[n, c]]
        return WrongText(
            **shown(examples, n),
            labels=[label for label, has in zip(labels, targets[n], strict=True) if has],
            wrong=[WrongLabel(labels[c], bool(targets[n, c]), float(probability[n, c])) for c in order],
            loss=float(losses[n].mean()),
        )

    order = [n for n in np.argsort(-losses.mean(1), kind="stable").tolist() if wrong[n].any()]
    return LabelSetErrors(
        texts=len(order),
        missed=int((targets & ~predicted).sum()),
        extra=int((~targets & predicted).sum()),
        worst=[text(n) for n in order[:MAX_TEXTS]],
    )
