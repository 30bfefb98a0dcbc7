"""The scoreboard of a race: scores, times, budget and learning rates."""

from typing import Any

import pytest

from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.search.defaults import DEFAULT_BUDGET
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, Trial, interim_analyses, interim_seeds, name_of
from frostline.statistics.choices import Choices
from frostline.statistics.curve import main_point
from frostline.statistics.tune import Tune
from synthetic_race import RATES, RISING, SECONDS, Rows, board, exact, run_race, runs_per_k, settings


def test_results_so_far_have_means_distances_and_intervals() -> None:
    known = Scoreboard(settings(), (rows := Rows(same_errors=True)).evidence)
    assert known.results_so_far() == []
    for trial, score in [(Trial(2, 1e-4, 0), 0.7), (Trial("all", 1e-4, 0), 0.8), (Trial("all", 1e-4, 1), 0.82)]:
        known.outcomes[trial] = rows.outcome(trial, score)
    two, full = known.results_so_far()
    assert (two["tune"], two["runs"], two["low"]) == (2, 1, None) and full["mean"] == pytest.approx(0.81)
    assert two["distance"] == pytest.approx(0.7 - 0.5 - 0.95 * 0.3)  # for the seed that both have
    known.outcomes[trial] = rows.outcome(trial := Trial(2, 1e-4, 1), 0.72)
    two = known.results_so_far()[0]
    assert two["low"] <= two["distance"] <= two["high"] and (two["high"] < 0) == (known.certain(2) is False)


def test_degenerate_runs_are_left_out_of_the_mean() -> None:
    known = board()
    for seed, (score, outcome) in enumerate([(0.5, "degenerate"), (0.8, "ok"), (0.78, "ok")]):
        known.outcomes[Trial("all", 1e-4, seed)] = Outcome(score, 14.5, outcome=outcome)
    assert known.mean("all") == pytest.approx(0.79) and [run["seed"] for run in known.runs("all")] == [1, 2]
    known.outcomes |= {Trial(2, 1e-4, seed): Outcome(0.5, 4.0, outcome="degenerate") for seed in (0, 1)}
    assert known.mean(2) == 0.5  # the cell as a whole has not learned


def test_failed_runs_do_not_count_for_predicted_seconds() -> None:
    known = board()
    known.outcomes |= {Trial(2, 1e-4, 0): Outcome(0.7, SECONDS[2]), Trial("all", 1e-4, 0): Outcome(None, 0.0)}
    assert known.run_seconds("all") == pytest.approx(SECONDS["all"]) and known.budget == pytest.approx(
        DEFAULT_BUDGET * SECONDS["all"]
    )


def test_a_low_score_within_sampling_error_counts() -> None:
    """For 800 rows, four standard errors are .07."""
    rows = Rows(same_errors=False)
    found = Scoreboard(settings(), rows.evidence)
    for k, seed, score in ((1, 0, 0.5), (1, 1, 0.56), (1, 2, 0.45), ("all", 0, 0.56)):
        trial = Trial(k, 1e-4, seed)
        found.outcomes[trial] = rows.outcome(trial, score)
    assert found.scores(1, 1e-4) == {0: 0.5, 1: 0.56}


def test_a_learning_rate_that_fails_is_not_chosen() -> None:
    verdict, _ = run_race(
        board(budget=1000.0),
        lambda trial: None if trial.learning_rate == 1e-4 and trial.tune != 0 else RISING[trial.tune],
    )
    assert verdict.tune == 3


def test_the_budget_is_final_once_given_or_full_was_timed() -> None:
    known = board()
    assert not known.budget_is_final and board(budget=1.0).budget_is_final
    known.outcomes[Trial(2, 1e-4, 0)] = Outcome(0.7, 4.0)
    known.outcomes[Trial("all", 1e-4, 0)] = Outcome(None, 4.0)  # a failed run
    assert not known.budget_is_final
    known.outcomes[Trial("all", 1e-4, 1)] = Outcome(0.8, 14.5)
    assert known.budget_is_final and known.budget == DEFAULT_BUDGET * 14.5


def test_runs_are_paired_by_seed_and_seconds_follow_operations() -> None:
    rows = Rows(same_errors=True)
    known = Scoreboard(settings(), rows.evidence)
    known.outcomes |= {(t := Trial(2, 1e-4, seed)): rows.outcome(t, 0.6 + 0.1 * seed) for seed in (0, 1, 2)}
    known.outcomes |= {(t := Trial("all", 1e-4, seed)): rows.outcome(t, 0.7 + 0.1 * seed) for seed in (1, 2)}
    both = known.pair(2)
    assert both is not None and both.runs == 2 and both.means == pytest.approx([0.75, 0.85])
    assert known.reaches_goal(2) is False and known.reaches_goal("all") and known.reaches_goal(1) is None
    assert known.mean(2) == pytest.approx(0.7)
    assert known.run_seconds("all") == SECONDS["all"] and known.run_seconds(1) == pytest.approx(SECONDS[1])


