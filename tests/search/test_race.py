"""The order of a search: what it trains, what it names, what it spends; on made-up scores."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.tune import Tune
from frostline.search.board import Board
from frostline.search.course import FULLS, Trial
from frostline.statistics.goal import Goal
from synthetic_race import LAYERS, PRICE, RATES, RISING, Rows, board, carried_out, course, exact, trained


def test_the_smallest_k_that_meets_the_target_is_named_and_nothing_deeper_is_trained() -> None:
    verdict, steps = carried_out(board(), exact(RISING))
    assert verdict.tune == 3
    counts = trained(steps)
    assert not counts.keys() & {4, 5, 6}
    assert sum(PRICE[k] * n for k, n in counts.items()) <= FULLS * PRICE["all"]


def test_a_head_alone_that_cannot_be_beaten_ends_it_at_once() -> None:
    verdict, steps = carried_out(board(), exact({**RISING, 0: 0.999}))
    assert verdict.tune == 0 and trained(steps) == {0: 2}


def test_a_probe_that_cannot_be_beaten_ends_it_after_the_head_alone() -> None:
    verdict, steps = carried_out(board(frozen=0.98), exact(RISING))
    assert verdict.by_probe and verdict.tune is None and trained(steps) == {0: 2}
    verdict, _ = carried_out(board(frozen=0.97), exact(RISING))  # enough is .975 where full has no mistake
    assert not verdict.by_probe and verdict.tune == 3


def test_a_head_that_is_as_good_as_the_probe_is_trained_more_before_the_probe_ends_it() -> None:
    rows = Rows(alike=True)
    known = Board(course(budget=1e4, frozen=0.98), rows.evidence)
    verdict, steps = carried_out(known, lambda trial: 0.99 + 0.008 * (trial.seed % 2), rows)
    assert trained(steps) == {0: 5} and verdict.tune == 0 and not verdict.by_probe


def test_one_run_that_its_rows_show_to_be_above_guessing_has_learned_whatever_others_reach() -> None:
    known = Board(course(), (rows := Rows(alike=False)).evidence)
    for seed, score in enumerate((0.5, 0.54, 0.5, 0.5)):
        known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, seed), score)
    assert not known.learned("all")  # 800 rows: a standard error of .018, and it was looked four times
    known.outcomes[trial] = rows.outcome(trial := Trial("all", 1e-4, 4), 0.62)
    assert known.learned("all") and not known.learned(3)


def test_the_head_alone_is_trained_at_all_rates_of_a_head_whenever_it_is() -> None:
    rows = Rows(alike=True)
    near: dict[Tune, float] = {**RISING, 0: 0.787, 1: 0.787, 2: 0.79}
    known = Board(course(budget=1e4, head_rates=(1e-3, 1e-2)), rows.evidence)

    def score(trial: Trial) -> float:
        by_seed = 0.02 * ((trial.seed * 7 + 3 * int(trial.tune == "all")) % 5 - 2)
        return near[trial.tune] + by_seed - 0.1 * (trial.rate == 1e-3)

    _, steps = carried_out(known, score, rows)
    alone = [[trial for trial in step.trials if trial.tune == 0] for step in steps]
    assert len(alone[0]) == 4 and known.rate(0) == 1e-2
    assert sum(map(len, alone)) > 4 and all({trial.rate for trial in some} in (set(), {1e-3, 1e-2}) for some in alone)


def test_where_nothing_is_learned_it_says_so_after_every_rate_of_full() -> None:
    verdict, steps = carried_out(board(budget=1000.0), lambda trial: 0.5)
    assert verdict.tune is None and "above guessing" in verdict.why
    assert {trial.rate for step in steps for trial in step.trials if trial.tune == "all"} == set(RATES)


def test_no_other_rate_of_full_is_tried_for_want_of_learning_once_one_has_learned() -> None:
    def score(trial: Trial) -> float:
        return 0.8 if (trial.tune, trial.rate) == ("all", 2e-4) else 0.5

    verdict, steps = carried_out(board(budget=1000.0), score)
    assert verdict.tune == "all" and [step.why.startswith("Nothing is surely") for step in steps].count(True) == 1


def test_a_head_alone_that_failed_at_all_its_rates_is_not_tried_at_those_of_layers() -> None:
    known = board(budget=1e4, head_rates=(1e-3, 1e-2))
    verdict, _ = carried_out(known, lambda trial: None if trial.tune == 0 else exact(RISING)(trial))
    assert {trial.rate for trial in known.outcomes if trial.tune == 0} == {1e-3, 1e-2}
    assert verdict.tune == 3 and verdict.why.endswith("but for the head alone, of which every run failed.")


def test_with_one_seed_it_ends_when_that_is_trained() -> None:
    rows = Rows(alike=False, seeds=1)
    verdict, _ = carried_out(Board(course(budget=1e4, seeds=(0,)), rows.evidence), exact(RISING), rows)
    assert verdict.why == "The one seed of what is not sure is trained."


def test_rates_that_the_budget_leaves_out_are_said_where_nothing_is_learned() -> None:
    verdict, steps = carried_out(board(), lambda trial: 0.5)
    assert verdict.unlearned and verdict.why.endswith("above guessing. Full at 5e-05 could not be tried.")
    of_full = [trial for step in steps for trial in step.trials if trial.tune == "all"]
    assert [(trial.rate, trial.seed) for trial in of_full] == [(1e-4, 0), (1e-4, 1), (2e-4, 0)]  # one seed, if no more


def test_a_k_that_failed_is_tried_at_lower_rates_and_is_not_taken_for_too_little() -> None:
    def score(trial: Trial) -> float | None:
        return None if trial.tune == 1 and trial.rate > 5e-5 else clear[trial.tune] - 0.005 * (trial.rate != 1e-4)

    clear: dict[Tune, float] = {**dict.fromkeys(range(1, 7), 0.9), 0: 0.55, "all": 0.9}
    rows = Rows(alike=True)
    verdict, steps = carried_out(Board(course(budget=1e4), rows.evidence), score, rows)
    assert verdict.tune == 1 and any(step.why.startswith("The last layer failed: does it with") for step in steps)
    rows = Rows(alike=True)
    never = Board(course(budget=1e4), rows.evidence)
    verdict, _ = carried_out(never, lambda trial: None if trial.tune == 1 else clear[trial.tune], rows)
    assert verdict.tune == 2 and verdict.why.endswith(
        "what is smaller surely not, but for the last layer, of which every run failed."
    )


def test_only_full_is_enough() -> None:
    steep: dict[Tune, float] = {**{k: 0.5 + 0.02 * k for k in range(LAYERS + 1)}, "all": 0.8}
    verdict, steps = carried_out(board(budget=1000.0), exact(steep))
    assert verdict.tune == "all" and trained(steps).keys() == set(PRICE)


def test_a_small_budget_stops_it_with_the_best_so_far() -> None:
    verdict, steps = carried_out(board(budget=30.0), exact(RISING))
    assert "budget" in verdict.why and verdict.tune == "all" and 3 not in trained(steps)
    assert verdict.why.endswith("next step. The last 3 layers to the last 6 layers could not be tried.")
    verdict, _ = carried_out(board(budget=40.0), exact(RISING))
    assert verdict.tune == 3


def test_a_budget_that_full_alone_would_break_ends_it_before() -> None:
    verdict, steps = carried_out(board(budget=20.0), exact(RISING))
    assert verdict.tune is None and trained(steps).keys() == {0, 2}
    assert (
        verdict.why.startswith("One training of full takes about 14 s, and 7.6 s of the budget are left")
        and verdict.alone
    )


def test_where_full_fails_lower_rates_are_tried_and_then_it_says_so() -> None:
    def score(trial: Trial) -> float | None:
        return None if trial.tune == "all" else RISING[trial.tune] + 0.1 * trial.rate

    known = board()
    verdict, _ = carried_out(known, score)
    assert {trial.rate for trial in known.outcomes if trial.tune == "all"} == {1e-4, 5e-5}  # none that is higher
    assert verdict.tune is None and verdict.why.startswith("Full failed at every rate that was tried")
    verdict, _ = carried_out(
        board(budget=1e3), lambda trial: score(trial) if trial.rate == 1e-4 else RISING[trial.tune]
    )
    assert verdict.tune == 3


def test_with_nothing_between_head_and_reference_the_reference_is_asked_for_its_rate() -> None:
    verdict, steps = carried_out(board(ks=(0,), reference=1), exact(RISING))
    first = next(step.trials for step in steps if step.trials[0].tune == 1)
    assert [trial.rate for trial in first] == [1e-4, 2e-4] and verdict.tune == 1
    verdict, _ = carried_out(board(ks=(0,), reference=1, budget=3.0), exact(RISING))
    assert verdict.tune == 1  # it is trained already, whatever is left of the budget


def test_the_same_outcomes_give_the_same_steps() -> None:
    rng = np.random.default_rng(0)
    noise: dict[Trial, float] = {}

    def score(trial: Trial) -> float:
        return RISING[trial.tune] + noise.setdefault(trial, rng.normal(0, 0.01))

    assert carried_out(board(), score) == carried_out(board(), score)


@given(st.integers(0, 10_000), st.floats(0, 0.03), st.floats(20, 300), st.integers(1, 3))
def test_whatever_the_scores_it_ends_within_its_means(seed: int, noise: float, budget: float, abreast: int) -> None:
    rng = np.random.default_rng(seed)
    curve: dict[Tune, float] = dict(zip(PRICE, np.sort(rng.uniform(0.5, 1, len(PRICE))), strict=True))
    known = board(budget=budget, abreast=abreast)
    verdict, steps = carried_out(
        known, lambda trial: None if rng.random() < 0.05 else curve[trial.tune] + rng.normal(0, noise)
    )
    assert verdict.tune is None or verdict.tune in PRICE
    assert max(trained(steps).values()) <= 5 + 2 * (len(RATES) - 1)
    least = 2 * PRICE[0] + 2 * PRICE[2]  # before it looks at the budget
    assert known.spent <= max(budget, least) + 1e-6


def test_what_is_clear_from_few_seeds_is_not_trained_with_more() -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.5), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(alike=True)
    verdict, steps = carried_out(Board(course(budget=1e4), rows.evidence), exact(clear), rows)
    assert verdict.tune == 3 and "surely" in verdict.why
    assert 2 <= trained(steps)[3] < 5 and 2 <= trained(steps)["all"] < 5  # one seed is never sure


def test_seeds_that_differ_ask_for_more_of_them() -> None:
    def score(trial: Trial) -> float:
        return RISING[trial.tune] + 0.04 * ((trial.seed * 7 + 3 * int(trial.tune == "all")) % 5 - 2)

    rows = Rows(alike=True)
    _, steps = carried_out(Board(course(budget=1e4), rows.evidence), score, rows)
    assert trained(steps)["all"] >= 5


def test_a_lower_rate_is_not_asked_where_the_higher_ones_hardly_differ() -> None:
    def asked(slope: float) -> bool:
        _, steps = carried_out(board(), lambda t: RISING[t.tune] - slope * RATES.index(t.rate))
        return any(step.why.startswith("Does a lower rate do the last 2 layers good?") for step in steps)

    assert asked(0.03) and not asked(0.01)  # of .24 and .25 over guessing


def test_below_a_k_that_is_too_little_two_are_climbed_at_a_time() -> None:
    def climbed(curve: dict[Tune, float], **more: Any) -> list[list[Tune]]:
        _, steps = carried_out(board(**more), exact(curve))
        return [[trial.tune for trial in step.trials] for step in steps if "Climbing" in step.why]

    slow: dict[Tune, float] = {**RISING, 3: 0.77, 4: 0.78}
    assert climbed(slow, budget=1e4) == [[1, 3], [4], [5]]  # k = 2 is not enough, so 1 hardly is
    assert climbed({**RISING, 1: 0.75, 2: 0.80}, budget=1e4) == [[1]]
    assert climbed(slow, budget=2 * PRICE["all"] + 3 * PRICE[2] + PRICE[1] + PRICE[3]) == [[1]]


def test_a_second_seed_of_what_is_named_comes_before_another_rate_of_full() -> None:
    def seeds_and_rates(budget: float) -> tuple[int, set[float]]:
        known = board(budget=budget)
        verdict, steps = carried_out(known, exact(RISING))
        assert verdict.tune == 3 and known.spent <= budget
        assert any("second seed" in step.why for step in steps) == (budget == 80.0)
        return len(known.runs(3)), {trial.rate for trial in known.outcomes if trial.tune == "all"}

    assert seeds_and_rates(80.0) == (2, {1e-4})
    assert seeds_and_rates(1e3) == (2, {1e-4, 5e-5})


def test_no_core_rests_while_there_is_something_that_may_be_wanted() -> None:
    slow: dict[Tune, float] = {**RISING, 3: 0.77, 4: 0.78}
    _, steps = carried_out(board(abreast=2, budget=1e4, first=3), lambda t: slow[t.tune] - 500 * t.rate)
    asked = next(step for step in steps if step.why.startswith("Does a lower rate"))
    assert [trial.tune for trial in asked.trials] == [3, 1, 2] and asked.why.endswith(
        "good? No core rests meanwhile: the last layer and the last 2 layers."
    )
    _, steps = carried_out(board(budget=1e4, first=3), lambda t: slow[t.tune] - 500 * t.rate)
    assert not any("meanwhile" in step.why for step in steps)  # one after the other nothing is free


def test_where_full_fails_with_its_first_seed_others_are_paired_with_the_next() -> None:
    rows = Rows(alike=True)
    known = Board(course(budget=150.0), rows.evidence)
    verdict, _ = carried_out(known, lambda t: None if (t.tune, t.seed) == ("all", 0) else exact(RISING)(t), rows)
    assert verdict.tune == 3 and {trial.seed for trial in known.outcomes if trial.tune == 1} >= {1}
    assert 4 not in {trial.tune for trial in known.outcomes}


def test_the_deepest_that_is_allowed_keeps_the_rate_that_it_was_asked_for() -> None:
    rates = (1e-5, 2e-5, *RATES)
    for known in (board(ks=(0,), reference=1), board(ks=(0,), reference=1, rates=rates, budget=6.0)):
        verdict, _ = carried_out(known, lambda t: RISING[t.tune] + 100 * t.rate)
        assert verdict.tune == 1 and not verdict.alone
        assert {t.rate for t in known.outcomes if t.tune == 1} == {1e-4, 2e-4}


def test_full_is_not_tried_above_a_rate_at_which_it_failed() -> None:
    known = board(budget=1e3)
    carried_out(known, lambda t: None if (t.tune, t.rate) == ("all", 1e-4) else RISING[t.tune] + 100 * t.rate)
    assert {trial.rate for trial in known.outcomes if trial.tune == "all"} == {1e-4, 5e-5}


def test_a_margin_is_a_goal_too() -> None:
    verdict, _ = carried_out(board(goal=Goal.within(0.045), budget=1e4), exact(RISING))
    assert verdict.tune == 2
    verdict, _ = carried_out(board(goal=Goal.within(0.001), budget=1e4), exact(RISING))
    assert verdict.tune == 4


def test_where_it_begins_is_what_a_guess_says() -> None:
    _, steps = carried_out(board(first=4), exact(RISING))
    assert {trial.tune for trial in steps[1].trials} == {4}
