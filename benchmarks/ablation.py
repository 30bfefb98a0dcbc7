"""How much each speed-up of ``frostline.fast`` saves: a whole sweep with one speed-up off at a time.

    python benchmarks/ablation.py --repeats 3 --resume ablation.jsonl

Two grids, both on the model and the generated sentences of ``frostline demo``: ``short`` has 1,000 sentences and
k = 0, 1, 2, 3, 4, 6, all; ``long`` has 64 reviews of about 200 to 400 tokens, joined from such sentences, and
k = 0, 2, all. Each measurement is a real ``frostline sweep`` in a process of its own, with an empty cache. The sides:

- ``all``: every speed-up is on. This side runs twice in each repeat.
- the name of a speed-up: it is off (``FROSTLINE_WITHOUT``), and all others are on.
- ``plain``: all speed-ups are off (``FROSTLINE_PLAIN=1``).

Every repeat starts with another side. Seconds are those of the whole command. Memory is the peak of the process and its
children together, without and with mapped files (weights, hidden states). The table shows ratios to the median of ``all``.
Scores differ only where dropout uses other random numbers. A measurement that other processes disturbed is repeated in the
next call. ``--minutes`` ends a call early; the next call with the same ``--resume`` file continues. ``--quick`` tests the
script with a tiny grid.
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
from ablation_grids import GRIDS, JOINED, SIZES, write_tables
from frostline_side import sweep
from measuring import Facts, Failed, Journal, Spread, as_json, chosen, spread_text, warm_up, write_result

import frostline
from frostline.fast.switch import SPEED_UPS
from frostline.model.device import anonymous_memory, sampled_peak

ALL, PLAIN = "all", "plain"
RESULTS = Path(__file__).parent / "results" / "ablation.json"
MEASURED = {  # names in the journal -> headings
    "seconds": "time",
    "processor_seconds": "processor time",
    "memory": "memory",
    "resident": "with mapped files",
}
OTHERS = 0.1  # the largest processor time of other processes, as a share of the wall-clock time
FILES = {
    "attention": ("fast/attention.py",),
    "dropout": ("fast/dropout.py",),
    "sparse_gradients": ("fast/optimizer.py",),
    "last_layer": ("fast/last_layer.py",),
    "packing": ("model/packing.py",),
    "malloc": ("fast/switch.py",),
    "garbage_collection": ("fast/switch.py",),
    "workers": ("sweeps/execution/workers.py",),
}


def schedule(sides: Sequence[str], repeats: int) -> Iterator[tuple[str, int]]:
    """Pairs of a side and the number of its turn, in the order of the measurements.

    Every repeat has each side once and ``all`` twice, and starts with another side.
    """
    others = [side for side in sides if side != ALL]
    half = len(others) // 2
    order = [(side, 1, 0) for side in others]  # side, its turns per repeat, the number of the turn within the repeat
    if ALL in sides:
        order = [(ALL, 2, 0), *order[:half], (ALL, 2, 1), *order[half:]]
    for repeat in range(repeats):
        first = (repeat * 5) % len(order)
        for side, turns, turn in (*order[first:], *order[:first]):
            yield side, repeat * turns + turn


@contextmanager
def switched(side: str) -> Iterator[None]:
    """Set the environment variables of a side for processes that start inside the context."""
    names = {PLAIN: {"FROSTLINE_PLAIN": "1"}, ALL: {}}.get(side, {"FROSTLINE_WITHOUT": side})
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


class MemoryOfChildren:
    """Samples the memory of all child processes. Pages that forked processes share count once."""

    resident = 0  # the largest sample so far, with mapped files

    def __call__(self) -> int:
        """The current memory in bytes, without mapped files."""
        anonymous = resident = 0
        for process in psutil.Process().children(recursive=True):
            try:
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                kilobytes = {
                    name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])
                }
                anonymous += kilobytes["Pss_Anon"] << 10
                resident += kilobytes["Pss"] << 10
            except (OSError, KeyError):  # the process has just ended, or this is not Linux
                with suppress(psutil.Error):
                    anonymous += anonymous_memory(process)
                    resident += process.memory_info().rss
        self.resident = max(self.resident, resident)
        return anonymous


def measured(settings: dict[str, str], side: str, work: Path) -> Facts:
    """Run one sweep with one side.

    Raises:
        measuring.Failed: The sweep ended in an error, or other processes disturbed it.
    """
    before, busy = _processor_seconds(resource.RUSAGE_CHILDREN), _busy_seconds()
    children = MemoryOfChildren()
    with switched(side), sampled_peak(children) as peak:
        seconds, runs = sweep(settings, work)
    own = _processor_seconds(resource.RUSAGE_CHILDREN) - before
    others = _busy_seconds() - busy - own
    if others > OTHERS * seconds:
        raise Failed(f"other processes took {others:.1f} processor seconds in {seconds:.1f} s")
    return {
        "seconds": seconds,
        "processor_seconds": own,
        "others_seconds": others,
        "memory": peak.bytes,
        "resident": children.resident,
        "run_memory": max(run["cost"]["peak_memory_bytes"] for run in runs),
        "scores": {str(run["spec"]["recipe"]): run["validation_best"] for run in runs},
        "packed": runs[0]["provenance"]["packed"],
        "workers": runs[0]["provenance"]["workers"],
    }


def _processor_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _busy_seconds() -> float:
    """Processor seconds of all processes but this one since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times[:8]) - idle) - _processor_seconds(resource.RUSAGE_SELF)


