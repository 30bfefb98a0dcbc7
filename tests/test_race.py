"""The order of a search: what it trains, what it names, what it spends; on made-up scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.race import FULLS, Board, Course, Outcome, Step, Trial, Verdict, race
from frostline.specification import Tune

LAYERS = 6
PRICE: dict[Tune, float] = {0: 0.2, 1: 1.5, 2: 4.0, 3: 6.5, 4: 8.5, 5: 11.0, 6: 13.0, "all": 14.5}
RATES = (5e-5, 1e-4, 2e-4)
RISING: dict[Tune, float] = {0: 0.6, 1: 0.7, 2: 0.76, 3: 0.795, 4: 0.80, 5: 0.80, 6: 0.80, "all": 0.80}


def course(**more: Any) -> Course:
    given: dict[str, Any] = {
        **{
            "ks": tuple(range(LAYERS + 1)),
            "reference": "all",
            "rates": RATES,
            "seeds": tuple(range(5)),
            "chance": 0.5,
            "best": 1.0,
        },
        **{
            "noise": lambda score: 0.01,
            "target": 0.95,
            "operations": {k: 1e9 * price for k, price in PRICE.items()},
            "budget": None,
        },
    }
    return Course(**{**given, **more})


def carried_out(board: Board, score: Any) -> tuple[Verdict, list[Step]]:
    """The race on scores by trial; None is a run that failed."""
    steps, taken = race(board), []
    try:
        step = next(steps)
        while True:
            taken.append(step)
            assert not set(step.trials) & set(board.outcomes)  # nothing is trained twice
            board.outcomes |= {trial: Outcome(score(trial), PRICE[trial.tune]) for trial in step.trials}
            step = next(steps)
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict, taken


def trained(steps: list[Step]) -> dict[Tune, int]:
    counts: dict[Tune, int] = {}
    for step in steps:
        for trial in step.trials:
            counts[trial.tune] = counts.get(trial.tune, 0) + 1
    return counts


def exact(curve: dict[Tune, float]) -> Any:
    return lambda trial: curve[trial.tune] - (0.02 if trial.tune != 0 and trial.rate != 1e-4 else 0.0)


def test_the_smallest_k_that_meets_the_target_is_named_and_nothing_deeper_is_trained() -> None:
    verdict, steps = carried_out(Board(course()), exact(RISING))
    assert verdict.tune == 3
    counts = trained(steps)
    assert counts[0] == 5 and not counts.keys() & {4, 5, 6}
    assert counts["all"] >= 3 and sum(PRICE[k] * n for k, n in counts.items()) <= FULLS * PRICE["all"]


def test_a_head_alone_that_cannot_be_beaten_ends_it_at_once() -> None:
    verdict, steps = carried_out(Board(course()), exact({**RISING, 0: 0.999}))
    assert verdict.tune == 0 and len(steps) == 1


def test_where_nothing_is_learned_it_says_so_after_every_rate_of_full() -> None:
    verdict, steps = carried_out(Board(course(budget=1000.0)), lambda trial: 0.5)
    assert verdict.tune is None and "above guessing" in verdict.why
    assert {trial.rate for step in steps for trial in step.trials if trial.tune == "all"} == set(RATES)


def test_only_full_is_enough() -> None:
    steep: dict[Tune, float] = {**{k: 0.5 + 0.02 * k for k in range(LAYERS + 1)}, "all": 0.8}
    verdict, steps = carried_out(Board(course(budget=1000.0)), exact(steep))
    assert verdict.tune == "all" and trained(steps).keys() == set(PRICE)


def test_a_small_budget_stops_it_with_the_best_so_far() -> None:
    verdict, steps = carried_out(Board(course(budget=30.0)), exact(RISING))
    assert "budget" in verdict.why and verdict.tune == "all" and 3 not in trained(steps)
    verdict, _ = carried_out(Board(course(budget=40.0)), exact(RISING))
    assert verdict.tune == 3


def test_a_rate_that_fails_is_not_chosen() -> None:
    verdict, _ = carried_out(
        Board(course(budget=1000.0)),
        lambda trial: None if trial.rate == 1e-4 and trial.tune != 0 else RISING[trial.tune],
    )
    assert verdict.tune == 3


def test_the_same_outcomes_give_the_same_steps() -> None:
    rng = np.random.default_rng(0)
    noise: dict[Trial, float] = {}

    def score(trial: Trial) -> float:
        return RISING[trial.tune] + noise.setdefault(trial, rng.normal(0, 0.01))

    assert carried_out(Board(course()), score) == carried_out(Board(course()), score)


@given(st.integers(0, 10_000), st.floats(0, 0.03), st.floats(20, 300))
def test_whatever_the_scores_it_ends_within_its_means(seed: int, noise: float, budget: float) -> None:
    rng = np.random.default_rng(seed)
    curve: dict[Tune, float] = dict(zip(PRICE, np.sort(rng.uniform(0.5, 1, len(PRICE))), strict=True))
    board = Board(course(budget=budget))
    verdict, steps = carried_out(
        board, lambda trial: None if rng.random() < 0.05 else curve[trial.tune] + rng.normal(0, noise)
    )
    assert verdict.tune is None or verdict.tune in PRICE
    assert max(trained(steps).values()) <= 5 + len(RATES) - 1
    least = 5 * PRICE[0] + 3 * PRICE[2] + PRICE["all"]  # before it looks at the budget
    assert board.spent <= max(budget, least) + 1e-6


def test_shares_are_of_seeds_that_both_have() -> None:
    board = Board(course())
    board.outcomes |= {Trial(2, 1e-4, seed): Outcome(0.6 + 0.1 * seed, 1.0) for seed in (0, 1, 2)}
    board.outcomes |= {Trial("all", 1e-4, seed): Outcome(0.7 + 0.1 * seed, 1.0) for seed in (1, 2)}
    assert board.share(2) == pytest.approx((0.75 - 0.5) / (0.85 - 0.5))
    assert board.share(1) is None and board.mean(2) == pytest.approx(0.7)
    assert board.price("all") == 1.0 and board.price(1) == pytest.approx(PRICE[1] / PRICE[2])
