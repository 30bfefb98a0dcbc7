"""Precision, recall and F1 of each class, over the runs of one k."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support

from frostline.statistics.metrics import defined

SCORES = ("precision", "recall", "f1")


def scores_by_class(
    targets: NDArray[np.int64], logits: Sequence[NDArray[Any]], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each class.

    The estimate comes from the summed counts of all runs. With folds, this is the cross-validated score. A mean over folds
    would be biased, because F1 is a ratio (Forman and Scholz 2010, SIGKDD Explorations 12). A score is None if it is undefined:
    a class that no run predicts has no precision.

    Args:
        targets: Class indices ``[rows]``.
        logits: For each run ``[rows, C]``; NaN in rows that it is not scored on.
        labels: The C classes.

    Returns:
        For each class its ``label``, the number of ``examples`` that any run is scored on, and for each score its ``estimate``
        with the ``lowest`` and ``highest`` of the single runs.
    """
    scored = [~np.isnan(one).any(axis=1) for one in logits]
    pairs = [(targets[rows], one[rows].argmax(axis=1)) for one, rows in zip(logits, scored, strict=True)]
    pooled = _scores(np.concatenate([t for t, _ in pairs]), np.concatenate([p for _, p in pairs]), len(labels))
    single = np.stack([_scores(*pair, len(labels)) for pair in pairs])  # [runs, 3, C]
    examples = np.bincount(targets[np.any(scored, axis=0)], minlength=len(labels))
    return [
        {
            "label": label,
            "examples": int(examples[c]),
            **{name: _with_range(pooled[n, c], single[:, n, c]) for n, name in enumerate(SCORES)},
        }
        for c, label in enumerate(labels)
    ]


def _scores(targets: NDArray[np.int64], predictions: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Precision, recall and F1 of each class, ``[3, C]``; NaN if a score is undefined."""
    found = precision_recall_fscore_support(targets, predictions, labels=range(classes), zero_division=np.nan)
    return np.stack(found[:3])


def _with_range(estimate: float, single: NDArray[np.float64]) -> dict[str, float | None]:
    known = single[~np.isnan(single)]
    return {
        "estimate": defined(float(estimate)),
        "lowest": float(known.min()) if len(known) else None,
        "highest": float(known.max()) if len(known) else None,
    }
