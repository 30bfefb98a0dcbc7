"""Linear models without torch: ridge and logistic regression, and a TF-IDF model of words and word pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

from frostline.data.examples import Examples, Targets, Texts
from frostline.statistics.class_outputs import Folds, best_temperature, folds_of, log_loss

Array = NDArray[np.float64]
Features = NDArray[np.float32]
Indices = NDArray[np.int64]

PENALTIES = tuple(float(x) for x in np.logspace(-4, 1, 11))  # penalties to choose from, per training row
FOLDS = 5
NEVER = -1e4  # the logit of a class without training examples, whose probability is zero; scores need a finite number
CHUNK = 16384  # number of rows that are converted to double precision at a time


@dataclass(frozen=True)
class LinearModel:
    """``logits = features @ weights + bias``: calibrated logits of classes or labels, or a number to predict.

    Attributes:
        weights: ``[D, C]``; one column for regression.
        bias: ``[C]``.
    """

    weights: Array
    bias: Array

    def logits(self, features: Features) -> Array:
        """The logits ``[n, C]`` of rows ``[n, D]``."""
        return np.concatenate([part @ self.weights + self.bias for part in _chunks(features)])


# Returns the model, its penalty per training row, and the cross-validated logits of the training rows before calibration, [n, C],
# each from a fit without this row and all rows that belong to it.
Fit = Callable[[Features, Targets, int, Indices], tuple[LinearModel, float, Array]]


def ridge(features: Features, targets: Targets, classes: int, together: Indices) -> tuple[LinearModel, float, Array]:
    """Ridge regression on a number, or on the targets -1 and 1 for each class or label.

    Gives the same as scikit-learn's ``Ridge`` and ``RidgeClassifier`` on standardised features. ``softmax`` or ``sigmoid`` of its
    logits are probabilities, by temperature scaling on held-out rows (Guo et al. 2017).

    Args:
        features: ``[n, D]``.
        targets: Class indices or numbers, ``[n]``, or label sets ``[n, C]``.
        classes: The number of classes; 0 for regression.
        together: A number for each row, ``[n]``: rows that belong together have the same one.
    """
    has_label = targets if targets.dtype == np.bool_ else targets[:, None] == np.arange(classes)
    y = np.where(has_label, 1.0, -1.0) if classes else targets.astype(float)[:, None]
    mean, scale = _standardisation(features)
    offset = y.mean(0)
    solve = _primal if len(features) > features.shape[1] else _dual
    held_out, weights = solve(features, mean, scale, y - offset, np.array(PENALTIES) * len(features), together)
    best = int(np.argmin([np.square(values + offset - y).mean() for values in held_out]))
    found = held_out[best] + offset
    inverse_temperature = 1.0 / best_temperature(found, targets) if classes else 1.0
    model = _unstandardised(inverse_temperature * weights(best), inverse_temperature * offset, mean, scale)
    return model, PENALTIES[best], found


def logistic(features: Features, targets: Targets, classes: int, together: Indices) -> tuple[LinearModel, float, Array]:
    """Logistic regression with an L2 penalty, the same as scikit-learn's ``LogisticRegression``.

    The arguments are those of :func:`ridge`, without label sets. A regression task is fitted by :func:`ridge`.
    """
    if not classes:
        return ridge(features, targets, classes, together)
    mean, scale = _standardisation(features)
    x = (features - mean) / scale
    parts = len(np.unique(together))
    joined = 1 < parts < len(together)
    if np.bincount(targets)[np.unique(targets)].min() >= FOLDS and not (joined and parts < FOLDS):
        stratified = (StratifiedGroupKFold if joined else StratifiedKFold)(FOLDS, shuffle=True, random_state=0)
        folds: Folds = list(stratified.split(x, targets, together if joined else None))
    elif joined:  # a class has too few rows, or there are too few parts
        folds = folds_of(together, np.random.default_rng(0))
    else:
        folds = list(KFold(min(FOLDS, len(targets)), shuffle=True, random_state=0).split(x))

    def fit(rows: Indices, penalty: float) -> tuple[Array, Array]:
        return _logistic(x[rows], targets[rows], classes, C=1.0 / (penalty * len(rows)), max_iter=10_000)

    held_out = {penalty: np.zeros((len(targets), classes)) for penalty in PENALTIES}
    for penalty, values in held_out.items():
        for rest, fold in folds:
            weights, bias = fit(rest, penalty)
            values[fold] = x[fold] @ weights + bias
    best = min(PENALTIES, key=lambda penalty: log_loss(held_out[penalty], targets.astype(np.int64)))
    return _unstandardised(*fit(np.arange(len(x)), best), mean, scale), best, held_out[best]


def by_class(model: Any, classes: int) -> tuple[Array, Array]:
    """Weights ``[D, C]`` and bias ``[C]`` of a logistic regression of scikit-learn.

    Args:
        model: The fitted logistic regression, which knows the classes ``model.classes_`` only. Others have the bias ``NEVER``.
        classes: The number of classes of the task, C.
    """
    weights, bias = np.zeros((model.coef_.shape[1], classes)), np.full(classes, NEVER)
    if len(model.classes_) == 2:  # its logit is that of the second class; the first one has 0
        first, second = model.classes_
        weights[:, second], bias[first], bias[second] = model.coef_[0], 0.0, model.intercept_[0]
    else:
        weights[:, model.classes_], bias[model.classes_] = model.coef_.T, model.intercept_
    return weights, bias


FITS: Mapping[str, Fit] = {"ridge": ridge, "logistic": logistic}


def _standardisation(features: Features) -> tuple[Array, Array]:
    """Mean and standard deviation of each feature. The standard deviation of a constant feature is set to 1."""
    count = len(features)
    mean = sum(part.sum(0) for part in _chunks(features)) / count
    variance = sum(np.square(part - mean).sum(0) for part in _chunks(features)) / count
    scale = np.sqrt(variance)
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return mean, scale


def _unstandardised(weights: Array, bias: Array, mean: Array, scale: Array) -> LinearModel:
    """The model of features, from the weights and bias for standardised features."""
    weights = weights / scale[:, None]
    return LinearModel(weights, bias - mean @ weights)


def _chunks(features: Features) -> list[Array]:
    return [features[n : n + CHUNK].astype(float) for n in range(0, len(features), CHUNK)]


# The values of held-out rows for each penalty, [n, C], and a function from the index of a penalty to its weights, [D, C].
Solution = tuple[list[Array], Callable[[int], Array]]


def _primal(features: Features, mean: Array, scale: Array, y: Array, penalties: Array, together: Indices) -> Solution:
    """Ridge regression with more rows than features, from the eigenvectors of ``X'X``, for all penalties at once."""
    width, count = features.shape[1], len(features)
    gram, moments = np.zeros((width, width)), np.zeros((width, y.shape[1]))
    chunks = [slice(n, n + CHUNK) for n in range(0, count, CHUNK)]

    def standardised(chunk: slice | Indices) -> Array:
        x = features[chunk].astype(float)
        x -= mean
        x /= scale
        return x

    for chunk in chunks:
        x = standardised(chunk)
        gram += x.T @ x
        moments += x.T @ y[chunk]
    eigenvalues, vectors = linalg.eigh(gram, overwrite_a=True, check_finite=False)
    projected = vectors.T @ moments  # [D, C]
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0)[:, None] + penalties)  # [D, penalties]
    weights = inverse[:, :, None] * projected[:, None]  # [D, penalties, C], in the basis of the eigenvectors
    held_out = np.empty((count, *weights.shape[1:]))
    for chunk in chunks:
        rotated = standardised(chunk) @ vectors
        fitted = np.tensordot(rotated, weights, 1)
        leverage = np.square(rotated, out=rotated) @ inverse + 1.0 / count  # [rows, penalties]
        held_out[chunk] = y[chunk, None] - (y[chunk, None] - fitted) / (1.0 - leverage)[:, :, None]
    _hold_out_together(held_out, together, lambda rows: standardised(rows) @ vectors, inverse, projected, y)
    return list(held_out.swapaxes(0, 1)), lambda n: vectors @ weights[:, n]


