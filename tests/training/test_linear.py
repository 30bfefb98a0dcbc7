"""Probes compared with scikit-learn: closed forms, folds, probabilities."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import LeaveOneOut, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frostline.statistics.class_outputs import log_loss
from frostline.training.linear_models import PENALTIES, Probe, logistic, ridge

SHAPES = [(60, 8), (20, 30)]  # more rows than features, and fewer


def drawn(rows: int, width: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Random features, one of them constant, and targets that depend on three of them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(3.0, 2.0, (rows, width)).astype(np.float32)
    features[:, -1] = 0.25
    value = features[:, :3].sum(1) + rng.normal(0, 2.0, rows)
    if not classes:
        return features, value
    return features, np.searchsorted(np.quantile(value, np.arange(1, classes) / classes), value)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_ridge_on_a_number_equals_scikit_learn(rows: int, width: int) -> None:
    x, y = drawn(rows, width, 0)
    probe = ridge(x, y, 0)
    reference = make_pipeline(StandardScaler(), Ridge(probe.penalty * rows)).fit(x.astype(float), y)
    np.testing.assert_allclose(probe.values(x)[:, 0], reference.predict(x.astype(float)), rtol=1e-9)
    new = drawn(15, width, 0, seed=1)[0]
    np.testing.assert_allclose(probe.values(new)[:, 0], reference.predict(new.astype(float)), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_ridge_on_classes_equals_scikit_learn(rows: int, width: int, classes: int) -> None:
    x, y = drawn(rows, width, classes)
    probe = ridge(x, y, classes)
    reference = make_pipeline(StandardScaler(), RidgeClassifier(probe.penalty * rows)).fit(x.astype(float), y)
    decision = reference.decision_function(x.astype(float))
    ours = probe.values(x)
    np.testing.assert_allclose(ours[:, 1] if classes == 2 else ours, decision, rtol=1e-8, atol=1e-10)
    new = drawn(200, width, classes, seed=1)[0]
    assert (probe.values(new).argmax(1) == reference.predict(new.astype(float))).all()


@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_held_out_values_and_penalty_equal_leave_one_out(rows: int, width: int) -> None:
    x, y = drawn(rows, width, 0)
    probe = ridge(x, y, 0)
    standard = StandardScaler().fit_transform(x.astype(float))
    errors = {}
    for penalty in PENALTIES:
        # The penalty is scaled by the number of all rows, not by the number of remaining rows.
        held_out = cross_val_predict(Ridge(penalty * rows), standard, y, cv=LeaveOneOut())
        errors[penalty] = np.square(held_out - y).mean()
        if penalty == probe.penalty:
            np.testing.assert_allclose(probe.held_out[:, 0], held_out, rtol=1e-8)
    assert min(errors, key=lambda penalty: errors[penalty]) == probe.penalty


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_equals_scikit_learn(classes: int) -> None:
    x, y = drawn(80, 6, classes)
    probe = logistic(x, y, classes)
    assert probe.penalty in PENALTIES
    model = LogisticRegression(C=1 / (80 * probe.penalty), max_iter=10_000)
    reference = make_pipeline(StandardScaler(), model).fit(x.astype(float), y)
    new = drawn(50, 6, classes, seed=1)[0]
    assert (probe.values(new).argmax(1) == reference.predict(new.astype(float))).all()
    np.testing.assert_allclose(probe.outputs(new), reference.predict_proba(new.astype(float)), atol=1e-4)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    standard = StandardScaler().fit_transform(x.astype(float))
    fold = LogisticRegression(C=1 / (64 * probe.penalty), max_iter=10_000)
    held_out = cross_val_predict(fold, standard, y, cv=folds)
    assert (probe.held_out.argmax(1) == held_out).mean() > 0.98


def test_the_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = drawn(60, 8, 3)
    whole = ridge(x, y, 3)
    monkeypatch.setattr("frostline.training.linear_models.CHUNK", 7)
    parts = ridge(x, y, 3)
    np.testing.assert_allclose(parts.weights, whole.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.values(x), whole.values(x), rtol=1e-9, atol=1e-12)


@given(st.integers(0, 1000), st.sampled_from([2, 3]))
@settings(max_examples=20)
def test_order_and_scale_of_the_features_do_not_change_the_result(seed: int, classes: int) -> None:
    x, y = drawn(40, 6, classes, seed)
    order = np.random.default_rng(seed).permutation(6)
    one, other = ridge(x, y, classes), ridge(4 * x[:, order], y, classes)
    assert one.penalty == other.penalty
    np.testing.assert_allclose(one.values(x), other.values(4 * x[:, order]), atol=1e-6)


def test_the_score_on_held_out_rows_shows_that_noise_is_not_informative() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 300)).astype(np.float32), rng.integers(0, 2, 400)
    probe = ridge(x, y, 2)
    assert (probe.values(x).argmax(1) == y).mean() > 0.6  # on training rows
    assert abs((probe.held_out.argmax(1) == y).mean() - 0.5) < 0.1
    assert probe.penalty == max(PENALTIES)


def test_probabilities_are_calibrated() -> None:
    x, y = drawn(4000, 8, 2)
    probe: Probe = ridge(x[:2000], y[:2000], 2)
    p = probe.outputs(x[2000:])
    np.testing.assert_allclose(p.sum(1), 1)
    confidence = p.max(1)
    for low, high in ((0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        some = (confidence >= low) & (confidence < high)
        assert abs((p.argmax(1) == y[2000:])[some].mean() - confidence[some].mean()) < 0.06


@pytest.mark.parametrize("fit", [ridge, logistic])
def test_classes_with_one_row_or_none(fit: Any) -> None:
    x, y = drawn(40, 6, 2)
    y = y.copy()
    y[0] = 3  # class 3 has one row, class 2 has none
    probe = fit(x, y, 4)
    assert probe.values(x).shape == (40, 4) and not (probe.values(x).argmax(1) == 2).any()
    assert np.isfinite(probe.outputs(x)).all()


def test_label_sets_are_fitted_as_by_scikit_learn() -> None:
    x, _ = drawn(90, 6, 0)
    targets = np.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 1, x[:, 3] > 0.5], 1)
    probe = ridge(x, targets, 3)
    reference = make_pipeline(StandardScaler(), RidgeClassifier(90 * probe.penalty)).fit(
        x.astype(float), targets.astype(int)
    )
    new = drawn(50, 6, 0, seed=1)[0]
    np.testing.assert_allclose(probe.values(new), reference.decision_function(new.astype(float)), rtol=1e-6, atol=1e-9)
    expected = 1 / (1 + np.exp(-probe.inverse_temperature * probe.values(new)))
    np.testing.assert_allclose(probe.outputs(new), expected)
    losses = [log_loss(probe.held_out, targets, t / probe.inverse_temperature) for t in (1.0, 0.97, 1.03)]
    assert losses[0] == min(losses)
