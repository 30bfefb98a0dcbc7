"""Linear models compared with scikit-learn: closed forms, folds, probabilities, and words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import LeaveOneGroupOut, LeaveOneOut, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frostline.data.examples import Examples
from frostline.statistics.class_outputs import best_temperature
from frostline.training.linear_models import CHUNK, PENALTIES, WordsModel, by_class, logistic, ridge

SHAPES = [(90, 8), (20, 30)]  # more rows than features, and fewer


def drawn(rows: int, width: int, classes: int, seed: int = 0, *, sets: bool = False) -> tuple[Any, Any]:
    """Random features, one of them constant, and targets that depend on three of them: numbers, classes, or label sets."""
    rng = np.random.default_rng(seed)
    features = rng.normal(3.0, 2.0, (rows, width)).astype(np.float32)
    features[:, -1] = 0.25
    value = features[:, :3].sum(1) + rng.normal(0, 2.0, rows)
    if sets:
        return features, features[:, :classes] > np.arange(2, 2 + classes)
    if not classes:
        return features, value
    return features, np.searchsorted(np.quantile(value, np.arange(1, classes) / classes), value)


@pytest.mark.parametrize(("classes", "sets"), [(0, False), (2, False), (3, False), (3, True)])
@pytest.mark.parametrize(("rows", "width"), [*SHAPES, (CHUNK + 100, 4)])
def test_ridge_equals_scikit_learn(rows: int, width: int, classes: int, *, sets: bool) -> None:
    x, y = drawn(rows, width, classes, sets=sets)
    found, penalty, held_out = ridge(x, y, classes, np.arange(len(x)))
    model = (RidgeClassifier if classes else Ridge)(penalty * rows)
    reference = make_pipeline(StandardScaler(), model).fit(x.astype(float), y.astype(int) if sets else y)
    temperature = best_temperature(held_out, y) if classes else 1.0
    for some in (x, drawn(200, width, classes, seed=1)[0]):
        expected = (reference.decision_function if classes else reference.predict)(some.astype(float))
        values = temperature * found.logits(some)
        ours = values[:, classes - 1] if classes in (0, 2) else values
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_held_out_values_and_penalty_equal_leave_one_out(rows: int, width: int) -> None:
    x, y = drawn(rows, width, 0)
    _, best, values = ridge(x, y, 0, np.arange(len(x)))
    standard = StandardScaler().fit_transform(x.astype(float))
    errors = {}
    for penalty in PENALTIES:
        # The penalty is scaled by the number of all rows, not by the number of remaining rows.
        held_out = cross_val_predict(Ridge(penalty * rows), standard, y, cv=LeaveOneOut())
        errors[penalty] = np.square(held_out - y).mean()
        if penalty == best:
            np.testing.assert_allclose(values[:, 0], held_out, rtol=1e-8)
    assert min(errors, key=lambda penalty: errors[penalty]) == best


@pytest.mark.parametrize(("rows", "copies"), [(40, 2), (40, 15), (12, 2), (12, 5)])  # of 13 features
def test_a_row_is_held_out_with_all_that_read_alike(rows: int, copies: int) -> None:
    x, y = drawn(rows, 13, 0)
    alike = np.maximum(np.arange(rows) - copies + 1, 0)
    alike[-2:] = alike[-4:-2]  # and two texts in two rows each
    _, penalty, values = ridge(x, y, 0, alike)
    standard = StandardScaler().fit_transform(x.astype(float))
    expected = cross_val_predict(Ridge(penalty * rows), standard, y, groups=alike, cv=LeaveOneGroupOut())
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-8)


@pytest.mark.parametrize("fit", [ridge, logistic])
def test_a_text_that_repeats_is_never_held_out_alone(fit: Any) -> None:
    """Its other row would give it away."""
    x = np.random.default_rng(0).normal(size=(60, 100)).astype(np.float32)
    y, twice = np.random.default_rng(1).integers(0, 2, 60), np.tile(np.arange(60), 2)
    _, _, of_both = fit(x[twice], y[twice], 2, twice)
    assert (of_both.argmax(1) == y[twice]).mean() < 0.7


@pytest.mark.parametrize("fit", [ridge, logistic])
def test_rows_of_three_groups_are_held_out(fit: Any) -> None:
    x, y = drawn(40, 6, 2)
    _, penalty, values = fit(x, y, 2, np.arange(40) % 3)
    assert penalty in PENALTIES and np.isfinite(values).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_equals_scikit_learn(classes: int) -> None:
    x, y = drawn(80, 6, classes)
    found, penalty, values = logistic(x, y, classes, np.arange(len(x)))
    assert penalty in PENALTIES
    model = LogisticRegression(C=1 / (80 * penalty), max_iter=10_000)
    reference = make_pipeline(StandardScaler(), model).fit(x.astype(float), y)
    new = drawn(50, 6, classes, seed=1)[0]
    np.testing.assert_allclose(softmax(found.logits(new), 1), reference.predict_proba(new.astype(float)), atol=1e-4)
    fold = LogisticRegression(C=1 / (64 * penalty), max_iter=10_000)
    standard, folds = StandardScaler().fit_transform(x.astype(float)), StratifiedKFold(5, shuffle=True, random_state=0)
    held_out = cross_val_predict(fold, standard, y, cv=folds, method="predict_proba")
    np.testing.assert_allclose(softmax(values, 1), held_out, atol=1e-4)


@pytest.mark.parametrize("present", [[1, 3], [0, 1, 3], [0, 1, 2, 3]])
def test_classes_that_scikit_learn_does_not_know_are_never_predicted(present: list[int]) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 5)), np.array(present)[np.arange(40) % len(present)]
    fitted = LogisticRegression().fit(x, y)
    weights, bias = by_class(fitted, 4)
    probabilities = softmax(x @ weights + bias, 1)
    np.testing.assert_allclose(probabilities[:, present], fitted.predict_proba(x), atol=1e-9)
    assert not np.delete(probabilities, present, 1).any()


@pytest.mark.parametrize("fit", [ridge, logistic])
def test_classes_with_one_row_or_none(fit: Any) -> None:
    x, y = drawn(40, 6, 2)
    y[0] = 3  # class 3 has one row, class 2 has none
    probabilities = softmax(fit(x, y, 4, np.arange(40))[0].logits(x), 1)
    assert np.isfinite(probabilities).all() and not (probabilities.argmax(1) == 2).any()


TEXTS = ("a good film", "good and short", "a bad film", "bad, long and bad", "good good film", "so bad")
VECTORS = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+").fit_transform(TEXTS)


def examples(targets: Any, texts: tuple[str, ...] = TEXTS, pairs: tuple[str, ...] | None = None) -> Examples:
    return Examples(texts=texts, pairs=pairs, rows=np.arange(len(texts)), name="test", targets=np.asarray(targets))


def words(given: Examples, classes: int) -> WordsModel:
    model = WordsModel.fit(given, classes)
    assert model is not None
    return model


@pytest.mark.parametrize("targets", [[1, 1, 0, 0, 1, 0], [0, 1, 2, 2, 0, 2], [0.5, 1.0, 3.0, 4.0, 0.0, 5.0]])
def test_the_words_model_is_that_of_scikit_learn(targets: list[float]) -> None:
    if isinstance(targets[0], float):
        found = words(examples(targets), 0).logits(examples(targets))[:, 0]
        expected = Ridge(1.0, solver="sparse_cg").fit(VECTORS, targets).predict(VECTORS)
    else:
        found = softmax(words(examples(targets), len(set(targets))).logits(examples(targets)), 1)
        expected = LogisticRegression(max_iter=1000).fit(VECTORS, targets).predict_proba(VECTORS)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_each_label_of_a_set_has_a_model_of_its_own() -> None:
    targets = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 0]], np.bool_)
    found = expit(words(examples(targets), 4).logits(examples(targets)))
    for label in range(3):
        model = LogisticRegression(max_iter=1000).fit(VECTORS, targets[:, label])
        np.testing.assert_allclose(found[:, label], model.predict_proba(VECTORS)[:, 1], atol=1e-9)
    assert not found[:, 3].any()
    always = replace(examples(targets), targets=np.ones((6, 2), np.bool_))
    logits = words(always, 2).logits(always)
    assert (expit(logits) == 1).all() and np.isfinite(logits).all()


def test_a_class_without_texts_is_never_predicted() -> None:
    probabilities = softmax(words(examples([2, 2, 0, 0, 2, 0]), 4).logits(examples([0] * 6)), 1)
    assert not probabilities[:, [1, 3]].any() and set(probabilities.argmax(1)) == {0, 2}
    assert (softmax(words(examples([1] * 6), 3).logits(examples([0] * 6)), 1) == [0, 1, 0]).all()


def test_both_texts_of_a_pair_are_read_and_texts_without_words_have_no_model() -> None:
    assert {"x", "y"} <= set(words(examples([1, 1, 0, 0, 1, 0], pairs=("x", "x", "y", "y", "x", "y")), 2).terms)
    assert WordsModel.fit(examples([0, 1], texts=("?", "!!")), 2) is None
