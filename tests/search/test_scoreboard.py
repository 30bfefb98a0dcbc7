"""The scoreboard of a race: scores, times, budget and learning rates."""

from typing import Any

import pytest

from frostline.model.tune import Tune
from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import DEFAULT_BUDGET, Outcome, Trial, interim_analyses, interim_seeds, name_of
from frostline.statistics.choices import Choices
from synthetic_race import PRICE, RATES, RISING, Rows, board, carried_out, exact, settings, trained


def test_standing_has_means_distances_and_intervals() -> None:
    known = Scoreboard(settings(), (rows := Rows(alike=True)).evidence)
    assert known.standing() == []
    for trial, score in [(Trial(2, 1e-4, 0), 0.7), (Trial("all", 1e-4, 0), 0.8), (Trial("all", 1e-4, 1), 0.82)]:
        known.outcomes[trial] = rows.outcome(trial, score)
    two, full = known.standing()
    assert (two["tune"], two["runs"], two["low"]) == (2, 1, None) and full["mean"] == pytest.approx(0.81)
    assert two["beyond"] == pytest.approx(0.7 - 0.5 - 0.95 * 0.3)  # of the seed that both have
    known.outcomes[trial] = rows.outcome(trial := Trial(2, 1e-4, 1), 0.72)
    two = known.standing()[0]
    assert two["low"] <= two["beyond"] <= two["high"] and (two["high"] < 0) == (known.certain(2) is False)


def test_degenerate_runs_are_left_out_of_the_mean() -> None:
    known = board()
    for seed, (score, outcome) in enumerate([(0.5, "degenerate"), (0.8, "ok"), (0.78, "ok")]):
        known.outcomes[Trial("all", 1e-4, seed)] = Outcome(score, 14.5, outcome=outcome)
    assert known.mean("all") == pytest.approx(0.79) and [run["seed"] for run in known.runs("all")] == [1, 2]
    known.outcomes |= {Trial(2, 1e-4, seed): Outcome(0.5, 4.0, outcome="degenerate") for seed in (0, 1)}
    assert known.mean(2) == 0.5  # the cell as a whole has not learned


def test_failed_runs_do_not_count_for_predicted_seconds() -> None:
    known = board()
    known.outcomes |= {Trial(2, 1e-4, 0): Outcome(0.7, PRICE[2]), Trial("all", 1e-4, 0): Outcome(None, 0.0)}
    assert known.run_seconds("all") == pytest.approx(PRICE["all"]) and known.budget == pytest.approx(
        DEFAULT_BUDGET * PRICE["all"]
    )


def test_a_low_score_within_sampling_error_counts() -> None:
    """Four standard errors of 800 rows are .07."""
    rows = Rows(alike=False)
    found = Scoreboard(settings(), rows.evidence)
    for k, seed, score in ((1, 0, 0.5), (1, 1, 0.56), (1, 2, 0.45), ("all", 0, 0.56)):
        trial = Trial(k, 1e-4, seed)
        found.outcomes[trial] = rows.outcome(trial, score)
    assert found.scores(1, 1e-4) == {0: 0.5, 1: 0.56}


def test_a_learning_rate_that_fails_is_not_chosen() -> None:
    verdict, _ = carried_out(
        board(budget=1000.0),
        lambda trial: None if trial.learning_rate == 1e-4 and trial.tune != 0 else RISING[trial.tune],
    )
    assert verdict.tune == 3


def test_the_budget_is_final_once_given_or_full_was_timed() -> None:
    known = board()
    assert not known.budget_is_final and board(budget=1.0).budget_is_final
    known.outcomes[Trial(2, 1e-4, 0)] = Outcome(0.7, 4.0)
    known.outcomes[Trial("all", 1e-4, 0)] = Outcome(None, 4.0)  # it failed
    assert not known.budget_is_final
    known.outcomes[Trial("all", 1e-4, 1)] = Outcome(0.8, 14.5)
    assert known.budget_is_final and known.budget == DEFAULT_BUDGET * 14.5


def test_runs_are_paired_by_seed_and_seconds_follow_operations() -> None:
    rows = Rows(alike=True)
    known = Scoreboard(settings(), rows.evidence)
    known.outcomes |= {(t := Trial(2, 1e-4, seed)): rows.outcome(t, 0.6 + 0.1 * seed) for seed in (0, 1, 2)}
    known.outcomes |= {(t := Trial("all", 1e-4, seed)): rows.outcome(t, 0.7 + 0.1 * seed) for seed in (1, 2)}
    both = known.pair(2)
    assert both is not None and both.runs == 2 and both.means == pytest.approx([0.75, 0.85])
    assert known.reaches_goal(2) is False and known.reaches_goal("all") and known.reaches_goal(1) is None
    assert known.mean(2) == pytest.approx(0.7)
    assert known.run_seconds("all") == PRICE["all"] and known.run_seconds(1) == pytest.approx(PRICE[1])


def test_interim_analyses_at_2_3_5_seeds_each_doubling_and_the_last() -> None:
    assert [interim_seeds(n) for n in (1, 2, 4, 5, 12)] == [(), (2,), (2, 3, 4), (2, 3, 5), (2, 3, 5, 10, 12)]
    assert [interim_analyses(n) for n in (1, 2, 5)] == [1, 1, 3]


