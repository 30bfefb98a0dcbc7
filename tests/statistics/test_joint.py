"""The joint estimate: which way is expected to score as which k."""

import numpy as np

from frostline.statistics.decision import JointEstimate
from frostline.statistics.evidence import Scores
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult


def estimate(costs_of_ways: list[float], depth: tuple[float, ...] = (0.0, 0.5, 1.0, 1.25)) -> JointEstimate:
    """A curve and ways with these costs, three seeds each."""
    names = [*(f"k{n}" for n in range(len(depth))), *(f"way-{n}" for n in range(len(costs_of_ways)))]
    cells = {
        name: [RunResult(recipe=Recipe(name), run=name, seed=seed, validation_best=0.8) for seed in range(3)]
        for name in names
    }
    return JointEstimate.of(cells, depth, (), Scores("accuracy", 0.5), costs_of_ways)


def test_a_way_is_beside_the_largest_k_of_at_most_its_cost() -> None:
    found = estimate([0.5, 0.7, 1.0, 0.2, 0.0])
    assert found.observed.beside == {4: 1, 5: 1, 6: 3, 7: 0}  # full fine-tuning costs 1; the last one trains no layer
    assert [choice.name for choice in found.choices if choice.is_way] == ["way-4", "way-3", "way-0", "way-1", "way-2"]


def test_a_way_that_costs_less_than_every_k_is_beside_none() -> None:
    assert estimate([0.3], depth=(0.5, 1.0)).observed.beside == {}
    assert np.isfinite(estimate([0.3], depth=(0.5, 1.0)).posterior.draws).all()
