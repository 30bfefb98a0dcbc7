"""How a decision threshold is chosen, for two classes or for each of several labels.

Imports no numpy, because settings are read without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

BEST: Final = "best"  # the metric of the sweep
RECALL: Final = "recall"  # a smallest recall, as in recall=0.9
# What can be maximized, from arrays of true and false positives and negatives; ``share`` is 0 where the whole is 0.
FORMULAS: Mapping[str, Callable[..., Any]] = {
    "f1": lambda share, tp, fp, fn, tn: share(2 * tp, 2 * tp + fp + fn),
    "accuracy": lambda share, tp, fp, fn, tn: share(tp + tn, tp + fp + fn + tn),
    "balanced_accuracy": lambda share, tp, fp, fn, tn: (share(tp, tp + fn) + share(tn, tn + fp)) / 2,
    "f1_macro": lambda share, tp, fp, fn, tn: (share(2 * tp, 2 * tp + fp + fn) + share(2 * tn, 2 * tn + fn + fp)) / 2,
    "matthews_correlation": lambda share, tp, fp, fn, tn: share(
        tp * tn - fp * fn, ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    ),
}
MAXIMIZED = tuple(sorted(FORMULAS))
OF_LABEL_SETS = ("f1_micro", "f1_macro")  # what can be maximized if a text can have several labels
FORMS = f"a number between 0 and 1, recall=0.9, or what to maximize: {BEST} (the metric), {', '.join(MAXIMIZED)}; " + (
    f"if a text can have several labels, {' or '.join(OF_LABEL_SETS)}"
)


@dataclass(frozen=True)
class ThresholdRule:
    """A number, a metric to maximize, or a smallest recall.

    Attributes:
        metric: What is maximized, or ``recall``; None if the threshold itself is given.
        number: The threshold, or the smallest recall; None if a metric is maximized.
    """

    metric: str | None = None
    number: float | None = None

    @classmethod
    def read(cls, value: float | str, metric: str) -> Self:
        """The rule that a setting stands for, with the sweep's ``metric`` for ``best``."""
        if isinstance(value, float):
            return cls(number=value)
        name, _, number = value.partition("=")
        return cls(metric if name == BEST else name, float(number) if number else None)


def check_threshold(value: object) -> float | str:
    """The setting in its usual form: a number, or a text without spaces, such as ``recall=0.9``.

    Raises:
        ValueError: It is neither; the message says what to give.
    """
    text = "".join(str(value).split())
    number = text.removeprefix(f"{RECALL}=")
    if _between_0_and_1(number):
        return float(number) if number == text else f"{RECALL}={float(number)}"
    name = text.replace("-", "_")
    if name not in (BEST, *MAXIMIZED, *OF_LABEL_SETS):
        raise ValueError(f"give {FORMS}")
    return name


def _between_0_and_1(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False
