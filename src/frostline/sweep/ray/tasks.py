"""Which runs a task trains, and what it asks of a node."""

from collections.abc import Mapping, Sequence

from frostline.sweep.prepare import Prepared
from frostline.sweep.work.workload import Workload
from frostline.training.specification import RunSpec

TASK_SECONDS = 60.0  # of training in one task, unless one run takes longer: what the loss of a node may cost
SHARE = 4  # tasks for each one that can run at the same time, at least, so that all end at about the same time


def predicted_costs(prepared: Prepared, runs: Sequence[RunSpec]) -> tuple[dict[str, float], float]:
    """The cost of each run, by digest, and the highest cost of a task with several runs.

    Costs are seconds of one run alone if there is a forecast, else operations.
    """
    forecast = prepared.plan.forecast
    cells = {(cell.trainable, cell.train_size): cell for cell in forecast.cells} if forecast else {}
    if forecast and all((run.trainable, run.train_size) in cells for run in runs):
        seconds = {run.digest: forecast.workers * cells[run.trainable, run.train_size].seconds for run in runs}
        return seconds, TASK_SECONDS
    workload = Workload(prepared.context, prepared.plan.cached)
    return {run.digest: workload.operations(run) for run in runs}, float("inf")


def in_tasks(runs: Sequence[RunSpec], costs: Mapping[str, float], limit: float, capacity: int) -> list[list[RunSpec]]:
    """Group runs that can be stacked, and therefore start from one cut. The group with the highest cost comes first.

    Args:
        runs: The runs. Those of one seed, which train on the same rows, come one after the other.
        costs: The cost of each run, by digest.
        limit: The highest cost of a group of several runs.
        capacity: How many tasks can run at the same time.
    """
    limit = min(limit, sum(costs[run.digest] for run in runs) / (SHARE * max(1, capacity)))
    groups: list[list[RunSpec]] = []
    open_ones: dict[str, list[RunSpec]] = {}
    for run in runs:
        group = open_ones.get(run.stack_key)
        if group is None or sum(costs[one.digest] for one in (*group, run)) > limit:
            open_ones[run.stack_key] = group = []
            groups.append(group)
        group.append(run)
    return sorted(groups, key=lambda group: sum(costs[run.digest] for run in group), reverse=True)


def memory_of(prepared: Prepared, runs: Sequence[RunSpec]) -> int:
    """The memory that these runs need one after the other, in bytes, as forecast; 0 if it is unknown."""
    forecast = prepared.plan.forecast
    kinds = {(run.trainable, run.train_size) for run in runs}
    found = (
        [cell.memory_bytes for cell in forecast.cells if (cell.trainable, cell.train_size) in kinds] if forecast else []
    )
    return int(max(found, default=0.0))
