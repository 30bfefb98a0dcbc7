"""The order of a search: what it trains, what it names, what it spends; on made-up scores."""

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.tune import Tune
from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.search.race import FULLS, Board, Course, Outcome, Step, Trial, Verdict, looks, race, rungs, said
from frostline.statistics.choices import Choices
from frostline.statistics.goal import Goal
from frostline.statistics.predictions import Labelled, Predictions
from frostline.statistics.scores import Scores

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
            "head_rates": (1e-4,),
            "seeds": tuple(range(5)),
            "chance": 0.5,
            "best": 1.0,
        },
        **{
            "goal": Goal.of_gain(0.95, 0.5),
            "operations": {k: 1e9 * price for k, price in PRICE.items()},
            "budget": None,
        },
    }
    return Course(**{**given, **more})


def board(**more: Any) -> Board:
    """That knows scores alone."""
    return Board(course(**more), Scores("accuracy", 0.5))


class Rows:
    """Predictions of 800 rows that have the score asked for; which rows are wrong is drawn anew for each run, or is the
    same for all as far as their scores are."""

    def __init__(self, *, alike: bool, seeds: int = 5) -> None:
        self.targets = np.arange(800) % 2
        self.alike, self.logits = alike, {}
        labelled = Labelled(self.targets, "single_label_classification", ("0", "1"), "accuracy")
        self.evidence = Predictions(labelled, self.logits.__getitem__, looks(seeds))

    def outcome(self, trial: Trial, score: float | None) -> Outcome:
        if score is None:
            return Outcome(None, 0.0)
        draw = np.random.default_rng(0 if self.alike else zlib.crc32(str(trial).encode()))
        right = draw.permutation(800) < round(800 * score)
        self.logits[str(trial)] = np.eye(2)[np.where(right, self.targets, 1 - self.targets)]
        return Outcome(float(right.mean()), PRICE[trial.tune], str(trial))


def carried_out(board: Board, score: Any, rows: Rows | None = None) -> tuple[Verdict, list[Step]]:
    """The race on scores by trial, of these ``rows`` if there are any; None is a run that failed."""
    steps, taken = race(board), []
    try:
        step = next(steps)
        while True:
            taken.append(step)
            assert not set(step.trials) & set(board.outcomes)  # nothing is trained twice
            for trial in step.trials:
                known = Outcome(score(trial), PRICE[trial.tune]) if rows is None else rows.outcome(trial, score(trial))
                abreast = board.course.abreast if len(step.trials) > 1 and trial.tune else 1
                board.outcomes[trial] = replace(known, abreast=abreast)
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
    return lambda trial: curve[trial.tune] - (0.04 if trial.tune != 0 and trial.rate != 1e-4 else 0.0)


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


def test_what_decisions_rest_on() -> None:
    known = Board(course(), (rows := Rows(alike=True)).evidence)
    assert known.standing() == []
    for trial, score in [(Trial(2, 1e-4, 0), 0.7), (Trial("all", 1e-4, 0), 0.8), (Trial("all", 1e-4, 1), 0.82)]:
        known.outcomes[trial] = rows.outcome(trial, score)
    two, full = known.standing()
    assert (two["tune"], two["runs"], two["low"]) == (2, 1, None) and full["mean"] == pytest.approx(0.81)
    assert two["beyond"] == pytest.approx(0.7 - 0.5 - 0.95 * 0.3)  # of the seed that both have
    known.outcomes[trial] = rows.outcome(trial := Trial(2, 1e-4, 1), 0.72)
    two = known.standing()[0]
    assert two["low"] <= two["beyond"] <= two["high"] and (two["high"] < 0) == (known.surely(2) is False)


def test_a_run_that_is_in_no_mean_is_not_in_the_races_either() -> None:
    known = board()
    for seed, (score, outcome) in enumerate([(0.5, "degenerate"), (0.8, "ok"), (0.78, "ok")]):
        known.outcomes[Trial("all", 1e-4, seed)] = Outcome(score, 14.5, outcome=outcome)
    assert known.mean("all") == pytest.approx(0.79) and [run["seed"] for run in known.runs("all")] == [1, 2]
    known.outcomes |= {Trial(2, 1e-4, seed): Outcome(0.5, 4.0, outcome="degenerate") for seed in (0, 1)}
    assert known.mean(2) == 0.5  # the cell as a whole has not learned


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


def test_what_failed_says_nothing_of_prices() -> None:
    known = board()
    known.outcomes |= {Trial(2, 1e-4, 0): Outcome(0.7, PRICE[2]), Trial("all", 1e-4, 0): Outcome(None, 0.0)}
    assert known.price("all") == pytest.approx(PRICE["all"]) and known.budget == pytest.approx(FULLS * PRICE["all"])


