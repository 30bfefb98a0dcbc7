"""What the outputs of a classifier are worth: scores of each class, calibration of its probabilities, and thresholds.

Targets are class indices ``[n]``. If a text can have any number of labels (bool ``[n, C]``), each pair of a text and a label is
an example with two classes, no and yes, for the calibration. Of tags (``[n, W]``, with logits ``[n, W, C]``), each word is one.

Source: Guo, Pleiss, Sun and Weinberger 2017, On Calibration of Modern Neural Networks (arXiv:1706.04599).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.tags import are_entities, entity_types
from frostline.statistics.answer import CalibrationError, ClassScores
from frostline.statistics.inference import Ratio, row_groups, score_interval
from frostline.statistics.metrics import EXPECTED, PREDICTED, defined, entity_counts, is_scored, predict, scored_rows
from frostline.statistics.predictions import Labelled
from frostline.statistics.threshold_rule import FORMULAS, RECALL, ThresholdRule

Array = NDArray[Any]


def softmax(values: Array) -> Array:
    """Probabilities of the classes, or of the tags of a word, ``[n, C]``."""
    return np.asarray(scipy.special.softmax(values, axis=1))


OUTPUTS: Mapping[str, Callable[[Array], Array]] = {  # by task type, from logits or numbers [n, C]
    CLASSIFICATION: softmax,
    TOKENS: softmax,
    MULTI_LABEL: lambda values: np.asarray(scipy.special.expit(values)),
    REGRESSION: lambda values: values,
}


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

    def with_range(estimate: float, single: NDArray[np.float64]) -> Ratio:
        known = single[~np.isnan(single)].tolist()
        return Ratio(defined(float(estimate)), min(known, default=None), max(known, default=None))

    counts = np.stack([_counts(split, one) for one in logits])  # [runs, rows, K, 3]
    single, pooled = _class_scores(counts.sum(1)), _class_scores(counts.sum((0, 1)))  # [3, runs, K] and [3, K]
    examples = counts[..., 2].max(0).sum(0)
    return [
        ClassScores(
            label=label,
            examples=int(examples[c]),
            **{name: with_range(pooled[n, c], single[n, :, c]) for n, name in enumerate(SCORES)},
        )
        for c, label in enumerate(_kinds(split))
    ]


def intervals_by_class(split: Labelled, logits: NDArray[Any]) -> list[ClassScores]:
    """The same of one model, for logits ``[rows, C]``. The ends are those of the interval for the sample of rows."""
    counts = _counts(split, logits)  # [rows, K, 3]
    total = counts.sum(0)
    scores = _class_scores(total)  # [3, K]
    left_out = np.stack([_class_scores(counts[rows].sum(0)) for rows in row_groups(split.clusters)])  # [groups, 3, K]

    def interval(n: int, c: int, *of: int) -> Ratio:
        """``of``: the places of the counts that the score is a share of. Those of one text count once."""
        own = counts[:, c, of]
        rows = np.asarray(own.any(1))
        examples = own.sum() / len(of) * split.different_texts(rows) / max(rows.sum(), 1)
        low, high = score_interval(float(scores[n, c]), left_out[:, n, c], 1 / max(examples, 1.0))
        unknown = np.isnan(scores[n, c])
        return Ratio(
            defined(float(scores[n, c])), None if unknown else max(low, 0.0), None if unknown else min(high, 1.0)
        )

    return [
        ClassScores(
            label=label,
            examples=int(expected),
            precision=interval(0, c, PREDICTED),
            recall=interval(1, c, EXPECTED),
            f1=interval(2, c, PREDICTED, EXPECTED),
        )
        for c, (label, expected) in enumerate(zip(_kinds(split), total[:, EXPECTED].tolist(), strict=True))
    ]


def _kinds(split: Labelled) -> Sequence[str]:
    """What is counted: types of entities, else labels."""
    entities = split.task_type == TOKENS and are_entities(split.labels)
    return entity_types(split.labels) if entities else split.labels


def _counts(split: Labelled, logits: NDArray[Any]) -> NDArray[np.int64]:
    """``[rows, K, 3]``: correct, predicted and expected of each class, label, or type of entity."""
    if split.task_type == TOKENS and are_entities(split.labels):
        return entity_counts(split.targets, predict(logits, split.task_type), split.labels)
    return (_of_label_sets if split.task_type == MULTI_LABEL else _of_classes)(split, logits)


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


def _class_scores(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Precision, recall and F1, ``[3, ...]``, from counts ``[..., 3]``; NaN if a score is undefined."""
    correct, predicted, expected = np.moveaxis(counts, -1, 0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.stack([correct / predicted, correct / expected, 2 * correct / (predicted + expected)])


Values = NDArray[np.float64]
Targets = NDArray[np.int64]

MOST_BINS, BIN_EXAMPLES = 15, 20  # Guo et al. use 15 bins; a bin has at least so many examples, if there are enough
FOLDS = 5  # of the cross-fitting
DRAWS = 1000  # simulated outcomes of calibrated probabilities
LOG_LIMIT = 5.0  # a temperature is between exp(-5) and exp(5)


def class_examples(logits: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], Targets]:
    """Logits ``[m, K]`` and class indices ``[m]`` of pairs of a text and a label, of words, or of texts with one class."""
    if targets.dtype == np.bool_:
        yes = logits.reshape(-1)
        return np.stack([np.zeros_like(yes), yes], 1), targets.reshape(-1).astype(np.int64)
    if targets.ndim > 1:
        known = _known_words(logits, targets)
        return logits[known], targets[known]
    return logits, targets.astype(np.int64)


