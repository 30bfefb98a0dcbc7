"""Train runs as tasks of Ray, on a cluster or on this machine.

The driver starts the tasks and publishes what they return. A node has its own model and hidden states, and trains with
:func:`frostline.sweeps.execution.execute.execute`, too.
"""

import os
import platform
import signal
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from math import floor, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from time import sleep
from typing import Any, Self

import torch
from safetensors.numpy import load

from frostline import FrostlineError
from frostline.data.load import Data
from frostline.data.wording import first_line
from frostline.sweeps.execution.execute import Assignment, Job, execute
from frostline.sweeps.execution.queue import POLL, Queue, Stack
from frostline.sweeps.execution.stacks import publish
from frostline.sweeps.execution.stopping import STOP
from frostline.sweeps.grid import read_sweep
from frostline.sweeps.plan import Plan
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import PREDICTIONS, Store
from frostline.sweeps.results.tensor_files import BestWeights, Rank, not_stored
from frostline.sweeps.toml import TRUST
from frostline.training.probes import has_features
from frostline.training.result import Failure
from frostline.training.run import Run

ENDS_WITHIN = 5.0  # seconds that the tasks of a stopped command get to end
RETRIES = 3  # how often Ray starts a task again whose process or node is lost
QUIET = {  # for a cluster on this machine
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns without it; a task without GPUs chooses the CPU itself
}


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Trains runs as tasks of Ray, on a cluster or on this machine.

    Attributes:
        address: The address of a cluster, such as ``auto``. Without one, that in the variable ``RAY_ADDRESS`` counts. Without
            both, a cluster is started on this machine, and ended after the last run.
        cpus: CPU cores of each task. It trains one run or one stack at a time, on this many threads.
        gpus: GPUs of each task, also shares such as 0.5. By default one if the cluster has any, unless the device is the CPU.

    Raises:
        FrostlineError: A number is impossible, or the package ray is not installed.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise FrostlineError(f"--cpus cannot be {self.cpus}: give 1 or more.")
        if self.gpus is not None and not (0 <= self.gpus < 1 or (self.gpus >= 1 and float(self.gpus).is_integer())):
            raise FrostlineError(f"--gpus cannot be {self.gpus:g}: give a share below 1, or a whole number.")
        package()

    @contextmanager
    def driver(self, plan: Plan, progress: Progress) -> "Iterator[RayTasks]":
        """Connect to Ray. While the context is open, runs of the sweep can be trained.

        Raises:
            FrostlineError: There is no such cluster.
        """
        progress.begin("connecting to Ray")
        with connected(self) as (module, is_own):
            yield RayTasks(plan, progress, self, module, is_own=is_own)


