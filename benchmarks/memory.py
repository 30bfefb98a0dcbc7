"""The peak memory of one run above that of the imports, compared with Trainer: a model of BERT-base size, k = 2.

    python benchmarks/memory.py

Each side runs in its own process, with the same random weights and random texts. Memory is sampled every 20 ms. Resident memory
is all memory of the process; own memory excludes mapped files. The difference matters because Trainer maps its frozen weights
and reads them in every step. frostline's run starts when the hidden states are cached. The memory of the preparation, which
needs the whole model, is reported separately.
"""

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from measuring import Facts, printed_by, write_result
from random_model import SIZES, write_model, write_rows
from same_rows import write_task

OURS, USERS, BEST = SIDES = ("frostline", "trainer", "trainer-best")
NAMES = {
    OURS: "frostline, a run",
    USERS: "Trainer with default settings",
    BEST: "Trainer tuned for speed",
}
RESULT = Path(__file__).parent / "results" / "memory.json"
SETTINGS = {"tune": "2", "train_size": "64", "seeds": "1", "num_train_epochs": "1", "test": "none", "workers": "1"}


def frostline(settings: dict[str, Any], work: Path) -> dict[str, Facts]:
    """Peak bytes above the imports: of the preparation, and of a run that starts from cached hidden states."""

    from frostline import plan
    from frostline.fast.switch import memory_reused
    from frostline.sweeps.execution.execute import prepare_hidden_states
    from frostline.sweeps.progress import Progress
    from frostline.training.train import run

    before = _held()
    with _peaks() as until:
        made = plan(timed=False, progress=Progress(), out=work / "out", **settings)
        (spec,) = made.requested
        prepare_hidden_states(made, [spec], Progress())
    with memory_reused(release_large=True), _peaks() as most:
        run(spec, made.experiment)
    return {"frostline, until hidden states are cached": _above(until, before), OURS: _above(most, before)}


def trainer(work: Path, side: str) -> dict[str, Facts]:
    """Peak bytes of one run above the imports."""
    from trainer_side import Grid

    before = _held()
    with _peaks() as most:
        grid = Grid(work, best=side == BEST)
        grid.run(grid.task["cells"][0])
    return {side: _above(most, before)}


def _held() -> Facts:
    """The memory of this process in bytes, with and without mapped files."""
    from frostline.model.device import anonymous_memory

    process = psutil.Process()
    return {"resident": int(process.memory_info().rss), "own": anonymous_memory(process)}


@contextmanager
def _peaks() -> Iterator[dict[str, Any]]:
    """The peaks of both kinds of memory inside the context."""
    from frostline.model.device import sampled_peak

    with sampled_peak(lambda: _held()["resident"]) as resident, sampled_peak(lambda: _held()["own"]) as own:
        yield {"resident": resident, "own": own}


def _above(most: dict[str, Any], before: Facts) -> Facts:
    return {kind: peak.bytes - before[kind] for kind, peak in most.items()}


def _import_all() -> None:
    import transformers

    import_module("accelerate")
    assert transformers.Trainer and transformers.BertForSequenceClassification
    gc.collect()


def _beside(taken: int, theirs: int) -> tuple[str, str]:
    return f"{taken / 1e6:.0f} MB", f"{taken / theirs:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="bert-base")
    parser.add_argument(
        "--tokens", type=int, nargs=2, default=(10, 50), help="length of the shortest and of the longest text"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        _import_all()
        settings = json.loads((options.work / "settings.json").read_text())
        ours = options.side == OURS
        print(json.dumps(frostline(settings, options.work) if ours else trainer(options.work, options.side)))
        return
    found: dict[str, Facts] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        layers, width, heads, vocabulary = SIZES[options.size]
        write_model(work / "model", layers, width, heads, vocabulary)
        for name, count in (("train", 200), ("validation", 64)):
            write_rows(work / f"{name}.csv", count, options.tokens, vocabulary, seed=count)
        files = {name: str(work / f"{name}.csv") for name in ("train", "validation")}
        settings = {**SETTINGS, **files, "model": str(work / "model")}
        (work / "settings.json").write_text(json.dumps(settings))
        write_task(settings, work)
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, "--work", folder]
            found |= printed_by(command, HF_ASSETS_CACHE=str(work / "cache"))
    rows = [
        [NAMES.get(side, side), *(text for kind, taken in facts.items() for text in _beside(taken, found[USERS][kind]))]
        for side, facts in found.items()
    ]
    shortest, longest = options.tokens
    caption = (
        f"A model of {options.size} size, k = {SETTINGS['tune']}, {SETTINGS['train_size']} examples of {shortest} to {longest} "
        "tokens. Peak memory above that of the imports."
    )
    header = ("side", "resident", "of Trainer's", "without mapped files", "of Trainer's")
    table = {"caption": caption, "header": header, "rows": rows}
    write_result(RESULT, "How much memory does a run take, compared with Trainer?", [table], found)


if __name__ == "__main__":
    main()
