"""The scoreboard of a race: scores, times, budget and learning rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.report.answer.answer import make_answer
from frostline.report.answer.search_outcome import SearchOutcome
from frostline.search.defaults import FULL_RUNS
from frostline.search.defaults import SECONDS as SECONDS_AT_LEAST
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, Trial, in_words, interim_analyses
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.run_result import RunResult
from frostline.statistics.tune import Tune, name_of
from synthetic_race import RISING, SECONDS, Rows, best, board, exact, run_race, settings


def test_results_so_far_have_means_and_what_the_posterior_says() -> None:
    known = Scoreboard(settings(), (rows := Rows(same_errors=True)).evidence)
    assert known.results_so_far() == []
    known.outcomes[trial] = rows.outcome(trial := Trial(2, 1e-4, 0), 0.7)
    (two,) = known.results_so_far()
    assert (two["tune"], two["runs"], two["mean"]) == (2, 1, 0.7) and two["expected"] is two["probability"] is None
    for trial, score in [(Trial("all", 1e-4, 0), 0.8), (Trial("all", 1e-4, 1), 0.82)]:
        known.outcomes[trial] = rows.outcome(trial, score)
    two, full = known.results_so_far()
    assert full["mean"] == pytest.approx(0.81) and full["probability"] == 1.0
    assert two["probability"] < 0.05 and two["expected"] == pytest.approx(0.7, abs=0.02)


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
    assert known.run_seconds("all") == pytest.approx(SECONDS["all"])


def test_a_low_score_within_sampling_error_counts() -> None:
    """For 800 rows, four standard errors are .07."""
    rows = Rows(same_errors=False)
    found = Scoreboard(settings(), rows.evidence)
    for k, seed, score in ((1, 0, 0.5), (1, 1, 0.56), (1, 2, 0.45), ("all", 0, 0.56)):
        trial = Trial(k, 1e-4, seed)
        found.outcomes[trial] = rows.outcome(trial, score)
    assert found.scores(1, 1e-4) == {0: 0.5, 1: 0.56}


def test_a_learning_rate_that_fails_is_not_chosen() -> None:
    known = board(budget=1000.0)
    run_race(known, lambda t: None if t.learning_rate == 1e-4 and t.tune != 0 else RISING[t.tune])
    assert known.best_learning_rate("all") != 1e-4 and known.mean("all") == 0.8


def test_the_budget_is_final_once_given_or_full_was_timed() -> None:
    known = board()
    assert not known.budget_is_final and board(budget=1.0).budget_is_final
    known.outcomes[Trial(2, 1e-4, 0)] = Outcome(0.7, 4.0)
    known.outcomes[Trial("all", 1e-4, 0)] = Outcome(None, 4.0)  # a failed run
    assert not known.budget_is_final
    known.outcomes[Trial("all", 1e-4, 1)] = Outcome(0.8, 14.5)
    assert known.budget_is_final and known.budget == SECONDS_AT_LEAST
    known.outcomes[Trial("all", 1e-4, 2)] = Outcome(0.8, 145.0)
    known.outcomes[Trial("all", 1e-4, 3)] = Outcome(0.8, 145.0)
    assert known.budget == FULL_RUNS * 145.0


def test_seconds_follow_operations() -> None:
    known = board()
    known.outcomes[Trial("all", 1e-4, 0)] = Outcome(0.8, SECONDS["all"])
    assert known.run_seconds("all") == SECONDS["all"] and known.run_seconds(1) == pytest.approx(SECONDS[1])


def test_intervals_are_read_after_every_seed_from_the_second_on() -> None:
    assert [interim_analyses(n) for n in (1, 2, 5)] == [1, 1, 4]


@pytest.mark.parametrize("same_errors", [True, False])
def test_the_search_and_the_answer_recommend_the_same(same_errors: bool) -> None:
    clear: dict[Tune, float] = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "all": 0.9}
    rows = Rows(same_errors=same_errors)
    rows.logits["probe"] = rows.logits_with(0.65)
    known = Scoreboard(settings(budget=1e4, alternatives=("probe",)), rows.evidence)
    run_race(known, exact(clear), rows)
    runs = [
        RunResult(
            **{"model": "m", "task": "t", "metric": "accuracy", "train_size": 100, "status": "done", "outcome": "ok"},
            **{"recipe": name_of(trial.tune), "tuned_layers": 6 if trial.tune == "all" else trial.tune},
            **{"tune_embeddings": trial.tune == "all", "seed": trial.seed, "learning_rate": trial.learning_rate},
            **{"run": outcome.run, "validation_best": outcome.score, "reason": ""},
        )
        for trial, outcome in known.outcomes.items()
    ]
    answer = make_answer(
        runs,
        rows.evidence.split,
        rows.logits.__getitem__,
        AnalysisSettings(),
        layers=6,
        search=SearchOutcome(interim_analyses=interim_analyses(5), alternatives=("probe",)),
    )
    size = answer["sizes"][0]
    assert size["recommended"]["trainable"] == size["decision"]["choice"] == best(known) == "last 3"
    assert [one["choice"] for one in size["choices"]][:2] == ["last 0", "probe"]


def test_a_probe_that_is_as_good_as_full_is_the_best_choice() -> None:
    rows = Rows(same_errors=False)
    rows.logits["probe"] = rows.logits_with(0.8)
    known = Scoreboard(settings(alternatives=("probe",)), rows.evidence)
    run_race(known, exact(RISING), rows)
    assert best(known) == "probe"


def recorded(curve: dict[Tune, float], *, seeds: int, probe: float | None = None) -> Scoreboard:
    """A scoreboard with runs that score as on a task of the past, and a little less or more on other seeds."""
    rows = Rows(same_errors=False, seeds=5)
    if probe is not None:
        rows.logits["probe"] = rows.logits_with(probe, seed=1)
    known = Scoreboard(settings(alternatives=("probe",) if probe is not None else ()), rows.evidence)
    shifts = [0.0] if seeds == 1 else [0.006, -0.006, 0.003, -0.003, 0.0]
    for tune, score in curve.items():
        for seed in range(seeds):
            shift = shifts[(seed + 2 * (tune == "all")) % len(shifts)]
            trial = Trial(tune, 1e-4, seed)
            known.outcomes[trial] = rows.outcome(trial, score + shift)
    return known


def test_a_hardly_worse_half_is_recommended_instead_of_full() -> None:
    """Short phrases of two classes: what was recommended once was to tune all layers."""
    phrases: dict[Tune, float] = {0: 0.80, 1: 0.85, 2: 0.869, 3: 0.870, "all": 0.873}
    for seeds in (1, 5):
        assert best(recorded(phrases, seeds=seeds)) in ("last 2", "last 3")


def test_a_probe_is_recommended_that_is_better_and_cheaper_than_the_best_small_k() -> None:
    """Sentences of two classes: the last 2 layers were recommended once."""
    assert best(recorded({0: 0.90, 2: 0.925, "all": 0.939}, seeds=2, probe=0.936)) == "probe"


def test_reviews_need_more_than_one_seed() -> None:
    """Reviews of products: on one seed the last 2 layers looked as good as all; with five seeds they lose three points."""
    one = recorded({0: 0.80, 2: 0.877, "all": 0.882}, seeds=1).outlook()
    assert one is not None
    gain = one.gain([Trial(2, 1e-4, 1), Trial("all", 1e-4, 1)])
    assert gain > 0.0005 and one.gain([Trial(4, 1e-4, 0)]) > 0.0005
    five = recorded({0: 0.80, 2: 0.867, 4: 0.891, "all": 0.896}, seeds=5)
    assert best(five) in ("last 4", "all")


def test_seconds_of_a_step_are_its_makespan() -> None:
    known = board(workers=2)
    assert known.predicted_seconds([Trial(k, 1e-4, 0) for k in ("all", 2, 1)]) == 0.0  # no run has been timed yet
    known.outcomes |= {Trial(k, 1e-4, 0): Outcome(RISING[k], seconds, workers=2) for k, seconds in SECONDS.items() if k}
    known.steps += [(Trial("all", 1e-4, 0), Trial(2, 1e-4, 0), Trial(1, 1e-4, 0)), (Trial(3, 1e-4, 0),)]
    assert known.spent == 14.5 + 6.5
    assert known.predicted_seconds([Trial("all", 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert known.predicted_seconds([Trial("all", 1e-4, 0)]) == 0.0


def test_names_of_k_in_messages() -> None:
    assert [in_words(k) for k in (0, 1, 3, "all")] == ["k = 0", "k = 1", "k = 3", "full fine-tuning"]
    assert in_words("all", capital=True) == "Full fine-tuning" and in_words(2, capital=True) == "k = 2"


TRIALS = st.builds(Trial, st.sampled_from([0, 2, "all"]), st.sampled_from([1e-4, 2e-4]), st.integers(0, 4))


@given(st.sets(TRIALS, max_size=9), st.lists(TRIALS, min_size=1, max_size=6), st.integers(1, 4))
def test_stacks_are_filled_with_seeds_that_were_not_trained(
    ended: set[Trial], asked: list[Trial], stacked: int
) -> None:
    known = board(stacked=stacked)
    known.outcomes |= {trial: Outcome(0.7, 1.0) for trial in ended}
    missing, found = known.missing(asked), known.in_full_stacks(asked)
    assert found[: len(missing)] == missing and len({*found}) == len(found) and not {*found} & ended
    rates = {(trial.tune, trial.learning_rate) for trial in missing}
    assert {(trial.tune, trial.learning_rate) for trial in found} == rates
    for tune in {tune for tune, _ in rates}:
        own = [trial for trial in found if trial.tune == tune]
        left = {Trial(tune, rate, seed) for k, rate in rates if k == tune for seed in range(5)} - ended - {*own}
        assert not len(own) % stacked or not left


def test_a_run_in_a_stack_has_its_share_of_the_seconds() -> None:
    """A stack of four takes as long as one run, here 14.5 s."""
    known = board(stacked=4)
    known.outcomes |= {Trial("all", 1e-4, seed): Outcome(0.8, SECONDS["all"] / 4) for seed in range(4)}
    known.steps.append(tuple(known.outcomes))
    assert known.spent == pytest.approx(SECONDS["all"])
    for trial in (Trial("all", 2e-4, 0), Trial("all", 1e-4, 4)):  # the last seed is alone in its stack
        assert known.predicted_seconds([trial]) == pytest.approx(SECONDS["all"])
    known.outcomes |= {trial: Outcome(0.8, 100 * one.seconds) for trial, one in known.outcomes.items()}
    assert known.budget == pytest.approx(FULL_RUNS * 100 * SECONDS["all"])