def package() -> Any:
    """The package ray.

    Raises:
        FrostlineError: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise FrostlineError('--executor ray needs the package ray: pip install "frostline[ray]".') from error
    return ray


@contextmanager
def connected(ray: Ray) -> Iterator[tuple[Any, bool]]:
    """Connect to the cluster at the address, or start one on this machine and end it with the context.

    A program that is connected to Ray keeps its connection.

    Yields:
        The package ray, and whether this process has started the cluster, which then ends with its tasks and their files.

    Raises:
        FrostlineError: There is no cluster at the address.
    """
    handler, module = signal.getsignal(signal.SIGTERM), package()
    if module.is_initialized():
        yield module, False
        return
    address = ray.address or os.environ.get("RAY_ADDRESS") or "local"
    is_own, usual = address == "local", os.environ.get("TMPDIR")
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        own: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder} if is_own else {}
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if is_own:
            os.environ["TMPDIR"] = folder  # for the temporary files of the processes that start now
        try:
            module.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (OSError, ValueError, RuntimeError) as error:  # also ConnectionError
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise FrostlineError(
                f"Ray cannot start a cluster on this machine ({said}): correct that, or give --address."
                if is_own
                else f"There is no cluster of Ray at {address} ({said}): correct --address, or leave it out for this machine."
            ) from error
        finally:
            os.environ.pop("TMPDIR", None)
            if usual is not None:
                os.environ["TMPDIR"] = usual
            if current_thread() is main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray replaces it
        try:
            yield module, is_own
        finally:
            module.shutdown()


@dataclass(frozen=True)
class Work:
    """What a node needs to train runs of a sweep, besides the model. Two are equal if they have one key."""

    key: str
    written: dict[str, object] = field(compare=False)  # the contents of sweep.toml
    data: Data = field(compare=False)
    threads: int = field(compare=False)
    with_gpu: bool = field(compare=False)
    trust_remote_code: bool = field(compare=False)  # as the user of the driver says
    probes: bool = field(compare=False)  # whether a search reads the states after every layer, as in `prepare`

    @classmethod
    def of(cls, plan: Plan, *, threads: int, with_gpu: bool) -> Self:
        """What a node needs for the runs of this sweep. The model is read from the same path, or from the hub."""
        spec, experiment = plan.spec, plan.experiment
        if (model := Path(spec.model).expanduser()).exists():  # a node has another working directory
            spec = spec.model_copy(update={"model": str(model.absolute())})
        return cls(
            uuid.uuid4().hex,
            {**spec.model_dump(mode="json"), "identity": asdict(plan.identity)},
            plan.data,
            threads=threads,
            with_gpu=with_gpu,
            trust_remote_code=spec.trust_remote_code,
            probes=has_features(
                plan.states.wanted, experiment.pretrained.anatomy.count, of_words=experiment.tokens.of_words
            ),
        )


@dataclass
class Trained:
    """What a task returns. Everything but the notes is by the digest of a run."""

    failures: dict[str, Failure]
    results: dict[str, dict[str, bytes]] = field(default_factory=dict)  # the files of each result, by name
    # score and file of the best run of each k so far
    weights: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences that the user should read

    def publish(self, group: Stack, store: Store, weights: BestWeights | None, note: Callable[[str], None]) -> None:
        """Publish the results of these runs, or record their failures."""
        for sentence in self.notes:
            note(sentence)
        for run in group:
            if run.digest in self.failures:
                store.fail(self.failures[run.digest])
            else:
                files = self.results[run.digest]
                publish(run, store, partial(store.add, run.digest, files), load(files[PREDICTIONS]), note)
            if weights is not None and run.digest in self.weights:
                try:
                    weights.add(run, *self.weights[run.digest])
                except OSError as error:
                    note(not_stored(run, error))


class Notes(Progress):
    """Collects what the user should read, without the lines of the results."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []

    def note(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def result(self, ended: object) -> None:
        """The driver shows it when it publishes it."""


def train(work: Work, digests: Sequence[str], best: Mapping[str, Rank] | None, folder: Path) -> Trained:
    """Train these runs of a sweep.

    Args:
        work: The sweep.
        digests: The runs.
        best: The ranks of the best runs so far, by k. Trained parameters are returned of better ones only; None returns none.
        folder: The folder of the sweep. If it is shared with this node, it keeps the checkpoints. It then has leases of these
            runs; a folder of the same name on this node has none.

    Raises:
        FrostlineError: The node cannot train them; the message names the node.
    """
    torch.set_num_threads(work.threads)
    try:
        plan, notes = _prepared(work), Notes()
        known = {run.digest: run for run in plan.runs}
        if unknown := set(digests) - known.keys():
            raise FrostlineError(
                f"{len(unknown)} of the runs are others here, as with another version of frostline: install the same on all "
                "nodes."
            )
        shared = folder if any(lease.run in digests for lease in Leases(folder).current()) else None
        with TemporaryDirectory(prefix="frostline-") as own:
            store, weights = Store(Path(own)), BestWeights(Path(own))
            here = replace(plan, store=store, checkpoints_in=shared)
            execute(here, [known[one] for one in digests], notes, weights=weights if best is not None else None)
            results = {digest: store.files(digest) for digest in store.done()}
            return Trained(store.failures(), results, weights.better_than(best or {}), notes.sentences)
    except FrostlineError as error:
        raise FrostlineError(f"On the node {platform.node()}: {error}") from error


@lru_cache(maxsize=1)
def _prepared(work: Work) -> Plan:
    """The sweep with its model. A process of Ray does several tasks, one after the other."""
    with TemporaryDirectory(prefix="frostline-") as folder:
        out = Path(folder)
        store = Store(out)
        store.write_spec(work.written)
        device = {} if work.with_gpu else {"device": "cpu"}
        own = {"out": folder, "workers": 1, TRUST: work.trust_remote_code, **device}
        written = read_sweep(store)
        assert written is not None
        return prepare(written.spec.model_copy(update=own), {}, Progress(), data=work.data, probes=work.probes)


TASK_SECONDS = 60.0  # of training in one task, unless one run takes longer: what the loss of a node may cost
SHARE = 4  # tasks for each one that can run at the same time, at least, so that all end at about the same time


def in_tasks(runs: Sequence[Run], costs: Mapping[str, float], limit: float, capacity: int) -> list[list[Run]]:
    """Group runs that can be stacked, and therefore start from one cut. The group with the highest cost comes first.

    Args:
        runs: The runs. Those of one seed, which train on the same rows, come one after the other.
        costs: The cost of each run, by digest.
        limit: The highest cost of a group of several runs.
        capacity: How many tasks can run at the same time.
    """
    limit = min(limit, sum(costs[run.digest] for run in runs) / (SHARE * max(1, capacity)))
    groups: list[list[Run]] = []
    open_ones: dict[str, list[Run]] = {}
    for run in runs:
        group = open_ones.get(run.stack_key)
        if group is None or sum(costs[one.digest] for one in (*group, run)) > limit:
            open_ones[run.stack_key] = group = []
            groups.append(group)
        group.append(run)
    return sorted(groups, key=lambda group: sum(costs[run.digest] for run in group), reverse=True)


def fitting(nodes: Iterable[Mapping[str, float]], needs: Mapping[str, float]) -> int:
    """How many tasks with these needs can run at the same time on nodes with these resources."""
    return sum(min(floor(node.get(name, 0) / number) for name, number in needs.items() if number) for node in nodes)


class RayTasks:
    """Trains runs of a sweep. All its tasks get the same settings and examples, so a node loads them once."""

    def __init__(self, plan: Plan, progress: Progress, ray: Ray, module: Any, *, is_own: bool) -> None:
        self.plan, self.progress, self.ray, self.module, self.is_own = plan, progress, ray, module, is_own
        has_gpus = any(node.get("GPU", 0) > 0 for node in self._nodes())
        self.gpus = float(plan.spec.device != "cpu" and has_gpus) if ray.gpus is None else ray.gpus
        self.work = module.put(Work.of(plan, threads=ray.cpus, with_gpu=self.gpus > 0))
        self.train_task = module.remote(max_retries=RETRIES)(train)

    def _nodes(self) -> list[Mapping[str, float]]:
        """The resources of each node that lives."""
        return [node["Resources"] for node in self.module.nodes() if node["Alive"]]

    def capacity(self, runs: Sequence[Run]) -> int:
        """How many tasks can run at the same time, whatever they train."""
        found = fitting(self._nodes(), needs := self._needs(runs))
        if not found:
            asked = [f"{number:g} {name}" for name in ("CPU", "GPU") if (number := needs[name])]
            asked += [f"{needs['memory'] / 1e9:.1f} GB of memory"] if needs["memory"] else []
            self.progress.note(f"No node of the cluster has {', '.join(asked)}: waiting until there is one.")
        return found

    def _needs(self, runs: Sequence[Run]) -> dict[str, float]:
        """What a task with these runs asks of a node. On a GPU, a forecast tells nothing of the memory of the node."""
        on_gpu = self.gpus > 0 or self.plan.experiment.machine.device.type != "cpu"
        cells = {} if on_gpu else self.plan.cells(runs)
        memory = int(max((cell.memory_bytes for cell in cells.values()), default=0))
        return {"CPU": self.ray.cpus, "GPU": self.gpus, "memory": memory}

    def begin(self, assigned: Assignment) -> Job:
        """Deal the missing runs out to tasks."""
        missing, costs, capacity = assigned.missing, assigned.costs, self.capacity(assigned.missing)
        self.progress.start(len(missing), sum(costs.values()))
        queue = Queue(in_tasks(missing, costs, TASK_SECONDS if assigned.in_seconds else inf, capacity))
        return Job(queue, max(1, capacity), partial(self._train, weights=assigned.weights))

    def _train(self, groups: Iterator[Stack | None], weights: BestWeights | None) -> Generator[Stack]:
        """Train all groups, and yield each after its results are published. No task is left when this ends.

        Raises:
            FrostlineError: A node cannot read the model.
        """
        more, under_way = True, dict[Any, Stack]()  # by the reference to what the task returns
        try:
            while more or under_way:
                more = more and self._start(groups, under_way, weights)
                if not under_way:
                    self.progress.begin("waiting for other processes")
                    sleep(POLL if more else 0)
                    continue
                self.progress.begin(f"{len(under_way)} tasks of Ray on {len(self._nodes())} nodes")
                for task in self.module.wait(list(under_way), timeout=POLL)[0]:
                    group = under_way.pop(task)
                    self._trained(task, group).publish(group, self.plan.store, weights, self.progress.note)
                    yield group
        finally:
            # The tasks of a cluster that was started here end with it. The others get time to remove their folders. If a task
            # that has just ended is cancelled, Ray 2.60 sometimes ends this process with exit code 1.
            if tasks := [] if self.is_own else list(under_way):
                for task in tasks:
                    self.module.cancel(task)
                for task in self.module.wait(tasks, num_returns=len(tasks), timeout=ENDS_WITHIN)[1]:
                    self.module.cancel(task, force=True)

    def _start(self, groups: Iterator[Stack | None], under_way: dict[Any, Stack], weights: BestWeights | None) -> bool:
        """Start tasks until as many wait as run, so that no node is idle. Returns False after the last group."""
        needs = self._needs([run for group in under_way.values() for run in group])
        most = 2 * max(1, fitting(self._nodes(), needs))
        while len(under_way) < most:
            try:
                group = next(groups)
            except StopIteration:
                return False
            if group is None:
                break
            needs, best = self._needs(group), None if weights is None else weights.ranks()
            task = self.train_task.options(num_cpus=needs["CPU"], num_gpus=needs["GPU"], memory=needs["memory"])
            digests, folder = [run.digest for run in group], self.plan.store.out.absolute()
            under_way[task.remote(self.work, digests, best, folder)] = group
        return True

    def _trained(self, task: Any, group: Stack) -> Trained:
        """What a task returned, or that it was lost. After a signal, an error of Ray means no loss."""
        exceptions = self.module.exceptions
        try:
            trained: Trained = self.module.get(task)
            return trained
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, FrostlineError):
                raise FrostlineError(str(error.cause)) from error
            raise
        except exceptions.RayError as error:  # its process or its node was lost again and again
            if STOP.leaving_at_once:
                raise STOP.leaving_at_once from error
            why = f"Ray lost the process of this run {RETRIES + 1} times ({first_line(error)})"
            lost = (Failure(digest=run.digest, spec=run, reason=why, traceback=why) for run in group)
            return Trained({one.digest: one for one in lost})
