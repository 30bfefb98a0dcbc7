"""Runs as tasks of Ray, with a stand-in for the package: `tests/faults/test_ray.py` has a real cluster."""

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pickle import loads
from time import monotonic
from typing import Any

import pandas as pd
import pytest

import frostline.sweep.execution.stacks as checkpoints_module
import frostline.sweep.execution.stacks as execute_module
from frostline import FrostlineError, Ray, Sweep
from frostline.cli.program import signals_heeded
from frostline.sweep.execution import ray_tasks
from frostline.sweep.execution.execute import execute
from frostline.sweep.execution.ray_tasks import driver_on
from frostline.sweep.plan import Plan
from frostline.sweep.progress import Progress
from frostline.sweep.results.folder import register
from frostline.sweep.results.forecast_record import Cell, Forecast
from frostline.sweep.results.store import Store
from frostline.sweep.results.tensor_files import BestWeights
from frostline.training.train import run
from ray_here import RayError, RayHere
from tagged import small_base, tagged
from tiny import Notes, SetsAside, assert_same_predictions

Train = Callable[..., Store]


def stop(number: int) -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> RayHere:
    """The stand-in, in the place of the package."""
    made = RayHere()
    monkeypatch.setitem(sys.modules, "ray", made)  # type: ignore[arg-type]
    return made


@pytest.fixture
def shown() -> Notes:
    return Notes()


@pytest.fixture
def prepared(settings: dict[str, Any]) -> Plan:
    """A sweep with four runs."""
    made = Sweep(**{**settings, "stack": 1, "progress": Progress()})._prepare(Progress())
    register(made)
    return made


@pytest.fixture
def train(prepared: Plan, shown: Notes, here: RayHere) -> Train:
    """A function that trains the runs of the sweep and returns its results."""

    def call(weights: BestWeights | None = None, **changes: Any) -> Store:
        changed = replace(prepared, **changes)
        with driver_on(changed, shown, Ray()) as driver:
            execute(changed, prepared.runs, shown, executor=driver.begin, weights=weights)
        return prepared.store

    return call


def test_the_results_are_those_of_this_process(train: Train, shown: Notes, here: RayHere, finished_small: Path) -> None:
    store = train()
    assert_same_predictions(store, Store(finished_small))
    assert shown.runs_done == shown.runs == 4 and shown.done == pytest.approx(shown.total)
    assert [note[:3] for note in shown.notes] == ["1/4", "2/4", "3/4", "4/4"]
    assert not here.cancelled
    assert {(one["num_cpus"], one["num_gpus"]) for one in here.options} == {(1, 0.0)}
    train()
    assert len(here.options) == 3  # the two runs of k = 0 shared a task, and now nothing is left to train


def test_the_trained_parameters_of_the_best_runs_come_back(train: Train, prepared: Plan) -> None:
    weights = BestWeights(prepared.store.out)
    results = train(weights=weights).results().values()
    usable = [one for one in results if one.outcome == "ok"]
    best: dict[str, tuple[float, int]] = {}
    for one in usable:
        rank, k = (one.validation_best, -one.spec.seed), one.spec.recipe.replace(" ", "-")
        best[k] = max(rank, best.get(k, rank))
    assert best and weights.ranks() == {k: (20, *rank) for k, rank in best.items()}


@pytest.mark.parametrize(
    ("node", "memory", "gpus"), [({"CPU": 2, "memory": 1e11}, [9e9, 9e9, 7e9], 0), ({"CPU": 8, "GPU": 1}, [0, 0], 1)]
)
def test_what_a_task_asks_for(
    train: Train, prepared: Plan, here: RayHere, node: dict[str, float], memory: list[float], gpus: int
) -> None:
    cell = Cell("head only", 20, 2, 1.0, 7e9)
    cells = (cell, replace(cell, recipe="last 1", seconds=9.0, memory_bytes=9e9))
    here.resources = [node]
    here.before = stop
    with pytest.raises(KeyboardInterrupt):
        train(forecast=Forecast(cells, 0))
    assert here.options == [{"num_cpus": 1, "num_gpus": gpus, "memory": needed} for needed in memory]


def test_what_no_node_has_is_named(train: Train, here: RayHere, shown: Notes) -> None:
    here.resources, here.before = [{"CPU": 0.5}], stop
    with pytest.raises(KeyboardInterrupt):
        train()
    assert shown.notes[0] == "No node of the cluster has 1 CPU: waiting until there is one."


def test_a_task_that_is_lost_for_good_is_a_failed_run(
    train: Train, prepared: Plan, here: RayHere, finished_small: Path
) -> None:
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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_run_is_lost_by_a_signal_of_which_ray_makes_an_error(
    train: Train, prepared: Plan, here: RayHere, number: signal.Signals
) -> None:
    def swallow(task: int) -> None:
        try:
            signal.raise_signal(number)
        except (KeyboardInterrupt, SystemExit):
            raise RayError("System error: the call was interrupted.") from None

    here.before = swallow
    with signals_heeded(), pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        train()
    assert not prepared.store.ended() and not list((prepared.store.out / "leases").iterdir())


def test_a_node_that_cannot_read_the_model_is_named(train: Train, prepared: Plan, here: RayHere) -> None:
    with pytest.raises(FrostlineError, match=r"On the node \S+: .*/nowhere/m"):
        train(spec=prepared.spec.model_copy(update={"model": "/nowhere/m"}))
    assert set(here.cancelled) == {1, 2} and not list((prepared.store.out / "leases").iterdir())


