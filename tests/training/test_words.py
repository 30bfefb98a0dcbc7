"""The TF-IDF model: predictions, saving and loading."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.kinds import CLASSIFICATION
from frostline.training.linear_models import WordsModel, load_words

TEXTS = ("a good film", "good and short", "a bad film", "bad, long and bad", "good good film", "so bad")


def examples(targets: list[float], *, pairs: tuple[str, ...] | None = None) -> Examples:
    array = np.array(targets)
    return Examples(texts=TEXTS, pairs=pairs, rows=np.arange(1, 7), name="test", targets=array)


def fitted(given: Examples, classes: int) -> WordsModel:
    model = WordsModel.fit(given, classes)
    assert model is not None
    return model


def vectors() -> object:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+").fit_transform(TEXTS)


@pytest.mark.parametrize("targets", [[1, 1, 0, 0, 1, 0], [0, 1, 2, 2, 0, 2]])
def test_probabilities_are_those_of_scikit_learn(targets: list[int]) -> None:
    given = examples(targets)
    model = fitted(given, len(set(targets)))
    expected = LogisticRegression(max_iter=1000).fit(vectors(), targets).predict_proba(vectors())
    np.testing.assert_allclose(model.predictions(given), expected, atol=1e-9)


def test_numbers_are_those_of_ridge_regression() -> None:
    targets = [0.5, 1.0, 3.0, 4.0, 0.0, 5.0]
    given = examples(targets)
    expected = Ridge(1.0, solver="sparse_cg").fit(vectors(), targets).predict(vectors())
    np.testing.assert_allclose(fitted(given, 0).predictions(given)[:, 0], expected, atol=1e-9)


def test_a_class_without_examples_is_never_predicted() -> None:
    values = fitted(examples([2, 2, 0, 0, 2, 0]), 4).predictions(examples([0] * 6))
    assert not values[:, [1, 3]].any() and set(values.argmax(1)) == {0, 2}
    only = fitted(examples([1] * 6), 3).predictions(examples([0] * 6))
    assert (only == [0, 1, 0]).all()


def test_both_texts_of_a_pair_are_read() -> None:
    pairs = ("x", "x", "y", "y", "x", "y")
    model = fitted(examples([1, 1, 0, 0, 1, 0], pairs=pairs), 2)
    assert {"x", "y"} <= set(model.terms)


def test_texts_without_words_have_no_model() -> None:
    given = Examples(texts=("?", "!!"), pairs=None, rows=np.arange(2), name="test", targets=np.array([0, 1]))
    assert WordsModel.fit(given, 2) is None


def test_a_loaded_model_predicts_the_same(tmp_path: Path) -> None:
    given = examples([1, 1, 0, 0, 1, 0])
    model = fitted(given, 2)
    model.save(tmp_path, {"labels": ["no", "yes"], "task_type": CLASSIFICATION, "columns": {"text": "text"}})
    found = load_words(tmp_path)
    assert found is not None
    loaded, about = found
    assert about["labels"] == ["no", "yes"] and "terms" not in about
    np.testing.assert_array_equal(loaded.predictions(given), model.predictions(given))
    assert loaded.predictions(given.take(np.array([], dtype=np.int64))).shape == (0, 2)
    assert load_words(tmp_path / "other") is None


@pytest.mark.parametrize("damage", ["", "[]", json.dumps({"labels": []})])
def test_a_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    fitted(examples([1, 1, 0, 0, 1, 0]), 2).save(tmp_path, {"labels": ["no", "yes"]})
    (tmp_path / "words.json").write_text(damage)
    with pytest.raises(FrostlineError, match=r"The TF-IDF model in .* is damaged"):
        load_words(tmp_path)


@pytest.mark.parametrize("name", ["words.json", "words.safetensors"])
def test_a_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    fitted(examples([1, 1, 0, 0, 1, 0]), 2).save(tmp_path, {"labels": ["no", "yes"]})
    content = bytearray((tmp_path / name).read_bytes())
    content[-20] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FrostlineError, match=r"The TF-IDF model in .* is damaged \(.*checksum"):
        load_words(tmp_path)


def test_each_label_of_a_set_has_a_model_of_its_own() -> None:
    targets = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]], np.bool_)
    given = replace(examples([0] * 6), targets=np.concatenate([targets, np.zeros((6, 1), np.bool_)], 1))
    found = fitted(given, 4).predictions(given)
    for label in range(3):
        model = LogisticRegression(max_iter=1000).fit(vectors(), targets[:, label])
        np.testing.assert_allclose(found[:, label], model.predict_proba(vectors())[:, 1], atol=1e-9)
    assert not found[:, 3].any()
    always = replace(given, targets=np.ones((6, 2), np.bool_))
    assert (fitted(always, 2).predictions(given) == 1).all()
