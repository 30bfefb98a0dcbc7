"""How much memory does it take to tune the last layers of a large model, with streamed layers and with all weights loaded?

    python benchmarks/streaming.py

The model is a Llama with random weights, by default 6.1 GiB of float32 in one file for each layer. Each side runs in its own
process with a cache of its own: it loads the model, checks the cut, computes hidden states and trains the last layers. The first
one also saves the model, which transformers then opens. Anonymous memory cannot be given back to the disk; files that are mapped
into memory can, but then they are read again in every batch. Both sides must predict the same bits.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from measuring import Facts, printed_by, write_result
from random_model import write_rows, write_tokenizer
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

import frostline

RESULT = Path(__file__).parent / "results" / "streaming.json"
SIDES = {"streamed": "layers streamed", "loaded": "all weights loaded"}
KINDS = {"RssAnon": "anonymous", "RssFile": "mapped files"}
PHASES = ("load", "check and hidden states", "train", "save")
GIB = 1 << 30


def write_model(folder: Path, options: argparse.Namespace) -> float:
    """Write a Llama without a head in one file for each layer, layer by layer. Returns its GiB as float32."""
    config = LlamaConfig(
        hidden_size=options.width,
        intermediate_size=11 * options.width // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64 or 1,
        vocab_size=options.vocabulary,
        max_position_embeddings=512,
        pad_token_id=0,
        dtype=options.dtype,
        architectures=["LlamaModel"],
    )
    with torch.device("meta"):
        shapes = {
            n: p.shape for n, p in LlamaForSequenceClassification(config).named_parameters() if n != "score.weight"
        }
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    write_tokenizer(folder, options.vocabulary, 512, model_input_names=["input_ids", "attention_mask"])
    parts: dict[str, list[str]] = {}
    for name in shapes:
        parts.setdefault(name.split(".")[2] if ".layers." in name else "rest", []).append(name)
    draw = torch.Generator().manual_seed(0)
    for part, names in parts.items():
        values = {name: torch.empty(shapes[name]) for name in names}
        for name, value in values.items():
            value.fill_(1.0) if "norm" in name else value.normal_(0, 0.02, generator=draw)
        stored = {name: value.to(getattr(torch, options.dtype)) for name, value in values.items()}
        save_file(stored, folder / f"model-{part}.safetensors", {"format": "pt"})
    index = {name: f"model-{part}.safetensors" for part, names in parts.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return float(sum(shape.numel() for shape in shapes.values()) * 4 / GIB)


def measure(side: str, work: Path, tune: int) -> Facts:
    """Train the last layers on one side. Returns seconds and the peaks of both kinds of memory, in all and by phase."""

    from frostline.model.classifier import save_files
    from frostline.sweeps.execution.execute import execute, prepare_hidden_states
    from frostline.sweeps.progress import Progress
    from frostline.sweeps.results.folder import register
    from frostline.sweeps.results.store import Store

    progress, phases = Progress(), dict[str, Facts]()
    settings = {
        "model": work / "model",
        "train": work / "train.csv",
        "validation": work / "validation.csv",
        "test": "none",
    }
    sweep: dict[str, Any] = dict(
        progress=progress,
        **settings,
        tune=tune,
        seeds=1,
        num_train_epochs=1,
        precision="float32",
        stream=side == "streamed",
        out=work / side,
    )
    begun = _memory()
    with _phase("load", phases):
        plan = frostline.plan(timed=False, **sweep)
    requested = plan.requested
    with _phase("check and hidden states", phases):
        prepare_hidden_states(plan, requested, progress)
    with _phase("train", phases):
        register(plan)
        execute(plan, requested, progress)
    if side == "streamed":
        with _phase("save", phases):
            (work / "saved").mkdir()
            save_files(plan.experiment.pretrained.model, work / "saved")
    (digest,) = Store(work / side).done()
    logits = Store(work / side).predictions(digest)["validation_best"]
    return {
        "before": begun,
        "phases": phases,
        "peak": {kind: max(one[kind] for one in phases.values()) for kind in KINDS},
        "seconds": sum(one["seconds"] for one in phases.values()),
        "notes": [note.replace(str(work), "WORK") for note in plan.notes],
        "logits": logits.tobytes().hex(),
    }


def _memory() -> dict[str, int]:
    """Bytes of this process by kind. Forks of the process are not used."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {kind: 1024 * int(status[kind].split()[0]) for kind in KINDS}