def test_with_nothing_between_head_and_reference_the_reference_is_asked_for_its_rate() -> None:
    verdict, steps = carried_out(board(ks=(0,), reference=1), exact(RISING))
    first = next(step.trials for step in steps if step.trials[0].tune == 1)
    assert [trial.rate for trial in first] == [1e-4, 2e-4] and verdict.tune == 1
    verdict, _ = carried_out(board(ks=(0,), reference=1, budget=3.0), exact(RISING))
    assert verdict.tune == 1  # it is trained already, whatever is left of the budget


def test_a_seed_that_fell_by_less_than_rows_explain_counts() -> None:
    """Four standard errors of 800 rows are .07."""
    rows = Rows(alike=False)
    found = Board(course(), rows.evidence)
    for k, seed, score in ((1, 0, 0.5), (1, 1, 0.56), (1, 2, 0.45), ("all", 0, 0.56)):
        trial = Trial(k, 1e-4, seed)
        found.outcomes[trial] = rows.outcome(trial, score)
    assert found.scores(1, 1e-4) == {0: 0.5, 1: 0.56}


def test_a_rate_that_fails_is_not_chosen() -> None:
    verdict, _ = carried_out(
        board(budget=1000.0),
        lambda trial: None if trial.rate == 1e-4 and trial.tune != 0 else RISING[trial.tune],
    )
    assert verdict.tune == 3


def test_a_budget_stands_once_it_is_given_or_full_was_timed() -> None:
    known = board()
    assert not known.budget_stands and board(budget=1.0).budget_stands
    known.outcomes[Trial(2, 1e-4, 0)] = Outcome(0.7, 4.0)
    known.outcomes[Trial("all", 1e-4, 0)] = Outcome(None, 4.0)  # it failed
    assert not known.budget_stands
    known.outcomes[Trial("all", 1e-4, 1)] = Outcome(0.8, 14.5)
    assert known.budget_stands and known.budget == FULLS * 14.5


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


def test_runs_are_compared_by_seed_and_prices_follow_operations() -> None:
    rows = Rows(alike=True)
    known = Board(course(), rows.evidence)
    known.outcomes |= {(t := Trial(2, 1e-4, seed)): rows.outcome(t, 0.6 + 0.1 * seed) for seed in (0, 1, 2)}
    known.outcomes |= {(t := Trial("all", 1e-4, seed)): rows.outcome(t, 0.7 + 0.1 * seed) for seed in (1, 2)}
    both = known.pair(2)
    assert both is not None and both.runs == 2 and both.means == pytest.approx([0.75, 0.85])
    assert known.enough(2) is False and known.enough("all") and known.enough(1) is None
    assert known.mean(2) == pytest.approx(0.7)
    assert known.price("all") == PRICE["all"] and known.price(1) == pytest.approx(PRICE[1])


def test_looks_are_at_2_3_5_seeds_and_each_doubling_after_and_at_the_last() -> None:
    assert [rungs(n) for n in (1, 2, 4, 5, 12)] == [(), (2,), (2, 3, 4), (2, 3, 5), (2, 3, 5, 10, 12)]
    assert [looks(n) for n in (1, 2, 5)] == [1, 1, 3]


def test_what_is_clear_from_few_seeds_is_not_trained_with_more() -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.5), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(alike=True)
    verdict, steps = carried_out(Board(course(budget=1e4), rows.evidence), exact(clear), rows)
    assert verdict.tune == 3 and "surely" in verdict.why
    assert 2 <= trained(steps)[3] < 5 and 2 <= trained(steps)["all"] < 5  # one seed is never sure


