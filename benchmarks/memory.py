"""The most memory that a run takes above what the imports take, beside Trainer's: a model of BERT-base size, k = 2.

    python benchmarks/memory.py --json memory.json

Each side is a process of its own: random weights, random texts, the same rows. Memory is what the process holds that is no
mapped file, sampled every 20 ms. frostline's run begins when hidden states are kept and the lower layers are released;
what the pass before it takes, which needs the whole model, stands beside it.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import psutil
from measuring import Facts, markdown
from random_model import SIZES, write_model, write_rows
from same_rows import write_task

OURS, USERS, BEST = SIDES = ("frostline", "trainer", "trainer-best")
SETTINGS = {"tune": "2", "train_size": "64", "seeds": "1", "num_train_epochs": "1", "test": "none", "workers": "1"}


def frostline(settings: dict[str, str], work: Path) -> Facts:
    """Bytes above the imports: of the pass, and of the run after it."""
    from frostline import Sweep
    from frostline.machine import anonymous_memory, highest
    from frostline.progress import Progress
    from frostline.sweep.execute import make_ready

    before, process = _settled(), psutil.Process()
    sweep = Sweep(progress=Progress(), **settings, out=work / "out")
    prepared = sweep._prepare(Progress())
    with highest(lambda: anonymous_memory(process)) as peak:
        make_ready(prepared, sweep._asked(prepared), Progress())
    sweep.run(save_model=False)
    (run,) = prepared.store.results().values()
    return {"pass": peak.bytes - before, "run": run["cost"]["peak_memory_bytes"] - before}


def trainer(work: Path, side: str) -> Facts:
    """Bytes above the imports, of one run."""
    from trainer_side import Grid

    from frostline.machine import anonymous_memory, highest

    before, process = _settled(), psutil.Process()
    with highest(lambda: anonymous_memory(process)) as peak:
        grid = Grid(work, best=side == BEST)
        grid.run(grid.task["cells"][0])
    return {"run": peak.bytes - before}


def _settled() -> int:
    """Bytes that this process holds once everything is imported."""
    import transformers

    from frostline.machine import anonymous_memory

    import_module("accelerate")
    assert transformers.Trainer and transformers.BertForSequenceClassification
    gc.collect()
    return anonymous_memory(psutil.Process())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="bert-base")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        settings = json.loads((options.work / "settings.json").read_text())
        ours = options.side == OURS
        print(json.dumps(frostline(settings, options.work) if ours else trainer(options.work, options.side)))
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        layers, width, heads, vocabulary = SIZES[options.size]
        write_model(work / "model", layers, width, heads, vocabulary)
        for name, count in (("train", 200), ("validation", 64)):
            write_rows(work / f"{name}.csv", count, (10, 50), vocabulary, seed=count)
        files = {name: str(work / f"{name}.csv") for name in ("train", "validation")}
        settings = {**SETTINGS, **files, "model": str(work / "model")}
        (work / "settings.json").write_text(json.dumps(settings))
        write_task(settings, work)
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, "--work", folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            found[side] = json.loads(done.stdout.splitlines()[-1])
    theirs = found[USERS]["run"]
    rows = [
        [side, what, f"{taken / 1e6:.0f} MB", f"{taken / theirs:.2f}"]
        for side, parts in found.items()
        for what, taken in parts.items()
    ]
    print(markdown(("side", "of", "above the imports", "of Trainer's"), rows))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
