"""The TF-IDF baseline: a linear model of words and word pairs, without a pretrained model."""

from collections.abc import Iterator

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from frostline.data.examples import Examples
from frostline.data.load import Data
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled


def tfidf_score(data: Data, validation: Labelled) -> float | None:
    """The validation score of the baseline; None if the examples contain no words, or if the score is undefined."""
    is_regression = not data.task.labels
    model = Ridge(1.0, solver="sparse_cg") if is_regression else LogisticRegression(max_iter=1000)
    chain = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+"), model)
    if not any(any(c.isalnum() for c in text) for text in _joined(data.train)):
        return None
    chain.fit(list(_joined(data.train)), data.train.targets)
    predicted = chain.predict(list(_joined(data.validation)))
    values = predicted[:, None] if is_regression else np.eye(len(data.task.labels))[predicted]
    return defined(validation.score(values, np.arange(len(predicted))))


def _joined(examples: Examples) -> Iterator[str]:
    """The text of each example. The two texts of a pair become two lines."""
    for n, text in enumerate(examples.texts):
        yield text if examples.pairs is None else f"{text}\n{examples.pairs[n]}"