def test_where_the_rows_are_what_is_in_doubt_it_ends_before_all_seeds() -> None:
    rows = Rows(alike=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    verdict, steps = carried_out(Board(course(budget=1e4), rows.evidence), lambda trial: near[trial.tune], rows)
    assert "validation rows" in verdict.why and trained(steps)["all"] < 5


def test_with_folds_it_goes_on_until_every_row_is_scored() -> None:
    rows = Rows(alike=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    _, steps = carried_out(Board(course(budget=1e4, folds=5), rows.evidence), lambda trial: near[trial.tune], rows)
    assert trained(steps)["all"] >= 5


@pytest.mark.parametrize("alike", [True, False])
def test_what_ended_it_agrees_with_the_answer(alike: bool) -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(alike=alike)
    known = Board(course(budget=1e4), rows.evidence)
    verdict, _ = carried_out(known, exact(clear), rows)
    names = {k: f"last {k}" if isinstance(k, int) else k for k in PRICE}
    runs = [
        {
            **{"model": "m", "task": "t", "metric": "accuracy", "train_size": 100, "status": "done", "outcome": "ok"},
            **{"trainable": names[trial.tune], "tuned_layers": 6 if trial.tune == "all" else trial.tune},
            **{"tune_embeddings": trial.tune == "all", "seed": trial.seed, "learning_rate": trial.rate},
            **{"run": outcome.run, "validation_best": outcome.score, "reason": ""},
        }
        for trial, outcome in known.outcomes.items()
    ]
    assert verdict.tune == 3
    answer = make_answer(
        runs,
        rows.evidence.split,
        rows.logits.__getitem__,
        Choices(),
        layers=6,
        search=SearchOutcome(chosen=names[3], interim_analyses=looks(5)),
    )
    assert ("surely" in verdict.why) == alike == ("and with 95 % confidence nothing smaller does" in answer["sentence"])


def test_seeds_that_differ_ask_for_more_of_them() -> None:
    def score(trial: Trial) -> float:
        return RISING[trial.tune] + 0.04 * ((trial.seed * 7 + 3 * int(trial.tune == "all")) % 5 - 2)

    rows = Rows(alike=True)
    _, steps = carried_out(Board(course(budget=1e4), rows.evidence), score, rows)
    assert trained(steps)["all"] >= 5


def test_other_rates_of_full_are_asked_after_the_climb_as_long_as_they_may_help() -> None:
    def score(trial: Trial) -> float:
        of_rate = 0.05 * RATES.index(trial.rate)
        return RISING[trial.tune] + (-of_rate if trial.tune == "all" else of_rate if trial.tune == 2 else 0.0)

    _, steps = carried_out(board(budget=1e4), score)
    rates = [trial.rate for step in steps for trial in step.trials if trial.tune == "all"]
    assert rates[:6:2] == rates[1:6:2] == [1e-4, 2e-4, 5e-5]  # two seeds each


def test_full_begins_with_two_seeds_at_the_middle_rate_or_at_a_lower_one_if_that_is_what_a_shallow_k_wants() -> None:
    def first_of_full(score: Any = None, **more: Any) -> list[tuple[float, int]]:
        _, steps = carried_out(board(**more), score or exact(RISING))
        trials = next(step.trials for step in steps if {t.tune for t in step.trials} == {"all"})
        return [(trial.rate, trial.seed) for trial in trials]

    assert first_of_full(budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(budget=35.0) == [(1e-4, 0)]
    assert first_of_full(budget=1e4, rates=(3e-4,)) == [(3e-4, 0), (3e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] + t.rate * 100, budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] - t.rate * 500, budget=1e4) == [(5e-5, 0), (5e-5, 1)]


@pytest.mark.parametrize(
    ("best", "asked"), [(2e-4, [[1e-4, 2e-4]]), (1e-4, [[1e-4, 2e-4], [5e-5]]), (5e-5, [[1e-4, 2e-4], [5e-5], [2e-5]])]
)
def test_rates_are_asked_from_the_highest_down_as_long_as_a_lower_one_is_better(
    best: float, asked: list[list[float]]
) -> None:
    rates = (1e-5, 2e-5, *RATES)
    _, steps = carried_out(
        board(rates=rates), lambda t: RISING[t.tune] - abs(rates.index(t.rate) - rates.index(best)) / 25
    )
    first = [step.trials for step in steps[1:] if step.trials[0].tune == 2][: len(asked)]
    assert [[trial.rate for trial in trials] for trials in first] == asked
    assert next(step for step in steps if step.trials[0].tune == "all").trials[0].rate == min(best, 5e-5)  # the middle


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


def test_what_goes_side_by_side_ends_when_the_longest_place_is_done() -> None:
    known = board(abreast=2)
    assert known.takes([Trial(k, 1e-4, 0) for k in ("all", 2, 1)]) == 0.0  # nothing is known of prices
    known.outcomes |= {Trial(k, 1e-4, 0): Outcome(RISING[k], price, abreast=2) for k, price in PRICE.items() if k}
    known.steps += [(Trial("all", 1e-4, 0), Trial(2, 1e-4, 0), Trial(1, 1e-4, 0)), (Trial(3, 1e-4, 0),)]
    assert known.spent == 14.5 + 6.5
    assert known.takes([Trial("all", 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert known.takes([Trial("all", 1e-4, 0)]) == 0.0 and known.budget == FULLS * 14.5 / 2


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


def test_said_in_words() -> None:
    assert [said(k) for k in (0, 1, 3, "all")] == ["the head alone", "the last layer", "the last 3 layers", "full"]
    assert said(2, begins=True) == "The last 2 layers"
