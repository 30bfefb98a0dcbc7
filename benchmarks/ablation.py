"""What every speed-up of ``frostline.fast`` is worth: a whole sweep with each of them off, one at a time.

    python benchmarks/ablation.py --repeats 3 --resume ablation.jsonl

Two grids, both on the model and the generated sentences of ``frostline demo``: ``short`` has 1,000 sentences and
k = 0, 1, 2, 3, 4, 6, all; ``long`` has 64 reviews of about 200 to 400 tokens, joined from such sentences, and
k = 0, 2, all. Each measurement is a real ``frostline sweep`` in a process of its own, with an empty cache. The sides:

- ``all``: every speed-up is on. It runs twice in each repeat.
- the name of a speed-up: this one is off (``FROSTLINE_WITHOUT``), the others are on.
- ``plain``: all are off (``FROSTLINE_PLAIN=1``).

Every repeat begins with another side. Seconds are those of the whole command; memory is the most anonymous memory that
the process and its children held together, and the most with mapped files (weights, hidden states). The table shows them
relative to ``all``, as ratios to its median. Scores differ only where other random numbers decide what dropout drops. A
measurement that other processes disturbed is repeated in the next call. ``--minutes`` ends a call early; the next one with
the same ``--resume`` file goes on. ``--quick`` tries the program at a tiny size.
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
from measuring import Facts, Failed, Journal, Spread, markdown, plain, said, warm_up, write_result

import frostline
from frostline.fast.switch import TRICKS
from frostline.model.memory import anonymous_memory, sampled_peak

ALL, PLAIN = "all", "plain"
RESULTS = Path(__file__).parent / "results" / "ablation.json"
MEASURED = {  # names in the journal -> headings
    "seconds": "time",
    "processor_seconds": "processor time",
    "memory": "memory",
    "resident": "with mapped files",
}
OTHERS = 0.1  # processor seconds that other processes may take in a second
FILES = {
    "attention": ("fast/attention.py",),
    "dropout": ("fast/dropout.py",),
    "sparse_gradients": ("fast/sparse_gradients.py",),
    "last_layer": ("fast/last_layer.py",),
    "packing": ("model/packing.py",),
    "malloc": ("fast/malloc.py",),
    "garbage_collection": ("fast/garbage_collection.py",),
    "workers": ("sweep/execution/workers.py",),
}


def in_turn(sides: Sequence[str], repeats: int) -> Iterator[tuple[str, int]]:
    """What to measure, a side and which of its turns: every side once in each repeat, ``all`` twice; each repeat begins
    with another side."""
    others = [side for side in sides if side != ALL]
    half = len(others) // 2
    order = [(side, 1, 0) for side in others]  # side, turns in a repeat, which of them
    if ALL in sides:
        order = [(ALL, 2, 0), *order[:half], (ALL, 2, 1), *order[half:]]
    for repeat in range(repeats):
        first = (repeat * 5) % len(order)
        for side, turns, turn in (*order[first:], *order[:first]):
            yield side, repeat * turns + turn


@contextmanager
def switched(side: str) -> Iterator[None]:
    """The environment of a side, for the processes that begin inside."""
    names = {PLAIN: {"FROSTLINE_PLAIN": "1"}, ALL: {}}.get(side, {"FROSTLINE_WITHOUT": side})
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


class MemoryOfChildren:
    """Samples the memory of all processes below this one; pages that forks share count once."""

    resident = 0  # the highest sample so far of all memory, mapped files included

    def __call__(self) -> int:
        """Anonymous bytes at the moment, which is all memory but mapped files."""
        anonymous = resident = 0
        for process in psutil.Process().children(recursive=True):
            try:
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                kilobytes = {
                    name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])
                }
                anonymous += kilobytes["Pss_Anon"] << 10
                resident += kilobytes["Pss"] << 10
            except (OSError, KeyError):  # it has just ended, or this is not Linux
                with suppress(psutil.Error):
                    anonymous += anonymous_memory(process)
                    resident += process.memory_info().rss
        self.resident = max(self.resident, resident)
        return anonymous


def measured(settings: dict[str, str], side: str, work: Path) -> Facts:
    """One sweep by one side.

    Raises:
        measuring.Failed: it ended in an error.
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
        "scores": {str(run["spec"]["tune"]): run["validation_best"] for run in runs},
        "packed": runs[0]["provenance"]["packed"],
        "workers": runs[0]["provenance"]["workers"],
    }


