"""What the posterior expects of a k between others, and of ways to tune, before it has seen them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline.statistics.posterior import Observed, posterior

DEPTH = np.arange(8) / 6  # of k = 0 to 6, and of full fine-tuning
K = 0.8  # the score of full fine-tuning


def expected_gaps(gaps: Sequence[float]) -> list[float]:
    """How far each way is expected to score above full fine-tuning, if it was measured so far above in three seeds."""
    means = [0.7, K, *(K + gap for gap in gaps)]
    scores = [{str(seed): mean + noise for seed, noise in enumerate((-0.01, 0.0, 0.01))} for mean in means]
    beside = {2 + way: 1 for way in range(len(gaps))}
    draws = posterior(Observed(scores, np.eye(len(means)) * 0.008**2, [0, 1, *(None for _ in gaps)], beside)).draws
    found: list[float] = (draws[:, 2:] - draws[:, 1:2]).mean(0).tolist()
    return found


def test_the_best_of_many_ways_is_pulled_towards_its_k() -> None:
    best, *_ = expected_gaps([0.02, 0, 0.002, -0.002, 0.001, -0.001, 0, 0])
    assert 0 < best < 0.012


def test_a_way_that_is_far_worse_makes_no_other_way_better() -> None:
    others = [0.02, 0, 0.002, -0.002, 0.001, -0.001, 0]
    without, *_, last = expected_gaps([*others, 0])
    beside_it, *_, worse = expected_gaps([*others, -0.3])
    assert beside_it == pytest.approx(without, rel=0.15)
    assert worse == pytest.approx(-0.3, abs=0.02) and last == pytest.approx(0, abs=0.005)


def expected_share(curve: NDArray[np.float64], untried: Sequence[int]) -> list[float]:
    """The share of the curve's rise that untried k are expected to reach, if all others have a score of two seeds."""
    scores = [
        {} if k in untried else {"0": float(score) - 0.003, "1": float(score) + 0.003} for k, score in enumerate(curve)
    ]
    rows = np.where(np.isin(DEPTH, DEPTH[list(untried)]), np.nan, 0.004)
    draws = posterior(Observed(scores, np.diag(rows) ** 2, DEPTH.tolist())).draws
    shares: list[float] = ((draws.mean(0)[untried] - curve[0]) / (curve[-1] - curve[0])).tolist()
    return shares


@pytest.mark.parametrize("rise", [0.04, 0.2])
def test_a_curve_that_rose_early_is_expected_to_stay_near_its_end(rise: float) -> None:
    """The line from k = 2 to full fine-tuning has 78, 86, 91 and 96 % of the rise at k = 3 and so on."""
    curve = 0.7 + rise * np.array([0.0, 0.45, 0.78, 0, 0, 0, 0, 1.0])
    third, fourth, *_ = expected_share(curve, [3, 4, 5, 6])
    assert third > 0.87 and 0.93 < fourth < 1.02


@pytest.mark.parametrize("rise", [0.04, 0.2])
def test_a_straight_curve_is_expected_to_go_on_straight(rise: float) -> None:
    assert expected_share(0.7 + rise * DEPTH / DEPTH[-1], [3, 5]) == pytest.approx([3 / 7, 5 / 7], abs=0.06)


def expected_gains(measured: Mapping[int, float]) -> NDArray[np.float64]:
    """What longer training of each of three k is expected to gain if some of the gains were measured; beforehand it is .01."""
    means = {0: 0.7, 1: 0.78, 2: 0.8}
    means |= {3 + k: means[k] + gain for k, gain in measured.items()}
    scores = [
        {str(seed): means[n] + noise for seed, noise in enumerate((-0.005, 0.0, 0.005))} if n in means else {}
        for n in range(6)
    ]
    longer = {3 + k: (k, 0.01) for k in range(3)}
    draws = posterior(Observed(scores, None, [0, 0.5, 1, None, None, None], longer=longer)).draws
    return np.asarray((draws[:, 3:] - draws[:, :3]).mean(0))


def test_longer_training_gains_what_is_expected_until_another_k_was_trained_as_long() -> None:
    nothing, much = expected_gains({1: 0.0, 2: 0.0}), expected_gains({1: 0.03, 2: 0.03})
    assert expected_gains({}) == pytest.approx([0.01] * 3, abs=0.004)
    assert nothing[0] < 0.007 < 0.014 < much[0]
    assert much[1:] == pytest.approx([0.03] * 2, abs=0.006)
