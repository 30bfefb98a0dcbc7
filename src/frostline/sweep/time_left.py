"""How long the rest of a sweep will take, from the runs that have ended and the processes that train."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import mean
from typing import NamedTuple, Self

from frostline.sweep.results.folder import Folder
from frostline.sweep.results.forecast_record import forecast_seconds, makespan
from frostline.sweep.results.leases import Lease, Leases
from frostline.sweep.results.store import DamagedError, Store
from frostline.training.run import RunSpec

SAMPLED = 20  # results of one k and train size that are read
Kind = tuple[str, int]  # recipe and train size: runs of one kind take about equally long
Work = tuple[int, float]  # the layers that a run of a kind trains, and its work


@dataclass(frozen=True)
class TimeLeft:
    """The time that the pending runs of a sweep will take.

    Attributes:
        seconds: Wall-clock seconds until the last run ends whose time is known, with the processes that train now. Without
            one: with a single process.
        processes: The processes that train now.
        measured: The pending runs with the k and the train size of a run that has ended. Its time counts.
        forecast: The other pending runs with the k and the train size of a recorded forecast.
        scaled: The other pending runs, if any run has ended: the time of the most similar k, in proportion to the work.
        unknown: All other pending runs. They are not in ``seconds``.
        at_least: Whether some runs will probably take longer: only diverged runs, which end early, or runs that tune no layer
            have told how long they take.
    """

    seconds: float
    processes: int
    measured: int
    forecast: int
    scaled: int
    unknown: int
    at_least: bool = False

    @classmethod
    def of(cls, folder: Folder, leases: Leases, note: Callable[[str], None]) -> Self:
        """The time left of the sweep in a folder; ``note`` is called with a sentence about each damaged result that is read."""
        pending: dict[Kind, list[RunSpec]] = defaultdict(list)
        done: dict[Kind, list[RunSpec]] = defaultdict(list)
        for run, state in zip(folder.runs, folder.states(), strict=True):
            if state != "failed":
                (pending if state == "pending" else done)[run.recipe, run.train_size].append(run)
        measured = {kind: _measured(folder.store, done[kind], note) for kind in pending}
        forecast = forecast_seconds(folder.out)
        least = False
        scaled: dict[Kind, float] = {}
        if others := [kind for kind in pending if not measured[kind].whole and kind not in forecast]:
            measured |= {kind: _measured(folder.store, done[kind], note) for kind in done.keys() - measured.keys()}
            work = {kind: _work(runs[0], folder.identity.layers) for kind, runs in {**done, **pending}.items()}
            for kind in others:
                seconds, sure = _scaled(measured, work, kind)
                scaled |= {kind: seconds} if seconds else {}
                least |= not sure
        whole = {kind: found.seconds for kind, found in measured.items() if found.whole}
        known = scaled | forecast | whole
        of_process = {run.digest: known[kind] for kind in pending if kind in known for run in pending[kind]}
        alive = [lease for lease in leases.current() if leases.sign_of_life(lease) != "dead"]
        counts = Counter[str]()
        for kind, runs in pending.items():
            sources = {"measured": whole, "forecast": forecast, "scaled": scaled}
            counts[next((name for name, found in sources.items() if kind in found), "unknown")] += len(runs)
        return cls(
            seconds=_seconds(of_process, alive),
            processes=len({lease.holder for lease in alive}),
            measured=counts["measured"],
            forecast=counts["forecast"],
            scaled=counts["scaled"],
            unknown=counts["unknown"],
            at_least=least or bool(counts["unknown"]),
        )


class _Measured(NamedTuple):
    """The mean seconds of runs that have ended, 0 if unknown, and whether these ran to the end: a diverged run ends too early."""

    seconds: float
    whole: bool


def _measured(store: Store, runs: Sequence[RunSpec], note: Callable[[str], None]) -> _Measured:
    """The mean seconds of these runs, without diverged ones if there are others. Of many runs, some are read."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for run in runs[:: len(runs) // SAMPLED + 1]:
        try:
            result = store.result(run.digest)
        except DamagedError as error:
            note(str(error))
            continue
        cost = result.cost
        # of a run that was continued, run_seconds is a part
        seconds = max(cost.train_seconds + cost.evaluation_seconds, cost.run_seconds)
        if seconds > 0:
            found[result.outcome != "diverged"].append(seconds)
    return next((_Measured(mean(seconds), whole) for whole, seconds in found.items() if seconds), _Measured(0.0, False))


def _work(run: RunSpec, layers: int) -> Work:
    """The layers that a run trains, and its work relative to other runs: each layer, and the rest of the model, counts as one.

    The work of named parts, and of ways that do not tune the last layers, is that of the whole model at most.
    """
    k = run.way.last_layers if run.recipe.is_way else run.recipe.k
    trained = layers + 1 if k is None else k
    return trained, run.train_size * (trained + 1)


def _scaled(measured: Mapping[Kind, _Measured], work: Mapping[Kind, Work], kind: Kind) -> tuple[float, bool]:
    """The seconds of a run of a kind of which no whole run has ended, and whether the estimate is no mere lower limit.

    They are in proportion to the work of the most similar kind: whole runs come first, then those that train layers. 0: unknown.
    """
    trained, own = work[kind]

    def distance(other: Kind) -> tuple[bool, bool, bool, float]:
        layers, theirs = work[other]
        return not measured[other].whole, bool(trained) and not layers, other != kind, abs(log(theirs / own))

    known = [other for other, found in measured.items() if found.seconds]
    if not known:
        return 0.0, True
    nearest = min(known, key=distance)
    seconds, whole = measured[nearest]
    return seconds * own / work[nearest][1], whole and bool(work[nearest][0] or not trained)


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
