"""The recommendation as a decision."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics import decision as decision_module
from frostline.statistics.analysis_settings import POINT, PRICE, Goal
from frostline.statistics.decision import JointEstimate, Option, Rule, decide
from frostline.statistics.evidence import Scores
from frostline.statistics.posterior import Observed, posterior
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.statistics.run_result import RunResult

GOAL = Goal.of_gain(0.95, base=0.5)


def choice(name: str, score: float, cost: float, spread: float = 0.001, seed: int = 0) -> Option:
    draws = score + spread * np.random.default_rng(seed).standard_normal(2_000)
    return Option(name=Recipe(name), score=score, comparable=score, cost=cost, draws=draws)


def test_a_point_is_worth_less_than_two_thirds_of_the_training_time() -> None:
    """Two points are worth the whole training time of full fine-tuning."""
    full, half = choice("full", 0.870, 1.0), choice("last 3", 0.860, 0.6)
    assert Rule(goal=GOAL).choose([half, full], full) is full  # 1 point lost, .8 points of time saved
    third = choice("last 2", 0.860, 0.3)
    assert Rule(goal=GOAL).choose([third, full], full) is third
    assert Rule(goal=GOAL, price=0.0).choose([third, full], full) is full


def test_wanted_certainty_takes_the_cheapest_that_has_it() -> None:
    full = choice("full", 0.90, 1.0)
    doubtful, safe = choice("last 1", 0.881, 0.2, spread=0.01), choice("last 2", 0.895, 0.4)
    assert 0.4 < Rule(goal=GOAL).probability(doubtful, full) < 0.7
    assert Rule(goal=GOAL, sure=0.95).choose([doubtful, safe, full], full) is safe
    assert Rule(goal=GOAL, sure=0.40).choose([doubtful, safe, full], full) is doubtful
    assert Rule(goal=GOAL, sure=0.95).choose([doubtful, full], full) is full  # which reaches it for certain
    better = choice("lora-2", 0.897, 0.4)
    assert Rule(goal=GOAL, sure=0.95).choose([safe, better, full], full) is better  # of equal costs the best


def test_wanted_certainty_takes_full_even_if_another_measured_more_for_less() -> None:
    full, five, head = (
        choice("full", 0.86, 1.0),
        choice("last 5", 0.87, 0.8, spread=0.05),
        choice("head only", 0.60, 0.1),
    )
    assert Rule(goal=Goal.of_gain(1.0, base=0.5), sure=0.95).choose([head, five, full], full) is full


def test_the_decision_says_what_is_lost_and_what_it_costs() -> None:
    full, two = choice("full", 0.873, 1.0, seed=1), choice("last 2", 0.870, 0.25)
    decision, facts = decide([two, full], full, Rule(goal=GOAL), base=0.5, margin=0.01)
    assert decision.choice == "last 2" and decision.reference == "full"
    assert decision.below_full == pytest.approx(0.3, abs=0.02) and decision.low < 0.3 < decision.high
    assert decision.cost_of_full == 0.25 and decision.probability > 0.99
    assert [one.choice for one in facts] == ["last 2", "full"]
    assert facts[1].probability == 1.0 and facts[1].below_full == 0 == facts[1].low
    assert facts[0].value == pytest.approx(0.870 - 0.25 * PRICE, abs=1e-4)
    assert facts[0].better_than_previous is None and facts[1].better_than_previous > 0.9
    _, facts = decide([two, choice("probe", 0.99, 0.0), full], full, Rule(goal=GOAL), base=0.5, margin=0.01)
    assert facts[1].better_than_previous is None and facts[2].better_than_previous > 0.9  # beside the smaller k


@st.composite
def some_options(draw: st.DrawFn) -> list[Option]:
    values = st.tuples(st.floats(0.5, 1.0), st.floats(0.0, 1.0))
    found = [choice(f"last {n}", *pair, seed=n) for n, pair in enumerate(draw(st.lists(values, max_size=6)))]
    return [*found, choice("full", draw(st.floats(0.5, 1.0)), 1.0, seed=99)]


@given(some_options(), st.sampled_from([0.0, POINT, 0.1]))
def test_nothing_dominated_is_recommended(choices: list[Option], price: float) -> None:
    decision, facts = decide(choices, choices[-1], Rule(goal=GOAL, price=price), base=0.5, margin=0.01)
    chosen = next(one for one in facts if one.choice == decision.choice)
    better = next((one for one in facts if one.choice == chosen.dominated_by), None)
    assert better is None or (price == 0.0 and better.expected == chosen.expected)


def test_expected_scores_decide_what_is_dominated() -> None:
    """The table shows them, so a measured score that was lucky neither bars a better choice nor saves a worse one."""
    lucky = replace(choice("last 1", 0.80, 0.2), comparable=0.85)
    unlucky = replace(choice("full", 0.87, 1.0), comparable=0.84)
    worse = replace(choice("last 2", 0.79, 0.4), comparable=0.90)
    decision, facts = decide([lucky, worse, unlucky], unlucky, Rule(goal=GOAL), base=0.5, margin=0.01)
    assert decision.choice == "full"
    assert [one.dominated_by for one in facts] == [None, "last 1", None]


@given(some_options())
def test_an_easier_target_is_likelier(choices: list[Option]) -> None:
    for one in decide(choices, choices[-1], Rule(goal=GOAL), base=0.5, margin=0.01)[1]:
        p = one.probabilities
        if one.choice != "full" and choices[-1].draws.min() > 0.5:
            assert p["gain_90"] >= p["gain_95"] >= p["gain_99"]


def test_a_way_is_compared_with_the_largest_k_that_costs_at_most_as_much() -> None:
    full, two, one = choice("full", 0.90, 1.0, seed=1), choice("last 2", 0.86, 0.3, seed=2), choice("last 1", 0.80, 0.2)
    lora, llrd = choice("lora-2", 0.88, 0.3, seed=3), choice("llrd", 0.89, 1.0, spread=0.01, seed=4)
    early, probe = choice("early", 0.7, 0.1), choice("probe", 0.7, 0.0)
    lora, llrd, early = (replace(one, is_way=True) for one in (lora, llrd, early))
    _, facts = decide([probe, early, one, two, lora, llrd, full], full, Rule(goal=GOAL), base=0.5, margin=0.01)
    beside = {fact.choice: fact.beside_k for fact in facts}
    assert beside["lora-2"].choice == "last 2" and beside["lora-2"].probability > 0.99
    assert beside["lora-2"].above == pytest.approx(2.0, abs=0.05)
    assert beside["lora-2"].low < 2 < beside["lora-2"].high
    assert beside["llrd"].choice == "full" and 0.1 < beside["llrd"].probability < 0.2
    assert [beside[name] for name in ("probe", "early", "last 1", "full")] == [None] * 4


def estimate(costs_of_ways: list[float], depth: tuple[float, ...] = (0.0, 0.5, 1.0, 1.25)) -> JointEstimate:
    """A curve and ways with these costs, three seeds each."""
    names = [*(f"k{n}" for n in range(len(depth))), *(f"way-{n}" for n in range(len(costs_of_ways)))]
    cells = {
        name: [RunResult(recipe=name, run=name, seed=seed, validation_best=0.8) for seed in range(3)]
        for name in map(Recipe, names)
    }
    return JointEstimate.of(cells, depth, (), Scores("accuracy", 0.5), costs_of_ways)


def test_a_way_is_beside_the_largest_k_of_at_most_its_cost() -> None:
    found = estimate([0.5, 0.7, 1.0, 0.2, 0.0])
    assert found.observed.beside == {4: 1, 5: 1, 6: 3, 7: 0}  # full fine-tuning costs 1; the last one trains no layer
    assert [choice.name for choice in found.choices if choice.is_way] == ["way-4", "way-3", "way-0", "way-1", "way-2"]
    cheapest = estimate([0.3], depth=(0.5, 1.0))  # it costs less than every k
    assert cheapest.observed.beside == {} and np.isfinite(cheapest.posterior.draws).all()


def run(name: str, rate: float, seed: int = 0, score: float = 0.8) -> RunResult:
    return RunResult(
        recipe=Recipe(name), run=f"{name} {rate} {seed}", seed=seed, learning_rate=rate, validation_best=score
    )


def test_no_draw_is_above_the_highest_score() -> None:
    cells = {HEAD_ONLY: [run("head only", 0.1, score=0.99)], FULL: [run("full", 3.0, score=1.0)]}
    found = JointEstimate.of(cells, (0.0, 1.0), (), Scores("accuracy", 0.5))
    assert found.posterior.draws.max() > 1 == max(one.draws.max() for one in found.choices) > found.choices[-1].expected


def test_no_draw_is_below_the_lowest_score() -> None:
    """Accuracy cannot be negative, but R² can be, and nothing is known about the metrics of others."""
    cells = {HEAD_ONLY: [run("head only", 0.1, score=0.0)], FULL: [run("full", 3.0, score=0.01)]}
    accuracy, r2, other = (
        JointEstimate.of(cells, (0.0, 1.0), (), Scores(metric, None)) for metric in ("accuracy", "r2", "other")
    )
    assert min(one.draws.min() for one in accuracy.choices) == 0 < accuracy.choices[0].expected
    for found in (r2, other):
        assert min(one.draws.min() for one in found.choices) == found.posterior.draws.min() < 0


def test_runs_at_other_learning_rates_count_beside_their_choice_and_are_no_choices() -> None:
    cells = {HEAD_ONLY: [run("head only", 0.1)], FULL: [run("full", 3.0, score=0.9)]}
    others = [run("full", rate, score=0.7) for rate in (4.0, 1.0, 2.0)] + [run("last 1", 1.0)]
    alone = JointEstimate.of(cells, (0.0, 1.0), (), Scores("accuracy", 0.5))
    found = JointEstimate.of(cells, (0.0, 1.0), (), Scores("accuracy", 0.5), at_other_rates=others)
    assert found.names == alone.names and [len(one) for one in found.observed.scores] == [1, 1]
    assert found.posterior.draws.shape == alone.posterior.draws.shape
    assert [one.score for one in found.choices] == [one.score for one in alone.choices] == [0.8, 0.9]
    assert found.choices[-1].expected < alone.choices[-1].expected - 0.005


def test_each_learning_rate_is_beside_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions 2 and 3 are lower ones of the second choice, the nearest one first; then a higher one, and another choice."""
    seen: list[Observed] = []
    monkeypatch.setattr(decision_module, "posterior", lambda known: (seen.append(known), posterior(known))[1])
    cells = {HEAD_ONLY: [run("head only", 0.1)], FULL: [run("full", 3.0)]}
    others = [run("full", rate, score=rate / 10) for rate in (4.0, 1.0, 2.0)] + [run("head only", 0.2, score=0.6)]
    JointEstimate.of(cells, (0.0, 1.0), (), Scores("accuracy", 0.5), at_other_rates=others)
    assert [*seen[0].scores[2:]] == [{"0": 0.2}, {"0": 0.1}, {"0": 0.4}, {"0": 0.6}]
    assert seen[0].other_rates == {2: 1, 3: 2, 4: 1, 5: 0}
