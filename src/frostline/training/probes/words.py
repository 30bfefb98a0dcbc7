"""A TF-IDF model and word pairs (TF-IDF), without a pretrained model: fit, save, load and predict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from frostline.data.examples import Examples, Texts
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION
from frostline.statistics.class_outputs import OUTPUTS
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled
from frostline.training.probes.linear import by_class
from frostline.training.probes.saved_files import read_saved, write_saved

Array = NDArray[np.float64]

FORMAT = 1
FACTS, WEIGHTS = "words.json", "words.safetensors"


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
        write_saved(folder, (FACTS, WEIGHTS), {"format": FORMAT, **about, "terms": self.terms}, arrays)


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
    return read_saved(Path(folder), (FACTS, WEIGHTS), make, damaged)


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