def _dual(features: Features, mean: Array, scale: Array, y: Array, penalties: Array, together: Indices) -> Solution:
    """Ridge regression with fewer rows than features, from the eigenvectors of ``XX'``."""
    x = (features.astype(float) - mean) / scale
    eigenvalues, vectors = linalg.eigh(x @ x.T, overwrite_a=True, check_finite=False)
    eigenvalues, projected = np.maximum(eigenvalues, 0.0), vectors.T @ y
    held_out = np.empty((len(x), len(penalties), y.shape[1]))
    shrinkage = eigenvalues / (eigenvalues + penalties[:, None])  # [penalties, n]
    for n, share in enumerate(shrinkage[:, :, None]):
        leverage = np.square(vectors) @ share + 1.0 / len(x)
        fitted = vectors @ (share * projected)
        held_out[:, n] = y - (y - fitted) / (1.0 - leverage)
    _hold_out_together(held_out, together, vectors.__getitem__, shrinkage.T, projected, y)
    values = list(held_out.swapaxes(0, 1))
    return values, lambda n: x.T @ (vectors @ (projected / (eigenvalues + penalties[n])[:, None]))


def _hold_out_together(
    held_out: Array,
    together: Indices,
    basis: Callable[[Indices], Array],
    shares: Array,
    projected: Array,
    y: Array,
) -> None:
    """Replace the values of rows that belong together, in ``held_out`` ``[n, penalties, C]``: by a fit without all of them.

    If a fit has the hat matrix H, the residuals of some of its rows in a fit without them are ``(I - H)^-1`` times theirs.

    Args:
        held_out: The values that leave out one row.
        together: A number for each row, ``[n]``, the same for rows that are held out together.
        basis: From rows ``[m]`` to their coordinates Z, ``[m, D]``. The hat matrix is ``Z * share @ Z.T + 1 / n``.
        shares: Of each coordinate for each penalty, ``[D, penalties]``.
        projected: The coordinates of ``y``, ``[D, C]``.
        y: The targets with a mean of zero, ``[n, C]``.
    """
    for rows in _parts(together):  # [parts, m]
        z = np.column_stack([basis(rows.ravel()), np.ones(rows.size)]).reshape(*rows.shape, -1)
        turned, size = z.swapaxes(1, 2), rows.shape[1]
        for n, share in enumerate(shares.T):
            scaled = z * np.append(share, 1.0 / len(y))
            residuals = y[rows] - scaled[..., :-1] @ projected  # [parts, m, C]
            if size <= z.shape[2]:
                alone = np.linalg.solve(np.eye(size) - scaled @ turned, residuals)
            else:  # the same by the identity of Woodbury, from a smaller matrix
                alone = residuals + scaled @ np.linalg.solve(np.eye(z.shape[2]) - turned @ scaled, turned @ residuals)
            held_out[rows, n] = y[rows] - alone


