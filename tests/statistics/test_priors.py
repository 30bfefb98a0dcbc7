"""What the posterior expects of ways to tune before it has seen them."""

from collections.abc import Sequence

import numpy as np
import pytest

from frostline.statistics.posterior import Observed, posterior

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
