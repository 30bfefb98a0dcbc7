"""Concurrent runs on the cores of a CPU: forked processes with one thread each.

The steps of a small model are too short to split over cores: two runs on one core each finish sooner than one after the other on
both. A fork shares the model, the examples and the hidden states with its parent. It publishes its results itself and sends
progress messages to the parent.
"""

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from time import monotonic
from typing import Generic, Self, TypeVar

import psutil
import torch

from frostline import FrostlineError
from frostline.fast.switch import enabled
from frostline.model.device import can_fork
from frostline.sweeps.execution.queue import POLL
from frostline.sweeps.execution.stopping import LONGEST_STEP, STOP, Stopped
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.slurm import TERMINATED
from frostline.training.run import Run

T = TypeVar("T")
R = TypeVar("R")
MIN_OPERATIONS = 1e11  # of all runs, for more than one worker: one or two seconds of a core
STEP_OVERHEAD = 1e8  # a training step takes about a millisecond besides its operations: as long as this many operations
MESSAGE_INTERVAL = 0.1  # seconds between two progress messages of a worker


def workers_for(plan: Plan, runs: Sequence[Run]) -> int:
    """The number of workers for a grid of ``runs``. 1 means this process itself, with all threads of torch.

    The number must not depend on which runs are done or on how busy the machine is. Otherwise a resumed sweep could use another
    number of threads, and its results would not be bitwise identical.
    """
    cores, wanted = torch.get_num_threads(), plan.spec.workers
    # A worker of another pool may not start processes.
    if wanted == 1 or len(runs) < 2 or current_process().daemon or not can_fork(plan.experiment.machine.device):
        return 1
    if wanted != "auto":
        return min(wanted, len(runs))
    if not enabled("workers"):
        return 1
    model = plan.cost_model
    operations = (model.operations(run) + STEP_OVERHEAD * model.batches(run).steps.count for run in runs)
    if sum(operations) < MIN_OPERATIONS:
        return 1
    distinct = {run.kind: run for run in runs}.values()
    fit = psutil.virtual_memory().total // 2 // max(model.memory_bound(run) for run in distinct)
    workers = min(cores, len(runs), fit)
    return workers if 2 * workers >= cores else 1  # with fewer workers, one run on all cores is faster


def run_concurrently(
    tasks: Iterable[T | None],
    workers: int,
    work: Callable[[T, Progress], R],
    name_of: Callable[[T], str],
    progress: Progress,
) -> Generator[tuple[T, R]]:
    """Call ``work`` for every task in worker processes. Each free worker takes the next task.

    No worker is left when the generator ends or is closed.

    Args:
        tasks: The tasks, in the order in which they start. They are sent to the workers. None: there is no task now, but there
            may be one later.
        workers: The number of processes.
        work: Runs in a worker, with a task and a progress display whose messages arrive at ``progress``.
        name_of: The name of a task for messages.
        progress: Shows the progress of all workers.

    Yields:
        Each task that is done, and what ``work`` returned.

    Raises:
        FrostlineError, OSError: ``work`` raised it, or the operating system killed a worker.
        RuntimeError: ``work`` raised another error; it has the traceback.
    """
    waiting, more = iter(tasks), True
    with _forked(workers, work) as team:
        while True:
            more = more and not STOP.made and _start_next_tasks(team, waiting)
            busy = {worker.connection: worker for worker in team if worker.task is not None}
            STOP.since = min((worker.began for worker in busy.values()), default=None)
            if not busy and not more:
                STOP.stop_if_made()
                return
            idle = more and len(busy) < len(team)
            for connection in wait(list(busy), POLL if idle else None):
                worker = busy[connection]  # type: ignore[index]
                task = worker.task
                assert task is not None
                try:
                    message, content = worker.connection.recv()
                except (EOFError, OSError):
                    raise FrostlineError(
                        f"The operating system killed the worker that trained {name_of(task)}, probably because memory ran "
                        "out. Run the same command again with workers = 1; finished runs are saved."
                    ) from None
                if message == "raised":
                    raise content
                if message == "note":
                    progress.note(content)
                elif message == "set_done":
                    worker.under_way = content
                    progress.set_done(sum(one.under_way for one in team))
                else:  # it begins an activity, is done, or has stopped
                    worker.activity, worker.under_way = content if message == "begin" else "", 0.0
                    progress.begin(" · ".join(one.activity for one in team if one.activity))
                    progress.set_done(sum(one.under_way for one in team))
                    worker.task = task if message == "begin" else None
                if message == "done":
                    yield task, content


def _start_next_tasks(team: "Sequence[_Worker[T]]", tasks: Iterator[T | None]) -> bool:
    """Start a task in each worker that has none, if there is one now. Returns False after the last task."""
    for worker in team:
        if worker.task is None:
            try:
                task = next(tasks)
            except StopIteration:
                return False
            if task is None:
                break
            worker.start(task)
    return True


def run_in_each_worker(workers: int, work: Callable[[], R]) -> list[R]:
    """Call ``work`` once in each of this many workers, at the same time; returns the results."""
    if workers == 1:
        return [work()]
    done = run_concurrently(
        range(workers),
        workers,
        lambda number, sender: work(),
        lambda number: "a few steps for the forecast",
        Progress(),
    )
    return [found for _, found in done]