def measure(options: argparse.Namespace, sides: Sequence[str], journal: Journal) -> None:
    """Run the measurements that the journal lacks, until the time is over."""
    done = {(line["grid"], line["side"], line["turn"]) for line in _good(journal)}
    until = monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        grids = {grid: write_tables(grid, Path(folder), quick=options.quick) for grid in options.grids.split(",")}
        warm_up("torch", "transformers", "frostline.api.sweep")
        for side, turn in schedule(sides, options.repeats):
            for grid, settings in grids.items():
                if (grid, side, turn) in done:
                    continue
                where = {"grid": grid, "side": side, "turn": turn}
                if monotonic() > until:
                    print("the time is over: call again with the same --resume file", file=sys.stderr)
                    return
                try:
                    journal.add({"kind": "sweep", **where, **measured(settings, side, Path(folder))})
                except Failed as error:
                    journal.add({"kind": "sweep", **where, "failed": str(error)})
                    print(f"{grid}, {side} failed: {error}", file=sys.stderr)


def _good(journal: Journal) -> list[Facts]:
    return [line for line in journal.lines() if line["kind"] == "sweep" and "failed" not in line]


def summarise(lines: Sequence[Facts]) -> Facts:
    """For each grid and side: the spread of each measured quantity, and the scores of each k."""
    found: Facts = {}
    for grid in dict.fromkeys(line["grid"] for line in lines):
        for side in (ALL, *SPEED_UPS, PLAIN):
            own = [line for line in lines if (line["grid"], line["side"]) == (grid, side)]
            if own:
                spreads = {name: as_json(Spread.of(line[name] for line in own if name in line)) for name in MEASURED}
                scores = {k: sorted({line["scores"][k] for line in own}) for k in own[0]["scores"]}
                found.setdefault(grid, {})[side] = {**spreads, "scores": scores}
    return found


def lines_of(name: str) -> str:
    """The number of lines of the files that implement a speed-up."""
    root = Path(frostline.__file__).parent
    return f"{sum(len((root / path).read_text().splitlines()) for path in FILES[name]):,}" if name in FILES else ""


def cells_of(summary: Facts) -> list[list[str]]:
    """The header, and a row for each speed-up: time and memory without it, relative to all on."""
    grids = list(summary)
    header = ["off", "lines", *(f"{what}, {grid}" for grid in grids for what in MEASURED.values())]
    rows = []
    for side in (*SPEED_UPS, PLAIN):
        row = [side, lines_of(side)]
        for grid in grids:
            for name in MEASURED:
                row.append(_relative(summary[grid], side, name))
        rows.append(row)
    first = [ALL, ""]
    for grid in grids:
        own: Any = summary[grid].get(ALL, {})
        first += [
            f"{spread_text(own.get('seconds'), '.1f')} s",
            f"{spread_text(own.get('processor_seconds'), '.1f')} s",
        ]
        first += [_megabytes(own.get(name)) for name in ("memory", "resident")]
    return [header, first, *rows]


def _relative(sides: Facts, side: str, name: str) -> str:
    """The median of a side divided by the median of ``all``, with the smallest and the largest value likewise."""
    if side not in sides or ALL not in sides:
        return "-"
    if not (sides[ALL][name] and sides[side][name]):
        return "-"
    middle, own = sides[ALL][name]["median"], sides[side][name]
    return spread_text(Spread(own["median"] / middle, own["low"] / middle, own["high"] / middle, own["n"]))


def _megabytes(spread: Facts | None) -> str:
    if spread is None:
        return "-"
    parts = {name: spread[name] / 1e6 for name in ("median", "low", "high")}
    return f"{spread_text({**parts, 'n': spread['n']}, '.0f')} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--grids", default=",".join(GRIDS), help="grids to run, separated by commas")
    add("--sides", default=",".join((ALL, *SPEED_UPS, PLAIN)), help="sides to run, separated by commas")
    add("--repeats", type=int, default=3, help="measurements of every side")
    add("--minutes", type=float, default=1e6, help="start no measurement after this many minutes")
    add("--resume", type=Path, metavar="FILE", help="file of measurements, which the next call continues")
    add("--json", type=Path, metavar="FILE", default=RESULTS, help="result file to write")
    add("--quick", action="store_true", help="run a tiny grid, to test the script")
    options = parser.parse_args()
    sides = chosen(options.sides, (ALL, *SPEED_UPS, PLAIN), "side")
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(options.resume or Path(folder) / "journal.jsonl")
        journal.begin({"grids": GRIDS, "sizes": SIZES, "joined": JOINED, "quick": options.quick})
        measure(options, sides, journal)
        lines = _good(journal)
    summary = summarise(lines)
    header, *rows = cells_of(summary)
    caption = (
        "Each speed-up off, relative to all on: median [lowest to highest]. The first row has the values with all on."
    )
    tables = [{"caption": caption, "header": header, "rows": rows}]
    write_result(
        options.json, "What is each CPU speed-up worth?", tables, {"grids": GRIDS, "texts": SIZES, "summary": summary}
    )


if __name__ == "__main__":
    main()
