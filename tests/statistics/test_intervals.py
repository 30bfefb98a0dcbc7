"""Intervals against known values, formulas and simulations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from frostline.statistics.cells import succeeded, with_outcomes
from frostline.statistics.inference import (
    DIFFERENCE,
    Error,
    Pair,
    Ratio,
    corrected_quantile,
    failure_interval,
    is_above,
    mean_interval,
    pair,
    ratio,
    row_covariance,
    row_groups,
    seeds_needed,
    shared_row_covariance,
    summarize,
    unpaired,
)
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult

UNDEFINED = Ratio(None, None, None)


def test_a_summary_by_hand() -> None:
    got = summarize(np.array([0.8, 0.9, 0.7, 0.8]))
    assert (got.n, got.mean, got.median, got.min, got.max) == (4, pytest.approx(0.8), pytest.approx(0.8), 0.7, 0.9)
    assert got.std == pytest.approx(np.sqrt(0.02 / 3))
    one = summarize(np.array([0.5]))
    assert (one.n, one.mean, one.std, one.min) == (1, 0.5, None, 0.5)
    assert vars(summarize(np.array([]))) == {"n": 0, **dict.fromkeys(list(vars(one))[1:])}


def test_without_row_uncertainty_the_interval_is_students() -> None:
    scores = np.array([0.8, 0.9, 0.7, 0.8])
    half = 3.182446 * np.sqrt(0.02 / 3) / 2  # t of 3 degrees of freedom
    low, high = mean_interval(scores, np.repeat(scores[None], 50, axis=0), 0.0)
    assert (low, high) == (pytest.approx(0.8 - half, abs=1e-6), pytest.approx(0.8 + half, abs=1e-6))


@pytest.mark.parametrize("rows", [12, 30, 200])
def test_the_interval_of_a_mean_covers_the_truth_on_few_rows(rows: int) -> None:
    """Three seeds that differ a little, on rows that are easy or hard for all of them."""
    draw, inside, trials = np.random.default_rng(rows), 0, 400
    groups = row_groups(np.arange(rows))
    for _ in range(trials):
        easy = draw.random(rows)[:, None] < 0.8
        right = np.where(draw.random((rows, 3)) < 0.9, easy, ~easy)  # [rows, seeds], right with .8 x .9 + .2 x .1
        jackknife = np.array([right[stays].mean(0) for stays in groups])
        low, high = mean_interval(right.mean(0), jackknife, 1 / rows)
        inside += low <= 0.74 <= high
    assert 0.92 <= inside / trials <= 0.995


def test_agreement_on_few_rows_proves_nothing() -> None:
    """Eleven and ten of twelve rows are right, for both seeds: the interval of the share is very wide."""
    right = np.ones((12, 2, 2))
    right[0], right[1, :, 1] = 0, 0
    share = ratio(
        pair(right.mean(0), np.array([right[stays].mean(0) for stays in row_groups(np.arange(12))]), 1 / 12), 0.5
    )
    assert share.estimate == pytest.approx((11 / 12 - 0.5) / (10 / 12 - 0.5))
    assert share.low is not None and share.low < 0.8
    assert share.high is None or share.high > 2


@pytest.mark.parametrize(
    ("failed", "runs", "low", "high"),
    [(0, 5, 0.0, 0.52182), (5, 5, 0.47818, 1.0), (1, 10, 0.00253, 0.44502), (3, 20, 0.03207, 0.37893)],
)
def test_clopper_and_pearson(failed: int, runs: int, low: float, high: float) -> None:
    assert failure_interval(failed, runs) == (pytest.approx(low, abs=1e-5), pytest.approx(high, abs=1e-5))


def test_each_row_is_left_out_by_one_group() -> None:
    stays = row_groups(np.arange(123))
    assert len(stays) == 50
    out = [set(range(123)) - set(rows.tolist()) for rows in stays]
    assert sorted(row for rows in out for row in rows) == list(range(123))
    assert {len(rows) for rows in out} == {2, 3}
    assert len(row_groups(np.arange(7))) == 7
    assert all(np.array_equal(a, b) for a, b in zip(stays, row_groups(np.arange(123)), strict=True))


def test_the_jackknife_over_single_rows_is_exact() -> None:
    right = np.random.default_rng(1).random(40) < 0.7
    jackknife = np.array([[[right[rows].mean()] * 2] for rows in row_groups(np.arange(40))])
    got = pair(np.full((1, 2), right.mean()), jackknife).rows.covariance[0, 0]
    assert got == pytest.approx(right.var(ddof=1) / 40)


def simulated(draw: np.random.Generator, seeds: int, rows: int) -> Pair:
    """A cell of .80 and full of .84 above a baseline of .5, with partly shared seed noise and with row noise."""
    shared, own = draw.normal(0, 0.01, (seeds, 1)), draw.normal(0, 0.01, (seeds, 2))
    truth = np.array([0.80, 0.84]) + shared + own  # [seeds, 2]
    hard = draw.normal(0, 0.4, (rows, 1, 1))  # rows are hard or easy for all runs
    cut = stats.norm.ppf(truth) * np.sqrt(1 + 0.4**2)
    right = draw.normal(0, 1, (rows, seeds, 2)) + hard < cut
    groups = np.arange(rows) % 50
    sums = np.stack([right[groups == g].sum(0) for g in range(50)])
    sizes = np.bincount(groups)[:, None, None]
    jackknife = (right.sum(0) - sums) / (rows - sizes)  # [groups, seeds, 2]
    return pair(right.mean(0), jackknife, 1 / rows)


@pytest.mark.parametrize("seeds", [3, 10])
def test_the_interval_of_a_share_covers_the_truth(seeds: int) -> None:
    draw, truth, trials = np.random.default_rng(seeds), 0.30 / 0.34, 200
    shares = [ratio(simulated(draw, seeds, 500), 0.5) for _ in range(trials)]
    assert all(share.low is not None and share.high is not None for share in shares)
    inside = np.mean([share.low <= truth <= share.high for share in shares])  # type: ignore[operator]
    assert 0.92 <= inside <= 0.995
    assert np.mean([share.high - share.low for share in shares]) < 0.35  # type: ignore[operator]


def exact(cell: float, full: float, *, runs: int = 5, seeds: float = 1e-5, rows: float = 1e-5) -> Pair:
    return Pair(np.array([cell, full]), (Error(seeds * np.eye(2), runs - 1),), Error(rows * np.eye(2), 49), runs)


def test_fieller_intervals_match_their_definition() -> None:
    made = exact(0.80, 0.84)
    share = ratio(made, 0.5)
    assert share.estimate == pytest.approx(0.30 / 0.34)
    for bound in (share.low, share.high):
        assert bound is not None
        value, error, degrees_of_freedom = made.contrast(np.array([1.0, -bound]))
        assert abs(value - 0.5 * (1 - bound)) == pytest.approx(stats.t.ppf(0.975, degrees_of_freedom) * error, rel=1e-6)
    assert share.low < share.estimate < share.high  # type: ignore[operator]


def test_degrees_of_freedom_lie_between_those_of_the_sources() -> None:
    _, error, degrees_of_freedom = exact(0.8, 0.84).contrast(np.array([1.0, -1.0]))
    assert error == pytest.approx(np.sqrt(4e-5)) and 4 < degrees_of_freedom < 53
    assert exact(0.8, 0.84, rows=0).contrast(np.array([1.0, -1.0]))[2] == pytest.approx(4)


def test_a_share_is_undefined_unless_full_is_significantly_above_the_baseline() -> None:
    assert ratio(exact(0.52, 0.505), 0.5) == UNDEFINED
    assert not is_above(exact(0.52, 0.505), 0.5)
    assert ratio(exact(0.4, 0.49), 0.5) == UNDEFINED
    assert is_above(exact(0.8, 0.84), 0.5) and ratio(exact(0.8, 0.84), 0.5) != UNDEFINED


def test_one_seed_has_an_estimate_and_no_interval() -> None:
    one = pair(np.array([[0.8, 0.9]]), np.full((50, 1, 2), [0.8, 0.9]), 0.0)
    assert ratio(one, 0.5) == Ratio(pytest.approx(0.75), None, None)


def test_a_cell_with_the_scores_of_full_has_a_share_of_exactly_one() -> None:
    scores = np.repeat(np.random.default_rng(0).normal(0.8, 0.02, (5, 1)), 2, axis=1)
    share = ratio(pair(scores, np.repeat(scores[None], 50, axis=0), 0.0), 0.5)
    assert share == Ratio(*[pytest.approx(1.0)] * 3)


ROWS, SEEDS, CHOICES = 400, 6, 3


def left_out(right: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Scores by seed without each group, for each choice; ``right`` is ``[rows, seeds, J]``."""
    scores = np.stack([right[rest].mean(0) for rest in row_groups(np.arange(len(right)))])
    return [{str(seed): scores[:, seed, n] for seed in range(scores.shape[1])} for n in range(scores.shape[2])]


