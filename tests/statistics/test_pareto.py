"""The Pareto front."""

from hypothesis import given
from hypothesis import strategies as st

from curve_cells import cells_of
from frostline.statistics.pareto import pareto

scores = st.floats(0.0, 1.0, allow_nan=False).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(scores, st.integers(0, 5)), min_size=1, max_size=10))
def test_the_front_has_exactly_the_cells_that_no_other_dominates(pairs: list[tuple[float, int]]) -> None:
    front = pareto(cells_of([score for score, _ in pairs], costs=[cost for _, cost in pairs]))
    inside = {int(name) for name in front["seconds"]}
    assert inside and front["peak_memory_bytes"] == []

    def dominated(k: int) -> bool:
        score, cost = pairs[k]
        return any(s >= score and c <= cost and (s > score or c < cost) for s, c in pairs)

    assert inside == {k for k in range(len(pairs)) if not dominated(k)}
