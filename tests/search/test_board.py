"""What is known of a race: scores, prices, budgets and learning rates."""

from typing import Any

import pytest

from frostline.model.tune import Tune
from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.search.board import Board
from frostline.search.course import FULLS, Outcome, Trial, looks, rungs, said
from frostline.statistics.choices import Choices
from synthetic_race import PRICE, RATES, RISING, Rows, board, carried_out, course, exact, trained


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


def test_what_failed_says_nothing_of_prices() -> None:
    known = board()
    known.outcomes |= {Trial(2, 1e-4, 0): Outcome(0.7, PRICE[2]), Trial("all", 1e-4, 0): Outcome(None, 0.0)}
    assert known.price("all") == pytest.approx(PRICE["all"]) and known.budget == pytest.approx(FULLS * PRICE["all"])


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


def test_what_goes_side_by_side_ends_when_the_longest_place_is_done() -> None:
    known = board(abreast=2)
    assert known.takes([Trial(k, 1e-4, 0) for k in ("all", 2, 1)]) == 0.0  # nothing is known of prices
    known.outcomes |= {Trial(k, 1e-4, 0): Outcome(RISING[k], price, abreast=2) for k, price in PRICE.items() if k}
    known.steps += [(Trial("all", 1e-4, 0), Trial(2, 1e-4, 0), Trial(1, 1e-4, 0)), (Trial(3, 1e-4, 0),)]
    assert known.spent == 14.5 + 6.5
    assert known.takes([Trial("all", 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert known.takes([Trial("all", 1e-4, 0)]) == 0.0 and known.budget == FULLS * 14.5 / 2


def test_said_in_words() -> None:
    assert [said(k) for k in (0, 1, 3, "all")] == ["the head alone", "the last layer", "the last 3 layers", "full"]
    assert said(2, begins=True) == "The last 2 layers"