def test_interim_analyses_at_2_3_5_seeds_each_doubling_and_the_last() -> None:
    assert [interim_seeds(n) for n in (1, 2, 4, 5, 12)] == [(), (2,), (2, 3, 4), (2, 3, 5), (2, 3, 5, 10, 12)]
    assert [interim_analyses(n) for n in (1, 2, 5)] == [1, 1, 3]


def test_the_race_ends_early_if_validation_rows_limit_it() -> None:
    rows = Rows(same_errors=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    verdict, steps = run_race(Scoreboard(settings(budget=1e4), rows.evidence), lambda trial: near[trial.tune], rows)
    assert "validation examples" in verdict.why and runs_per_k(steps)["all"] < 5


def test_with_folds_the_race_ends_only_after_every_row_is_scored() -> None:
    rows = Rows(same_errors=False)
    near: dict[Tune, float] = {**RISING, 3: 0.787}
    _, steps = run_race(Scoreboard(settings(budget=1e4, folds=5), rows.evidence), lambda trial: near[trial.tune], rows)
    assert runs_per_k(steps)["all"] >= 5


@pytest.mark.parametrize("same_errors", [True, False])
def test_the_verdict_agrees_with_the_answer(same_errors: bool) -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(same_errors=same_errors)
    known = Scoreboard(settings(budget=1e4), rows.evidence)
    verdict, _ = run_race(known, exact(clear), rows)
    names = {k: f"last {k}" if isinstance(k, int) else k for k in SECONDS}
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
        search=SearchOutcome(interim_analyses=interim_analyses(5)),
    )
    size = answer["sizes"][0]
    assert size["recommended"]["trainable"] == names[3]
    assert ("with 95 % confidence" in verdict.why) == same_errors == (main_point(size)["verdict"] == "decided")


def test_other_learning_rates_of_full_come_after_the_climb() -> None:
    def score(trial: Trial) -> float:
        of_rate = 0.05 * RATES.index(trial.learning_rate)
        return RISING[trial.tune] + (-of_rate if trial.tune == "all" else of_rate if trial.tune == 2 else 0.0)

    _, steps = run_race(board(budget=1e4), score)
    rates = [trial.learning_rate for step in steps for trial in step.trials if trial.tune == "all"]
    assert rates[:6:2] == rates[1:6:2] == [1e-4, 2e-4, 5e-5]  # two seeds each


def test_full_begins_with_two_seeds_at_the_middle_or_a_lower_learning_rate() -> None:
    def first_of_full(score: Any = None, **more: Any) -> list[tuple[float, int]]:
        _, steps = run_race(board(**more), score or exact(RISING))
        trials = next(step.trials for step in steps if {t.tune for t in step.trials} == {"all"})
        return [(trial.learning_rate, trial.seed) for trial in trials]

    assert first_of_full(budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(budget=35.0) == [(1e-4, 0)]
    assert first_of_full(budget=1e4, learning_rates=(3e-4,)) == [(3e-4, 0), (3e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] + t.learning_rate * 100, budget=1e4) == [(1e-4, 0), (1e-4, 1)]
    assert first_of_full(lambda t: RISING[t.tune] - t.learning_rate * 500, budget=1e4) == [(5e-5, 0), (5e-5, 1)]


@pytest.mark.parametrize(
    ("best", "tried"), [(2e-4, [[1e-4, 2e-4]]), (1e-4, [[1e-4, 2e-4], [5e-5]]), (5e-5, [[1e-4, 2e-4], [5e-5], [2e-5]])]
)
def test_lower_learning_rates_are_tried_while_they_are_better(best: float, tried: list[list[float]]) -> None:
    rates = (1e-5, 2e-5, *RATES)
    _, steps = run_race(
        board(learning_rates=rates),
        lambda t: RISING[t.tune] - abs(rates.index(t.learning_rate) - rates.index(best)) / 25,
    )
    first = [step.trials for step in steps[1:] if step.trials[0].tune == 2][: len(tried)]
    assert [[trial.learning_rate for trial in trials] for trials in first] == tried
    assert next(step for step in steps if step.trials[0].tune == "all").trials[0].learning_rate == min(
        best, 5e-5
    )  # the middle


def test_seconds_of_a_step_are_its_makespan() -> None:
    known = board(workers=2)
    assert known.predicted_seconds([Trial(k, 1e-4, 0) for k in ("all", 2, 1)]) == 0.0  # no run has been timed yet
    known.outcomes |= {Trial(k, 1e-4, 0): Outcome(RISING[k], seconds, workers=2) for k, seconds in SECONDS.items() if k}
    known.steps += [(Trial("all", 1e-4, 0), Trial(2, 1e-4, 0), Trial(1, 1e-4, 0)), (Trial(3, 1e-4, 0),)]
    assert known.spent == 14.5 + 6.5
    assert known.predicted_seconds([Trial("all", 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert known.predicted_seconds([Trial("all", 1e-4, 0)]) == 0.0 and known.budget == DEFAULT_BUDGET * 14.5 / 2


def test_names_of_k_in_messages() -> None:
    assert [name_of(k) for k in (0, 1, 3, "all")] == ["k = 0", "k = 1", "k = 3", "full fine-tuning"]
    assert name_of("all", capital=True) == "Full fine-tuning" and name_of(2, capital=True) == "k = 2"