@dataclass
class _Worker(Generic[T]):
    """A worker process, as its parent sees it."""

    process: BaseProcess
    connection: Connection
    task: T | None = None
    activity: str = ""
    under_way: float = 0.0
    began: float = 0.0

    def start(self, task: T | None) -> None:
        """Start the next task; None ends the worker."""
        self.task, self.under_way, self.began = task, 0.0, monotonic()
        with suppress(BrokenPipeError):  # the worker has ended; the next attempt to receive from it reports that
            self.connection.send(task)


@contextmanager
def _forked(count: int, work: Callable[[T, Progress], object]) -> Iterator[list[_Worker[T]]]:
    """Fork this many workers, which wait for a task. No worker is left when the context closes."""
    context, team = get_context("fork"), list[_Worker[T]]()
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            inherited = [*(worker.connection for worker in team), ours]
            process = context.Process(target=_worker_loop, args=(theirs, inherited, work), daemon=True)
            team.append(_Worker(process, ours))  # before it starts: an interruption now must leave no worker
            # Python warns of forks with threads. The only one is that of a progress bar, whose locks a worker never uses.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
        yield team
        for worker in team:
            worker.start(None)
            worker.process.join()
    finally:
        # All are ended before any is waited for, because a second interruption may come while this waits.
        started = [worker for worker in team if worker.process.pid is not None]
        for worker in started:
            worker.process.kill()
        for worker in team:
            worker.connection.close()  # which also ends a worker that was forked just now and has no number here yet
        for worker in started:
            worker.process.join()


def _worker_loop(
    connection: Connection,
    inherited: Sequence[Connection],
    work: Callable[[T, Progress], object],
) -> None:
    """The main loop of a worker process: receive a task, do it, report that it is done."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent handles them and kills its workers
        signal.signal(number, signal.SIG_IGN)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a progress bar replaces both by objects that take a lock
    for other in inherited:  # while the parent's ends of pipes are open here, no worker sees that the parent has ended
        other.close()
    torch.set_num_threads(1)  # the OpenMP threads of the parent do not exist in a fork
    sender = _SentProgress(connection)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (task := connection.recv()) is not None:
            try:
                connection.send(("done", work(task, sender)))
            except Stopped:
                connection.send(("stopped", None))
            except (FrostlineError, OSError) as error:
                connection.send(("raised", error))
                return
            except Exception:  # which may be of a type that cannot be sent
                connection.send(("raised", RuntimeError(f"A worker ended with an error.\n{traceback.format_exc()}")))
                return


class _SentProgress(Progress):
    """Sends what a worker reports to its parent, which itself shows what has ended."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection, self._sent = connection, 0.0

    def note(self, sentence: str) -> None:
        self._connection.send(("note", sentence))

    def begin(self, what: str) -> None:
        self._connection.send(("begin", what))

    def set_done(self, work: float) -> None:
        if monotonic() - self._sent > MESSAGE_INTERVAL:
            self._sent = monotonic()
            self._connection.send(("set_done", work))


WORK = (sys.executable, "-m", "frostline", "work")
STOPS_WITHIN = LONGEST_STEP + 10  # seconds to finish a step and leave a checkpoint
EXPECTED = (0, 1, TERMINATED)  # exit codes: the runs have ended, some of them in an error; it was stopped


class OtherGpus:
    """The processes on all GPUs but the first. They share the runs in the folder of a sweep or search with this process.

    None is left when its context closes: it waits until they end, and stops them if it is left with an error.
    """

    def __init__(self, plan: Plan, progress: Progress, *options: str) -> None:
        """Start nothing yet. ``options`` are those of ``frostline work``."""
        self.progress = progress
        trust = ["--trust-remote-code"] if plan.spec.trust_remote_code else []
        self._command = [*WORK, str(plan.store.out), *trust, *options]
        self._free = plan.experiment.machine.gpus[1 : plan.processes]
        self._started: list[tuple[subprocess.Popen[bytes], Thread]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        try:
            if error is None:
                for _, watching in self._started:
                    watching.join()
        finally:
            self._stop()

    def start(self, runs: int) -> None:
        """Start processes until as many train as there are GPUs or runs. The sweep must be in its folder."""
        while self._free and len(self._started) + 1 < runs:
            gpu = self._free.pop(0)
            process = subprocess.Popen(
                self._command,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            watching = Thread(target=self._watch, args=(gpu, process), daemon=True)
            self._started.append((process, watching))
            watching.start()

    def _stop(self) -> None:
        """End the processes that have not ended."""
        for process, _ in self._started:
            process.terminate()
        for process, watching in self._started:
            watching.join(STOPS_WITHIN)
            process.kill()

    def _watch(self, gpu: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait for a process, and say why if it ends before its work is done."""
        said = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode not in EXPECTED or "Traceback (most recent call last)" in said:
            reason = said.splitlines()[-1] if said else f"exit code {process.returncode}"
            self.progress.note(f"The process on GPU {gpu} has ended ({reason}): the others train its runs.")
