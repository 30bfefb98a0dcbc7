"""Which runs a task of Ray trains."""

from hypothesis import given
from hypothesis import strategies as st

from frostline.sweep.execution.ray_tasks import SHARE, in_tasks
from frostline.training.run import Run

USUAL = {"weights": "w", "vocabulary": "v", "data": "d", "metric": "accuracy", "precision": "float32"}


def run_of(k: int, seed: int) -> Run:
    return Run.model_validate({**USUAL, "recipe": k, "seed": seed, "train_size": 10, "learning_rate": 1e-4})


COSTS = st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 100)), min_size=1, max_size=30)


@given(COSTS, st.floats(1, 1000), st.integers(0, 9))
def test_every_run_is_in_one_task_and_no_task_is_larger_than_allowed(
    drawn: list[tuple[int, float]], limit: float, capacity: int
) -> None:
    runs = [run_of(k, seed) for seed, (k, _) in enumerate(drawn)]
    costs = {run.digest: cost for run, (_, cost) in zip(runs, drawn, strict=True)}
    tasks = in_tasks(runs, costs, limit, capacity)
    assert sorted(run.seed for task in tasks for run in task) == list(range(len(runs)))
    assert all(len({run.stack_key for run in task}) == 1 for task in tasks)
    total = [sum(costs[run.digest] for run in task) for task in tasks]
    assert total == sorted(total, reverse=True)
    share = sum(costs.values()) / (SHARE * max(1, capacity))
    assert all(len(task) == 1 or cost <= min(limit, share) for task, cost in zip(tasks, total, strict=True))


def test_short_runs_of_one_k_share_a_task() -> None:
    runs = [run_of(k, seed) for seed in range(40) for k in (0, 1)]
    tasks = in_tasks(runs, {run.digest: 1.0 for run in runs}, 60.0, 2)
    assert {len(task) for task in tasks} == {10} and len(tasks) == 8
    assert len(in_tasks(runs, {run.digest: 100.0 for run in runs}, 60.0, 2)) == 80
