"""How long the rest of a sweep will take, from the runs that have ended and the processes that train."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Self

from frostline.sweep.results.folder import Folder
from frostline.sweep.results.forecast_record import forecast_seconds
from frostline.sweep.results.leases import Lease, Leases
from frostline.sweep.results.record_form import well_formed_result
from frostline.sweep.results.store import DamagedError, Store
from frostline.sweep.work.makespan import makespan
from frostline.training.specification import RunSpec

SAMPLED = 20  # results of one k and train size that are read
Kind = tuple[str, int]  # trainable and train size: runs of one kind take about equally long


@dataclass(frozen=True)
class TimeLeft:
    """The time that the pending runs of a sweep will take.

    Attributes:
        seconds: Wall-clock seconds until the last run ends whose time is known, with the processes that train now. Without
            one: with a single process.
        processes: The processes that train now.
        measured: The pending runs with the k and the train size of a run that has ended. Its time counts.
        forecast: The other pending runs with the k and the train size of the last recorded forecast.
        unknown: All other pending runs. They are not in ``seconds``.
    """

    seconds: float
    processes: int
    measured: int
    forecast: int
    unknown: int

    @classmethod
    def of(cls, folder: Folder, leases: Leases, note: Callable[[str], None]) -> Self:
        """The time left of the sweep in a folder; ``note`` is called with a sentence about each damaged result that is read."""
        pending: dict[Kind, list[RunSpec]] = defaultdict(list)
        done: dict[Kind, list[RunSpec]] = defaultdict(list)
        for run, state in zip(folder.runs, folder.states(), strict=True):
            if state != "failed":
                (pending if state == "pending" else done)[run.trainable, run.train_size].append(run)
        measured = {kind: _measured(folder.store, done[kind], note) for kind in pending}
        known = forecast_seconds(folder.out) | {kind: seconds for kind, seconds in measured.items() if seconds}
        of_process = {run.digest: known[kind] for kind in pending if kind in known for run in pending[kind]}
        alive = [lease for lease in leases.current() if leases.sign_of_life(lease) != "dead"]
        counts = Counter(
            "measured" if measured[kind] else "forecast" if kind in known else "unknown"
            for kind, runs in pending.items()
            for _ in runs
        )
        return cls(
            seconds=_seconds(of_process, alive),
            processes=len({lease.holder for lease in alive}),
            measured=counts["measured"],
            forecast=counts["forecast"],
            unknown=counts["unknown"],
        )


def _measured(store: Store, runs: Sequence[RunSpec], note: Callable[[str], None]) -> float:
    """The mean seconds of runs that have ended; 0 if that is unknown. Of many runs, some are read."""
    found = []
    for run in runs[:: len(runs) // SAMPLED + 1]:
        try:
            facts = well_formed_result(store, run.digest)
        except DamagedError as error:
            note(str(error))
            continue
        cost = facts["cost"]
        if facts["outcome"] != "diverged":  # which ends too early
            whole = (
                cost["train_seconds"] + cost["evaluation_seconds"]
            )  # of a run that was continued, run_seconds is a part
            found.append(max(whole, cost.get("run_seconds") or 0.0))
    return mean(found) if found else 0.0


def _seconds(of_process: dict[str, float], alive: Sequence[Lease]) -> float:
    """Seconds until the last of these runs ends.

    Args:
        of_process: How long each run keeps a whole process busy, by digest: one of ``n`` runs that it trains at the same time, or
            as one stack, counts as the n-th part of their time.
        alive: The leases of the processes that train.
    """
    if not alive or not of_process:
        return sum(of_process.values())
    held = Counter(lease.holder for lease in alive)
    at_a_time = {lease.holder: lease.at_a_time for lease in alive}
    slots = sum(at_a_time.values())
    left = {digest: seconds * slots / len(at_a_time) for digest, seconds in of_process.items()}
    for lease in alive:
        if lease.run in left:
            share = min(1.0, lease.at_a_time / held[lease.holder])  # of its time that one of its runs has had
            left[lease.run] = max(0.0, of_process[lease.run] * lease.at_a_time - share * lease.age())
    return makespan(list(left.values()), min(slots, len(left)))
