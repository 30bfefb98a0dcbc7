"""What more runs are expected to gain."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.analysis_settings import Goal
from frostline.statistics.decision import JointEstimate, Rule
from frostline.statistics.next_step import Surrogate
from frostline.statistics.posterior import Observed, posterior
from frostline.statistics.recipe import Recipe

COSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
Scores = tuple[float, ...]


def surrogate(*scores: Scores, rows: float = 0.005, sure: float | None = None) -> Surrogate:
    """Choices with these scores of seeds 0, 1, ...; the last one is full fine-tuning."""
    count = len(scores)
    observed = Observed(
        [{str(seed): score for seed, score in enumerate(one)} for one in scores],
        rows**2 * (0.7 + 0.3 * np.eye(count)),
        list(np.linspace(0, 1, count)),
    )
    rule = Rule(goal=Goal.within(0.01), sure=sure)
    estimate = JointEstimate(tuple(map(Recipe, range(count))), COSTS[-count:], observed, posterior(observed))
    return Surrogate(estimate, rule, estimate.choices[-1])


def new(**seeds: int) -> dict[Recipe, Sequence[str]]:
    """``k2=3``: three new seeds of k = 2."""
    return {Recipe(name[1:]): [f"new {n}" for n in range(count)] for name, count in seeds.items()}


def test_no_run_gains_nothing() -> None:
    assert surrogate((0.7,), (0.8,), (0.8,)).gain({}) == pytest.approx(0, abs=1e-6)


def test_a_close_race_is_worth_more_runs_than_a_clear_one() -> None:
    close = surrogate((0.60,), (0.80, 0.81), (0.803, 0.807))
    clear = surrogate((0.60,), (0.80, 0.81), (0.903, 0.907))
    assert close.gain(new(k1=2, k2=2)) > 5 * clear.gain(new(k1=2, k2=2))
    far = [close.gain(new(k1=2, k2=2), elsewhere) for elsewhere in (0.5, 0.81, 0.9)]  # another model with this value
    assert far[0] == close.gain(new(k1=2, k2=2)) > far[1] > far[2] == pytest.approx(0, abs=1e-6)


def test_runs_of_a_choice_that_cannot_win_are_worth_nothing() -> None:
    step = surrogate((0.60, 0.61, 0.60), (0.80, 0.81), (0.803, 0.807))
    assert step.gain(new(k0=3)) < 0.1 * step.gain(new(k1=1))


def test_an_untried_k_between_others_is_worth_a_run() -> None:
    step = surrogate((0.70, 0.71), (), (), (), (0.85, 0.86))
    tried = surrogate((0.70, 0.71), (0.75,), (0.83,), (0.84,), (0.85, 0.86))
    assert step.gain(new(k2=1)) > 0.0015
    assert step.gain(new(k2=1)) > 2 * tried.gain(new(k2=1))


def test_more_seeds_do_not_help_if_the_rows_are_the_problem() -> None:
    settled = surrogate((0.6,) * 10, (0.800,) * 10, (0.806,) * 10, rows=0.03)
    assert settled.gain(new(k1=5, k2=5)) < 2e-4


def test_the_gain_is_what_deciding_later_gains() -> None:
    """Simulated: draw the truth, the error of the rows and new scores from what is known, and decide again."""
    random = np.random.default_rng(0)
    step = surrogate((0.70, 0.71), (0.800, 0.806), (0.812, 0.804), rows=0.002)
    known = step.estimate
    by_seeds = known.posterior.noise.pooled * known.posterior.noise.correlation
    rows = known.observed.rows
    share = rows @ np.linalg.inv(rows + by_seeds)  # of the distance from the truth, that is due to the rows
    cost, now = step.rule.price * step.costs, known.posterior.draws.mean(0)
    gained = []
    for truth in random.permutation(known.posterior.draws)[:160]:
        of_rows = random.multivariate_normal(share @ (known.observed.means - truth), rows - share @ rows)
        scores = [dict(one) for one in known.observed.scores]
        for n in (1, 2):
            luck = random.normal(0, np.sqrt(known.posterior.noise.pooled), 4)
            scores[n] |= {f"{n}: {seed}": float(truth[n] + of_rows[n] + one) for seed, one in enumerate(luck)}
        later = posterior(Observed(scores, known.observed.row_covariance, known.observed.depth)).draws.mean(0)
        gained.append((truth - cost)[(later - cost).argmax()] - (truth - cost)[(now - cost).argmax()])
    error = float(np.std(gained)) / len(gained) ** 0.5
    expected = step.gain({Recipe(n): [f"{n}: {seed}" for seed in range(4)] for n in (1, 2)})
    assert expected > 2 * error
    assert expected == pytest.approx(float(np.mean(gained)), abs=3 * error)


def test_a_way_that_was_not_tried_is_worth_at_most_what_knowing_its_score_is() -> None:
    """Its posterior has long tails, which make its variance large."""
    scores = ({"0": 0.58}, {"0": 0.59}, {}, {"0": 0.69})
    rows = 0.01**2 * (0.7 + 0.3 * np.eye(4))
    observed = Observed(scores, rows, (0.0, 1.0, None, None), beside={2: 1}, untrained={3: 0})
    names, costs = (Recipe(0), Recipe("full"), Recipe("mean-pooled-1"), Recipe("words")), (0.0, 1.0, 0.25, 0.0)
    estimate = JointEstimate(names, costs, observed, posterior(observed), range(2, 3))
    step = Surrogate(estimate, Rule(goal=Goal.within(0.01)), estimate.choices[-1])
    known = np.maximum(estimate.draws[:, 2] - step.rule.price * costs[2] - step.values[3], 0).mean()
    assert 0 < step.gain({names[2]: ["0"]}) <= known < 0.01


def test_nothing_can_be_gained_at_the_highest_score() -> None:
    """A model that is always right is not improved upon, however uncertain its score is."""
    for sure, rows in ((None, 0.02), (0.9, 0.003)):
        high, low = (surrogate((one - 0.2,), (one,) * 3, (one,), rows=rows, sure=sure) for one in (1.0, 0.8))
        gains = [step.gain(new(k1=2, k2=2)) for step in (high, low)]
        assert gains[0] < 0.3 * gains[1], gains
        assert (high.values + high.rule.price * high.costs).max() < 1 < high.means.max()


def test_a_wanted_certainty_values_runs_that_could_change_the_choice() -> None:
    doubtful = surrogate((0.6,), (0.795, 0.80), (0.80, 0.805), sure=0.9)
    clear = surrogate((0.6,), (0.70, 0.71), (0.80, 0.805), sure=0.9)
    assert doubtful.gain(new(k1=3, k2=3)) > 5 * clear.gain(new(k1=3, k2=3))


@given(st.lists(st.lists(st.floats(0.5, 0.9), max_size=3), min_size=1, max_size=4), st.sampled_from([None, 0.5, 0.95]))
def test_a_gain_is_never_negative_and_finite(scores: list[list[float]], sure: float | None) -> None:
    step = surrogate(*map(tuple, scores), (0.8,), sure=sure)
    for n in range(len(scores) + 1):
        assert 0 <= step.gain({Recipe(n): ["new"]}) < 1
