"""Linear models without torch: ridge and logistic regression, and a TF-IDF model of words and word pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from scipy import linalg
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold

from frostline import FrostlineError
from frostline.data.examples import Examples, Targets, Texts
from frostline.data.files import FILES, read_record, replace_file, require_recorded, write_record
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION
from frostline.statistics.class_outputs import OUTPUTS, best_temperature, log_loss
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled

Array = NDArray[np.float64]
Features = NDArray[np.float32]
Indices = NDArray[np.int64]

PENALTIES = tuple(float(x) for x in np.logspace(-4, 1, 11))  # penalties to choose from, per training row
FOLDS = 5
CHUNK = 16384  # number of rows that are converted to double precision at a time


@dataclass(frozen=True)
class Probe:
    """A fitted probe: ``values = (features - mean) / scale @ weights + bias``.

    The values have one column for each class or label, or a single column for regression.

    Attributes:
        weights: ``[D, C]``.
        bias: ``[C]``.
        mean: The mean of each feature on the training rows, ``[D]``.
        scale: The standard deviation of each feature on the training rows, ``[D]``; 1 for a constant feature.
        penalty: The chosen penalty, per training row.
        inverse_temperature: ``softmax(inverse_temperature * values)`` are the probabilities of the classes. For label sets, it is
            ``sigmoid`` instead; for regression, the factor is 1.
        task_type: What the values are about.
        held_out: The cross-validated values of the training rows, ``[n, C]``: each row was held out from the fit for it.
    """

    weights: Array
    bias: Array
    mean: Array
    scale: Array
    penalty: float
    inverse_temperature: float
    held_out: Array
    task_type: str

    def values(self, features: Features) -> Array:
        """Values ``[n, C]`` of rows ``[n, D]``."""
        weights = self.weights / self.scale[:, None]
        bias = self.bias - self.mean @ weights
        return np.concatenate([part @ weights + bias for part in _chunks(features)])

    def outputs(self, features: Features) -> Array:
        """Probabilities of the classes or labels, ``[n, C]``, or numbers ``[n, 1]``."""
        return OUTPUTS[self.task_type](self.inverse_temperature * self.values(features))


Fit = Callable[[Features, Targets, int], Probe]


def ridge(features: Features, targets: Targets, classes: int) -> Probe:
    """Ridge regression on a number, or on the targets -1 and 1 for each class or label.

    Gives the same as scikit-learn's ``Ridge`` and ``RidgeClassifier`` on standardised features.

    Args:
        features: ``[n, D]``.
        targets: Class indices or numbers, ``[n]``, or label sets ``[n, C]``.
        classes: The number of classes; 0 for regression.
    """
    has_label = targets if targets.dtype == np.bool_ else targets[:, None] == np.arange(classes)
    y = np.where(has_label, 1.0, -1.0) if classes else targets.astype(float)[:, None]
    mean, scale = _standardisation(features)
    offset = y.mean(0)
    solve = _primal if len(features) > features.shape[1] else _dual
    held_out, weights = solve(features, mean, scale, y - offset, np.array(PENALTIES) * len(features))
    best = int(np.argmin([np.square(values + offset - y).mean() for values in held_out]))
    task_type = MULTI_LABEL if targets.dtype == np.bool_ else CLASSIFICATION if classes else REGRESSION
    probe = Probe(weights(best), offset, mean, scale, PENALTIES[best], 1.0, held_out[best] + offset, task_type)
    return _calibrated(probe, targets) if classes else probe


def logistic(features: Features, targets: Targets, classes: int) -> Probe:
    """Logistic regression with an L2 penalty, the same as scikit-learn's ``LogisticRegression``.

    The arguments are those of :func:`ridge`, without label sets. A regression task is fitted by :func:`ridge`.
    """
    if not classes:
        return ridge(features, targets, classes)
    mean, scale = _standardisation(features)
    x = (features - mean) / scale
    folds = _folds(x, targets)
    held_out = {penalty: np.zeros((len(targets), classes)) for penalty in PENALTIES}
    for penalty, values in held_out.items():
        for rest, fold in folds:
            values[fold] = _logistic_values((x[rest], targets[rest]), x[fold], classes, penalty)
    losses = {penalty: log_loss(values, targets.astype(np.int64)) for penalty, values in held_out.items()}
    best = min(losses, key=lambda penalty: losses[penalty])
    weights, bias = by_class(_fit_logistic(x, targets, best), classes)
    return Probe(weights, bias, mean, scale, best, 1.0, held_out[best], CLASSIFICATION)


def by_class(model: Any, classes: int, absent: float = -np.inf) -> tuple[Array, Array]:
    """Weights ``[D, C]`` and bias ``[C]`` of a logistic regression of scikit-learn.

    Args:
        model: The fitted logistic regression, which knows the classes ``model.classes_`` only.
        classes: The number of classes of the task, C.
        absent: The bias of the classes that it does not know.
    """
    weights, bias = np.zeros((model.coef_.shape[1], classes)), np.full(classes, absent)
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


def _chunks(features: Features) -> list[Array]:
    return [features[n : n + CHUNK].astype(float) for n in range(0, len(features), CHUNK)]


# The values of held-out rows for each penalty, [n, C], and a function from the index of a penalty to its weights, [D, C].
Solution = tuple[list[Array], Callable[[int], Array]]


def _primal(features: Features, mean: Array, scale: Array, y: Array, penalties: Array) -> Solution:
    """Ridge regression with more rows than features, from the eigenvectors of ``X'X``, for all penalties at once."""
    width, count = features.shape[1], len(features)
    gram, moments = np.zeros((width, width)), np.zeros((width, y.shape[1]))
    chunks = [slice(n, n + CHUNK) for n in range(0, count, CHUNK)]

    def standardised(chunk: slice) -> Array:
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
    return list(held_out.swapaxes(0, 1)), lambda n: vectors @ weights[:, n]


