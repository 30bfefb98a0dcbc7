"""Estimates of k on synthetic scores, and LogME against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from frostline.search.guesses import by_layer, judged, logme, order


def test_by_layer_counts_the_layers_above_the_lowest_good_one() -> None:
    scores = {0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}
    assert by_layer(scores, 0.0) == 1
    assert by_layer(scores, 0.02) == 2
    assert by_layer({0: float("nan"), 1: 0.5, 2: 0.4}, 0.0) == 1
    assert by_layer({}, 0.1) is None


@given(st.integers(0, 12), st.integers(1, 12))
def test_order_is_a_permutation_that_begins_with_the_estimate(k: int, layers: int) -> None:
    ks = range(layers + 1)
    found = order(k, ks)
    assert sorted(found) == list(ks) and found[0] == min(k, layers)
    assert [abs(one - k) for one in found] == sorted(abs(one - k) for one in ks)


def test_estimates_are_ranked_by_the_recommended_k() -> None:
    rows = judged({"probes": 3, "LogME": None}, range(5), 2)
    assert rows == [{"by": "probes", "k": 3, "place": 2}, {"by": "climbing", "k": 0, "place": 3}]
    assert all(row["place"] is None for row in judged({"probes": 3}, range(5), None))


def evidence(features: np.ndarray, wanted: np.ndarray, weights: float, noise: float) -> float:
    """By its definition: the targets are normal, with this covariance."""
    rows = len(features)
    covariance = np.eye(rows) / noise + features @ features.T / weights
    return float(stats.multivariate_normal(np.zeros(rows), covariance).logpdf(wanted)) / rows


@pytest.mark.parametrize(("rows", "width"), [(60, 5), (20, 40)])
def test_logme_maximizes_the_evidence(rows: int, width: int) -> None:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(rows, width)).astype(np.float32)
    wanted = features @ draw.normal(size=width) + draw.normal(0, 2.0, rows)
    best = optimize.minimize(
        lambda logs: -evidence(features.astype(float), wanted, *np.exp(logs)), [0.0, 0.0], method="Nelder-Mead"
    )
    assert logme(features, wanted, 0) == pytest.approx(-best.fun, abs=1e-3)


def test_logme_prefers_separable_classes_to_noise() -> None:
    draw = np.random.default_rng(0)
    targets = np.arange(90) % 3
    told = (np.eye(3)[targets] @ draw.normal(size=(3, 8)) + draw.normal(0, 0.3, (90, 8))).astype(np.float32)
    noise = draw.normal(size=(90, 8)).astype(np.float32)
    assert logme(told, targets, 3) > logme(noise, targets, 3) + 0.1
