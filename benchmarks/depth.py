"""What do fewer layers cost in quality, and what do they save in predictions?

    python benchmarks/depth.py --out DIR --data DATA --model MINILM --json benchmarks/results/depth.json

DATA has the folders ``sst2`` and ``amazon_reviews`` with the original files. Some rows of each task are searched with the whole
model and with two thirds, half and a third of its layers. Then the saved models of each depth predict the same texts in turn,
with transformers alone.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from draws import MAX_LENGTH, TASKS, Draw, parser_of_draws
from measuring import Facts, Journal, write_result
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import frostline
from frostline.model.loading import load_pretrained
from frostline.model.model_files import layers_in_config

NAMES, ROWS = ("SST-2", "reviews: sentiment", "reviews: kind of product"), 500
TURNS, BATCH = 15, 32


def searched(made: Draw) -> list[Facts]:
    """The answer about each depth."""
    limits: Facts = {"max_length": MAX_LENGTH, "max_truncated": 1.0, "test": "none"}
    answer = frostline.find(model=made.model, depth="auto", train=made.train, out=made.out("found"), **limits).answer
    kept = ("model", "layers", "choice", "expected", "below", "low", "high", "inference_operations", "runs", "seconds")
    return [{name: getattr(one, name) for name in kept} for one in answer.models]  # type: ignore[attr-defined]


def seconds_of(folder: Path, model: str, depths: Sequence[int], texts: Sequence[str]) -> dict[int, list[float]]:
    """CPU seconds of a batch of texts with the saved model of each depth, in turn, on one thread."""
    torch.set_num_threads(1)
    models = {}
    for depth in depths:
        kept = load_pretrained(model, labels=("no", "yes"), task_type="text-classification", depth=depth)
        kept.model.save_pretrained(folder / f"{depth}-layers")
        models[depth] = AutoModelForSequenceClassification.from_pretrained(folder / f"{depth}-layers").eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    batch = tokenizer(
        list(texts)[:BATCH], padding="max_length", truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
    )
    found: dict[int, list[float]] = {depth: [] for depth in depths}
    for turn in range(TURNS + 2):
        for depth in depths:
            begun = time.process_time()
            with torch.inference_mode():
                models[depth](**batch)
            if turn > 1:  # the first ones are slow
                found[depth].append(time.process_time() - begun)
    return found


def main() -> None:
    options = parser_of_draws(__doc__, 1).parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "journal.jsonl")
    journal.begin({"rows": ROWS, "max_length": MAX_LENGTH})
    layers = layers_in_config(Path(options.model))
    assert layers is not None
    for name in NAMES:
        task = TASKS[name](options.data)
        if not any(line.get("task") == name for line in journal.lines()):
            made = Draw(options.out / name.replace(" ", "-").replace(":", ""), options.model, task, ROWS, 0)
            journal.add({"task": name, "models": searched(made)})
    if not any("seconds" in line for line in journal.lines()):
        depths = sorted({max(1, round(share * layers)) for share in (1 / 3, 1 / 2, 2 / 3, 1)})
        texts = [row["text"] for row in task.dev]
        journal.add(
            {"seconds": {str(n): one for n, one in seconds_of(options.out, options.model, depths, texts).items()}}
        )
    found = [line for line in journal.lines() if "task" in line]
    times = {int(depth): one for line in journal.lines() if "seconds" in line for depth, one in line["seconds"].items()}
    write_result(
        options.json, "What do fewer layers cost, and what do they save?", tables_of(found, times), [*found, times]
    )


def tables_of(found: Sequence[Facts], times: dict[int, list[float]]) -> list[Facts]:
    """What each depth is expected to reach, and how long its predictions take."""
    body = []
    for line in found:
        for one in sorted(line["models"], key=lambda one: -one["layers"]):
            low, high = one["low"], one["high"]
            interval = "" if low is None else f" ({low:.1f} to {high:.1f})"
            below = "-" if one["below"] is None else f"{one['below']:.1f}{interval}"
            expected = "-" if one["expected"] is None else f"{100 * one['expected']:.1f}"
            body.append([line["task"], str(one["layers"]), one["choice"] or "-", expected, below, str(one["runs"])])
    whole = float(np.median(times[max(times)]))
    speed = []
    for depth, seconds in sorted(times.items()):
        share, low, high = (float(np.quantile(seconds, q)) / whole for q in (0.5, 0.1, 0.9))
        speed.append([str(depth), f"{depth / max(times):.2f}", f"{share:.2f} ({low:.2f} to {high:.2f})"])
    return [
        {
            "caption": f"{ROWS} rows, one draw. Points are below the recommended depth, with the 95 % interval.",
            "header": ["task", "layers", "recommended", "expected", "points below", "runs"],
            "rows": body,
        },
        {
            "caption": f"CPU time of {BATCH} texts of {MAX_LENGTH} tokens, {TURNS} times in turn: median (10 to 90 %).",
            "header": ["layers", "share of the layers", "share of the time"],
            "rows": speed,
        },
    ]


if __name__ == "__main__":
    main()
