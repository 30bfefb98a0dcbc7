"""The order in which a process takes stacks of runs that other processes take, too.

A group is the runs that start from one cut and train on the same rows. They read the same hidden states, so one process trains as
many of them as it can:

- While its last group has runs that nobody has, a process stays with that group.
- Then it takes a group of which nobody has a run; of several, the one with the longest stack. If there is none, it helps with the
  group whose longest free stack is the longest.
- In a group, the longest stack comes first, so that all processes end at about the same time.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Set
from math import inf
from time import monotonic

from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.training.run import Run

Stack = list[Run]


class Queue:
    """The stacks that have not ended, for one process.

    Args:
        stacks: The stacks.
        group_of: The group of a run. All runs of a stack are in one group, or count as those of the first run. By default, all
            stacks are in one group.
        cost_of: The cost of a stack. By default, the stacks keep their order.
    """

    def __init__(
        self,
        stacks: Iterable[Stack],
        group_of: Callable[[Run], Hashable] = lambda run: None,
        cost_of: Callable[[Stack], float] = lambda stack: 0.0,
    ) -> None:
        self._groups = defaultdict[Hashable, list[tuple[float, Stack]]](list)
        for cost, stack in sorted(((cost_of(stack), stack) for stack in stacks), key=lambda one: -one[0]):
            self._groups[group_of(stack[0])].append((cost, list(stack)))
        self._last: Hashable = object()  # the group from which this process took the last run

    @property
    def stacks(self) -> list[Stack]:
        """All stacks that have not ended."""
        return [stack for stacks in self._groups.values() for _, stack in stacks]

    def remove(self, ended: Set[str]) -> None:
        """Leave out the runs that have ended."""
        for group, stacks in self._groups.items():
            rests = ((cost, [run for run in stack if run.digest not in ended]) for cost, stack in stacks)
            self._groups[group] = [(cost, rest) for cost, rest in rests if rest]

    def in_order(self, taken: Set[str]) -> list[Stack]:
        """The stacks in the order in which this process wants them, while somebody has the ``taken`` runs."""

        def rank(group: Hashable) -> tuple[bool, bool, float]:
            stacks = self._groups[group]
            begun = any(run.digest in taken for _, stack in stacks for run in stack)
            free = (cost for cost, stack in stacks if any(run.digest not in taken for run in stack))
            return group != self._last, begun, -max(free, default=0.0)

        return [stack for group in sorted(self._groups, key=rank) for _, stack in self._groups[group]]

    def took(self, run: str) -> None:
        """Remember the group of the run that this process took."""
        groups = self._groups.items()
        self._last = next(group for group, all_ in groups for _, stack in all_ if run in {one.digest for one in stack})


POLL = 1.0  # seconds until a process that waits for others looks again, at least
PAUSE = 10.0  # times as long as its last look took, because a large folder on a network is slow for all


def shared_out(
    queue: Queue,
    store: Store,
    leases: Leases,
    *,
    wait: bool,
    on_other: Callable[[Run], None] = lambda run: None,
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
            for run in (run for stack in queue.stacks for run in stack if run.digest in ended - own):
                on_other(run)
            queue.remove(ended)
            of_somebody = leases.taken(ended)
            if not queue.stacks:
                return
            wanted = queue.in_order(of_somebody)
            taken = set(leases.take([run.digest for run in stack if run.digest not in of_somebody] for stack in wanted))
            # Another process may have ended runs, and given them back, after ``ended`` was read.
            if late := {digest for digest in taken if store.has_ended(digest)}:
                leases.release(late)
                taken -= late
                if not taken:
                    continue
            own |= taken
            if taken:
                (stack,) = filter(None, ([run for run in stack if run.digest in taken] for stack in wanted))
                queue.took(stack[0].digest)
                yield stack
            elif leases.held or wait:
                held, paused_until = dict(leases.held), monotonic() + max(POLL, PAUSE * (monotonic() - begun))
                yield None
            else:
                return
