"""Share the runs of a folder with other processes: take stacks that nobody else has, until all runs have ended."""

from collections.abc import Callable, Generator, Iterable

from frostline.sweep.results.leases import Leases
from frostline.sweep.results.store import Store
from frostline.training.specification import RunSpec

POLL = 1.0  # seconds until a process that waits for others looks again


def shared_out(
    stacks: Iterable[list[RunSpec]],
    store: Store,
    leases: Leases,
    *,
    wait: bool,
    on_other: Callable[[RunSpec], None] = lambda run: None,
) -> Generator[list[RunSpec] | None, None, None]:
    """Yield the next stack, until every run has ended. Of a stack, only the runs are yielded that no other process has.

    Ask for the next stack after a yielded one has ended, or if more can be trained at the same time. None means that other
    processes have all the runs that are left: ask again after ``POLL`` seconds.

    Args:
        stacks: The stacks, in the order in which they should start.
        store: Shows which runs have ended.
        leases: Shows which runs other processes have. They are taken and given back here.
        wait: Whether to wait for the runs of processes that live.
        on_other: Called with each run that another process has ended.
    """
    left, own = [list(stack) for stack in stacks], set[str]()
    with leases:
        while True:
            ended = store.ended()
            leases.forget(ended)
            of_others = ended - own
            for run in (run for stack in left for run in stack if run.digest in of_others):
                on_other(run)
            left = [rest for stack in left if (rest := [run for run in stack if run.digest not in ended])]
            if not left:
                return
            taken = set(leases.take([run.digest for run in stack] for stack in left))
            if late := {
                digest for digest in taken if store.has_ended(digest)
            }:  # and given back, since the look at the folder
                leases.release(late)
                taken -= late
                if not taken:
                    continue
            own |= taken
            if not (taken or leases.held or wait or leases.undecided()):
                return
            yield [run for stack in left for run in stack if run.digest in taken] or None