@contextmanager
def _phase(name: str, phases: dict[str, Facts]) -> Iterator[None]:
    from frostline.model.device import sampled_peak

    start = perf_counter()
    with sampled_peak(lambda: _memory()["RssAnon"]) as own, sampled_peak(lambda: _memory()["RssFile"]) as mapped:
        yield
    phases[name] = {"seconds": perf_counter() - start, "RssAnon": own.bytes, "RssFile": mapped.bytes}


def run_side(side: str, work: Path, tune: int) -> Facts:
    """Measure one side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--work", str(work), "--tune", str(tune)]
    facts = printed_by(command, HF_ASSETS_CACHE=str(work / f"cache-{side}"))
    shutil.rmtree(work / f"cache-{side}")
    return facts


def table(found: dict[str, Facts], options: argparse.Namespace, gib: float) -> Facts:
    """The table for the documentation."""
    header = ["phase", *(f"{SIDES[side]}, {what}" for side in found for what in (*KINDS.values(), "seconds"))]

    def cells(facts: Facts | None) -> list[str]:
        if facts is None:
            return ["", "", ""]
        return [*(f"{facts[kind] / GIB:.2f} GiB" for kind in KINDS), f"{facts['seconds']:.0f}"]

    rows = [[name, *(c for one in found.values() for c in cells(one["phases"].get(name)))] for name in PHASES]
    whole = [cells({**one["peak"], "seconds": one["seconds"]}) for one in found.values()]
    caption = (
        f"Last {options.tune} of {options.layers} layers of a random Llama: {gib:.1f} GiB of weights as float32, stored as "
        f"{options.dtype}, {options.train} training and {options.validation} validation examples. Computed in float32. Peak "
        "memory of the process, with imports."
    )
    return {"caption": caption, "header": header, "rows": [*rows, ["all", *(cell for part in whole for cell in part)]]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the files")
    parser.add_argument("--tune", type=int, default=2, help="number of last layers to train")
    parser.add_argument("--train", type=int, default=48, help="training examples")
    parser.add_argument("--validation", type=int, default=32, help="validation examples")
    parser.add_argument(
        "--limit", type=float, default=2.5, help="GiB of anonymous memory that the streamed side may take"
    )
    parser.add_argument("--json", type=Path, default=RESULT, help="the result file")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.side:
        print(json.dumps(measure(options.side, options.work, options.tune)))
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        gib = write_model(work / "model", options)
        for name, count in (("train", options.train), ("validation", options.validation)):
            write_rows(work / f"{name}.csv", count, (10, 20), options.vocabulary, seed=count)
        found = {side: run_side(side, work, options.tune) for side in SIDES}
        _, info = AutoModelForSequenceClassification.from_pretrained(work / "saved", output_loading_info=True)
    equal = len({facts.pop("logits") for facts in found.values()}) == 1
    opens = not info["missing_keys"] and not info["unexpected_keys"]
    made, raw = table(found, options, gib), {"gib": gib, "equal": equal, "opens": opens, "sides": found}
    write_result(options.json, "How much memory does it take to tune the last layers of a large model?", [made], raw)
    peak = found["streamed"]["peak"]["RssAnon"] / GIB
    if not (equal and opens and peak <= options.limit):
        raise SystemExit(
            f"Predictions equal: {equal}; the saved model opens: {opens}; {peak:.2f} GiB of anonymous memory."
        )


if __name__ == "__main__":
    main()
