"""Share the runs of a folder with other processes: take stacks that nobody else has, until all runs have ended."""

from collections.abc import Callable, Generator
from math import inf
from time import monotonic

from frostline.sweep.execution.queue import Queue, Stack
from frostline.sweep.results.leases import Leases
from frostline.sweep.results.store import Store
from frostline.training.specification import RunSpec

POLL = 1.0  # seconds until a process that waits for others looks again, at least
PAUSE = 10.0  # times as long as its last look took, because a large folder on a network is slow for all


def shared_out(
    queue: Queue,
    store: Store,
    leases: Leases,
    *,
    wait: bool,
    on_other: Callable[[RunSpec], None] = lambda run: None,
) -> Generator[Stack | None, None, None]:
    """Yield the next stack, until every run has ended. Of a stack, only the runs are yielded that no other process has.

    Ask for the next stack after a yielded one has ended, or if more can be trained at the same time. None means that other
    processes have all the runs that are left: ask again after ``POLL`` seconds. The folder is not read at every such call.

    Args:
        queue: The stacks, and the order in which this process wants them.
        store: Shows which runs have ended.
        leases: Shows which runs other processes have. They are taken here. Release those of a stack when it has ended, because
            another process may set its results aside: then somebody has to take it again.
        wait: Whether to wait for the runs of processes that live.
        on_other: Called with each run that another process has ended.
    """
    own, held, paused_until = set[str](), dict[str, int](), -inf
    with leases:
        while True:
            if leases.held == held and monotonic() < paused_until:
                yield None
                continue
            begun = monotonic()
            ended = store.ended()
            leases.forget(ended)
            of_others = ended - own
            for run in (run for stack in queue.stacks for run in stack if run.digest in of_others):
                on_other(run)
            queue.remove(ended)
            if not queue.stacks:
                return
            of_somebody = leases.taken()
            wanted = queue.in_order(of_somebody)
            taken = set(leases.take([run.digest for run in stack if run.digest not in of_somebody] for stack in wanted))
            # Another process may have ended runs, and given them back, after ``ended`` was read.
            if late := {digest for digest in taken if store.has_ended(digest)}:
                leases.release(late)
                taken -= late
                if not taken:
                    continue
            own |= taken
            if not (taken or leases.held or wait or leases.undecided()):
                return
            if taken:
                queue.took(next(iter(taken)))
                yield [run for stack in wanted for run in stack if run.digest in taken]
            else:
                held, paused_until = dict(leases.held), monotonic() + max(POLL, PAUSE * (monotonic() - begun))
                yield None