def _dual(features: Features, mean: Array, scale: Array, y: Array, penalties: Array) -> Solution:
    """Ridge regression with fewer rows than features, from the eigenvectors of ``XX'``."""
    x = (features.astype(float) - mean) / scale
    eigenvalues, vectors = linalg.eigh(x @ x.T, overwrite_a=True, check_finite=False)
    eigenvalues, projected = np.maximum(eigenvalues, 0.0), vectors.T @ y
    held_out = []
    for penalty in penalties:
        shrinkage = (eigenvalues / (eigenvalues + penalty))[:, None]
        leverage = np.square(vectors) @ shrinkage + 1.0 / len(x)
        fitted = vectors @ (shrinkage * projected)
        held_out.append(y - (y - fitted) / (1.0 - leverage))
    return held_out, lambda n: x.T @ (vectors @ (projected / (eigenvalues + penalties[n])[:, None]))


def _folds(x: Array, targets: Targets) -> list[tuple[Indices, Indices]]:
    """For each fold, the rows to fit on and the held-out rows. Stratified by class, unless a class has too few rows."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    if np.bincount(targets)[np.unique(targets)].min() < FOLDS:
        folds = KFold(min(FOLDS, len(targets)), shuffle=True, random_state=0)
    return list(folds.split(x, targets))


def _fit_logistic(x: Array, targets: Targets, penalty: float) -> LogisticRegression:
    return LogisticRegression(C=1.0 / (penalty * len(x)), max_iter=10_000).fit(x, targets)


def _logistic_values(train: tuple[Array, Targets], x: Array, classes: int, penalty: float) -> Array:
    """Fit on ``train`` and return the logits of the rows ``x``, ``[n, C]``; -inf for a class that is absent in ``train``."""
    values = np.full((len(x), classes), -np.inf)
    present = np.unique(train[1])
    if len(present) == 1:
        values[:, present] = 0.0
        return values
    decision = _fit_logistic(*train, penalty).decision_function(x)
    values[:, present] = np.stack([np.zeros_like(decision), decision], 1) if decision.ndim == 1 else decision
    return values


def _calibrated(probe: Probe, targets: NDArray[Any]) -> Probe:
    """The probe with calibrated probabilities: temperature scaling on held-out rows (Guo et al. 2017)."""
    return replace(probe, inverse_temperature=1.0 / best_temperature(probe.held_out, targets))


T = TypeVar("T")


def write_saved(
    folder: Path, files: tuple[str, str], facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write the files that :func:`read_saved` reads."""
    record, weights = (folder / name for name in files)
    replace_file(weights, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}), inside=folder)
    write_record(record, facts, [weights], inside=folder)


def read_saved(
    folder: Path,
    files: tuple[str, str],
    make: Callable[[dict[str, Any], Mapping[str, NDArray[Any]]], T],
    damaged: str,
) -> T | None:
    """What ``make`` returns for the facts and the arrays in a folder; None if the folder has no such facts.

    Args:
        folder: The folder.
        files: The names of the files with the facts and with the arrays.
        make: Called with the facts and the arrays.
        damaged: The message if the files are damaged, with places for the folder and the error.

    Raises:
        FrostlineError: A file is damaged.
    """
    record, weights = (folder / name for name in files)
    if not record.is_file():
        return None
    try:
        facts = read_record(record)
        require_recorded(folder, {FILES: {files[1]: facts.pop(FILES).get(files[1])}}, optional=lambda name: False)
        return make(facts, load_file(weights))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise FrostlineError(damaged.format(folder, error)) from error