def test_the_race_ends_early_if_validation_rows_limit_it() -> None:
    rows = Rows(alike=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    verdict, steps = carried_out(Scoreboard(settings(budget=1e4), rows.evidence), lambda trial: near[trial.tune], rows)
    assert "validation examples" in verdict.why and trained(steps)["all"] < 5


def test_with_folds_every_row_is_scored_before_it_ends() -> None:
    rows = Rows(alike=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    _, steps = carried_out(
        Scoreboard(settings(budget=1e4, folds=5), rows.evidence), lambda trial: near[trial.tune], rows
    )
    assert trained(steps)["all"] >= 5


@pytest.mark.parametrize("alike", [True, False])
def test_the_verdict_agrees_with_the_answer(alike: bool) -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(alike=alike)
    known = Scoreboard(settings(budget=1e4), rows.evidence)
    verdict, _ = carried_out(known, exact(clear), rows)
    names = {k: f"last {k}" if isinstance(k, int) else k for k in PRICE}
    runs = [
        {
            **{"model": "m", "task": "t", "metric": "accuracy", "train_size": 100, "status": "done", "outcome": "ok"},
            **{"trainable": names[trial.tune], "tuned_layers": 6 if trial.tune == "all" else trial.tune},
            **{"tune_embeddings": trial.tune == "all", "seed": trial.seed, "learning_rate": trial.learning_rate},
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
        search=SearchOutcome(chosen=names[3], interim_analyses=interim_analyses(5)),
    )
    assert (
        ("with 95 % confidence" in verdict.why)
        == alike
        == ("and with 95 % confidence nothing smaller does" in answer["sentence"])
    )


def test_other_learning_rates_of_full_come_after_the_climb() -> None:
    def score(trial: Trial) -> float:
        of_rate = 0.05 * RATES.index(trial.learning_rate)
        return RISING[trial.tune] + (-of_rate if trial.tune == "all" else of_rate if trial.tune == 2 else 0.0)

    _, steps = carried_out(board(budget=1e4), score)
    rates = [trial.learning_rate for step in steps for trial in step.trials if trial.tune == "all"]
    assert rates[:6:2] == rates[1:6:2] == [1e-4, 2e-4, 5e-5]  # two seeds each


def test_full_begins_with_two_seeds_at_the_middle_or_a_lower_learning_rate() -> None:
    def first_of_full(score: Any = None, **more: Any) -> list[tuple[float, int]]:
        _, steps = carried_out(board(**more), score or exact(RISING))
        trials = next(step.trials for step in steps if {t.tune for t in step.trials} == {"all"})
        return [(trial.learning_rate, trial.seed) for trial in trials]

    assert first_of_full(budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(budget=35.0) == [(1e-4, 0)]
    assert first_of_full(budget=1e4, learning_rates=(3e-4,)) == [(3e-4, 0), (3e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] + t.learning_rate * 100, budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] - t.learning_rate * 500, budget=1e4) == [(5e-5, 0), (5e-5, 1)]


@pytest.mark.parametrize(
    ("best", "asked"), [(2e-4, [[1e-4, 2e-4]]), (1e-4, [[1e-4, 2e-4], [5e-5]]), (5e-5, [[1e-4, 2e-4], [5e-5], [2e-5]])]
)
def test_lower_learning_rates_are_tried_while_they_are_better(best: float, asked: list[list[float]]) -> None:
    rates = (1e-5, 2e-5, *RATES)
    _, steps = carried_out(
        board(learning_rates=rates),
        lambda t: RISING[t.tune] - abs(rates.index(t.learning_rate) - rates.index(best)) / 25,
    )
    first = [step.trials for step in steps[1:] if step.trials[0].tune == 2][: len(asked)]
    assert [[trial.learning_rate for trial in trials] for trials in first] == asked
    assert next(step for step in steps if step.trials[0].tune == "all").trials[0].learning_rate == min(
        best, 5e-5
    )  # the middle


def test_seconds_of_a_step_are_its_makespan() -> None:
    known = board(workers=2)
    assert known.predicted_seconds([Trial(k, 1e-4, 0) for k in ("all", 2, 1)]) == 0.0  # nothing is known of prices
    known.outcomes |= {Trial(k, 1e-4, 0): Outcome(RISING[k], price, workers=2) for k, price in PRICE.items() if k}
    known.steps += [(Trial("all", 1e-4, 0), Trial(2, 1e-4, 0), Trial(1, 1e-4, 0)), (Trial(3, 1e-4, 0),)]
    assert known.spent == 14.5 + 6.5
    assert known.predicted_seconds([Trial("all", 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert known.predicted_seconds([Trial("all", 1e-4, 0)]) == 0.0 and known.budget == DEFAULT_BUDGET * 14.5 / 2


def test_said_in_words() -> None:
    assert [name_of(k) for k in (0, 1, 3, "all")] == ["k = 0", "k = 1", "k = 3", "full fine-tuning"]
    assert name_of("all", capital=True) == "Full fine-tuning" and name_of(2, capital=True) == "k = 2"
