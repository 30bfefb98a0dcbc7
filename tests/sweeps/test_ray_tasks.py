"""Runs as tasks of Ray, with a stand-in for the package: `tests/faults/test_ray.py` has a real cluster."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pickle import loads
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError, Ray
from frostline.cli.program import signals_heeded
from frostline.sweeps.execution import ray_tasks, stacks
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.execution.ray_tasks import SHARE, connected, fitting, in_tasks
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import register
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.training.train import run
from ray_here import RayError, RayHere
from records import spec_of_run
from tagged import small_base, tagged
from tiny import Notes, TrainWith, assert_same_predictions, plan_of

Train = Callable[..., Store]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> RayHere:
    """The stand-in, in the place of the package."""
    made = RayHere()
    monkeypatch.setitem(sys.modules, "ray", made)  # type: ignore[arg-type]
    return made


@pytest.fixture
def plan(settings: dict[str, Any]) -> Plan:
    """A sweep with four runs."""
    made = plan_of(**{**settings, "stack": 1, "progress": Progress()})
    register(made)
    return made


@pytest.fixture
def shown() -> Notes:
    return Notes()


@pytest.fixture
def train(plan: Plan, shown: Notes, here: RayHere) -> Train:
    """A function that trains the runs of the sweep and returns its results."""

    def call(weights: BestWeights | None = None, **changes: Any) -> Store:
        changed = replace(plan, **changes)
        with Ray().driver(changed, shown) as driver:
            execute(changed, plan.runs, shown, driver=driver, weights=weights)
        return plan.store

    return call


def test_the_results_are_those_of_this_process(
    train: Train, shown: Notes, here: RayHere, plan: Plan, finished_small: Path
) -> None:
    store = train(weights=(weights := BestWeights(plan.store.out)))
    assert_same_predictions(store, Store(finished_small))
    assert shown.runs_done == shown.runs == 4 and shown.done == pytest.approx(shown.total)
    assert [note[:3] for note in shown.notes] == ["1/4", "2/4", "3/4", "4/4"]
    assert not here.cancelled
    assert {(one["num_cpus"], one["num_gpus"]) for one in here.options} == {(1, 0.0)}
    train()
    assert len(here.options) == 3  # the two runs of k = 0 shared a task, and now nothing is left to train
    best: dict[str, tuple[float, int]] = {}
    for one in (one for one in store.results().values() if one.outcome == "ok"):
        rank, k = (one.validation_best or 0.0, -one.spec.seed), one.spec.recipe.replace(" ", "-")
        best[k] = max(rank, best.get(k, rank))
    assert best and weights.ranks() == {k: (20, *rank) for k, rank in best.items()}


@pytest.mark.parametrize(
    ("node", "memory", "gpus", "said"),
    [
        ({"CPU": 2, "memory": 1e11}, [9e9, 9e9, 7e9], 0, []),
        ({"CPU": 8, "GPU": 1}, [0, 0], 1, []),
        ({"CPU": 0.5, "memory": 1e11}, [9e9, 9e9], 0, ["1 CPU, 9.0 GB of memory"]),
    ],
)
def test_what_a_task_asks_for(
    train: Train, here: RayHere, shown: Notes, node: dict[str, float], memory: list[float], gpus: int, said: list[str]
) -> None:
    cell = KindForecast("head only", 20, 2, 1.0, 7e9, num_train_epochs=1.0)
    cells = (cell, replace(cell, recipe="last 1", seconds=9.0, memory_bytes=9e9))
    here.resources, here.before = [node], Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(forecast=Forecast(cells, 0))
    assert here.options == [{"num_cpus": 1, "num_gpus": gpus, "memory": needed} for needed in memory]
    assert shown.notes == [f"No node of the cluster has {what}: waiting until there is one." for what in said]


def test_a_task_that_is_lost_for_good_is_a_failed_run(train: Train, here: RayHere, finished_small: Path) -> None:
    def lose(number: int) -> None:
        if number == 1:
            raise RayError("The worker died unexpectedly.\nIts log is long.")

    here.before = lose
    store = train()
    ((digest, failure),) = store.failures().items()
    assert failure.reason == "Ray lost the process of this run 4 times (RayError: The worker died unexpectedly.)"
    here.before = lambda number: None
    store.retry([digest], ["failed"])
    assert_same_predictions(train(), Store(finished_small))


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_no_run_is_lost_by_a_signal_of_which_ray_makes_an_error(train: Train, plan: Plan, here: RayHere) -> None:
    def swallow(task: int) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except (KeyboardInterrupt, SystemExit):
            raise RayError("System error: the call was interrupted.") from None

    here.before = swallow
    with signals_heeded(), pytest.raises(SystemExit):
        train()
    assert not plan.store.ended() and not list((plan.store.out / "leases").iterdir())


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"model": "/nowhere/m"}, "/nowhere/m"), ({"weight_decay": 0.5}, "of the runs are others here")],
)
def test_a_node_with_another_model_or_version_is_named(
    train: Train, plan: Plan, here: RayHere, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(FrostlineError, match=rf"On the node \S+: .*{said}"):
        train(spec=plan.spec.model_copy(update=changes))
    assert set(here.cancelled) == {1, 2} and not list((plan.store.out / "leases").iterdir())


@pytest.mark.parametrize("when", ["while it waits", "while it shows a result"])
def test_ctrl_c_ends_tasks_and_loses_no_run(train: Train, plan: Plan, here: RayHere, shown: Notes, when: str) -> None:
    def interrupt(*_: object) -> None:
        if plan.store.done():
            raise KeyboardInterrupt

    if when == "while it waits":
        here.before = interrupt
    else:
        shown.result = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train()
    assert set(here.cancelled) == {1, 2} and len(plan.store.done()) == 1
    assert not list((plan.store.out / "leases").iterdir())


@pytest.mark.parametrize("trained_here", [False, True])
def test_a_torn_result_of_another_process_is_noted(
    train: Train, plan: Plan, here: RayHere, finished_small: Path, shown: Notes, trained_here: bool
) -> None:
    here.resources = [{"CPU": 2 if trained_here else 1}]  # with 1, the runs of k = 0 wait until a task has ended
    first, torn = Store(finished_small), plan.runs[0].digest

    def publish_torn(number: int) -> None:
        if number == 0:
            plan.store.add(torn, first.files(torn))
            (plan.store.runs / torn / "result.json").write_bytes(b"{")

    here.before = publish_torn
    store = train()
    assert store.done() == first.done() - (set() if trained_here else {torn}) and not here.cancelled
    (damage,) = (note for note in shown.notes if "is damaged" in note)
    assert damage.startswith(str(store.runs / torn))


def test_tables_that_are_in_no_file_reach_the_nodes(
    settings: dict[str, Any], here: RayHere, tiny_table: Path, finished_small: Path
) -> None:
    given = {**settings, "train": pd.read_csv(tiny_table), "stack": 1, "progress": Progress()}
    made = plan_of(**given)
    register(made)
    with Ray().driver(made, Progress()) as driver:
        execute(made, made.runs[:1], Progress(), driver=driver)
    (digest,) = made.store.done()
    assert made.store.predictions(digest).keys() == Store(finished_small).predictions(digest).keys()


@pytest.mark.parametrize(("tune", "of_words"), [("0,1", False), ("0,probe", False), ("0,probe", True)])
def test_nodes_cache_what_probes_read(settings: dict[str, Any], here: RayHere, tune: str, of_words: bool) -> None:
    """A run then starts from the same hidden states as here."""
    if of_words:
        words, tags = tagged(40)
        settings |= {"model": small_base(settings["out"].with_name("base"), "bert")}
        settings |= {"train": pd.DataFrame({"tokens": words, "ner_tags": tags})}
    with Ray().driver(plan_of(**{**settings, "tune": tune, "train_size": 20}), Progress()) as driver:
        assert loads(driver.work).probes == ("probe" in tune)


@pytest.mark.parametrize("shared", [True, False])
def test_a_lost_run_continues_from_its_checkpoint_if_the_node_shares_the_folder(
    train: Train,
    finished_small: Path,
    monkeypatch: pytest.MonkeyPatch,
    train_with: TrainWith,
    tmp_path: Path,
    shared: bool,
) -> None:
    lost = list[str]()

    def lose_one(spec: Any, experiment: Any, *, on_step: Callable[[int, int], None], **more: Any) -> Any:
        def step(number: int, total: int) -> None:
            on_step(number, total)
            if number == 3 and not lost:
                lost.append(spec.digest)
                raise RayError("The node is gone.")

        return run(spec, experiment, on_step=step, **more)

    monkeypatch.setattr(stacks, "EVERY", -1.0)  # after each step
    if not shared:
        real = ray_tasks.train
        monkeypatch.setattr(ray_tasks, "train", lambda *args: real(*args[:3], tmp_path / "elsewhere"))
    train_with(lose_one)
    store = train()
    assert set(store.failures()) == set(lost) and (store.out / "checkpoints").exists() == shared
    store.retry(lost, ["failed"])
    assert_same_predictions(train(), Store(finished_small))
    continued = store.result(lost[0]).provenance.continued_after
    assert continued == ([2] if shared else []) and not (store.out / "checkpoints").exists()


COSTS = st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 100)), min_size=1, max_size=30)


@given(COSTS, st.floats(1, 1000), st.integers(0, 9))
def test_every_run_is_in_one_task_of_allowed_size(drawn: list[tuple[int, float]], limit: float, capacity: int) -> None:
    runs = [spec_of_run(recipe=k, seed=seed) for seed, (k, _) in enumerate(drawn)]
    costs = {run.digest: cost for run, (_, cost) in zip(runs, drawn, strict=True)}
    tasks = in_tasks(runs, costs, limit, capacity)
    assert sorted(run.seed for task in tasks for run in task) == list(range(len(runs)))
    assert all(len({run.stack_key for run in task}) == 1 for task in tasks)
    total = [sum(costs[run.digest] for run in task) for task in tasks]
    assert total == sorted(total, reverse=True)
    share = sum(costs.values()) / (SHARE * max(1, capacity))
    assert all(len(task) == 1 or cost <= min(limit, share) for task, cost in zip(tasks, total, strict=True))


def test_the_capacity_counts_whole_tasks_of_each_node_and_short_runs_of_one_k_share_a_task() -> None:
    nodes = [{"CPU": 7, "memory": 30}, {"CPU": 1}, {"CPU": 4, "GPU": 2, "memory": 100}]
    for (cpus, gpus, memory), tasks in {(2, 0, 0): 3 + 2, (2, 0, 20): 1 + 2, (1, 0.5, 0): 4}.items():
        assert fitting(nodes, {"CPU": cpus, "GPU": gpus, "memory": memory}) == tasks
    runs = [spec_of_run(recipe=k, seed=seed) for seed in range(40) for k in (0, 1)]
    tasks = in_tasks(runs, {run.digest: 1.0 for run in runs}, 60.0, 2)
    assert {len(task) for task in tasks} == {10} and len(tasks) == 8
    assert len(in_tasks(runs, {run.digest: 100.0 for run in runs}, 60.0, 2)) == 80


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cpus": 0}, "--cpus cannot be 0: give 1 or more"),
        ({"gpus": -1}, "--gpus cannot be -1: give a share below 1, or a whole number"),
        ({"gpus": 1.5}, r"--gpus cannot be 1\.5: give a share"),
        ({}, r'needs the package ray: pip install "frostline\[ray\]"'),
    ],
)
def test_impossible_numbers_and_a_missing_package_are_named(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]
    with pytest.raises(FrostlineError, match=message), connected(Ray(**values)):
        pass


class Begun(RayHere):
    """A stand-in that is not connected at first, and replaces the handler of SIGTERM as Ray does."""

    def __init__(self, refuses: Exception | None = None) -> None:
        super().__init__()
        self.said: list[object] = []
        self.refuses = refuses

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: object) -> None:
        self.said.append(options["address"])
        self.temporary = os.environ.get("TMPDIR"), options.get("_temp_dir")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.refuses:
            raise self.refuses

    def shutdown(self) -> None:
        self.said.append("ended")


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [("auto", "10.0.0.1:6379", "auto"), (None, "10.0.0.1:6379", "10.0.0.1:6379"), (None, "", "local")],
)
def test_the_address_is_that_of_the_flag_or_of_the_environment_or_this_machine(
    monkeypatch: pytest.MonkeyPatch, given: str | None, environment: str, expected: str
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("RAY_ADDRESS", environment)
    monkeypatch.setitem(sys.modules, "ray", here := Begun())  # type: ignore[arg-type]
    monkeypatch.setenv("TMPDIR", "/usual")
    with connected(Ray(address=given)) as (_, is_own):
        assert here.said == [expected] and signal.getsignal(signal.SIGTERM) == before
        assert is_own == (expected == "local") and os.environ["TMPDIR"] == "/usual"
        files, folder = here.temporary  # the files of tasks that are killed go with the folder
        assert files == (folder if is_own else "/usual")
    assert here.said == [expected, "ended"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("auto", r"There is no cluster of Ray at auto \(Could not find it\.\): correct --address"),
        ("local", r"Ray cannot start a cluster on this machine \(Could not find it\.\): correct that"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", Begun(ConnectionError("Could not find it.\nMore.")))  # type: ignore[arg-type]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(FrostlineError, match=said), connected(Ray(address=address)):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
