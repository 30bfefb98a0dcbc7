r"""A whole grid with frostline and with transformers' Trainer: wall-clock time from start to end, seconds of each k, scores.

    python benchmarks/versus_trainer.py --model FOLDER --train FILE --validation FILE --tune 0,1,2,3,4,6,full \
        --train-size 1000 --seeds 3 --json speed.json --figure docs/speed.svg --table -

Each side runs in a new process. The sides run one after the other, and every repeat starts with another side.

- ``frostline``: the complete ``frostline sweep``, with its check, report, recommended model and an empty cache.
- ``trainer``: Trainer as users run it: fp32, random batches padded to their longest example, evaluation in batches of 8 after
  every epoch, default logging and progress bar, dropout active in the frozen layers.
- ``trainer-best``: Trainer at its best: bf16 if the processor has it, batches grouped by length, grouped evaluation in batches
  of at least 64, no logging, no dropout in the frozen layers, examples read from memory.

Both Trainer sides have advantages: one process tokenizes once and runs all cells, nothing is saved, and they read a file with
only the rows that they need. They use the same examples, frozen parameters, AdamW (fused), learning rates and parameter groups.
The classifier head and the order of the batches come from their own seed. ``--resume FILE`` writes every finished cell to the
file and continues from it after a kill.

``--random bert-base`` is a grid for a GPU: random weights of that size, random tokens, 7 k x 5 seeds x 5 learning rates. Trainer
then runs one cell for each k, after a warm-up cell. This mode also measures the throughput of several numbers of stacked runs.
``--read FILE.json`` shows earlier measurements again. Other flags go to the sweep. Needs ``accelerate``.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import speed_report
import torch
from frostline_side import cell, sweep
from measuring import Facts, Failed, Journal, alternating, chosen, machine, settings_of, timed, warm_up
from random_model import SIZES, write_model, write_rows
from same_rows import write_task
from speed_report import OURS, SIDES
from stacks import measure_stacks, stack_table

HERE = Path(__file__).parent
GRID = {"tune": "0,1,2,3,4,6,all", "train_size": "1000", "seeds": "3", "num_train_epochs": "3", "test": "none"}
RANDOM = {
    **{"tune": "0,1,2,4,6,9,all", "train_size": "500", "seeds": "5", "num_train_epochs": "1", "test": "none"},
    "learning_rate": "1e-5,2e-5,5e-5,1e-4,2e-4",
}
SHOWN = ("train_size", "validation_rows", "num_train_epochs", "per_device_train_batch_size", "metric")


class Bench:
    """Measures one grid with every side."""

    def __init__(self, settings: dict[str, str], work: Path, journal: Journal, sample: int | None) -> None:
        self.settings, self.work, self.journal = settings, work, journal
        self.task = write_task(settings, work)
        self.sample = _sample(self.task["cells"], sample)

    def run(self, side: str, repeat: int) -> None:
        """Measure one side once, unless the journal has it. A failure is recorded."""
        where = {"side": side, "repeat": repeat}
        if any(line["kind"] == "whole" and where.items() <= line.items() for line in self.journal.lines()):
            return
        try:
            self._frostline(where) if side == OURS else self._trainer(where)
        except Failed as error:
            self.journal.add({"kind": "whole", **where, "failed": str(error)})
        print(f"{side}: {self.journal.lines()[-1].get('seconds', 'failed')} s", file=sys.stderr, flush=True)

    def _frostline(self, where: Facts) -> None:
        seconds, runs = sweep(self.settings, self.work)
        cells = [{"kind": "cell", **where, **cell(run)} for run in runs]
        whole = {"kind": "whole", **where, "seconds": seconds, "in_one": True, "cells": len(cells)}
        self.journal.add(*cells, whole)

    def _trainer(self, where: Facts) -> None:
        own = [line for line in self.journal.lines() if where.items() <= line.items()]
        command = [sys.executable, str(HERE / "trainer_side.py"), str(self.work), str(self.journal.path)]
        command += [where["side"], str(where["repeat"]), str(time.time()), ",".join(map(str, self.sample))]
        seconds = timed(command, self.work / f"{where['side']}.log")
        failed = [line for line in self.journal.lines() if where.items() <= line.items() and "failed" in line]
        if failed:
            raise Failed(f"{len(failed)} of {len(self.sample)} cells failed, so the wall-clock time is unknown")
        in_one = not own and len(self.sample) == len(self.task["cells"])
        self.journal.add({"kind": "whole", **where, "seconds": seconds, "in_one": in_one, "cells": len(self.sample)})


def _sample(cells: Sequence[Facts], each: int | None) -> list[int]:
    """The numbers of the cells that Trainer runs: all, or ``each`` of every k, spread evenly over seeds and learning rates."""
    if each is None:
        return list(range(len(cells)))
    by_k: dict[str, list[int]] = {}
    for number, one in enumerate(cells):
        by_k.setdefault(one["k"], []).append(number)
    chosen = {numbers[n * len(numbers) // each] for numbers in by_k.values() for n in range(min(each, len(numbers)))}
    return sorted(chosen)


def measure(options: argparse.Namespace, settings: dict[str, str]) -> Facts:
    """Run all measurements of one call."""
    sides = chosen(options.sides, SIDES, "side")
    if find_spec("accelerate") is None:
        raise SystemExit("Trainer needs accelerate: pip install accelerate")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        given = {**settings, "random": options.random, "trainer_cells": options.trainer_cells}
        if options.random:
            settings = _random(options.random, work, settings)
        journal = Journal(options.resume or work / "journal.jsonl")
        journal.begin(given)
        bench = Bench(settings, work, journal, options.trainer_cells)
        warm_up("torch", "transformers", "accelerate", "datasets", "sklearn", "pandas")
        facts = machine()
        for repeat, side in alternating(sides, options.repeats):
            print(f"repeat {repeat + 1} of {options.repeats}: {side}", file=sys.stderr, flush=True)
            bench.run(side, repeat)
        if options.stacks:
            measure_stacks([int(stack) for stack in options.stacks.split(",")], settings, work, journal)
        shown = {name: bench.task[name] for name in SHOWN} | {"cells": len(bench.task["cells"])}
        return {
            **{"machine": facts, "settings": given, "task": shown},
            **{"cells": bench.task["cells"], "lines": journal.lines()},
        }


def _random(size: str, work: Path, settings: dict[str, str]) -> dict[str, str]:
    """Write a random model of that size and tables of random words; returns the settings with their paths."""
    layers, width, heads, vocabulary = SIZES[size]
    write_model(work / "model", layers, width, heads, vocabulary)
    write_rows(work / "train.csv", 2000, (10, 50), vocabulary, seed=0)
    write_rows(work / "validation.csv", 200, (10, 50), vocabulary, seed=1)
    files = {name: str(work / f"{name}.csv") for name in ("train", "validation")}
    return {**settings, "model": str(work / "model"), **files}


def _options() -> tuple[argparse.Namespace, dict[str, str]]:
    """The flags of this script, and the settings of the sweep with the defaults of the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--sides", default=",".join(SIDES), help="sides to run, separated by commas")
    add("--repeats", type=int, default=1, help="measurements of every side")
    add(
        "--trainer-cells", type=int, metavar="N", help="Trainer runs N cells of each k, and its total time is estimated"
    )
    add("--random", choices=list(SIZES), help="a random model of this size, on random tokens")
    add("--stacks", metavar="K,K,...", help="also measure throughput at these numbers of stacked runs")
    add("--resume", type=Path, metavar="FILE", help="journal of finished cells, to continue after a kill")
    add("--read", type=Path, metavar="FILE", help="measure nothing; show the measurements of an earlier --json")
    add("--json", type=Path, metavar="FILE", help="where to write all measurements")
    add("--table", metavar="FILE", type=Path, default=Path("-"), help="where to write the table; - prints it")
    add("--figure", type=Path, metavar="FILE", help="where to draw the speed-up by k, as SVG and PNG")
    options, rest = parser.parse_known_args()
    settings = {**(RANDOM if options.random else GRID), **settings_of(rest)}
    if options.random == "bert-base":
        options.trainer_cells = options.trainer_cells or 1
        options.stacks = options.stacks or "1,2,4,8,16"
    return options, settings


def main() -> None:
    options, settings = _options()
    if options.read:
        measured = json.loads(options.read.read_text())
    else:
        if options.random == "bert-base" and "device" not in settings and not torch.cuda.is_available():
            sys.exit("This grid is for a GPU, and there is none: nothing was measured. --device cpu runs it anyway.")
        measured = measure(options, settings)
    summary = speed_report.summarise(measured["lines"], measured["cells"])
    if options.json:
        options.json.write_text(json.dumps({**measured, "summary": summary}, indent=1) + "\n")
    words = "\n".join(speed_report.sentences(summary, measured["machine"], measured["task"]))
    for paragraph in filter(None, (words, stack_table(measured["lines"]))):
        print(f"{paragraph}\n")
    table = speed_report.table(summary)
    print(table) if str(options.table) == "-" else options.table.write_text(f"{table}\n")
    if options.figure:
        speed_report.save(speed_report.draw(summary), options.figure)
    sys.exit(bool(summary["failed"]))


if __name__ == "__main__":
    main()