def _known_words(logits: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether there is a word, and it was not cut off, ``[n, W]``."""
    known: NDArray[np.bool_] = (targets >= 0) & ~np.isnan(logits).any(-1)
    return known


def log_loss(logits: NDArray[Any], targets: NDArray[Any], temperature: float = 1.0) -> float:
    """The mean negative log-likelihood of class indices ``[n]``, given logits ``[n, C]``.

    The loss of an example is at most 50, so that a class with a logit of minus infinity does not make it infinite.
    """
    logits, targets = class_examples(logits, targets)
    logs = scipy.special.log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.maximum(logs[np.arange(len(targets)), targets], -50.0).mean())


def best_temperature(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The temperature with the lowest log loss, from exp(-5) to exp(5). The loss has a single minimum.

    If every example is classified correctly, there is no minimum: the lower the temperature, the better.
    """
    found = scipy.optimize.minimize_scalar(
        lambda log: log_loss(logits, targets, float(np.exp(log))), bounds=(-LOG_LIMIT, LOG_LIMIT), method="bounded"
    )
    return float(np.exp(found.x))


def fit_temperature(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The temperature with the lowest log loss; 1 if no example is misclassified, because then nothing limits it."""
    logits, targets = class_examples(logits, targets)
    if not (logits.argmax(1) != targets).any():
        return 1.0
    return min(1.0, best_temperature(logits, targets), key=lambda t: log_loss(logits, targets, t))


Folds = Sequence[tuple[Targets, Targets]]


def folds_of(alike: Targets, rng: np.random.Generator) -> Folds:
    """Random folds for cross-fitting: the rows to fit on and the held-out rows of each fold. Each row is held out once.

    ``alike`` has a number for each row, ``[rows]``: rows with the same one are in the same fold.
    """
    known, text = np.unique(alike, return_inverse=True)
    held_out = [np.isin(text, some) for some in np.array_split(rng.permutation(len(known)), min(FOLDS, len(known)))]
    return [(np.flatnonzero(~fold), np.flatnonzero(fold)) for fold in held_out]


def cross_fitted(logits: NDArray[Any], targets: NDArray[Any], folds: Folds) -> NDArray[Any]:
    """The logits ``[n, C]``, each row divided by a temperature that was fitted without this row's fold."""
    scaled = logits.astype(np.float64)
    for rest, fold in folds:
        scaled[fold] /= fit_temperature(logits[rest], targets[rest])
    return scaled


def calibration(
    logits: NDArray[Any], targets: NDArray[Any], rng: np.random.Generator, alike: Targets
) -> CalibrationError:
    """How well the probabilities of the predicted classes agree with their accuracy.

    Args:
        logits: ``[n, C]``, with n at least 1.
        targets: Class indices, label sets or tags.
        rng: Draws the outcomes of ``by_chance``.
        alike: A number for each row, ``[n]``: rows whose texts read alike have the same one, and one outcome.

    Returns:
        The expected calibration error (Guo et al. 2017, equation 3) in bins with equally many examples, which bias it less than
        bins of equal width (Roelofs et al. 2022, arXiv:2012.08668): the mean distance of confidence and accuracy, weighted by
        the examples of a bin; its mean and its 95 % quantile if the probabilities were exactly right; and the bins.
    """
    texts = _texts_of_examples(logits, targets, alike)
    logits, targets = class_examples(logits, targets)
    found = softmax(logits.astype(np.float64))
    right, bins = found.argmax(1) == targets, _bins(confidence := found.max(1), len(np.unique(texts)))
    weights = [len(rows) / len(targets) for rows in bins]
    confidences, accuracies = ([float(part[rows].mean()) for rows in bins] for part in (confidence, right))
    simulated = np.zeros(DRAWS)
    for rows, weight, expected in zip(bins, weights, confidences, strict=True):
        own, text = np.unique(texts[rows], return_inverse=True)
        hits = (rng.random((DRAWS, len(own)))[:, text] < confidence[rows]).mean(1)
        simulated += weight * np.abs(hits - expected)
    return CalibrationError(
        error=float(np.abs(np.subtract(confidences, accuracies)) @ weights),
        by_chance=float(simulated.mean()),
        by_chance_high=float(np.quantile(simulated, 0.95)),
        log_loss=log_loss(logits, targets),
        confidence=confidences,
        accuracy=accuracies,
        examples=[len(rows) for rows in bins],
        texts=[len(np.unique(texts[rows])) for rows in bins],
    )


def _texts_of_examples(logits: NDArray[Any], targets: NDArray[Any], alike: Targets) -> Targets:
    """A number for the text of each of the :func:`class_examples`, and for its label or word, ``[m]``."""
    if targets.ndim == 1:
        return alike
    texts = np.add.outer(alike * targets.shape[1], np.arange(targets.shape[1]))
    return np.asarray(texts.reshape(-1) if targets.dtype == np.bool_ else texts[_known_words(logits, targets)])


def _bins(confidence: Values, texts: int) -> list[Targets]:
    """The rows of each bin, by rising confidence. Examples with the same confidence are in one bin.

    ``texts``: the number of different texts.
    """
    count = max(1, min(MOST_BINS, texts // BIN_EXAMPLES))
    starts = [part[0] for part in np.array_split(np.sort(confidence), count)[1:]]
    places = np.searchsorted(np.unique(starts), confidence, side="right")
    return [np.flatnonzero(places == place) for place in np.unique(places)]


def threshold_scores(probability: Values, positive: NDArray[np.bool_], thresholds: Values) -> dict[str, Values]:
    """Every score of the second class at each threshold, ``[thresholds]``; an example is positive from its threshold on."""
    order = np.argsort(probability, kind="stable")
    below = np.searchsorted(probability[order], thresholds, side="left")
    fn = np.concatenate([[0], np.cumsum(positive[order])])[below].astype(float)
    tp = float(positive.sum()) - fn
    fp, tn = len(positive) - below - tp, below - fn

    def share(part: Values, whole: Values) -> Values:
        """0 where the whole is 0, as in the metrics."""
        return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)

    own = {"precision": share(tp, tp + fp), "recall": share(tp, tp + fn)}
    return own | {name: formula(share, tp, fp, fn, tn) for name, formula in FORMULAS.items()}


def choose_threshold(probability: Values, positive: NDArray[np.bool_], rule: ThresholdRule) -> float:
    """The threshold that the rule asks for, on these examples.

    A metric is maximized. Of several thresholds with the same score, the one nearest to 0.5 is chosen. For a recall, it is the
    highest threshold with at least this recall, so that precision is as high as the recall allows. If no example is positive,
    nothing can be chosen, and the threshold is 0.5.

    Args:
        probability: Of the second class, ``[n]``.
        positive: Whether an example is of the second class, ``[n]``.
        rule: What to choose it by. A number is returned unchanged.
    """
    if rule.metric is None:
        assert rule.number is not None
        return rule.number
    if not positive.any():
        return 0.5
    thresholds = _candidates(probability)
    scores = threshold_scores(probability, positive, thresholds)[rule.metric]
    if rule.metric == RECALL and rule.number is not None:
        enough = thresholds[scores >= rule.number]
        return float(enough.max() if len(enough) else thresholds.min())
    best = thresholds[scores >= scores.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


def choose_thresholds(probability: Values, targets: NDArray[np.bool_], rule: ThresholdRule) -> Values:
    """The threshold of each label, ``[C]``, if a text can have any number of labels.

    For micro F1, there is one threshold for all labels. For macro F1, each label has the threshold that maximizes its F1. A
    recall is that of each label.

    Args:
        probability: ``[n, C]``.
        targets: ``[n, C]``.
        rule: What to choose them by.
    """
    if rule.metric == "f1_micro":
        one = choose_threshold(probability.ravel(), targets.ravel(), ThresholdRule("f1"))
        return np.full(targets.shape[1], one)
    own = replace(rule, metric="f1") if rule.metric == "f1_macro" else rule
    return np.array([choose_threshold(p, t, own) for p, t in zip(probability.T, targets.T, strict=True)])


def not_chosen(targets: NDArray[np.bool_], labels: Sequence[str], rule: ThresholdRule) -> list[str]:
    """The labels that keep 0.5, because the rule chooses a threshold for each label and no example has these ``[n, C]``."""
    if rule.metric in (None, "f1_micro"):
        return []
    return [label for label, has in zip(labels, targets.T, strict=True) if not has.any()]


def scores_of(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> dict[str, float | None]:
    """Every score of predictions ``[n]``. Precision is None if no example is predicted positive, recall if none is positive."""
    undefined = {"precision": not predicted.any(), "recall": not positive.any()}
    scores = threshold_scores(predicted.astype(float), positive, np.array([0.5]))
    return {name: None if undefined.get(name) else float(score[0]) for name, score in scores.items()}


def _candidates(probability: Values) -> Values:
    """0.5 and a threshold between every two neighbouring probabilities, below the lowest and above the highest."""
    known = np.unique(probability)
    between = (np.concatenate([[0.0], known]) + np.concatenate([known, [1.0]])) / 2
    thresholds = np.unique([*between, 0.5])
    return thresholds[(thresholds > 0) & (thresholds < 1)]
