"""Precision, recall and F1 of each class or type of entity, over the runs of one k."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.tags import are_entities, entity_types
from frostline.statistics.answer import ClassScores, OverRuns
from frostline.statistics.metrics import defined, predict, scored_rows
from frostline.statistics.predictions import Labelled
from frostline.statistics.tags import entity_counts, is_scored

SCORES = ("precision", "recall", "f1")


def scores_by_class(split: Labelled, logits: Sequence[NDArray[Any]]) -> list[ClassScores]:
    """Precision, recall and F1 of each class, of each type of entity, or of each plain tag.

    The estimate comes from the summed counts of all runs. With folds, this is the cross-validated score. A mean over folds
    would be biased, because F1 is a ratio (Forman and Scholz 2010, SIGKDD Explorations 12). A score is None if it is undefined:
    a class that no run predicts has no precision.

    Args:
        split: The targets and the labels.
        logits: For each run ``[rows, C]``, or of words ``[rows, W, C]``; NaN in rows that it is not scored on.

    Returns:
        For each class its ``label``, the number of ``examples`` that any run is scored on (entities or words for tags), and for
        each score its ``estimate`` with the ``lowest`` and ``highest`` of the single runs.
    """
    entities = split.task_type == TOKENS and are_entities(split.labels)
    counted = _of_label_sets if split.task_type == MULTI_LABEL else _of_entities if entities else _of_classes
    counts = np.stack([counted(split, one) for one in logits])  # [runs, rows, K, 3]
    single, pooled = _scores(counts.sum(1)), _scores(counts.sum((0, 1)))  # [3, runs, K] and [3, K]
    examples = counts[..., 2].max(0).sum(0)
    return [
        ClassScores(
            label=label,
            examples=int(examples[c]),
            **{name: _with_range(pooled[n, c], single[n, :, c]) for n, name in enumerate(SCORES)},
        )
        for c, label in enumerate(entity_types(split.labels) if entities else split.labels)
    ]


def _of_entities(split: Labelled, logits: NDArray[Any]) -> NDArray[np.int64]:
    """``[rows, K, 3]``: correct, predicted and expected entities of each type."""
    return entity_counts(split.targets, predict(logits, split.task_type), split.labels)


def _of_label_sets(split: Labelled, logits: NDArray[Any]) -> NDArray[np.int64]:
    """``[rows, C, 3]``: correct, predicted and expected labels."""
    expected, found = split.targets & scored_rows(logits)[:, None], predict(logits, split.task_type)
    return np.stack([expected & found, found, expected], -1).astype(np.int64)


def _of_classes(split: Labelled, logits: NDArray[Any]) -> NDArray[np.int64]:
    """``[rows, C, 3]``: correct, predicted and expected labels of each class."""
    predicted = predict(logits, split.task_type).reshape(len(logits), -1)  # [rows, 1], or [rows, W]
    targets = split.targets.reshape(predicted.shape)
    scored = is_scored(targets, predicted) & scored_rows(logits)[:, None]
    classes = np.arange(len(split.labels))
    expected, found = ((x[..., None] == classes) & scored[..., None] for x in (targets, predicted))  # [rows, W, C]
    return np.stack([(expected & found).sum(1), found.sum(1), expected.sum(1)], -1)


def _scores(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Precision, recall and F1, ``[3, ...]``, from counts ``[..., 3]``; NaN if a score is undefined."""
    correct, predicted, expected = np.moveaxis(counts, -1, 0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.stack([correct / predicted, correct / expected, 2 * correct / (predicted + expected)])


def _with_range(estimate: float, single: NDArray[np.float64]) -> OverRuns:
    known = single[~np.isnan(single)]
    return OverRuns(
        estimate=defined(float(estimate)),
        lowest=float(known.min()) if len(known) else None,
        highest=float(known.max()) if len(known) else None,
    )
