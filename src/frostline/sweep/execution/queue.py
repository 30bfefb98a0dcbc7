"""The order in which a process takes stacks of runs that other processes take, too.

A group is the runs that start from one cut and train on the same rows. They read the same hidden states, so one process trains as
many of them as it can:

- While its last group has runs that nobody has, a process stays with that group.
- Then it takes a group of which nobody has a run; of several, the one with the longest stack. If there is none, it helps with the
  group whose longest free stack is the longest.
- In a group, the longest stack comes first, so that all processes end at about the same time.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Set
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Self

from frostline.sweep.results.leases import Leases
from frostline.sweep.results.store import Store
from frostline.training.run import Run

Stack = list[Run]


@dataclass
class Group:
    """The stacks of one group that have not ended, in the order in which they start, each with its cost."""

    stacks: list[tuple[float, Stack]]

    def remove(self, ended: Set[str]) -> None:
        """Leave out the runs that have ended."""
        runs = ((cost, [run for run in stack if run.digest not in ended]) for cost, stack in self.stacks)
        self.stacks = [(cost, rest) for cost, rest in runs if rest]

    def rank(self, taken: Set[str]) -> tuple[bool, float]:
        """What sorts groups: whether somebody has a run, and the longest stack with a run that nobody has."""
        free = (cost for cost, stack in self.stacks if any(run.digest not in taken for run in stack))
        return any(run.digest in taken for _, stack in self.stacks for run in stack), -max(free, default=0.0)


class Queue:
    """The stacks that have not ended, for one process."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = list(groups)
        self._last: Group | None = None  # from which this process took the last run

    @classmethod
    def as_given(cls, stacks: Iterable[Stack]) -> Self:
        """The stacks as one group, in the given order."""
        return cls([Group([(0.0, list(stack)) for stack in stacks])])

    @classmethod
    def by_group(
        cls, stacks: Iterable[Stack], group_of: Callable[[Run], Hashable], cost_of: Callable[[Stack], float]
    ) -> Self:
        """The stacks in groups, longest first. All runs of a stack are in one group, or count as those of the first run."""
        groups: dict[Hashable, Group] = {}
        for cost, stack in sorted(((cost_of(stack), stack) for stack in stacks), key=lambda one: -one[0]):
            groups.setdefault(group_of(stack[0]), Group([])).stacks.append((cost, list(stack)))
        return cls(groups.values())

    @property
    def stacks(self) -> list[Stack]:
        """All stacks that have not ended."""
        return [stack for group in self._groups for _, stack in group.stacks]

    def remove(self, ended: Set[str]) -> None:
        """Leave out the runs that have ended."""
        for group in self._groups:
            group.remove(ended)

    def in_order(self, taken: Set[str]) -> list[Stack]:
        """The stacks in the order in which this process wants them, while somebody has the ``taken`` runs."""
        groups = sorted(self._groups, key=lambda group: (group is not self._last, group.rank(taken)))
        return [stack for group in groups for _, stack in group.stacks]

    def took(self, run: str) -> None:
        """Remember the group of the run that this process took."""
        self._last = next(
            one for one in self._groups if any(run == own.digest for _, stack in one.stacks for own in stack)
        )


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
            of_others = ended - own
            for run in (run for stack in queue.stacks for run in stack if run.digest in of_others):
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
            if not (taken or leases.held or wait or leases.undecided()):
                return
            if taken:
                queue.took(next(iter(taken)))
                yield [run for stack in wanted for run in stack if run.digest in taken]
            else:
                held, paused_until = dict(leases.held), monotonic() + max(POLL, PAUSE * (monotonic() - begun))
                yield None
