"""The race on synthetic scores: its steps, its verdict and its budget."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.data.wording import parse_duration
from frostline.search.race import BRIEF
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Trial
from frostline.statistics.decision import Rule
from frostline.statistics.goal import Goal
from frostline.statistics.tune import Tune
from synthetic_race import LAYERS, RATES, RISING, SECONDS, Rows, best, board, exact, run_race, runs_per_k, settings

LATE: dict[Tune, float] = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}


def with_rows(*, same_errors: bool = True, **more: Any) -> tuple[Scoreboard, Rows]:
    """An empty scoreboard with predictions."""
    rows = Rows(same_errors=same_errors)
    return Scoreboard(settings(**more), rows.evidence), rows


def test_the_race_finds_the_k_with_the_highest_value() -> None:
    """Two points of score are worth the whole training time of full fine-tuning."""
    known, rows = with_rows(budget=1e4)
    run_race(known, exact(LATE), rows)
    assert best(known) == "last 3"
    known, rows = with_rows(budget=1e4)
    run_race(known, exact({**LATE, 3: 0.895, 4: 0.91}), rows)
    assert best(known) == "last 4"


def test_the_dearer_a_layer_the_fewer_are_tuned() -> None:
    slow: dict[Tune, float] = {k: 0.80 + 0.004 * SECONDS[k] for k in SECONDS}
    chosen = {}
    for price in (0.001, 0.1):
        known, rows = with_rows(budget=1e4, rule=Rule(goal=Goal.of_gain(0.95, 0.5), price=price))
        run_race(known, exact(slow), rows)
        chosen[price] = best(known)
    assert chosen == {0.001: "all", 0.1: "last 0"}


def test_a_wanted_certainty_takes_the_cheapest_k_that_has_it() -> None:
    known, rows = with_rows(budget=1e4, rule=Rule(goal=Goal.of_gain(0.95, 0.5), sure=0.9))
    run_race(known, exact(RISING), rows)
    assert best(known) == "last 3"  # .795 of .800


def test_a_perfect_k_0_ends_the_race() -> None:
    known = board()
    verdict, steps = run_race(known, exact({**RISING, 0: 0.9999}))
    assert verdict.why.startswith("k = 0 scores so high") and runs_per_k(steps) == {0: 2}


def test_a_perfect_probe_ends_the_race_after_k_0() -> None:
    verdict, steps = run_race(board(alternative_score=0.995), exact(RISING))
    assert verdict.why.startswith("A model that trains no layer scores so high") and runs_per_k(steps) == {0: 2}
    _, steps = run_race(board(alternative_score=0.975), exact(RISING))
    assert "all" in runs_per_k(steps)
    of_gain = Rule(goal=Goal.of_gain(0.95, 0.5), sure=0.5)  # .975 reaches 95 % of any gain
    _, steps = run_race(board(alternative_score=0.98, rule=of_gain), exact(RISING))
    assert runs_per_k(steps) == {0: 2}


def test_one_run_above_the_baseline_is_enough_to_have_learned() -> None:
    known, rows = with_rows(same_errors=False)
    for seed, score in enumerate((0.5, 0.54, 0.5, 0.5)):
        known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, seed), score)
    assert not known.above_baseline("all")  # a standard error of .018, corrected for four runs
    known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, 4), 0.62)
    assert known.above_baseline("all") and not known.above_baseline(3)


def test_k_0_is_trained_at_all_its_learning_rates() -> None:
    known, rows = with_rows(budget=1e4, head_learning_rates=(1e-3, 1e-2))
    flat: dict[Tune, float] = dict.fromkeys(SECONDS, 0.8)
    _, steps = run_race(known, lambda t: flat[t.tune] - 0.1 * (t.learning_rate == 1e-3), rows)
    head_only = [[trial for trial in step.trials if trial.tune == 0] for step in steps]
    assert len(head_only[0]) == 4 and known.best_learning_rate(0) == 1e-2
    assert all({trial.learning_rate for trial in some} in (set(), {1e-3, 1e-2}) for some in head_only)


def test_nothing_learned_is_reported_after_every_learning_rate_of_full() -> None:
    verdict, steps = run_race(board(budget=1000.0), lambda trial: 0.5)
    assert verdict.nothing_learned and "No run scores above the baseline" in verdict.why
    assert {trial.learning_rate for step in steps for trial in step.trials if trial.tune == "all"} == set(RATES)


def test_tries_to_learn_end_with_the_first_success() -> None:
    def score(trial: Trial) -> float:
        return 0.8 if (trial.tune, trial.learning_rate) == ("all", 2e-4) else 0.5

    known, rows = with_rows(budget=1000.0)
    verdict, steps = run_race(known, score, rows)
    assert not verdict.nothing_learned and best(known) == "all"
    assert steps[-1].why.startswith("No run is above") is False and known.best_learning_rate("all") == 2e-4
    assert any(step.why.startswith("No run is above") for step in steps)


def test_untried_learning_rates_are_named_if_nothing_is_learned() -> None:
    verdict, _ = run_race(board(budget=55.0), lambda trial: 0.5)
    assert verdict.nothing_learned and verdict.why.endswith(
        "The budget did not allow full fine-tuning at a learning rate of 0.0002."
    )


def test_a_failed_k_is_tried_at_lower_learning_rates() -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(1, 7), 0.9), 0: 0.87, "all": 0.9}

    def score(trial: Trial) -> float | None:
        failed = trial.tune == 1 and trial.learning_rate > 5e-5
        return None if failed else clear[trial.tune]

    known, rows = with_rows(budget=1e4)
    run_race(known, score, rows)
    assert best(known) == "last 1" and known.best_learning_rate(1) == 5e-5
    known, rows = with_rows(budget=1e4)
    run_race(known, lambda trial: None if trial.tune == 1 else clear[trial.tune], rows)
    assert best(known) == "last 2"


def test_a_failed_k_0_is_not_tried_again() -> None:
    known = board(budget=1e4, head_learning_rates=(1e-3, 1e-2))
    run_race(known, lambda trial: None if trial.tune == 0 else exact(RISING)(trial))
    assert [t.seed for t in known.outcomes if t.tune == 0] == [0, 1, 0, 1]


def test_full_is_recommended_if_it_is_worth_its_price() -> None:
    steep: dict[Tune, float] = {**{k: 0.5 + 0.02 * k for k in range(LAYERS + 1)}, "all": 0.8}
    known, rows = with_rows(budget=1000.0)
    run_race(known, exact(steep), rows)
    assert best(known) == "all"


def test_a_tiny_budget_allows_one_run_of_a_small_k() -> None:
    """Two runs of k = 0 take 0.4 s, and a run of k = 2 takes 4 s."""
    verdict, steps = run_race(board(budget=1.0), exact(RISING))
    assert runs_per_k(steps) == {0: 2, 2: 1} and verdict.no_reference
    assert steps[1].why == "Train k = 2 once: how long a run takes is not known yet."
    two = 2 * SECONDS[0] + 2 * SECONDS[2]
    assert runs_per_k(run_race(board(budget=two - 0.1), exact(RISING))[1]) == {0: 2, 2: 1}
    assert runs_per_k(run_race(board(budget=two), exact(RISING))[1])[2] == 2


def test_a_budget_too_small_for_full_ends_the_race() -> None:
    verdict, steps = run_race(board(budget=20.0), exact(RISING))
    assert runs_per_k(steps).keys() == {0, 2} and verdict.no_reference
    assert verdict.why.startswith(
        "Full fine-tuning was not run: one run takes about 14 s, but only 7.6 s of the budget are left. Give about --budget "
    )
    enough = parse_duration(verdict.why.partition("--budget ")[2].partition(" or more,")[0])
    assert not run_race(board(budget=enough), exact(RISING))[0].no_reference
    assert run_race(board(budget=enough - 1), exact(RISING))[0].no_reference


@pytest.mark.parametrize(
    ("budget", "untried", "step"), [(45.0, 4, "k = 4 was not tried yet."), (70.0, None, "Try another learning rate")]
)
def test_a_small_budget_ends_the_race_with_the_next_step(budget: float, untried: int | None, step: str) -> None:
    known, rows = with_rows(budget=budget, rule=Rule(goal=Goal.of_gain(0.95, 0.5), price=0.001))
    verdict, _ = run_race(known, exact(LATE), rows)
    assert verdict.why.startswith("The next step takes about") and f", it would be: {step}" in verdict.why
    assert verdict.untried == untried


def test_the_race_ends_when_more_runs_gain_less_than_they_cost() -> None:
    known, rows = with_rows()
    verdict, _ = run_race(known, exact(LATE), rows)
    assert verdict.why.startswith("More runs would hardly change the choice: they are expected to gain at most 0.")
    assert known.spent < known.budget


def test_every_k_whose_run_takes_seconds_is_tried() -> None:
    known, rows = with_rows()
    run_race(known, exact(RISING), rows)
    assert {trial.tune for trial in known.outcomes} >= {k for k, seconds in SECONDS.items() if seconds <= BRIEF}


def test_a_failing_full_is_tried_at_lower_learning_rates() -> None:
    known = board()
    verdict, _ = run_race(known, lambda t: None if t.tune == "all" else RISING[t.tune] + 0.1 * t.learning_rate)
    assert {trial.learning_rate for trial in known.outcomes if trial.tune == "all"} == set(RATES)
    assert verdict.no_reference and verdict.why.startswith("Every run of full fine-tuning failed")


def test_full_is_trained_at_two_learning_rates() -> None:
    def first_of_full(score: Any = None, **more: Any) -> list[float]:
        _, steps = run_race(board(**more), score or exact(RISING))
        return [t.learning_rate for t in next(s.trials for s in steps if s.trials[0].tune == "all")]

    assert first_of_full(budget=1e4) == [1e-4, 5e-5]
    assert first_of_full(budget=35.0) == [1e-4]
    assert first_of_full(budget=1e4, learning_rates=(3e-4,)) == [3e-4]
    assert first_of_full(lambda t: RISING[t.tune] + t.learning_rate * 100, budget=1e4) == [1e-4, 2e-4]
    assert first_of_full(lambda t: RISING[t.tune] - t.learning_rate * 500, budget=1e4) == [5e-5]


def test_full_is_not_tried_above_a_learning_rate_that_failed() -> None:
    known, rows = with_rows(budget=1e3)
    run_race(known, lambda t: None if (t.tune, t.learning_rate) == ("all", 1e-4) else RISING[t.tune], rows)
    assert {trial.learning_rate for trial in known.outcomes if trial.tune == "all"} == {1e-4, 5e-5}


def test_without_other_k_the_reference_compares_learning_rates() -> None:
    known = board(ks=(0,), reference=1, budget=1e3)
    _, steps = run_race(known, exact(RISING))
    first = next(step.trials for step in steps if step.trials[0].tune == 1)
    assert [trial.learning_rate for trial in first] == [1e-4, 2e-4] and best(known) == "last 1"


def test_the_same_outcomes_give_the_same_steps() -> None:
    rng = np.random.default_rng(0)
    noise: dict[Trial, float] = {}

    def score(trial: Trial) -> float:
        return RISING[trial.tune] + noise.setdefault(trial, rng.normal(0, 0.01))

    assert run_race(board(), score) == run_race(board(), score)


@given(st.integers(0, 10_000), st.floats(0, 0.03), st.floats(20, 300), st.integers(1, 3))
def test_every_race_ends_within_its_budget(seed: int, noise: float, budget: float, workers: int) -> None:
    rng = np.random.default_rng(seed)
    curve: dict[Tune, float] = dict(zip(SECONDS, np.sort(rng.uniform(0.5, 1, len(SECONDS))), strict=True))
    known = board(budget=budget, workers=workers)
    _, steps = run_race(known, lambda trial: None if rng.random() < 0.05 else curve[trial.tune] + rng.normal(0, noise))
    assert max(runs_per_k(steps).values()) <= 5 + 5 * (len(RATES) - 1)
    least = 2 * SECONDS[0] + SECONDS[2]  # trained whatever the budget
    assert known.spent <= max(budget, least) + 1e-6


def test_close_choices_get_more_runs_than_clear_ones() -> None:
    def runs(curve: dict[Tune, float]) -> int:
        known, rows = with_rows(budget=1e3, same_errors=False)
        luck = np.random.default_rng(0)
        run_race(known, lambda t: curve[t.tune] + luck.normal(0, 0.015), rows)
        return len(known.outcomes)

    near: dict[Tune, float] = {
        **dict.fromkeys(range(3), 0.7),
        **{k: 0.79 + 0.002 * k for k in range(3, 7)},
        "all": 0.803,
    }
    far: dict[Tune, float] = {**dict.fromkeys(range(7), 0.6), "all": 0.8}
    assert runs(near) > runs(far) + 2


def test_no_lower_learning_rate_if_higher_ones_hardly_differ() -> None:
    def tries_lower(slope: float) -> bool:
        _, steps = run_race(board(), lambda t: RISING[t.tune] - slope * RATES.index(t.learning_rate))
        return any(step.why.startswith("Try a lower learning rate for k = 2.") for step in steps)

    assert tries_lower(0.03) and not tries_lower(0.01)  # the scores are .24 and .25 above the baseline


@pytest.mark.parametrize(
    ("highest", "tried"),
    [(2e-4, [[1e-4, 2e-4]]), (1e-4, [[1e-4, 2e-4], [5e-5]]), (5e-5, [[1e-4, 2e-4], [5e-5], [2e-5]])],
)
def test_lower_learning_rates_are_tried_while_they_are_better(highest: float, tried: list[list[float]]) -> None:
    rates = (1e-5, 2e-5, *RATES)
    _, steps = run_race(
        board(learning_rates=rates),
        lambda t: RISING[t.tune] - abs(rates.index(t.learning_rate) - rates.index(highest)) / 25,
    )
    first = [step.trials for step in steps[1:] if step.trials[0].tune == 2][: len(tried)]
    assert [[trial.learning_rate for trial in trials] for trials in first] == tried


def test_idle_workers_train_the_next_candidates() -> None:
    _, steps = run_race(board(workers=2, budget=1e4), exact(LATE))
    after_full = steps[3:]
    assert all(len(step.trials) > 1 for step in after_full[:2])
    _, steps = run_race(board(budget=1e4), exact(LATE))
    assert min(len(step.trials) for step in steps[3:]) == 1  # a single worker is never idle


def test_the_race_begins_at_the_estimated_k() -> None:
    _, steps = run_race(board(start_k=4), exact(RISING))
    assert {trial.tune for trial in steps[1].trials} == {4}


def test_on_a_gpu_each_step_trains_full_stacks() -> None:
    known, rows = with_rows(stacked=4)
    _, steps = run_race(known, exact(RISING), rows)
    whole = [
        {k: sum(trial.tune == k for trial in step.trials) for k in {t.tune for t in step.trials}} for step in steps
    ]
    seeds = len(known.settings.seeds)
    assert all(count % 4 == 0 or count % seeds == 0 for counts in whole for count in counts.values())
    assert min(runs_per_k(steps).values()) == 4
    assert not any("one more seed" in step.why for step in steps)
