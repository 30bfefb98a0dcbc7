"""Runs side by side on the cores of a CPU: forked processes of one thread each, which take one run after the other.

The steps of a small model are too short to be shared out over cores: two runs on a core each are done sooner than one after
the other on both (docs/performance.md). A worker is a fork, so that model, texts and hidden states are there at once and in
memory once. It publishes results by itself and sends on what there is to show.
"""

import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, TypeVar

import psutil
import torch

from frostline import FrostlineError
from frostline.fast.switch import enabled
from frostline.sweep.execution.progress import Progress
from frostline.sweep.forecast.workload import Workload
from frostline.sweep.prepare import Prepared
from frostline.training.specification import RunSpec

T = TypeVar("T")
WORTH = 1e11  # operations of all runs from which on more than one worker is begun: a second of a core or two
A_STEP = 1e8  # operations in whose time a step does what is no operation: a thousandth of a second
COPIES = 6  # of what a run trains, in bytes of fp32: values, gradients, two moments, best and pretrained values
KEPT = 64  # numbers that a step keeps for each token, layer and unit of width, about; for the bound of memory alone
OFTEN = 0.1  # seconds between two words of a worker about how far it is


def workers_for(prepared: Prepared, runs: Sequence[RunSpec]) -> int:
    """How many workers for a grid of ``runs``; 1 is this process itself, with every thread that torch may use.

    It does not hang on which of them are done or on how busy the machine is, so that those that are left get the bits that
    they would have got.
    """
    cores, wanted = torch.get_num_threads(), prepared.spec.workers
    if wanted == 1 or len(runs) < 2 or not _can_fork(prepared):
        return 1
    if wanted != "auto":
        return min(wanted, len(runs))
    if not enabled("workers"):
        return 1
    workload = Workload(prepared.context, prepared.plan.cached)
    if sum(workload.operations(run) + A_STEP * workload.load(run).steps.count for run in runs) < WORTH:
        return 1
    of_each = {(run.tune, run.train_size): run for run in runs}.values()
    fit = psutil.virtual_memory().total // 2 // max(_bytes(workload, run) for run in of_each)
    workers = min(cores, len(runs), fit)
    return workers if 2 * workers >= cores else 1  # else all threads at one run after the other do more


def _can_fork(prepared: Prepared) -> bool:
    """Autograd refuses a fork where there is an accelerator, and other systems than Linux one with threads."""
    device = prepared.context.machine.device.type
    pooled = current_process().daemon  # somebody's own worker, which may begin no processes
    return device == "cpu" and sys.platform == "linux" and not pooled and not torch.accelerator.is_available()


def _bytes(workload: Workload, run: RunSpec) -> int:
    """That a run needs for itself, at most."""
    anatomy, load = workload.anatomy, workload.load(run)
    parameters = workload.matrices.trained_parameters(run.to_train.parameters(anatomy))
    tokens = max(load.longest, load.longest_scored)
    return int(4 * (COPIES * parameters + KEPT * tokens * anatomy.count * anatomy.width))


def run_concurrently(
    tasks: Sequence[T], workers: int, do: Callable[[T, Progress], None], say: Callable[[T], str], progress: Progress
) -> None:
    """Have the ``tasks`` done, in about their order, each by the next worker that is free; ``do`` runs there.

    Raises:
        FrostlineError: a worker was ended by the system; ``say`` tells what it was at.
        Exception: whatever ``do`` raised; the other workers are ended then.
    """
    waiting, shown = iter(range(len(tasks))), _Shown(progress)
    with _forked(min(workers, len(tasks)), tasks, do) as team:
        for worker in team:
            worker.take(next(waiting, None))
        while busy := {worker.words: worker for worker in team if worker.at is not None}:
            for words in wait(list(busy)):
                worker = busy[words]  # type: ignore[index]
                assert worker.at is not None
                try:
                    name, *rest = worker.words.recv()
                except (EOFError, OSError):
                    raise FrostlineError(
                        f"The worker at {say(tasks[worker.at])} was ended by the system, likely for want of memory: run "
                        "the same command again with --workers 1; finished runs are kept."
                    ) from None
                if name == "done":
                    worker.take(next(waiting, None))
                elif name == "raised":
                    raise pickle.loads(rest[0])
                else:
                    shown.tell(worker, name, *rest)


