"""The race on synthetic scores: its steps, its verdict and its budget."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frostline.search.defaults import DEFAULT_BUDGET
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Trial
from frostline.statistics.goal import Goal
from frostline.statistics.tune import Tune
from synthetic_race import LAYERS, RATES, RISING, SECONDS, Rows, board, exact, run_race, runs_per_k, settings


def test_the_race_finds_the_smallest_k_that_reaches_the_goal_and_trains_nothing_deeper() -> None:
    verdict, steps = run_race(board(), exact(RISING))
    assert verdict.tune == 3
    counts = runs_per_k(steps)
    assert not counts.keys() & {4, 5, 6}
    assert sum(SECONDS[k] * n for k, n in counts.items()) <= DEFAULT_BUDGET * SECONDS["all"]


def test_a_perfect_k_0_ends_the_race() -> None:
    verdict, steps = run_race(board(), exact({**RISING, 0: 0.999}))
    assert verdict.tune == 0 and runs_per_k(steps) == {0: 2}


def test_a_perfect_probe_ends_the_race_after_k_0() -> None:
    verdict, steps = run_race(board(probe_score=0.98), exact(RISING))
    assert verdict.by_probe and verdict.tune is None and runs_per_k(steps) == {0: 2}
    verdict, _ = run_race(board(probe_score=0.97), exact(RISING))  # a k must score .975 if full makes no mistake
    assert not verdict.by_probe and verdict.tune == 3


def test_k_0_as_good_as_a_perfect_probe_gets_more_seeds() -> None:
    rows = Rows(same_errors=True)
    known = Scoreboard(settings(budget=1e4, probe_score=0.98), rows.evidence)
    verdict, steps = run_race(known, lambda trial: 0.99 + 0.008 * (trial.seed % 2), rows)
    assert runs_per_k(steps) == {0: 5} and verdict.tune == 0 and not verdict.by_probe


def test_one_run_above_the_baseline_is_enough_to_have_learned() -> None:
    known = Scoreboard(settings(), (rows := Rows(same_errors=False)).evidence)
    for seed, score in enumerate((0.5, 0.54, 0.5, 0.5)):
        known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, seed), score)
    assert not known.above_baseline("all")  # a standard error of .018, corrected for four runs
    known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, 4), 0.62)
    assert known.above_baseline("all") and not known.above_baseline(3)


def test_k_0_is_trained_at_all_its_learning_rates() -> None:
    rows = Rows(same_errors=True)
    near: dict[Tune, float] = {**RISING, 0: 0.787, 1: 0.787, 2: 0.79}
    known = Scoreboard(settings(budget=1e4, head_learning_rates=(1e-3, 1e-2)), rows.evidence)

    def score(trial: Trial) -> float:
        of_seed = 0.02 * ((trial.seed * 7 + 3 * int(trial.tune == "all")) % 5 - 2)
        return near[trial.tune] + of_seed - 0.1 * (trial.learning_rate == 1e-3)

    _, steps = run_race(known, score, rows)
    head_only = [[trial for trial in step.trials if trial.tune == 0] for step in steps]
    assert len(head_only[0]) == 4 and known.best_learning_rate(0) == 1e-2
    assert sum(map(len, head_only)) > 4 and all(
        {trial.learning_rate for trial in some} in (set(), {1e-3, 1e-2}) for some in head_only
    )


def test_nothing_learned_is_reported_after_every_learning_rate_of_full() -> None:
    verdict, steps = run_race(board(budget=1000.0), lambda trial: 0.5)
    assert verdict.tune is None and "No run scores above the baseline" in verdict.why
    assert {trial.learning_rate for step in steps for trial in step.trials if trial.tune == "all"} == set(RATES)


def test_tries_to_learn_end_with_the_first_success() -> None:
    def score(trial: Trial) -> float:
        return 0.8 if (trial.tune, trial.learning_rate) == ("all", 2e-4) else 0.5

    verdict, steps = run_race(board(budget=1000.0), score)
    assert verdict.tune == "all" and [step.why.startswith("No run is above") for step in steps].count(True) == 1


def test_a_failed_k_0_is_not_tried_at_other_learning_rates() -> None:
    known = board(budget=1e4, head_learning_rates=(1e-3, 1e-2))
    verdict, _ = run_race(known, lambda trial: None if trial.tune == 0 else exact(RISING)(trial))
    assert {trial.learning_rate for trial in known.outcomes if trial.tune == 0} == {1e-3, 1e-2}
    assert verdict.tune == 3 and verdict.why.endswith(", except k = 0, of which every run failed.")


def test_with_one_seed_the_race_ends_when_it_is_trained() -> None:
    rows = Rows(same_errors=False, seeds=1)
    verdict, _ = run_race(Scoreboard(settings(budget=1e4, seeds=(0,)), rows.evidence), exact(RISING), rows)
    assert verdict.why == "The only seed of every uncertain k is trained."


def test_untried_learning_rates_are_named_if_nothing_is_learned() -> None:
    verdict, steps = run_race(board(), lambda trial: 0.5)
    assert verdict.nothing_learned and verdict.why.endswith(
        "The budget did not allow full fine-tuning at a learning rate of 5e-05."
    )
    of_full = [trial for step in steps for trial in step.trials if trial.tune == "all"]
    assert [(trial.learning_rate, trial.seed) for trial in of_full] == [
        (1e-4, 0),
        (1e-4, 1),
        (2e-4, 0),
    ]  # a single seed at 2e-4, because the budget does not allow two


def test_a_failed_k_is_tried_at_lower_learning_rates() -> None:
    def score(trial: Trial) -> float | None:
        return (
            None
            if trial.tune == 1 and trial.learning_rate > 5e-5
            else clear[trial.tune] - 0.005 * (trial.learning_rate != 1e-4)
        )

    clear: dict[Tune, float] = {**dict.fromkeys(range(1, 7), 0.9), 0: 0.55, "all": 0.9}
    rows = Rows(same_errors=True)
    verdict, steps = run_race(Scoreboard(settings(budget=1e4), rows.evidence), score, rows)
    assert verdict.tune == 1 and any(step.why.startswith("k = 1 failed: try a lower") for step in steps)
    rows = Rows(same_errors=True)
    never = Scoreboard(settings(budget=1e4), rows.evidence)
    verdict, _ = run_race(never, lambda trial: None if trial.tune == 1 else clear[trial.tune], rows)
    assert verdict.tune == 2 and verdict.why.endswith(
        "misses it, with 95 % confidence, except k = 1, of which every run failed."
    )


def test_full_is_recommended_if_only_it_reaches_the_goal() -> None:
    steep: dict[Tune, float] = {**{k: 0.5 + 0.02 * k for k in range(LAYERS + 1)}, "all": 0.8}
    verdict, steps = run_race(board(budget=1000.0), exact(steep))
    assert verdict.tune == "all" and runs_per_k(steps).keys() == set(SECONDS)


def test_a_small_budget_ends_the_race_with_the_best_so_far() -> None:
    verdict, steps = run_race(board(budget=30.0), exact(RISING))
    assert "budget" in verdict.why and verdict.tune == "all" and 3 not in runs_per_k(steps)
    assert verdict.why.endswith("next step. It did not allow k = 3 to k = 6.")
    verdict, _ = run_race(board(budget=40.0), exact(RISING))
    assert verdict.tune == 3


def test_a_budget_too_small_for_full_ends_the_race() -> None:
    verdict, steps = run_race(board(budget=20.0), exact(RISING))
    assert verdict.tune is None and runs_per_k(steps).keys() == {0, 2}
    assert (
        verdict.why.startswith("One run of full fine-tuning takes about 14 s, but only 7.6 s of the budget are left")
        and verdict.no_reference
    )


def test_a_failing_full_is_tried_at_lower_learning_rates() -> None:
    def score(trial: Trial) -> float | None:
        return None if trial.tune == "all" else RISING[trial.tune] + 0.1 * trial.learning_rate

    known = board()
    verdict, _ = run_race(known, score)
    assert {trial.learning_rate for trial in known.outcomes if trial.tune == "all"} == {
        1e-4,
        5e-5,
    }  # not a higher one
    assert verdict.tune is None and verdict.why.startswith("Every run of full fine-tuning failed")
    verdict, _ = run_race(
        board(budget=1e3), lambda trial: score(trial) if trial.learning_rate == 1e-4 else RISING[trial.tune]
    )
    assert verdict.tune == 3


def test_without_other_k_the_reference_compares_learning_rates() -> None:
    verdict, steps = run_race(board(ks=(0,), reference=1), exact(RISING))
    first = next(step.trials for step in steps if step.trials[0].tune == 1)
    assert [trial.learning_rate for trial in first] == [1e-4, 2e-4] and verdict.tune == 1
    verdict, _ = run_race(board(ks=(0,), reference=1, budget=3.0), exact(RISING))
    assert verdict.tune == 1  # it was trained before the budget ran out


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
    verdict, steps = run_race(
        known, lambda trial: None if rng.random() < 0.05 else curve[trial.tune] + rng.normal(0, noise)
    )
    assert verdict.tune is None or verdict.tune in SECONDS
    assert max(runs_per_k(steps).values()) <= 5 + 2 * (len(RATES) - 1)
    least = 2 * SECONDS[0] + 2 * SECONDS[2]  # trained whatever the budget
    assert known.spent <= max(budget, least) + 1e-6


def test_clear_results_need_few_seeds() -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.5), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(same_errors=True)
    verdict, steps = run_race(Scoreboard(settings(budget=1e4), rows.evidence), exact(clear), rows)
    assert verdict.tune == 3 and "with 95 % confidence" in verdict.why
    assert 2 <= runs_per_k(steps)[3] < 5 and 2 <= runs_per_k(steps)["all"] < 5  # one seed is never certain


def test_noisy_seeds_need_more_seeds() -> None:
    def score(trial: Trial) -> float:
        return RISING[trial.tune] + 0.04 * ((trial.seed * 7 + 3 * int(trial.tune == "all")) % 5 - 2)

    rows = Rows(same_errors=True)
    _, steps = run_race(Scoreboard(settings(budget=1e4), rows.evidence), score, rows)
    assert runs_per_k(steps)["all"] >= 5


def test_no_lower_learning_rate_if_higher_ones_hardly_differ() -> None:
    def tries_lower(slope: float) -> bool:
        _, steps = run_race(board(), lambda t: RISING[t.tune] - slope * RATES.index(t.learning_rate))
        return any(step.why.startswith("Try a lower learning rate for k = 2.") for step in steps)

    assert tries_lower(0.03) and not tries_lower(0.01)  # the scores are .24 and .25 above the baseline


def test_two_k_are_climbed_at_once_below_one_that_misses_the_goal() -> None:
    def climbed(curve: dict[Tune, float], **more: Any) -> list[list[Tune]]:
        _, steps = run_race(board(**more), exact(curve))
        return [[trial.tune for trial in step.trials] for step in steps if "Next larger k" in step.why]

    slow: dict[Tune, float] = {**RISING, 3: 0.77, 4: 0.78}
    assert climbed(slow, budget=1e4) == [[1, 3], [4], [5]]  # k = 2 misses the goal, so k = 1 probably misses it too
    assert climbed({**RISING, 1: 0.75, 2: 0.80}, budget=1e4) == [[1]]
    assert climbed(slow, budget=2 * SECONDS["all"] + 3 * SECONDS[2] + SECONDS[1] + SECONDS[3]) == [[1]]


def test_a_second_seed_comes_before_another_learning_rate_of_full() -> None:
    def seeds_and_rates(budget: float) -> tuple[int, set[float]]:
        known = board(budget=budget)
        verdict, steps = run_race(known, exact(RISING))
        assert verdict.tune == 3 and known.spent <= budget
        assert any("second seed" in step.why for step in steps) == (budget == 80.0)
        return len(known.runs(3)), {trial.learning_rate for trial in known.outcomes if trial.tune == "all"}

    assert seeds_and_rates(80.0) == (2, {1e-4})
    assert seeds_and_rates(1e3) == (2, {1e-4, 5e-5})


def test_idle_workers_train_the_next_trials() -> None:
    slow: dict[Tune, float] = {**RISING, 3: 0.77, 4: 0.78}
    _, steps = run_race(board(workers=2, budget=1e4, start_k=3), lambda t: slow[t.tune] - 500 * t.learning_rate)
    lower = next(step for step in steps if step.why.startswith("Try a lower learning rate"))
    assert [trial.tune for trial in lower.trials] == [3, 1, 2] and lower.why.endswith(
        "k = 3. Idle workers train k = 1 and k = 2."
    )
    _, steps = run_race(board(budget=1e4, start_k=3), lambda t: slow[t.tune] - 500 * t.learning_rate)
    assert not any("Idle workers" in step.why for step in steps)  # a single worker is never idle


def test_k_are_paired_with_the_first_seed_that_full_has() -> None:
    rows = Rows(same_errors=True)
    known = Scoreboard(settings(budget=150.0), rows.evidence)
    verdict, _ = run_race(known, lambda t: None if (t.tune, t.seed) == ("all", 0) else exact(RISING)(t), rows)
    assert verdict.tune == 3 and {trial.seed for trial in known.outcomes if trial.tune == 1} >= {1}
    assert 4 not in {trial.tune for trial in known.outcomes}


def test_max_k_keeps_the_learning_rate_that_was_selected_for_it() -> None:
    rates = (1e-5, 2e-5, *RATES)
    for known in (board(ks=(0,), reference=1), board(ks=(0,), reference=1, learning_rates=rates, budget=6.0)):
        verdict, _ = run_race(known, lambda t: RISING[t.tune] + 100 * t.learning_rate)
        assert verdict.tune == 1 and not verdict.no_reference
        assert {t.learning_rate for t in known.outcomes if t.tune == 1} == {1e-4, 2e-4}


def test_full_is_not_tried_above_a_learning_rate_that_failed() -> None:
    known = board(budget=1e3)
    run_race(
        known, lambda t: None if (t.tune, t.learning_rate) == ("all", 1e-4) else RISING[t.tune] + 100 * t.learning_rate
    )
    assert {trial.learning_rate for trial in known.outcomes if trial.tune == "all"} == {1e-4, 5e-5}


def test_the_goal_can_be_a_margin() -> None:
    verdict, _ = run_race(board(goal=Goal.within(0.045), budget=1e4), exact(RISING))
    assert verdict.tune == 2
    verdict, _ = run_race(board(goal=Goal.within(0.001), budget=1e4), exact(RISING))
    assert verdict.tune == 4


def test_the_race_begins_at_the_estimated_k() -> None:
    _, steps = run_race(board(start_k=4), exact(RISING))
    assert {trial.tune for trial in steps[1].trials} == {4}
