"""The order in which processes take stacks of runs."""

from hypothesis import given
from hypothesis import strategies as st

from frostline.sweep.execution.queue import Queue, Stack
from frostline.training.run import Run

USUAL = {"weights": "w", "vocabulary": "v", "data": "d", "metric": "accuracy", "precision": "float32"}
RUNS = [
    Run.model_validate({**USUAL, "recipe": 1, "seed": seed, "train_size": 10, "learning_rate": 1e-4})
    for seed in range(40)
]
# For each stack: its group, its cost and its number of runs.
STACKS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=12)
# Who does something next, and whether it takes a stack or ends its oldest one.
TURNS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80)


class Team:
    """Processes that share stacks, each with a queue of its own. Nobody has the ``free`` runs, and they have not ended."""

    def __init__(self, drawn: list[tuple[int, int, int]], count: int) -> None:
        runs, self.group, self.cost = iter(RUNS), dict[str, int](), dict[str, int]()
        self.stacks = list[Stack]()
        for group, cost, size in drawn:
            self.stacks.append([next(runs) for _ in range(size)])
            self.group |= {run.digest: group for run in self.stacks[-1]}
            self.cost |= {run.digest: cost for run in self.stacks[-1]}
        self.free, self.ended = set(self.group), set[str]()
        self.has: list[list[Stack]] = [[] for _ in range(count)]
        self.last: list[int | None] = [None] * count
        self.queues = [
            Queue(self.stacks, lambda run: self.group[run.digest], lambda stack: self.cost[stack[0].digest])
            for _ in range(count)
        ]

    @property
    def taken(self) -> set[str]:
        return {run.digest for held in self.has for stack in held for run in stack}

    def end(self, who: int) -> None:
        if self.has[who]:
            self.ended |= {run.digest for run in self.has[who].pop(0)}

    def take(self, who: int) -> Stack:
        """Take the first stack with a free run; returns its free runs."""
        queue = self.queues[who]
        queue.remove(self.ended)
        wanted = ([run for run in stack if run.digest in self.free] for stack in queue.in_order(self.taken))
        first = next((stack for stack in wanted if stack), [])
        if first:
            queue.took(first[0].digest)
            self.has[who].append(first)
            self.last[who] = self.group[first[0].digest]
            self.free -= {run.digest for run in first}
        return first

    def longest_free(self) -> dict[int, int]:
        """The cost of the longest free stack of each group that has one."""
        found: dict[int, int] = {}
        for run in self.free:
            found[self.group[run]] = max(self.cost[run], found.get(self.group[run], 0))
        return found


@given(STACKS, TURNS)
def test_processes_stay_with_their_group_and_begin_with_the_longest(
    drawn: list[tuple[int, int, int]], turns: list[tuple[int, bool]]
) -> None:
    team, dealt = Team(drawn, 4), list[str]()
    start = [(who, True) for who in range(4)]
    finish = [(who, takes) for _ in range(len(drawn)) for who in range(4) for takes in (True, False)]
    for who, takes in [*start, *turns, *finish]:
        if not takes:
            team.end(who)
            continue
        longest, last = team.longest_free(), team.last[who]
        untouched = longest.keys() - {team.group[run] for run in team.taken}
        got = team.take(who)
        assert bool(got) == bool(longest)
        if got:
            dealt += [run.digest for run in got]
            group = team.group[got[0].digest]
            assert team.cost[got[0].digest] == longest[group]  # the longest of its group
            if last in longest:
                assert group == last
            elif untouched:
                assert group in untouched and longest[group] == max(longest[one] for one in untouched)
            else:
                assert longest[group] == max(longest.values())
    assert sorted(dealt) == sorted(team.group)  # every run once
