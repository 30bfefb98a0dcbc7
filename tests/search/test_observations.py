"""What a search has observed: scores, times, budget, learning rates, and what is expected of every recipe."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.report.answer.make_answer import make_answer
from frostline.search import FULL_RUNS
from frostline.search import SECONDS as SECONDS_AT_LEAST
from frostline.search.observations import Candidate, Observation, Observations, interim_analyses
from frostline.search.search import Search
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.decision import Option
from frostline.statistics.predictions import RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import RunGroup, SearchOutcome
from frostline.statistics.run_result import PROBE, RunResult
from synthetic_search import RISING, SECONDS, Rows, best, exact, nothing_seen, run_search


def test_degenerate_runs_are_left_out_of_the_mean() -> None:
    seen = nothing_seen()
    for seed, (score, outcome) in enumerate([(0.5, "degenerate"), (0.8, "ok"), (0.78, "ok")]):
        seen.known[Candidate(Recipe("full"), 1e-4, seed)] = Observation(score, 14.5, outcome=outcome)
    assert [run.seed for run in seen.runs("full")] == [1, 2]
    seen.known |= {Candidate(Recipe(2), 1e-4, seed): Observation(0.5, 4.0, outcome="degenerate") for seed in (0, 1)}
    assert [one.mean for one in seen.results_so_far()] == pytest.approx([0.79])  # k = 2 as a whole has not learned


def test_a_low_score_within_sampling_error_counts() -> None:
    """For 800 rows, four standard errors are .07."""
    seen = nothing_seen(rows := Rows(same_errors=False))
    for k, seed, score in ((1, 0, 0.5), (1, 1, 0.56), (1, 2, 0.45), ("full", 0, 0.56)):
        seen.known[one] = rows.observe(one := Candidate(Recipe(k), 1e-4, seed), score)
    assert seen.scores(Recipe(1), 1e-4) == {0: 0.5, 1: 0.56}


def test_a_learning_rate_that_fails_is_not_chosen() -> None:
    seen = nothing_seen(budget_given=1000.0)
    run_search(seen, lambda one: None if one.learning_rate == 1e-4 and one.recipe != 0 else RISING[one.recipe])
    rate = seen.best_learning_rate(Recipe("full"))
    assert rate is not None and rate != 1e-4 and set(seen.scores("full", rate).values()) == {0.8}


def test_the_best_learning_rate_is_expected_to_score_less_the_worse_its_neighbour_did() -> None:
    def expected(*other: float) -> float:
        seen = nothing_seen(rows := Rows(same_errors=False))
        scores = {("full", 1e-4): 0.7, ("full", 5e-5): 0.6} if other else {("full", 1e-4): 0.7}
        for (k, rate), score in {(0, 1e-3): 0.6, **scores}.items():
            seen.known[one] = rows.observe(one := Candidate(Recipe(k), rate, 0), score)
        surrogate = seen.surrogate()
        assert surrogate is not None
        return surrogate.full.expected

    assert expected(0.6) < expected() - 0.002


def test_the_budget_is_final_once_given_or_full_was_timed() -> None:
    seen = nothing_seen()
    assert not seen.budget_is_final and nothing_seen(budget_given=1.0).budget_is_final
    seen.known[Candidate(Recipe(2), 1e-4, 0)] = Observation(0.7, 4.0)
    seen.known[Candidate(Recipe("full"), 1e-4, 0)] = Observation(None, 4.0)  # a failed run
    assert not seen.budget_is_final
    seen.known[Candidate(Recipe("full"), 1e-4, 1)] = Observation(0.8, 14.5)
    assert seen.budget_is_final and seen.budget == SECONDS_AT_LEAST
    seen.known |= {Candidate(Recipe("full"), 1e-4, seed): Observation(0.8, 145.0) for seed in (2, 3)}
    assert seen.budget == FULL_RUNS * 145.0


def test_seconds_follow_operations() -> None:
    seen = nothing_seen()
    seen.known[Candidate(Recipe("full"), 1e-4, 0)] = Observation(0.8, SECONDS["full"])
    assert seen.run_seconds(Recipe("full")) == SECONDS["full"] and seen.run_seconds(Recipe(1)) == pytest.approx(
        SECONDS[Recipe(1)]
    )
    seen = nothing_seen()
    seen.known |= {
        Candidate(Recipe(2), 1e-4, 0): Observation(0.7, SECONDS[Recipe(2)]),
        Candidate(Recipe("full"), 1e-4, 0): Observation(None, 0.0),  # a failed run does not count
    }
    assert seen.run_seconds(Recipe("full")) == pytest.approx(SECONDS["full"])


@pytest.mark.parametrize(("same_errors", "degenerate"), [(True, ()), (False, ()), (False, (0, 1))])
def test_the_search_and_the_answer_recommend_the_same(same_errors: bool, degenerate: tuple[int, ...]) -> None:
    clear = {**dict.fromkeys(range(3), 0.55), **dict.fromkeys(range(3, 7), 0.9), "full": 0.9}

    class SomeDegenerate(Rows):
        def observe(self, candidate: Candidate, score: float | None) -> Observation:
            outcome = "degenerate" if candidate.recipe.k in degenerate else "ok"
            return replace(super().observe(candidate, score), outcome=outcome)

    rows = SomeDegenerate(same_errors=same_errors)
    rows.logits["probe"] = rows.logits_with(0.65)
    seen = nothing_seen(rows, budget_given=200.0, alternatives=(PROBE,))
    run_search(seen, exact(clear), rows)
    runs = [
        RunResult(
            **{"model": "m", "task": "t", "metric": "accuracy", "train_size": 100, "status": "done"},
            **{"recipe": one.recipe, "tuned_layers": one.recipe.k or 6 * (one.recipe == "full")},
            **{"tune_embeddings": one.recipe == "full", "seed": one.seed, "learning_rate": one.learning_rate},
            **{"run": found.run, "validation_best": found.score, "outcome": found.outcome, "reason": ""},
        )
        for one, found in seen.known.items()
    ]
    search = SearchOutcome(interim_analyses=interim_analyses(5), alternatives=(PROBE,))
    evidence = RunPredictions(rows.evidence.split, rows.logits.__getitem__, search.interim_analyses)
    answer = make_answer(
        RunGroup(model="m", task="t", layers=6, runs=runs, evidence=evidence, search=search), AnalysisSettings()
    )
    size = answer.sizes[0]
    assert size.recommended.recipe == size.decision.choice == best(seen) == "last 3"
    assert [one.choice for one in size.choices][:2] == (["probe", "last 2"] if degenerate else ["head only", "probe"])
    surrogate = seen.surrogate()
    assert surrogate is not None
    expected = {choice.name: choice.expected for choice in surrogate.estimate.choices}
    assert {one.choice: one.expected for one in size.choices} == pytest.approx(expected, abs=0.002)


def recorded(curve: Mapping[Any, float], *, seeds: int, probe: float | None = None) -> Observations:
    """Runs that score as on a task of the past, and a little less or more on other seeds."""
    rows = Rows(same_errors=False)
    if probe is not None:
        rows.logits["probe"] = rows.logits_with(probe, seed=1)
    seen = nothing_seen(rows, alternatives=(PROBE,) if probe is not None else ())
    shifts = [0.0] if seeds == 1 else [0.006, -0.006, 0.003, -0.003, 0.0]
    for k, score in curve.items():
        for seed in range(seeds):
            shift = shifts[(seed + 2 * (k == "full")) % len(shifts)]
            seen.known[one] = rows.observe(one := Candidate(Recipe(k), 1e-4, seed), score + shift)
    return seen


PHRASES = {0: 0.80, 1: 0.85, 2: 0.869, 3: 0.870, "full": 0.873}


@pytest.mark.parametrize(
    ("curve", "seeds", "probe", "wanted"),
    [
        # short phrases of two classes: what was recommended once was to tune all layers
        (PHRASES, 1, None, ("last 2", "last 3")),
        (PHRASES, 5, None, ("last 2", "last 3")),
        # sentences of two classes: the last 2 layers were recommended once, beside a better and cheaper probe
        ({0: 0.90, 2: 0.925, "full": 0.939}, 2, 0.936, ("probe",)),
        # reviews of products: on one seed the last 2 layers looked as good as all; with five seeds they lose three points
        ({0: 0.80, 2: 0.867, 4: 0.891, "full": 0.896}, 5, None, ("last 4", "full")),
        ({**RISING, 0: 0.6}, 5, 0.8, ("probe",)),
    ],
)
def test_choices_on_tasks_of_the_past(
    curve: Mapping[Any, float], seeds: int, probe: float | None, wanted: tuple[str, ...]
) -> None:
    assert best(recorded(curve, seeds=seeds, probe=probe)) in wanted


def test_more_seeds_are_worth_training_after_one() -> None:
    one = recorded({0: 0.80, 2: 0.877, "full": 0.882}, seeds=1).surrogate()
    assert one is not None
    gain = one.gain({Recipe(2): ["1"], Recipe("full"): ["1"]})
    assert gain > 0.0005 and one.gain({Recipe(4): ["0"]}) > 0.0005


def test_seconds_of_a_batch_are_its_makespan() -> None:
    seen = nothing_seen(workers=2)
    batch = tuple(Candidate(Recipe(k), 1e-4, 0) for k in ("full", 2, 1))
    assert seen.predicted_seconds(batch) == 0.0  # no run has been timed yet
    trained = [(Candidate(k, 1e-4, 0), seconds) for k, seconds in SECONDS.items() if k != "head only"]
    seen.known |= {one: Observation(RISING[one.recipe], seconds, workers=2) for one, seconds in trained}
    seen.batches += [batch, (Candidate(Recipe(3), 1e-4, 0),)]
    assert seen.spent == 14.5 + 6.5
    assert seen.predicted_seconds([Candidate(Recipe("full"), 1e-4, seed) for seed in (1, 2, 3)]) == 29.0
    assert seen.predicted_seconds([Candidate(Recipe("full"), 1e-4, 0)]) == 0.0


CANDIDATES = st.builds(
    Candidate, st.sampled_from([0, 2, "full"]).map(Recipe), st.sampled_from([1e-4, 2e-4]), st.integers(0, 4)
)


@given(st.sets(CANDIDATES, max_size=9), st.lists(CANDIDATES, min_size=1, max_size=6), st.integers(1, 4))
def test_stacks_are_filled_with_untrained_seeds(ended: set[Candidate], asked: list[Candidate], stacked: int) -> None:
    seen = nothing_seen(stacked=stacked)
    seen.known |= {one: Observation(0.7, 1.0) for one in ended}
    missing, found = seen.missing(asked), seen.in_full_stacks(asked)
    assert found[: len(missing)] == missing and len({*found}) == len(found) and not {*found} & ended
    rates = {(one.recipe, one.learning_rate) for one in missing}
    assert {(one.recipe, one.learning_rate) for one in found} == rates
    for recipe in {recipe for recipe, _ in rates}:
        own = [one for one in found if one.recipe == recipe]
        left = {Candidate(Recipe(recipe), rate, seed) for k, rate in rates if k == recipe for seed in range(5)}
        assert not len(own) % stacked or not left - ended - {*own}


def test_a_run_in_a_stack_has_its_share_of_the_seconds() -> None:
    """A stack of four takes as long as one run, here 14.5 s."""
    seen = nothing_seen(stacked=4)
    seen.known |= {Candidate(Recipe("full"), 1e-4, seed): Observation(0.8, SECONDS["full"] / 4) for seed in range(4)}
    seen.batches.append(tuple(seen.known))
    assert seen.spent == pytest.approx(SECONDS["full"])
    for rate, seed in ((2e-4, 0), (1e-4, 4)):  # the last seed is alone in its stack
        one = Candidate(Recipe("full"), rate, seed)
        assert seen.predicted_seconds([one]) == pytest.approx(SECONDS["full"])
    seen.known |= {one: Observation(0.8, 100 * found.seconds) for one, found in seen.known.items()}
    assert seen.budget == pytest.approx(FULL_RUNS * 100 * SECONDS["full"])


def test_the_reason_of_another_best_choice_is_its_score_and_its_cost() -> None:
    options = [
        Option(name=Recipe(name), score=0.8, comparable=0.8, cost=cost, draws=np.array([expected]))
        for name, cost, expected in (("last 1", 0.25, 0.81), ("last 3", 0.75, 0.82))
    ]
    surrogate = SimpleNamespace(best=options[0], choice={one.name: one for one in options}.get)
    seen = SimpleNamespace(surrogate=lambda: surrogate, space=SimpleNamespace(reference=Recipe("full")))
    search: Any = SimpleNamespace(seen=seen, best=None)
    assert Search._why_changed(search) == "" and search.best == "last 1"
    search.best = "last 3"
    assert Search._why_changed(search) == (
        "It replaces tuning the last 3 layers, which is now expected to score 1.0 points more and costs 50 % of full "
        "fine-tuning more."
    )
    assert Search._why_changed(search) == ""
