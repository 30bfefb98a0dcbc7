"""The Pareto front of score and cost."""

from collections.abc import Sequence

from frostline.statistics.cells import CellSummary

COSTS = ("seconds", "trainable_parameters", "peak_memory_bytes")


def pareto(cells: Sequence[CellSummary]) -> dict[str, list[str]]:
    """For each cost, every k on the front: no other k has the same or a higher mean for less, or a higher mean for the same."""
    return {cost: _front(cells, comparable_costs(cells, cost)) for cost in COSTS}


def comparable_costs(cells: Sequence[CellSummary], cost: str) -> list[float | None]:
    """The cost of each cell; None if it cannot be compared.

    Seconds include a run's share of the forward pass over the frozen layers. They are compared between cells whose runs
    trained with the largest number of workers side by side.
    """
    if cost != "seconds":
        return [cell[cost] for cell in cells]
    largest = max((cell["concurrent_runs"] or 0 for cell in cells), default=0)
    return [
        None
        if cell["seconds"] is None or (cell["concurrent_runs"] or 0) < largest
        else cell["seconds"] + (cell["shared_seconds"] or 0.0)
        for cell in cells
    ]


def _front(cells: Sequence[CellSummary], costs: Sequence[float | None]) -> list[str]:
    known = [
        (cell["comparable"], cost, cell["trainable"])
        for cell, cost in zip(cells, costs, strict=True)
        if cell["comparable"] is not None and cost is not None
    ]
    return [
        name
        for score, cost, name in known
        if not any(s >= score and c <= cost and (s, c) != (score, cost) for s, c, _ in known)
    ]
