"""The policy of a search on synthetic scores: its batches, its reasons to stop and its budget."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frostline.data.wording import duration_at_least, parse_duration
from frostline.search.observations import Candidate, Observations
from frostline.search.policy import BRIEF, Batch, acquisitions, initial_design, price_of
from frostline.statistics.analysis_settings import Goal
from frostline.statistics.decision import Lengths, Rule
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import PROBE
from synthetic_search import (
    RATES,
    RISING,
    SECONDS,
    Rows,
    best,
    by_recipe,
    curve,
    exact,
    nothing_seen,
    run_search,
    runs_per_k,
)

LATE = curve(*[0.55] * 3, *[0.9] * 5)
FLAT = curve(0.87, *[0.9] * 7)
FEW = {k: SECONDS[k] for k in map(Recipe, (0, 2, 4, 6, "full"))}  # each recipe more makes a search slower
GOAL = Goal.of_gain(0.95, 0.5)


def searched(score: Any, *, same_errors: bool = True, **more: Any) -> Observations:
    """What a search has observed in the end, with predictions."""
    rows = Rows(same_errors=same_errors)
    seen = nothing_seen(rows, **{"budget_given": 1e4, **more})
    run_search(seen, score if callable(score) else exact(score), rows)
    return seen


@pytest.mark.parametrize(
    ("scores", "more", "wanted"),
    [
        (LATE, {}, "last 3"),  # two points of score are worth the whole training time of full fine-tuning
        ({**LATE, "last 3": 0.895, "last 4": 0.91}, {}, "last 4"),
        ({k: 0.80 + 0.004 * SECONDS[k] for k in SECONDS}, {"rule": Rule(goal=GOAL, price=0.001)}, "full"),
        ({k: 0.80 + 0.004 * SECONDS[k] for k in SECONDS}, {"rule": Rule(goal=GOAL, price=0.1)}, "head only"),
        (RISING, {"rule": Rule(goal=GOAL, sure=0.9)}, "last 3"),  # .795 of .800: the cheapest k that is sure enough
        (RISING, {"recipes": (0, 1)}, "last 1"),
    ],
)
def test_it_finds_the_k_with_the_highest_value(scores: Mapping[Any, float], more: dict[str, Any], wanted: str) -> None:
    assert best(searched(scores, **more)) == wanted


def test_k_0_that_is_good_enough_ends_the_search() -> None:
    stop, batches = run_search(nothing_seen(), exact({**RISING, "head only": 0.9999}))
    assert stop.why.startswith("k = 0 scores so high") and runs_per_k(batches) == {0: 2}


@pytest.mark.parametrize(
    ("score", "rule", "ends"),
    [
        (0.995, Rule(goal=GOAL), True),
        (0.975, Rule(goal=GOAL), False),
        (0.98, Rule(goal=GOAL, sure=0.5), True),  # .975 reaches 95 % of any gain
    ],
)
def test_a_probe_that_is_good_enough_ends_the_search_after_k_0(score: float, rule: Rule, ends: bool) -> None:
    stop, batches = run_search(nothing_seen(alternative_score=score, rule=rule), exact(RISING))
    assert stop.why.startswith("A model that trains no layer scores so high") == ends
    assert (None in runs_per_k(batches)) != ends


def test_one_run_above_the_baseline_is_enough_to_have_learned() -> None:
    rows = Rows(same_errors=False)
    seen = nothing_seen(rows)
    for seed, score in enumerate((0.5, 0.54, 0.5, 0.5)):
        seen.known[one] = rows.observe(one := Candidate(Recipe("full"), 1e-4, seed), score)
    assert not seen.above_baseline(Recipe("full"))  # a standard error of .018, corrected for four runs
    seen.known[one] = rows.observe(one := Candidate(Recipe("full"), 1e-4, 4), 0.62)
    assert seen.above_baseline(Recipe("full")) and not seen.above_baseline(Recipe(3))


def test_near_the_highest_score_no_run_is_worth_its_time() -> None:
    high, low = (searched(curve(score - 0.1, *[score] * 7)) for score in (0.9975, 0.7975))
    assert len(high.known) < len(low.known)
    assert not high.tried(Recipe(4)) and low.tried(Recipe(4))  # .987 is the most that last 4 can be worth
    for seen in (high, low):
        assert all((one.expected or 0.0) <= 1 for one in seen.results_so_far()) and best(seen) == "last 1"


def test_k_0_is_trained_at_all_its_learning_rates() -> None:
    seen = nothing_seen(budget_given=100.0, head_learning_rates=(1e-3, 1e-2))
    _, batches = run_search(seen, lambda one: 0.8 - 0.1 * (one.recipe.k == 0 and one.learning_rate == 1e-3))
    heads = [[one for one in batch.candidates if one.recipe.k == 0] for batch in batches]
    assert len(heads[0]) == 4 and seen.best_learning_rate(Recipe(0)) == 1e-2
    assert all({one.learning_rate for one in some} in (set(), {1e-3, 1e-2}) for some in heads)
    seen = nothing_seen(budget_given=100.0, head_learning_rates=(1e-3, 1e-2))
    run_search(seen, lambda one: None if one.recipe == "head only" else exact(RISING)(one))
    assert [one.seed for one in seen.tried(Recipe(0))] == [0, 1, 0, 1]  # a failed k = 0 is not tried again


def test_every_learning_rate_of_full_is_tried_until_something_is_learned() -> None:
    stop, batches = run_search(nothing_seen(budget_given=1000.0), lambda one: 0.5)
    assert stop.nothing_learned and stop.why == "No fine-tuned model scores above the baseline with 95 % confidence."
    assert stop.enough is None  # every run was trained
    assert {one.learning_rate for batch in batches for one in batch.candidates if one.recipe == "full"} == set(RATES)
    stop, _ = run_search(short := nothing_seen(budget_given=55.0), lambda one: 0.5)
    assert stop.why.endswith("The budget did not allow full fine-tuning at a learning rate of 0.0002.")
    assert stop.enough == pytest.approx(short.spent + short.run_seconds(Recipe("full"))) and stop.enough > 55
    rows = Rows(same_errors=True)
    seen = nothing_seen(rows, budget_given=1000.0)
    stop, batches = run_search(
        seen, lambda one: 0.8 if (one.recipe, one.learning_rate) == ("full", 2e-4) else 0.5, rows
    )
    assert not stop.nothing_learned and best(seen) == "full" and seen.best_learning_rate(Recipe("full")) == 2e-4
    tries = [batch.why.startswith("No fine-tuned model is above") for batch in batches]
    assert any(tries) and not tries[-1]


@pytest.mark.parametrize(("score", "ends"), [(0.99, True), (0.7, False)])
def test_nothing_is_taught_to_full_if_a_probe_scores_more_than_it_can_be_worth(score: float, ends: bool) -> None:
    rows = Rows(same_errors=True)
    rows.logits["probe"] = rows.logits_with(score)
    seen = nothing_seen(rows, budget_given=1000.0, alternatives=(PROBE,), alternative_score=score - 0.02)
    stop, _ = run_search(seen, lambda one: 0.5, rows)
    assert stop.why.startswith("A model that trains no layer scores so high") == ends == (not stop.nothing_learned)
    assert ({one.learning_rate for one in seen.tried("full")} == set(RATES)) != ends and best(seen) == "probe"
    if not ends:
        seen = nothing_seen(rows, budget_given=1000.0, best_elsewhere=0.99)
        assert run_search(seen, lambda one: 0.5, rows)[0].why.startswith("Another model scores so high")


def test_a_failed_k_is_tried_at_lower_learning_rates() -> None:
    def fails(recipe: Recipe, above: float = 0.0) -> Any:
        return lambda one: None if one.recipe == recipe and one.learning_rate > above else FLAT[one.recipe]

    seen = searched(fails(Recipe(1), above=5e-5))
    assert best(seen) == "last 1" and seen.best_learning_rate(Recipe(1)) == 5e-5
    assert best(searched(fails(Recipe(1)))) == "last 2"
    stop, _ = run_search(
        seen := nothing_seen(),
        lambda one: None if one.recipe == "full" else RISING[one.recipe] + 0.1 * one.learning_rate,
    )
    assert {one.learning_rate for one in seen.tried("full")} == set(RATES)
    assert stop.no_reference and stop.why.startswith("Every run of full fine-tuning failed")
    seen = searched(lambda one: None if (one.recipe, one.learning_rate) == ("full", 1e-4) else RISING[one.recipe])
    assert {one.learning_rate for one in seen.tried("full")} == {1e-4, 5e-5}  # none above the one that failed


def test_a_tiny_budget_allows_one_run_of_a_small_k() -> None:
    """Two runs of k = 0 take 0.4 s, and a run of k = 2 takes 4 s."""
    stop, batches = run_search(nothing_seen(budget_given=1.0), exact(RISING))
    assert runs_per_k(batches) == {0: 2, 2: 1} and stop.no_reference
    assert batches[1].why == "Train k = 2 once: how long a run takes is not known yet."
    two = 2 * SECONDS[Recipe(0)] + 2 * SECONDS[Recipe(2)]
    for budget, runs in ((two - 0.1, 1), (two, 2)):
        assert runs_per_k(run_search(nothing_seen(budget_given=budget), exact(RISING))[1])[2] == runs


def test_a_budget_too_small_for_full_ends_the_search() -> None:
    stop, batches = run_search(nothing_seen(budget_given=20.0), exact(RISING))
    assert runs_per_k(batches).keys() == {0, 2} and stop.no_reference
    begin = "Full fine-tuning was not run: one run takes about 14 s, but only 7.6 s of the budget are left."
    assert stop.why == f"{begin} Without it, as with --tune 0,1,2, the largest k is the reference."
    assert stop.enough is not None
    enough = parse_duration(duration_at_least(stop.enough))
    for budget, refused in ((enough, False), (enough - 1, True)):
        assert run_search(nothing_seen(budget_given=budget), exact(RISING))[0].no_reference == refused


@pytest.mark.parametrize(
    ("budget", "following"), [(45.0, "k = 4 was not tried yet."), (70.0, "Try another learning rate")]
)
def test_a_small_budget_ends_the_search_with_what_would_follow(budget: float, following: str) -> None:
    rows = Rows(same_errors=True)
    stop, _ = run_search(nothing_seen(rows, budget_given=budget, rule=Rule(goal=GOAL, price=0.001)), exact(LATE), rows)
    assert stop.why.startswith(f"The budget ended before the next step: {following}")
    assert stop.enough is not None and stop.enough > budget


def test_it_ends_when_more_runs_gain_less_than_they_cost() -> None:
    rows = Rows(same_errors=True)
    seen = nothing_seen(rows)
    stop, _ = run_search(seen, exact(LATE), rows)
    assert stop.why.startswith("More runs would hardly change the choice: they are expected to gain at most 0.")
    assert seen.spent < seen.budget
    assert {one.recipe for one in seen.known} >= {k for k, seconds in SECONDS.items() if seconds <= BRIEF}


@pytest.mark.parametrize(
    ("score", "more", "rates"),
    [
        (exact(RISING), {}, [1e-4, 5e-5]),
        (exact(RISING), {"budget_given": 35.0}, [1e-4]),
        (  # one step towards the best one of a small k
            lambda one: RISING[one.recipe] + one.learning_rate * 100,
            {"learning_rates": (*RATES, 5e-4)},
            [1e-4, 2e-4],
        ),
        (lambda one: RISING[one.recipe] - one.learning_rate * 500, {}, [5e-5]),
    ],
)
def test_full_is_trained_at_two_learning_rates(score: Any, more: dict[str, Any], rates: list[float]) -> None:
    _, batches = run_search(nothing_seen(**{"budget_given": 1e4, **more}), score)
    first = next(batch.candidates for batch in batches if batch.candidates[0].recipe == "full")
    assert [one.learning_rate for one in first] == rates


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0, 0.03), st.floats(20, 300), st.integers(1, 3))
def test_every_search_ends_within_its_budget(seed: int, noise: float, budget: float, workers: int) -> None:
    rng = np.random.default_rng(seed)
    scores = dict(zip(SECONDS, np.sort(rng.uniform(0.5, 1, len(SECONDS))), strict=True))
    seen = nothing_seen(budget_given=budget, workers=workers)
    _, batches = run_search(
        seen, lambda one: None if rng.random() < 0.05 else scores[one.recipe] + rng.normal(0, noise)
    )
    assert max(runs_per_k(batches).values()) <= 5 + 5 * (len(RATES) - 1)
    least = 2 * SECONDS[Recipe(0)] + SECONDS[Recipe(2)]  # trained whatever the budget
    assert seen.spent <= max(budget, least) + 1e-6


def test_close_choices_get_more_runs_than_clear_ones() -> None:
    def runs(scores: Mapping[Any, float]) -> int:
        luck = np.random.default_rng(0)
        known = by_recipe(scores)
        noisy = lambda one: known[one.recipe] + luck.normal(0, 0.015)  # noqa: E731
        return len(searched(noisy, same_errors=False, budget_given=1e3).known)

    near: dict[Any, float] = {k: 0.79 + 0.002 * k for k in range(3, 7)}
    near |= {**dict.fromkeys(range(3), 0.7), "full": 0.803}
    assert runs(near) > runs({**dict.fromkeys(range(7), 0.6), "full": 0.8}) + 2


def test_whatever_gain_is_expected_the_price_is_that_of_the_next_batch() -> None:
    """Also where it is judged by the gain of several seeds."""
    seen = nothing_seen(rows := Rows(same_errors=True))
    for one in (Candidate(recipe, 1e-4, 0) for recipe in SECONDS):
        seen.known[one] = rows.observe(one, RISING[one.recipe])
    found = acquisitions(seen)
    assert sum("may be the best" in one.why for one in found) == 3
    for one in found:
        assert one.price == pytest.approx(price_of(seen, seen.predicted_seconds(one.candidates)))


@pytest.mark.parametrize(("highest", "tried"), [(1e-4, [[1e-4, 2e-4], [5e-5]]), (5e-5, [[1e-4, 2e-4], [5e-5], [2e-5]])])
def test_lower_learning_rates_are_tried_while_they_are_better(highest: float, tried: list[list[float]]) -> None:
    rates = (1e-5, 2e-5, *RATES)

    def score(one: Candidate) -> float:
        return RISING[one.recipe] - abs(rates.index(one.learning_rate) - rates.index(highest)) / 25

    _, batches = run_search(nothing_seen(learning_rates=rates), score)
    first = [batch.candidates for batch in batches[1:] if batch.candidates[0].recipe.k == 2][: len(tried)]
    assert [[one.learning_rate for one in some] for some in first] == tried


@pytest.mark.parametrize(("slope", "lower"), [(0.03, True), (0.01, False)])
def test_no_lower_learning_rate_if_higher_ones_hardly_differ(slope: float, lower: bool) -> None:
    """The scores are .24 and .25 above the baseline."""
    _, batches = run_search(nothing_seen(), lambda one: RISING[one.recipe] - slope * RATES.index(one.learning_rate))
    assert any(batch.why.startswith("Try a lower learning rate for k = 2.") for batch in batches) == lower


def test_idle_workers_train_the_next_candidates() -> None:
    _, batches = run_search(nothing_seen(workers=2, budget_given=100.0), exact(LATE))
    assert all(len(batch.candidates) > 1 for batch in batches[3:5])
    _, batches = run_search(nothing_seen(budget_given=100.0), exact(LATE))
    assert min(len(batch.candidates) for batch in batches[3:]) == 1  # a single worker is never idle


def test_on_a_gpu_each_batch_trains_full_stacks() -> None:
    rows = Rows(same_errors=True)
    seen = nothing_seen(rows, stacked=4)
    _, batches = run_search(seen, exact(RISING), rows)
    seeds = len(seen.space.seeds)
    assert all(count % 4 == 0 or count % seeds == 0 for batch in batches for count in runs_per_k([batch]).values())
    assert min(runs_per_k(batches).values()) == 4
    assert not any("one more seed" in batch.why for batch in batches)


def test_the_initial_design() -> None:
    space = nothing_seen(head_learning_rates=(1e-3, 1e-2)).space
    head, rates, full = initial_design(space, 1)
    found = [(one.recipe, one.learning_rate, one.seed) for one in head.candidates]
    assert found == [("head only", rate, seed) for rate in (1e-3, 1e-2) for seed in (0, 1)]
    assert [(one.recipe, one.learning_rate) for one in rates.candidates] == [("last 2", 1e-4), ("last 2", 2e-4)]
    assert [(one.recipe, one.learning_rate) for one in full.candidates] == [("full", 1e-4), ("full", 5e-5)]
    assert full.why == "Train full fine-tuning."
    _, rate, _ = initial_design(nothing_seen(learning_rates=(1e-4,)).space, 1)
    assert rate.why == "Train k = 2, where a run is cheap." and rates.why.startswith("Compare learning rates at k = 2")
    _, batches = run_search(nothing_seen(start_k=4), exact(RISING))
    assert {one.recipe for one in batches[1].candidates} == {"last 4"}


@pytest.mark.parametrize(("recipes", "workers"), [(3, 1), (8, 4)])
def test_a_search_begins_with_it_if_scores_change_nothing(recipes: int, workers: int) -> None:
    """The middle learning rate is the best by little."""
    seen = nothing_seen(recipes=(*range(7), "full")[:recipes], workers=workers, budget_given=80.0)
    _, batches = run_search(seen, lambda one: RISING[one.recipe] - 0.001 * (one.learning_rate != 1e-4))
    wanted = list(initial_design(seen.space, workers))
    assert len(wanted) == 3 and batches[:3] == wanted


@pytest.mark.parametrize(
    ("gain", "wanted"),
    [
        (0.05, "last 4 for 10 epochs"),  # five points are worth a training that is three times as long
        (0.0, "last 4 for 3 epochs"),
    ],
)
def test_a_longer_training_is_tried_and_named_where_it_pays(gain: float, wanted: str) -> None:
    seen, batches = searched_with_two_lengths(
        lambda one: RISING[one.trained] + (gain if one.epochs == 10 and one.k else 0.0)
    )
    assert best(seen) == wanted
    first = [one.recipe.epochs for batch in batches[:3] for one in batch.candidates]
    assert first == [3.0] * len(first)


def test_where_nothing_is_learned_full_is_trained_for_longer_before_other_learning_rates() -> None:
    seen, batches = searched_with_two_lengths(lambda one: 0.8 if one == "full for 10 epochs" else 0.5)
    first = next(batch for batch in batches if batch.why.startswith("No fine-tuned model is above the baseline"))
    assert {one.recipe for one in first.candidates} == {"full for 10 epochs"} and best(seen) == "full for 10 epochs"


@pytest.mark.parametrize("score", [0.5, 0.7])
@pytest.mark.parametrize("budget", [108.0, 300.0])
def test_what_trains_a_head_only_is_tried_at_every_learning_rate_of_the_head(budget: float, score: float) -> None:
    """A sweep of them has all, so a search that tried some would leave runs that nobody trains."""
    lstm, rates = Recipe("bilstm"), (1e-3, 1e-2)
    seconds = {**by_recipe({0: 0.2, 2: 4.0, "full": 14.5}), lstm: 5.0}
    rows = Rows(same_errors=True, seconds=seconds)
    space = {"recipes": (*seconds,), "operations": {one: 1e9 * taken for one, taken in seconds.items()}}
    space |= {"head_learning_rates": rates, "shares": {lstm: 0.4}, "head_ways": {lstm}}
    seen = nothing_seen(rows, budget_given=budget, **space)
    run_search(seen, lambda one: score if one.recipe == lstm else 0.5, rows)
    tried = [(one.recipe, one.seed, one.learning_rate) for one in seen.known if one.recipe in (lstm, "head only")]
    assert any(recipe == lstm for recipe, *_ in tried)
    assert all((recipe, seed, rate) in tried for recipe, seed, _ in tried for rate in rates)


@pytest.mark.parametrize("unfitted", [False, True])
def test_full_is_trained_longer_next_if_it_has_not_fitted_its_examples(unfitted: bool) -> None:
    reference = Recipe("full for 3 epochs")
    _, batches = searched_with_two_lengths(lambda one: RISING[one.trained], [reference] if unfitted else [])
    after = next(n for n, batch in enumerate(batches) if reference in {one.recipe for one in batch.candidates})
    assert ({one.recipe for one in batches[after + 1].candidates} == {"full for 10 epochs"}) == unfitted


def searched_with_two_lengths(
    score: Callable[[Recipe], float], unfitted: Sequence[Recipe] = ()
) -> tuple[Observations, list[Batch]]:
    """A search with 3 and 10 epochs whose recipes have these scores."""
    recipes = {recipe.for_epochs(epochs): seconds * epochs / 3 for epochs in (3, 10) for recipe, seconds in FEW.items()}
    rows = Rows(same_errors=True, seconds=recipes, unfitted=unfitted)
    operations = {one: 1e9 * seconds for one, seconds in recipes.items()}
    seen = nothing_seen(
        rows, recipes=tuple(recipes), operations=operations, lengths=Lengths(3.0, 10.0, 500), budget_given=1e4
    )
    return seen, run_search(seen, exact({one: score(one) for one in recipes}), rows)[1]


@pytest.mark.parametrize(
    ("gain", "wanted"),
    [
        (0.05, "mean-pooled-2"),  # more than a larger k gains
        (-0.05, "last 4"),
    ],
)
def test_a_way_is_tried_and_named_where_it_pays(gain: float, wanted: str) -> None:
    way = Recipe("mean-pooled-2")
    seconds, scores = {**FEW, way: FEW[Recipe(2)]}, {**RISING, way: RISING[Recipe(2)] + gain}
    operations = {one: 1e9 * some for one, some in seconds.items()}
    rows = Rows(same_errors=True, seconds=seconds)
    seen = nothing_seen(rows, recipes=tuple(seconds), operations=operations, shares={way: 2 / 6}, budget_given=1e4)
    run_search(seen, exact(scores), rows)
    assert best(seen) == wanted and seen.tried(way)
