"""Draws of the mean scores of all choices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from frostline.statistics.posterior import UNKNOWN_SPREAD, Observed, SeedNoise, posterior, prior_spread

DEPTH = (0.0, 0.25, 0.5, 0.75, 1.0)


def observed(
    *scores: tuple[float, ...], rows: float | None = None, depth: tuple[float | None, ...] | None = None
) -> Observed:
    """Choices with these scores of seeds 0, 1, ...; ``rows``: the standard error that the validation rows cause."""
    covariance = None if rows is None else rows**2 * (0.7 + 0.3 * np.eye(len(scores)))
    return Observed(
        [{str(seed): score for seed, score in enumerate(one)} for one in scores],
        covariance,
        depth or DEPTH[: len(scores)],
    )


def draw_means(known: Observed) -> NDArray[np.float64]:
    return posterior(known).draws


def test_the_same_observations_give_the_same_draws() -> None:
    some = observed((0.70, 0.71), (0.80,), rows=0.01)
    assert np.array_equal(draw_means(some), draw_means(some))


def test_many_seeds_settle_the_means() -> None:
    random = np.random.default_rng(1)
    truth = np.array([0.6, 0.75, 0.8])
    draws = draw_means(observed(*(tuple(random.normal(mean, 0.01, 400)) for mean in truth)))
    assert draws.mean(0) == pytest.approx(truth, abs=0.003) and draws.std(0).max() < 0.001


def test_validation_rows_bound_the_certainty_of_a_mean() -> None:
    draws = draw_means(observed((0.8,) * 50, (0.8,) * 50, rows=0.02))
    assert draws.std(0) == pytest.approx(0.02, rel=0.15)
    difference = draws[:, 1] - draws[:, 0]
    assert difference.std() < 0.02 * 0.6**0.5 * 1.1  # rows are shared, and neighbours score alike


def beside_full(*ways: float, seeds: int = 3) -> NDArray[np.float64]:
    """Expected scores of a curve that ends at 0.80, and of ways beside its last k."""
    scores = [(score,) * seeds for score in (0.70, 0.78, 0.80, *ways)]
    known = observed(*scores, rows=0.02, depth=(0.0, 0.5, 1.0, *[None] * len(ways)))
    tied, flat = (draw_means(replace(known, beside=beside)) for beside in (dict.fromkeys(range(3, len(scores)), 2), {}))
    return np.stack([tied.mean(0), flat.mean(0)])[:, 3:]


def test_the_best_of_many_ways_is_pulled_towards_its_k() -> None:
    tied, flat = beside_full(0.82, 0.795, 0.80, 0.805, 0.80, 0.798)
    assert flat[0] == pytest.approx(0.82, abs=0.003)
    assert 0.80 < tied[0] < 0.815 and np.argmax(tied) == 0


def test_a_way_that_is_clearly_worse_stays_so_and_ties_no_other() -> None:
    tied, _ = beside_full(0.60, 0.80, 0.80, 0.80)
    assert tied[0] < 0.63 and tied[1:] == pytest.approx(0.80, abs=0.006)


def test_a_lucky_run_is_pulled_towards_its_neighbours() -> None:
    lucky = draw_means(observed((0.80,), (0.80,), (0.83,), (0.80,), (0.80,), rows=0.01)).mean(0)
    assert 0.80 < lucky[2] < 0.825
    steady = draw_means(observed((0.80,) * 5, (0.80,) * 5, (0.83,) * 5, (0.80,) * 5, (0.80,) * 5)).mean(0)
    assert steady[2] > lucky[2]


def test_before_any_second_seed_the_spread_is_that_of_the_prior() -> None:
    single = observed((0.7,), (0.8,))
    assert prior_spread(single) == UNKNOWN_SPREAD
    assert SeedNoise.of(single).pooled == pytest.approx(UNKNOWN_SPREAD**2)
    known = observed((0.7,), (0.8,), rows=0.02)
    assert prior_spread(known) == pytest.approx(0.5 * 0.02 + 0.003)


def test_seeds_that_move_all_choices_alike_leave_differences_certain() -> None:
    shifts = np.random.default_rng(0).normal(0, 0.02, 12)
    apart = np.random.default_rng(1).normal(0, 0.02, 12)
    together = draw_means(observed(tuple(0.7 + shifts), tuple(0.8 + shifts)))
    separate = draw_means(observed(tuple(0.7 + shifts), tuple(0.8 + apart)))
    assert np.diff(together).std() < 0.75 * np.diff(separate).std()


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=5), st.booleans())
def test_draws_are_finite_whatever_the_scores(scores: list[list[float]], with_rows: bool) -> None:
    draws = draw_means(observed(*map(tuple, scores), rows=0.01 if with_rows else None))
    assert draws.shape[1] == len(scores) and np.isfinite(draws).all()


def test_stated_probabilities_come_true() -> None:
    """Of the events with a probability of p, about p happen: rising curves, three seeds, simulated."""
    random = np.random.default_rng(0)
    covariance = 0.01**2 * (0.7 + 0.3 * np.eye(5))
    stated, happened = [], []
    for _ in range(300):
        truth = 0.85 - random.uniform(0, 0.06) * np.exp(-random.uniform(1, 6) * np.array(DEPTH))
        luck = random.multivariate_normal(np.zeros(5), covariance)
        scores = truth[:, None] + luck[:, None] + random.normal(0, 0.008, (5, 3))
        estimate = stats.wishart(49, covariance / 49).rvs(random_state=random)
        draws = draw_means(
            Observed([{str(seed): score for seed, score in enumerate(one)} for one in scores], estimate, DEPTH)
        )
        stated += list((draws[:, :4] >= draws[:, 4:] - 0.005).mean(0))
        happened += list(truth[:4] >= truth[4] - 0.005)
    for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 0.9), (0.9, 1.01)):
        some = [n for n, p in enumerate(stated) if low <= p < high]
        assert len(some) > 30
        assert np.mean([happened[n] for n in some]) == pytest.approx(np.mean([stated[n] for n in some]), abs=0.12)
