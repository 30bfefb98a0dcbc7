"""Execute a sweep: train every run that has no result, and publish each result when its run ends.

:func:`execute` has what all ways to train share: which runs are missing, what they cost, who takes which, and what is shown. They
are trained on this machine, or by the ``Driver`` of an ``Executor``, such as tasks of Ray.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from time import monotonic, perf_counter, sleep
from typing import NamedTuple, Protocol

import numpy as np

from frostline.fast.switch import memory_reused
from frostline.frozen.forward_pass import ForwardPass, Rows
from frostline.frozen.hidden_states import load_or_compute
from frostline.sweeps.execution.queue import POLL, Queue, Stack, shared_out
from frostline.sweeps.execution.stacks import in_stacks, name_of, stack_size, train_stack
from frostline.sweeps.execution.stopping import STOP
from frostline.sweeps.execution.workers import run_concurrently, workers_for
from frostline.sweeps.plan import Plan, recipe_of, rows_needed
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.leases import SILENT_AFTER, Leases
from frostline.sweeps.results.store import DamagedError
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.training.experiment import Experiment, starting_cut
from frostline.training.forward import subset_key
from frostline.training.run import Run, trainings_of


class Job(NamedTuple):
    """Runs that are about to be trained.

    Attributes:
        queue: The stacks that can be taken.
        at_a_time: How many of them are trained at the same time.
        train: Trains stacks, and yields each when its results or failures are in the store. None means that there is no stack
            now, but there may be one after ``POLL`` seconds. When the generator is closed, nothing is trained any more.
    """

    queue: Queue
    at_a_time: int
    train: Callable[[Iterator[Stack | None]], Generator[Stack]]


@dataclass(frozen=True)
class Assignment:
    """Runs that are to be trained.

    Attributes:
        runs: The requested runs.
        missing: Those of them that have no result.
        costs: The cost of each missing run if it is trained alone, by digest.
        in_seconds: Whether these are wall-clock seconds; else they are operations.
        weights: Stores the trained parameters of the best run of each k; None stores none.
    """

    runs: Sequence[Run]
    missing: Sequence[Run]
    costs: Mapping[str, float]
    in_seconds: bool
    weights: BestWeights | None


class Driver(Protocol):
    """Trains runs of one sweep elsewhere."""

    def capacity(self, runs: Sequence[Run]) -> int:
        """How many of these runs can be trained at the same time."""

    def begin(self, assigned: Assignment) -> Job:
        """Start the progress display, and prepare training."""


class Executor(Protocol):
    """Where runs are trained instead of on this machine."""

    def driver(self, plan: Plan, progress: Progress) -> AbstractContextManager[Driver]:
        """Connect. While the context is open, runs of the sweep can be trained."""


def execute(
    plan: Plan,
    runs: Sequence[Run],
    progress: Progress,
    *,
    driver: Driver | None = None,
    weights: BestWeights | None = None,
    wait: bool = True,
    silent_after: float = SILENT_AFTER,
    shared: bool = False,
) -> None:
    """Train those of ``runs`` that have no result, and publish their results. Other processes may train some of them.

    Args:
        plan: The sweep. It is registered in its folder.
        runs: The requested runs.
        progress: Shows progress.
        driver: Trains the runs; None trains them on this machine.
        weights: Stores the trained parameters of the best run of each k; None stores none.
        wait: Whether to wait for the runs that other processes train.
        silent_after: Seconds after which this process takes over the runs of another one, if it does not hear from it.
        shared: Whether other processes are known to train runs, too.
    """
    store = plan.store
    plan.experiment.worker.forward_pass_seconds = 0.0
    ended = store.ended()
    missing = [run for run in runs if run.digest not in ended]
    if not missing:
        return
    begin = driver.begin if driver else partial(on_this_machine, plan, progress, shared=shared)
    costs, in_seconds = plan.costs(missing)
    progress.lengths = {run.num_train_epochs for run in plan.runs}
    job = begin(Assignment(runs, missing, costs, in_seconds, weights))

    def show(run: Run) -> None:
        progress.finish(costs[run.digest])
        try:
            record = store.record(run.digest)
        except DamagedError as error:
            progress.note(str(error))
        else:
            if record is not None:  # else another process has set it aside
                progress.result(record)

    leases = Leases(store.out, silent_after, at_a_time=job.at_a_time)
    dealt = shared_out(job.queue, store, leases, wait=wait, on_other=show)
    with closing(dealt) as stacks, STOP.heeded(), closing(job.train(stacks)) as trained:
        for stack in trained:
            leases.release([run.digest for run in stack])
            for run in stack:
                show(run)


def on_this_machine(plan: Plan, progress: Progress, assigned: Assignment, *, shared: bool) -> Job:
    """Compute the hidden states, then train in this process or in forked workers. Runs of one k are stacked.

    ``shared``: whether other processes are known to train runs, too.
    """
    runs, missing, costs = assigned.runs, assigned.missing, assigned.costs
    experiment, forecast, workers = plan.experiment, plan.forecast, workers_for(plan, runs)
    of_pass, seconds = 0.0, None
    if forecast and assigned.in_seconds:
        of_pass, seconds = workers * forecast.forward_pass_seconds, forecast.seconds
    elif (rows := _rows_to_load(plan, missing)) is not None:
        of_pass = workers * plan.cost_model.forward_pass(rows)
    progress.start(len(missing), sum(costs.values()) + of_pass, seconds)
    prepare_hidden_states(plan, missing, progress, of_pass)
    experiment.worker.copies.keep_within(0)  # stacks take precedence
    wanted, targets = plan.spec.stack, experiment.problem.targets[experiment.splits["train"]]
    size_of = partial(stack_size, experiment=experiment, wanted=wanted, note=progress.note, workers=workers)
    stacks = list(in_stacks(missing, size_of))
    experiment.worker.at_a_time = at_a_time = min(workers, len(stacks))

    def group_of(run: Run) -> Hashable:
        return experiment.cut(run), subset_key(run, targets, experiment.folds)

    def cost_of(stack: Stack) -> float:
        return sum(costs[run.digest] for run in stack)

    # alone, seed by seed: an interrupted sweep then has complete curves
    queue = Queue(stacks, group_of, cost_of) if shared or workers > 1 else Queue(stacks)

    def train(stacks: Iterator[Stack | None]) -> Generator[Stack]:
        work = partial(train_stack, plan=plan, costs=costs, weights=assigned.weights)
        with memory_reused(release_large=all(experiment.cut(run) is not None for run in missing)):
            if workers > 1:
                with closing(run_concurrently(stacks, at_a_time, work, name_of, progress)) as trained:
                    yield from (stack for stack, _ in trained)
            else:
                for stack in stacks:
                    if stack is None:
                        progress.begin("waiting for other processes")
                        sleep(POLL)
                        continue
                    STOP.since = monotonic()
                    work(stack, progress)
                    STOP.since = None
                    yield stack
        experiment.worker.copies.keep_within(0)

    return Job(queue, at_a_time, train)


def prepare_hidden_states(plan: Plan, runs: Sequence[Run], progress: Progress, cost: float = 0.0) -> None:
    """Run the exactness check, and load or compute the hidden states that these runs read.

    ``cost`` is the predicted cost of the forward pass over the frozen layers, for the progress display.
    """
    plan.check_cuts()
    if (rows := _rows_to_load(plan, runs)) is not None:
        plan.experiment.pretrained.restore()  # an earlier call leaves the parameters as its last run trained them
        load_hidden_states(plan.experiment, plan.experiment.forward_pass(plan.cached), rows, progress, cost)


def _rows_to_load(plan: Plan, runs: Sequence[Run]) -> Rows | None:
    """All rows whose hidden states are then in memory; None if those that these runs read are there."""
    if not (from_cache := runs_from_cache(plan, runs)):
        return None
    rows, states = rows_needed(plan.experiment, from_cache), plan.experiment.states
    if states is None or states.selection != plan.cached:
        return rows
    return None if states.has(rows) else np.union1d(rows, states.rows)


def runs_from_cache(plan: Plan, runs: Sequence[Run]) -> list[Run]:
    """Those of the runs that start from cached hidden states."""
    cached, anatomy = plan.cached, plan.experiment.pretrained.anatomy
    return [
        spec
        for spec in runs
        if any(starting_cut(cached, anatomy, one) is not None for one in trainings_of(spec, anatomy))
    ]


def load_hidden_states(
    experiment: Experiment, forward_pass: ForwardPass, rows: Rows, progress: Progress, cost: float
) -> None:
    """Load the hidden states of these rows from the cache, and compute those that are not there. It is this much work."""
    progress.begin("hidden states")
    loaded = 0.0

    def advance(more: float) -> None:
        nonlocal loaded
        loaded += more
        progress.set_done(cost * loaded / len(rows))

    recipe, begun = recipe_of(experiment.pretrained, experiment.machine, forward_pass), perf_counter()
    with memory_reused():
        experiment.worker.states = load_or_compute(
            forward_pass, experiment.tokens, rows, recipe, progress=advance, warn=progress.note
        )
    experiment.worker.forward_pass_seconds = perf_counter() - begun
    progress.finish(cost)
