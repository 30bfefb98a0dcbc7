"""Estimates of k on synthetic scores, and LogME against its definition."""

import numpy as np
import pytest
from scipy import optimize, stats

from frostline.search.probing import by_layer, logme


def test_by_layer_counts_the_layers_above_the_lowest_good_one() -> None:
    scores = {0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}
    assert by_layer(scores, 0.0) == 1
    assert by_layer(scores, 0.02) == 2
    assert by_layer({0: float("nan"), 1: 0.5, 2: 0.4}, 0.0) == 1
    assert by_layer({}, 0.1) is None


def evidence(features: np.ndarray, targets: np.ndarray, weights: float, noise: float) -> float:
    """The log evidence per row by its definition: the targets are normally distributed with this covariance."""
    rows = len(features)
    covariance = np.eye(rows) / noise + features @ features.T / weights
    return float(stats.multivariate_normal(np.zeros(rows), covariance).logpdf(targets)) / rows


@pytest.mark.parametrize(("rows", "width"), [(60, 5), (20, 40)])
def test_logme_maximizes_the_evidence(rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, width)).astype(np.float32)
    targets = features @ rng.normal(size=width) + rng.normal(0, 2.0, rows)
    best = optimize.minimize(
        lambda logs: -evidence(features.astype(float), targets, *np.exp(logs)), [0.0, 0.0], method="Nelder-Mead"
    )
    assert logme(features, targets, 0) == pytest.approx(-best.fun, abs=1e-3)


def test_logme_prefers_separable_classes_to_noise() -> None:
    rng = np.random.default_rng(0)
    targets = np.arange(90) % 3
    separable = (np.eye(3)[targets] @ rng.normal(size=(3, 8)) + rng.normal(0, 0.3, (90, 8))).astype(np.float32)
    noise = rng.normal(size=(90, 8)).astype(np.float32)
    assert logme(separable, targets, 3) > logme(noise, targets, 3) + 0.1


def test_logme_of_label_sets_is_the_mean_over_labels() -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(40, 4)).astype(np.float32), rng.random((40, 3)) < 0.4
    single = [logme(features, own.astype(float), 0) for own in targets.T]
    assert logme(features, targets, 3) == pytest.approx(np.mean(single))
