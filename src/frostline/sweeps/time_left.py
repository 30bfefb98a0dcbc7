"""How long the rest of a sweep will take, from the runs that have ended and the processes that train."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean

from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.forecast_record import makespan, recorded
from frostline.sweeps.results.leases import Lease, Leases
from frostline.sweeps.results.store import DamagedError, Store
from frostline.training.run import Kind, Run, by_kind

SAMPLED = 20  # results of one kind that are read
MEASURED, FORECAST, SCALED, UNKNOWN = "measured", "forecast", "scaled", "unknown"


@dataclass(frozen=True)
class TimeLeft:
    """The time that the pending runs of a sweep will take.

    Attributes:
        seconds: Wall-clock seconds until the last run ends whose time is known, with the processes that train now. Without
            one: with a single process.
        processes: The processes that train now.
        runs: How many pending runs have their time from where. ``measured``: from runs with the same k and train size that
            have ended. ``forecast``: from the recorded forecast. ``scaled``: from the largest runs that are known, in
            proportion to the layers, rows and epochs. Those that are ``unknown`` are not in ``seconds``.
    """

    seconds: float
    processes: int
    runs: Mapping[str, int]


def time_left(folder: Folder, leases: Leases, note: Callable[[str], None]) -> TimeLeft:
    """The time left of the sweep in a folder; ``note`` is called with a sentence about each damaged result that is read."""
    states = list(zip(folder.runs, folder.states(), strict=True))
    pending, done = (by_kind(run for run, state in states if state == wanted) for wanted in ("pending", "done"))
    calls = recorded(folder.out)  # a later one is about its own runs
    forecast = {cell.kind: cell.seconds for call in calls for cell in call.cells}
    work = {kind: _work(runs[0], folder.identity.layers) for kind, runs in {**done, **pending}.items()}

    @cache
    def measured(kind: Kind) -> float:
        return _measured(folder.store, done.get(kind, []), note)

    def estimate(kind: Kind) -> tuple[float, str]:
        """Seconds of a run, and where they are from."""
        if seconds := measured(kind):
            return seconds, MEASURED
        if kind in forecast:
            return forecast[kind], FORECAST
        largest = max(filter(measured, work), key=work.__getitem__, default=None)
        return (measured(largest) * work[kind] / work[largest], SCALED) if largest else (0.0, UNKNOWN)

    found = {kind: estimate(kind) for kind in pending}
    counts = Counter[str]()
    for kind, (_, source) in found.items():
        counts[source] += len(pending[kind])
    of_process = {run.digest: found[kind][0] for kind, runs in pending.items() if found[kind][0] for run in runs}
    alive = [lease for lease in leases.current() if not leases.is_dead(lease)]
    return TimeLeft(_seconds(of_process, alive), len({lease.holder for lease in alive}), counts)


def _measured(store: Store, runs: Sequence[Run], note: Callable[[str], None]) -> float:
    """The mean seconds of these runs, of many that of some; 0 if unknown. Diverged ones end early, so they do not count."""
    found = list[float]()
    for run in runs[:: len(runs) // SAMPLED + 1]:
        try:
            result = store.result(run.digest)
        except DamagedError as error:
            note(str(error))
            continue
        # of a run that was continued, run_seconds is a part
        seconds = max(result.cost.train_seconds + result.cost.evaluation_seconds, result.cost.run_seconds)
        if seconds > 0 and result.outcome != "diverged":
            found.append(seconds)
    return mean(found) if found else 0.0


def _work(run: Run, layers: int) -> float:
    """The work of a run relative to others: each layer that it trains, and the rest of the model, counts as one.

    Named parts, and ways that do not tune the last layers, count as the whole model.
    """
    k = run.way.tune.k
    return run.train_size * run.num_train_epochs * ((layers + 1 if k is None else k) + 1)


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