def _processor_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _busy_seconds() -> float:
    """Of all cores since the machine began, but for this process."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times[:8]) - idle) - _processor_seconds(resource.RUSAGE_SELF)


def measure(options: argparse.Namespace, sides: Sequence[str], journal: Journal) -> None:
    """Measure what the journal has not got, until the time is over."""
    done = {(line["grid"], line["side"], line["turn"]) for line in _good(journal)}
    until = monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        grids = {grid: write_tables(grid, Path(folder), quick=options.quick) for grid in options.grids.split(",")}
        warm_up("torch", "transformers", "frostline.api.sweep")
        for side, turn in in_turn(sides, options.repeats):
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
    """By grid and side: spread of seconds, of processor seconds and of memory, and the scores seen for each k."""
    found: Facts = {}
    for grid in dict.fromkeys(line["grid"] for line in lines):
        for side in (ALL, *TRICKS, PLAIN):
            own = [line for line in lines if (line["grid"], line["side"]) == (grid, side)]
            if own:
                spreads = {name: plain(Spread.of(line[name] for line in own if name in line)) for name in MEASURED}
                scores = {k: sorted({line["scores"][k] for line in own}) for k in own[0]["scores"]}
                found.setdefault(grid, {})[side] = {**spreads, "scores": scores}
    return found


def lines_of(trick: str) -> str:
    """Lines of the files that hold a speed-up."""
    root = Path(frostline.__file__).parent
    return f"{sum(len((root / name).read_text().splitlines()) for name in FILES[trick]):,}" if trick in FILES else ""


def cells_of(summary: Facts) -> list[list[str]]:
    """The header and a row for each side: time and memory with it off, relative to all on."""
    grids = list(summary)
    header = ["off", "lines", *(f"{what}, {grid}" for grid in grids for what in MEASURED.values())]
    rows = []
    for side in (*TRICKS, PLAIN):
        row = [side, lines_of(side)]
        for grid in grids:
            for name in MEASURED:
                row.append(_relative(summary[grid], side, name))
        rows.append(row)
    first = [ALL, ""]
    for grid in grids:
        own: Any = summary[grid].get(ALL, {})
        first += [f"{said(own.get('seconds'), '.1f')} s", f"{said(own.get('processor_seconds'), '.1f')} s"]
        first += [_megabytes(own.get(name)) for name in ("memory", "resident")]
    return [header, first, *rows]


def _relative(sides: Facts, side: str, name: str) -> str:
    """Median over the median of ``all``, and the smallest and the largest over the same."""
    if side not in sides or ALL not in sides:
        return "-"
    if not (sides[ALL][name] and sides[side][name]):
        return "-"
    middle, own = sides[ALL][name]["median"], sides[side][name]
    return said(Spread(own["median"] / middle, own["low"] / middle, own["high"] / middle, own["n"]))


def _megabytes(spread: Facts | None) -> str:
    if spread is None:
        return "-"
    parts = {name: spread[name] / 1e6 for name in ("median", "low", "high")}
    return f"{said({**parts, 'n': spread['n']}, '.0f')} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--grids", default=",".join(GRIDS), help="which to run, with commas")
    add("--sides", default=",".join((ALL, *TRICKS, PLAIN)), help="which to run, with commas")
    add("--repeats", type=int, default=3, help="of every side")
    add("--minutes", type=float, default=1e6, help="begin no measurement after so many")
    add("--resume", type=Path, metavar="FILE", help="where measurements are written, and read from in the next call")
    add("--json", type=Path, metavar="FILE", default=RESULTS, help="where to write all figures")
    add("--quick", action="store_true", help="a tiny grid, to try the program")
    options = parser.parse_args()
    sides = options.sides.split(",")
    if unknown := {*sides} - {ALL, PLAIN, *TRICKS}:
        sys.exit(f"there is no side {', '.join(sorted(unknown))}: sides are {', '.join((ALL, *TRICKS, PLAIN))}")
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(options.resume or Path(folder) / "journal.jsonl")
        journal.begin({"grids": GRIDS, "sizes": SIZES, "joined": JOINED, "quick": options.quick})
        measure(options, sides, journal)
        lines = _good(journal)
    summary = summarise(lines)
    header, *rows = cells_of(summary)
    caption = (
        "Each speed-up off, relative to all on: median [lowest to highest]. The first row has the figures of all on."
    )
    tables = [{"caption": caption, "header": header, "rows": rows}]
    write_result(
        options.json, "What is each CPU speed-up worth?", tables, {"grids": GRIDS, "texts": SIZES, "summary": summary}
    )
    print(markdown(header, rows))


if __name__ == "__main__":
    main()