def test_a_node_with_another_version_is_named(train: Train, prepared: Plan, here: RayHere) -> None:
    with pytest.raises(FrostlineError, match=r"On the node .*of the runs are others here"):
        train(spec=prepared.spec.model_copy(update={"weight_decay": 0.5}))


@pytest.mark.parametrize("when", ["while it waits", "while it shows a result"])
def test_ctrl_c_ends_the_tasks_and_keeps_what_is_published(
    train: Train, prepared: Plan, here: RayHere, shown: Notes, when: str
) -> None:
    def interrupt(*_: object) -> None:
        if prepared.store.done():
            raise KeyboardInterrupt

    if when == "while it waits":
        here.before = interrupt
    else:
        shown.result = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train()
    assert set(here.cancelled) == {1, 2} and len(prepared.store.done()) == 1
    assert not list((prepared.store.out / "leases").iterdir())


def test_a_result_that_another_process_sets_aside_at_once_is_trained_again(prepared: Plan, here: RayHere) -> None:
    shown, begun = SetsAside(prepared.store.out), monotonic()

    def begin(what: str) -> None:
        assert monotonic() - begun < 20  # it would otherwise wait for itself

    shown.begin = begin  # type: ignore[method-assign]
    with driver_on(prepared, shown, Ray()) as driver:
        execute(prepared, prepared.runs, shown, executor=driver.begin)
    assert len(prepared.store.done()) == 4 and shown.runs_done == 5


@pytest.mark.parametrize("trained_here", [False, True])
def test_a_torn_result_of_another_process_is_noted(
    train: Train, prepared: Plan, here: RayHere, finished_small: Path, shown: Notes, trained_here: bool
) -> None:
    here.resources = [{"CPU": 2 if trained_here else 1}]  # with 1, the runs of k = 0 wait until a task has ended
    first, torn = Store(finished_small), prepared.runs[0].digest

    def publish_torn(number: int) -> None:
        if number == 0:
            prepared.store.add(torn, first.files(torn))
            (prepared.store.runs / torn / "result.json").write_bytes(b"{")

    here.before = publish_torn
    store = train()
    assert store.done() == first.done() - (set() if trained_here else {torn}) and not here.cancelled
    (damage,) = (note for note in shown.notes if "is damaged" in note)
    assert damage.startswith(str(store.runs / torn))


def test_what_another_process_publishes_first_stands(
    train: Train, prepared: Plan, here: RayHere, finished_small: Path, shown: Notes
) -> None:
    first, store = Store(finished_small), prepared.store

    def publish_all(number: int) -> None:
        for digest in first.done() - store.done():
            store.add(digest, first.files(digest))

    here.before = publish_all
    train()
    assert all(store.files(digest) == first.files(digest) for digest in first.done())
    assert not [note for note in shown.notes if "Another process" in note]  # its predictions are the same
    assert shown.runs_done == 4


def test_tables_that_are_in_no_file_reach_the_nodes(
    settings: dict[str, Any], here: RayHere, tiny_table: Path, finished_small: Path
) -> None:
    made = Sweep(**{**settings, "train": pd.read_csv(tiny_table), "stack": 1, "progress": Progress()})._prepare(
        Progress()
    )
    register(made)
    with driver_on(made, Progress(), Ray()) as driver:
        execute(made, made.runs[:1], Progress(), executor=driver.begin)
    (digest,) = made.store.done()
    assert made.store.predictions(digest).keys() == Store(finished_small).predictions(digest).keys()


@pytest.mark.parametrize("of_words", [False, True])
@pytest.mark.parametrize("tune", ["0,1", "0,probe"])
def test_nodes_cache_what_probes_read(settings: dict[str, Any], here: RayHere, tune: str, of_words: bool) -> None:
    """A run then starts from the same hidden states as here."""
    if of_words:
        words, tags = tagged(40)
        settings |= {"model": small_base(settings["out"].with_name("base"), "bert")}
        settings |= {"train": pd.DataFrame({"tokens": words, "ner_tags": tags})}
    sweep = Sweep(**{**settings, "tune": tune, "train_size": 20, "progress": Progress()})
    with driver_on(sweep._prepare(Progress()), Progress(), Ray()) as driver:
        assert loads(driver.work).probes == ("probe" in tune)


@pytest.mark.parametrize("shared", [True, False])
def test_a_lost_run_continues_from_its_checkpoint_if_the_node_shares_the_folder(
    train: Train, finished_small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: bool
) -> None:
    lost = list[str]()

    def lose_one(spec: Any, context: Any, *, on_step: Callable[[int, int], None], **more: Any) -> Any:
        def step(number: int, total: int) -> None:
            on_step(number, total)
            if number == 3 and not lost:
                lost.append(spec.digest)
                raise RayError("The node is gone.")

        return run(spec, context, on_step=step, **more)

    monkeypatch.setattr(checkpoints_module, "EVERY", -1.0)  # after each step
    if not shared:
        real = ray_tasks.train
        monkeypatch.setattr(ray_tasks, "train", lambda *args: real(*args[:3], tmp_path / "elsewhere"))
    with monkeypatch.context() as losing:
        losing.setattr(execute_module, "run", lose_one)
        store = train()
    assert set(store.failures()) == set(lost) and (store.out / "checkpoints").exists() == shared
    store.retry(lost, ["failed"])
    assert_same_predictions(train(), Store(finished_small))
    continued = store.result(lost[0]).provenance.continued_after
    assert continued == ([2] if shared else []) and not (store.out / "checkpoints").exists()
