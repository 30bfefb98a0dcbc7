"""Guesses: what they say of made-up layers, and the evidence against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from frostline.search.guesses import by_layer, judged, logme, order


def test_the_lowest_layer_that_is_as_good_as_any_says_how_many_lie_after_it() -> None:
    scores = {0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}
    assert by_layer(scores, 0.0) == 1
    assert by_layer(scores, 0.02) == 2
    assert by_layer({0: float("nan"), 1: 0.5, 2: 0.4}, 0.0) == 1
    assert by_layer({}, 0.1) is None


@given(st.integers(0, 12), st.integers(1, 12))
def test_an_order_has_every_k_once_and_begins_with_the_guess(k: int, layers: int) -> None:
    ks = range(layers + 1)
    found = order(k, ks)
    assert sorted(found) == list(ks) and found[0] == min(k, layers)
    assert [abs(one - k) for one in found] == sorted(abs(one - k) for one in ks)


def test_a_guess_is_judged_by_the_place_of_what_was_named() -> None:
    rows = judged({"probes": 3, "LogME": None}, range(5), 2)
    assert rows == [{"by": "probes", "k": 3, "place": 2}, {"by": "climbing", "k": 0, "place": 3}]
    assert all(row["place"] is None for row in judged({"probes": 3}, range(5), None))


def evidence(features: np.ndarray, wanted: np.ndarray, weights: float, noise: float) -> float:
    """By its definition: the targets are normal, with this covariance."""
    rows = len(features)
    covariance = np.eye(rows) / noise + features @ features.T / weights
    return float(stats.multivariate_normal(np.zeros(rows), covariance).logpdf(wanted)) / rows


@pytest.mark.parametrize(("rows", "width"), [(60, 5), (20, 40)])
def test_logme_is_the_largest_evidence(rows: int, width: int) -> None:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(rows, width)).astype(np.float32)
    wanted = features @ draw.normal(size=width) + draw.normal(0, 2.0, rows)
    best = optimize.minimize(
        lambda logs: -evidence(features.astype(float), wanted, *np.exp(logs)), [0.0, 0.0], method="Nelder-Mead"
    )
    assert logme(features, wanted, 0) == pytest.approx(-best.fun, abs=1e-3)


def test_classes_are_told_from_noise() -> None:
    draw = np.random.default_rng(0)
    targets = np.arange(90) % 3
    told = (np.eye(3)[targets] @ draw.normal(size=(3, 8)) + draw.normal(0, 0.3, (90, 8))).astype(np.float32)
    noise = draw.normal(size=(90, 8)).astype(np.float32)
    assert logme(told, targets, 3) > logme(noise, targets, 3) + 0.1