def _parts(together: Indices) -> Iterator[Indices]:
    """The rows of the parts that have m rows each, ``[parts, m]``, for every m above 1; none if there is a single part."""
    if len(np.unique(together)) == 1:
        return
    _, part, counts = np.unique(together, return_inverse=True, return_counts=True)
    order, ends = np.argsort(part, kind="stable"), np.cumsum(counts)
    for size in np.unique(counts[counts > 1]).tolist():
        rows = order[ends[counts == size][:, None] - np.arange(size, 0, -1)]
        step = max(1, CHUNK // size)
        yield from (rows[n : n + step] for n in range(0, len(rows), step))


@dataclass(frozen=True)
class WordsModel:
    """A fitted model: ``logits = tfidf @ weights + bias``.

    Attributes:
        terms: The V words and word pairs.
        idf: The inverse document frequency of each, ``[V]``.
        weights: ``[V, C]``; one column for regression.
        bias: ``[C]``.
    """

    terms: tuple[str, ...]
    idf: Array
    weights: Array
    bias: Array

    @classmethod
    def fit(cls, examples: Examples, classes: int) -> Self | None:
        """Ridge regression for 0 classes, else logistic regression, one for each label if a text can have several.

        None for tags of words, or if the texts contain no words. A class that no example has is never predicted.
        """
        if examples.of_words or not has_words(examples):
            return None
        vectorizer = _vectorizer()
        features = vectorizer.fit_transform(_joined(examples))
        if not classes:
            ridge = Ridge(1.0, solver="sparse_cg").fit(features, examples.targets)
            weights, bias = ridge.coef_[:, None], np.array([ridge.intercept_])
        elif examples.has_label_sets:
            both = [_logistic(features, examples.with_label(n).astype(np.int64), 2) for n in range(classes)]
            weights, bias = (
                np.stack([x[..., 1] - x[..., 0] for x in of_labels], -1) for of_labels in zip(*both, strict=True)
            )
        else:
            weights, bias = _logistic(features, examples.targets, classes)
        terms = tuple(vectorizer.get_feature_names_out().tolist())
        return cls(terms, vectorizer.idf_, weights, bias)

    def logits(self, texts: Texts | Examples) -> Array:
        """Logits of the classes or labels, ``[n, C]``, or numbers ``[n, 1]``."""
        vectorizer = _vectorizer(vocabulary={term: n for n, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        return np.asarray(vectorizer.transform(_joined(texts)) @ self.weights + self.bias)


def has_words(examples: Examples) -> bool:
    """Whether a text, or a text of a pair, contains a word."""
    return any(c.isalnum() for text in _joined(examples) for c in text)


def _vectorizer(vocabulary: Mapping[str, int] | None = None) -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+", vocabulary=vocabulary)


def _logistic(
    features: Any, targets: Targets, classes: int, *, C: float = 1.0, max_iter: int = 1000
) -> tuple[Array, Array]:
    """Weights ``[V, C]`` and bias ``[C]``; the bias of a class without examples is ``NEVER``."""
    present = np.unique(targets)
    if len(present) == 1:
        bias = np.full(classes, NEVER)
        bias[present] = 0.0
        return np.zeros((features.shape[1], classes)), bias
    return by_class(LogisticRegression(C=C, max_iter=max_iter).fit(features, targets), classes)


def _joined(texts: Texts | Examples) -> Iterator[str]:
    """Each text. The two texts of a pair become two lines."""
    pairs: Sequence[str] | None = texts.pairs
    for n, text in enumerate(texts.texts):
        yield text if pairs is None else f"{text}\n{pairs[n]}"