WORDS_FORMAT = 1
WORDS_FACTS, WORDS_WEIGHTS = "words.json", "words.safetensors"


@dataclass(frozen=True)
class WordsModel:
    """A fitted model: ``values = tfidf @ weights + bias``.

    Attributes:
        terms: The V words and word pairs.
        idf: The inverse document frequency of each, ``[V]``.
        weights: ``[V, C]``; one column for regression.
        bias: ``[C]``.
        task_type: What the values are: logarithms of unnormalised probabilities of classes, logits of labels, or numbers.
    """

    terms: tuple[str, ...]
    idf: Array
    weights: Array
    bias: Array
    task_type: str

    @classmethod
    def fit(cls, examples: Examples, classes: int) -> Self | None:
        """Ridge regression for 0 classes, else logistic regression, one for each label if a text can have several.

        None for tags of words, or if the texts contain no words. A class that no example has is never predicted.
        """
        if examples.of_words or not has_words(examples):
            return None
        vectorizer = _vectorizer()
        features = vectorizer.fit_transform(_joined(examples))
        task_type = MULTI_LABEL if examples.has_label_sets else CLASSIFICATION if classes else REGRESSION
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
        return cls(terms, vectorizer.idf_, weights, bias, task_type)

    def values(self, texts: Texts | Examples) -> Array:
        """Numbers ``[n, 1]``, or what :attr:`task_type` says ``[n, C]``."""
        vectorizer = _vectorizer(vocabulary={term: n for n, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        features = vectorizer.transform(_joined(texts)) if len(texts.texts) else np.zeros((0, len(self.terms)))
        return np.asarray(features @ self.weights + self.bias)

    def predictions(self, texts: Texts) -> Array:
        """Numbers ``[n, 1]``, or probabilities of the classes or labels ``[n, C]``."""
        return OUTPUTS[self.task_type](self.values(texts))

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Write the model with facts ``about`` the task, for ``frostline predict``."""
        arrays = {"idf": self.idf, "weights": self.weights, "bias": self.bias}
        write_saved(
            folder, (WORDS_FACTS, WORDS_WEIGHTS), {"format": WORDS_FORMAT, **about, "terms": self.terms}, arrays
        )


def has_words(examples: Examples) -> bool:
    """Whether a text, or a text of a pair, contains a word."""
    return any(c.isalnum() for text in _joined(examples) for c in text)


def words_score(words: WordsModel | None, examples: Examples, labelled: Labelled) -> float | None:
    """The score on examples with their targets; None if there is no model, or if the score is undefined."""
    if words is None:
        return None
    return defined(labelled.score(words.values(examples), np.arange(len(examples))))


def load_words(folder: str | Path) -> tuple[WordsModel, dict[str, Any]] | None:
    """The model in a folder with the facts about its task; None if there is none.

    Raises:
        FrostlineError: The model is damaged.
    """

    def make(about: dict[str, Any], arrays: Mapping[str, Array]) -> tuple[WordsModel, dict[str, Any]]:
        return WordsModel(tuple(about.pop("terms")), **arrays, task_type=about["task_type"]), about

    damaged = "The TF-IDF model in {} is damaged ({}): run the command of the search again."
    return read_saved(Path(folder), (WORDS_FACTS, WORDS_WEIGHTS), make, damaged)


def _vectorizer(vocabulary: Mapping[str, int] | None = None) -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+", vocabulary=vocabulary)


def _logistic(features: Any, targets: Any, classes: int) -> tuple[Array, Array]:
    """Weights ``[V, C]`` and bias ``[C]``; the bias of a class without examples is minus infinity."""
    present = np.unique(targets)
    if len(present) == 1:
        bias = np.full(classes, -np.inf)
        bias[present] = 0.0
        return np.zeros((features.shape[1], classes)), bias
    return by_class(LogisticRegression(max_iter=1000).fit(features, targets), classes)


def _joined(texts: Texts | Examples) -> Iterator[str]:
    """Each text. The two texts of a pair become two lines."""
    pairs: Sequence[str] | None = texts.pairs
    for n, text in enumerate(texts.texts):
        yield text if pairs is None else f"{text}\n{pairs[n]}"