def both(right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row covariance of the means, and what of it the seeds share."""
    runs = left_out(right)
    means = np.stack([np.mean(list(one.values()), 0) for one in runs], -1)
    return row_covariance(means[:, None], 1 / len(right)), shared_row_covariance(runs, 1 / len(right))


@given(st.integers(0, 10**6), st.sampled_from([1, SEEDS]))
def test_equal_runs_share_everything_and_one_seed_says_nothing_about_luck(seed: int, seeds: int) -> None:
    right = np.random.default_rng(seed).random((ROWS, 1, CHOICES)) < 0.8
    whole, shared = both(np.repeat(right, seeds, 1))
    assert shared == pytest.approx(whole, abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_it_is_a_covariance_with_at_least_the_effect_of_one_row(seed: int, luck: float) -> None:
    random = np.random.default_rng(seed)
    hard = (1 - luck) * random.random((ROWS, 1, 1)) + luck * random.random((ROWS, SEEDS, CHOICES))
    shared = both(hard < 0.6)[1]
    assert shared == pytest.approx(shared.T) and np.linalg.eigvalsh(shared).min() > 0.99 / ROWS**2


def test_luck_is_counted_once() -> None:
    """The variance of a mean is that over seeds and that of the shared rows. Independent runs share no row's difficulty."""
    random, errors = np.random.default_rng(0), []
    for shared_hardness in (0.0, 1.0):
        means, estimates, twice = [], [], []
        for _ in range(300):
            hard = shared_hardness * random.standard_normal((ROWS, 1, 1)) + random.standard_normal((ROWS, SEEDS, 1))
            right = hard < 0.8
            whole, shared = both(right)
            spread = right.mean(0)[:, 0].var(ddof=1) / SEEDS
            means.append(right.mean())
            estimates.append(spread + shared[0, 0])
            twice.append(spread + whole[0, 0])
        errors.append((np.mean(estimates) / np.var(means, ddof=1), np.mean(twice) / np.var(means, ddof=1)))
    (alone, alone_twice), (shared, shared_twice) = errors
    assert 0.75 < alone < 1.4 and shared == pytest.approx(1, abs=0.25)  # an estimate below zero is raised to zero
    assert alone_twice > 1.6 and shared_twice > shared


# --- Coverage of the intervals. The large tables are in docs/benchmarks/statistics.md. ---


def run(k: str, seed: int, score: float) -> RunResult:
    return RunResult(recipe=Recipe(k), learning_rate=1e-4, seed=seed, run=f"{k}/{seed}", validation_best=score)


@pytest.mark.parametrize(
    ("mean", "failing", "lower", "seeds"),
    [(0.85, 0.0, 0.0, 5), (0.85, 0.05, 0.30, 10), (0.85, 0.05, 0.35, 5), (0.535, 0.0, 0.0, 5)],
    ids=["no failures", "30 points lower", "at chance", "a weak cell"],
)
def test_the_interval_of_successful_runs_covers_their_mean(
    mean: float, failing: float, lower: float, seeds: int
) -> None:
    """The baseline scores .5 and the best run .87. One standard error of 800 tries is .8 points."""
    draw, spread, inside, widths = np.random.default_rng(seeds), 0.01, 0, []
    for _ in range(800):
        scores = mean + spread * draw.standard_normal(seeds) - lower * (draw.random(seeds) < failing)
        judgement = with_outcomes([*(run("1", n, score) for n, score in enumerate(scores)), run("full", 0, 0.87)], 0.5)
        good = np.array([one.score for one in succeeded(judgement[:-1])])
        low, high = mean_interval(good)
        inside += low <= mean <= high
        widths.append(high - low)
    assert 0.925 <= inside / 800 <= 0.975
    assert np.mean(widths) < 4 * spread


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_shares_without_predictions_cover_the_truth_paired_and_unpaired(correlation: float) -> None:
    """Five seeds. One standard error of 250 tries is 1.4 points."""
    draw, truth, cover = np.random.default_rng(1), 0.32 / 0.35, {"paired": 0, "unpaired": 0}
    for _ in range(250):
        shared, own = draw.standard_normal((5, 1)), draw.standard_normal((5, 2))
        scores = np.array([0.82, 0.85]) + 0.01 * (correlation**0.5 * shared + (1 - correlation) ** 0.5 * own)
        for name, both in (("paired", pair(scores)), ("unpaired", unpaired(*scores.T))):
            share = ratio(both, 0.5)
            assert share.low is not None and share.high is not None
            cover[name] += share.low <= truth <= share.high
    assert 0.915 <= cover["paired"] / 250 <= 0.98
    assert cover["unpaired"] / 250 >= (0.97 if correlation else 0.915)


@pytest.mark.parametrize(("distance", "spread"), [(0.02, 0.01), (0.01, 0.01), (0.005, 0.015)])
def test_the_number_of_seeds_gives_a_power_of_80_percent(distance: float, spread: float) -> None:
    seeds = seeds_needed(distance, spread**2, 0.0, 1.0)
    assert seeds is not None

    def power(n: int) -> float:
        quantile, away = stats.t.ppf(0.975, n - 1), distance / spread * n**0.5
        return float(stats.nct.sf(quantile, n - 1, away) + stats.nct.cdf(-quantile, n - 1, away))

    assert 0.79 <= power(seeds) <= 0.95 and power(seeds - 1) < 0.82
    both = np.random.default_rng(0).normal(0.8, spread, (4, 2))
    variances = np.var(both[:, 0] - both[:, 1], ddof=1), both.var(0, ddof=1).sum()
    for one, expected in zip((pair(both), unpaired(both[:, 0], both[:, 1])), variances, strict=True):
        assert one.variance_of_one_seed(DIFFERENCE) == pytest.approx(expected)


def test_intervals_keep_95_percent_confidence_with_interim_analyses() -> None:
    """Results are analysed with 2, 3 and 5 seeds, until the interval lies on one side of 0."""
    draw, missed = np.random.default_rng(0), {1: 0, 3: 0}
    for _ in range(2000):
        scores = draw.normal([0.80, 0.80], 0.02, (5, 2))
        for allowed, count in missed.items():
            for seeds in (2, 3, 5):
                low, high = pair(scores[:seeds], quantile=corrected_quantile(allowed)).interval(DIFFERENCE)
                if low > 0 or high < 0:
                    missed[allowed] = count + 1
                    break
    assert missed[3] <= 0.055 * 2000 and missed[1] > 0.06 * 2000  # without the correction, more than 5 % are wrong


@given(st.integers(0, 1000), st.integers(1, 5))
def test_p_is_below_5_percent_if_the_interval_excludes_0(seed: int, analyses: int) -> None:
    both = pair(np.random.default_rng(seed).normal([0.02, 0.0], 0.02, (4, 2)), quantile=corrected_quantile(analyses))
    low, high = both.interval(DIFFERENCE)
    assert (both.p_value(DIFFERENCE) < 0.05) == (low > 0 or high < 0)