def in_each(workers: int, work: Callable[[], T]) -> list[T]:
    """What ``work`` gives in every one of so many workers, all at it at the same time."""
    if workers == 1:
        return [work()]
    found: list[T] = []

    def do(number: int, relay: Progress) -> None:
        relay.result(work(), "")  # type: ignore[arg-type]

    class Found(Progress):
        def result(self, facts: Any, trainable: str) -> None:
            found.append(facts)

    run_concurrently(range(workers), workers, do, lambda number: "timing a few steps", Found())
    return found


@dataclass
class _Worker:
    process: BaseProcess
    words: Connection
    at: int | None = None  # the number of its task
    doing: str = ""
    under_way: float = 0.0

    def take(self, task: int | None) -> None:
        """Begin with the next task; None is the end."""
        self.at, self.under_way = task, 0.0
        with suppress(BrokenPipeError):  # it has ended, which is seen where it is listened to
            self.words.send(task)


@contextmanager
def _forked(count: int, tasks: Sequence[T], do: Callable[[T, Progress], None]) -> Iterator[list[_Worker]]:
    """So many forks that wait for the number of a task; whatever happens, none is left at the end."""
    context, team = get_context("fork"), list[_Worker]()
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            ends = [*(worker.words for worker in team), ours]
            process = context.Process(target=_worked, args=(theirs, ends, tasks, do), daemon=True)
            with warnings.catch_warnings():  # a progress bar has a thread; a worker does without what it locks
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            team.append(_Worker(process, ours))
        yield team
        for worker in team:
            worker.process.join()
    finally:
        for worker in team:
            worker.process.terminate()
            worker.process.join()
            worker.words.close()


def _worked(
    words: Connection, others: Sequence[Connection], tasks: Sequence[T], do: Callable[[T, Progress], None]
) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked for the runs ends it
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a progress bar stands in for them, behind a lock
    for other in others:  # ends of pipes that are not its own, so that it sees when whoever began it is gone
        other.close()
    torch.set_num_threads(1)  # the threads of OpenMP do not live on in a fork
    relay = _Relay(words)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (number := words.recv()) is not None:
            try:
                do(tasks[number], relay)
            except Exception as error:
                relay.send("raised", _pickled(error))
                return
            relay.send("done")


def _pickled(error: Exception) -> bytes:
    """The error, or where it cannot travel its words."""
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
        return content
    except Exception:
        return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))


class _Relay(Progress):
    """What a worker has to show, sent to where it is shown."""

    def __init__(self, words: Connection) -> None:
        super().__init__()
        self._words, self._sent = words, 0.0

    def send(self, name: str, *rest: Any) -> None:
        """One word."""
        self._words.send((name, *rest))

    def note(self, sentence: str) -> None:
        self.send("note", sentence)

    def begin(self, what: str) -> None:
        self.send("begin", what)

    def advance(self, work: float) -> None:
        if monotonic() - self._sent > OFTEN:
            self._sent = monotonic()
            self.send("advance", work)

    def finish(self, work: float) -> None:
        self.send("finish", work)

    def result(self, facts: Any, trainable: str) -> None:
        self.send("result", facts, trainable)


@dataclass
class _Shown:
    """What several workers say, as one."""

    progress: Progress
    team: dict[int, _Worker] = field(default_factory=dict)

    def tell(self, worker: _Worker, name: str, *rest: Any) -> None:
        """One word of a worker."""
        self.team[id(worker)] = worker
        if name == "begin":
            worker.doing, worker.under_way = rest[0], 0.0
            self.progress.begin(" · ".join(one.doing for one in self.team.values() if one.doing))
        elif name == "advance":
            worker.under_way = rest[0]
        elif name == "finish":
            worker.doing, worker.under_way = "", 0.0
            self.progress.finish(rest[0])
        else:
            getattr(self.progress, name)(*rest)
            return
        self.progress.advance(sum(one.under_way for one in self.team.values()))
