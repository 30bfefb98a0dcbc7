"""What do sweeps of very many runs cost: planning them, `frostline status`, and the shared folder?

    python benchmarks/many_runs.py --runs 4 10000 100000 --json benchmarks/results/many_runs.json

The model is tiny, and results are copies of one real result, written without flushing them to disk.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from measuring import Facts, Spread, as_json, settings_of, spread_text, write_result
from random_model import SIZES, write_model, write_rows

import frostline
from frostline.sweeps.execution.queue import Queue, shared_out
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder, register
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.training.result import Result
from frostline.training.run import Run

RATES = 10  # learning rates of every k but k = 0
SMALL = ("--tune", "0,1,2,all", "--train-size", "100", "--num-train-epochs", "1")
PUBLISHED = 300  # results that are published to measure how long that takes
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
QUESTION = "What do planning, `frostline status` and the shared folder cost with very many runs?"


def grid(runs: int) -> list[str]:
    """Flags of a grid with about this many runs: k = 0 at one learning rate, three k at ten."""
    per_seed = 3 * RATES + 1
    if runs < per_seed:
        return [*SMALL, "--seeds", str(max(1, runs // 4))]
    rates = ",".join(f"{n}e-5" for n in range(1, RATES + 1))
    return [*SMALL, "--learning-rate", rates, "--seeds", str(-(-runs // per_seed))]


def command(*words: object) -> tuple[float, float, float]:
    """Run a command; returns its seconds with start-up, its processor seconds, and its peak memory in GiB."""
    arguments = [sys.executable, "-m", "frostline", *map(str, words)]
    # A new process counts the memory of the one that starts it, which must therefore be small.
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], check=True, capture_output=True, text=True)
    taken, processor, kibibytes = done.stdout.split()
    return float(taken), float(processor), int(kibibytes) / 2**20


def seconds(do: Callable[[], object]) -> float:
    start = perf_counter()
    do()
    return perf_counter() - start


def fill(out: Path, flags: Sequence[str]) -> Facts:
    """Write the folder of a sweep in which every run has a result. Returns what a result takes."""
    settings: dict[str, Any] = {**settings_of(flags), "progress": Progress()}
    register(frostline.plan(timed=False, **{**settings, "out": out}))
    first = out.with_name("first")
    frostline.sweep(**{**settings, "out": first, "tune": 1, "seeds": 1, "learning_rate": 1e-5})
    (digest,) = Store(first).done()
    whole = Store(first)
    result, test = Result(whole.result(digest), whole.predictions(digest)), whole.test(digest)
    if test:
        result.test, result.test_logits = test
    store, taken = Store(out), list[float]()

    def publish(run: Run) -> None:
        of_run = {"digest": run.digest}
        record = result.record.model_copy(update={**of_run, "spec": run})
        store.publish(replace(result, record=record, test=result.test and result.test.model_copy(update=of_run)))

    runs = Folder(out).runs
    for run in runs[:PUBLISHED]:
        taken.append(seconds(partial(publish, run)))
    with patch("frostline.data.files.sync"), patch("os.fsync"):
        for run in runs[PUBLISHED:]:
            publish(run)
    size = sum(path.stat().st_size for path in (store.runs / runs[0].digest).iterdir())
    return {"publish": as_json(Spread.of(1000 * one for one in taken)), "bytes": size}


def next_stack(out: Path) -> float:
    """The seconds in which a worker learns that other processes have ended all but one run, and takes that one."""
    folder = Folder(out)
    last = folder.runs[-1]
    (folder.store.runs / last.digest).rename(out / "last")
    stacks = [[run] for run in folder.runs]
    _ = [run.digest for run in folder.runs]
    dealt = shared_out(Queue(stacks), folder.store, Leases(out), wait=False)
    taken = seconds(lambda: next(dealt))
    dealt.close()
    (out / "last").rename(folder.store.runs / last.digest)
    return taken


def measure(runs: int, folder: Path, repeats: int) -> Facts:
    model, table, out = folder / "m", folder / "t.csv", folder / "o"
    flags = ["--model", str(model), "--train", str(table), *grid(runs)]
    plans = [command("sweep", *flags, "--plan") for _ in range(repeats)]
    facts = fill(out, flags)
    found = [command("status", out) for _ in range(repeats)]
    return {
        "runs": len(Folder(out).runs),
        "plan": as_json(Spread.of(one for one, _, _ in plans)),
        "plan_processor": as_json(Spread.of(one for _, one, _ in plans)),
        "plan_gib": max(memory for _, _, memory in plans),
        "status": as_json(Spread.of(one for one, _, _ in found)),
        "status_processor": as_json(Spread.of(one for _, one, _ in found)),
        "status_gib": max(memory for _, _, memory in found),
        "list": as_json(Spread.of(seconds(Store(out).states) for _ in range(repeats))),
        "next": as_json(Spread.of(next_stack(out) for _ in range(repeats))),
        **facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[4, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", required=True, help="where to write the results")
    parser.add_argument("--folder", help="where the folders of the sweeps are made for a while")
    given = parser.parse_args()
    raw = []
    for runs in given.runs:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            write_model(Path(folder) / "m", *SIZES["tiny"])
            write_rows(Path(folder) / "t.csv", 600, (8, 24), SIZES["tiny"][3])
            raw.append(measure(runs, Path(folder), given.repeats))
            print(raw[-1], flush=True)
    header = (
        "runs",
        "plan, s",
        "processor, s",
        "GiB",
        "`status`, s",
        "processor, s",
        "GiB",
        "list the results, s",
        "take the next run, s",
    )
    rows = [
        [
            f"{one['runs']:,}",
            *(spread_text(one["plan"], ".1f"), spread_text(one["plan_processor"], ".1f"), f"{one['plan_gib']:.2f}"),
            *(
                spread_text(one["status"], ".1f"),
                spread_text(one["status_processor"], ".1f"),
                f"{one['status_gib']:.2f}",
            ),
            *(spread_text(one["list"]), spread_text(one["next"])),
        ]
        for one in raw
    ]
    caption = (
        f"Commands with start-up: the median of {given.repeats}, and their range. Planning is `frostline sweep --plan`."
    )
    write_result(given.json, QUESTION, [{"caption": caption, "header": header, "rows": rows}], raw)
    print(f"publishing a result: {spread_text(raw[-1]['publish'], '.1f')} ms")


if __name__ == "__main__":
    main()
