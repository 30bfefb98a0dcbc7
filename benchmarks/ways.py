"""Is any other way to tune better than the last k layers, with few examples? A sweep on real tasks.

For one task after the other (each call goes on where it stopped):

    python benchmarks/ways.py --out DIR --name SST-2 --model FOLDER --glue SST-2 --data sst2

and at the end, over all tasks in DIR:

    python benchmarks/ways.py --out DIR --json benchmarks/results/ways.json

Each way has two learning rates, multiplied by ten for LoRA. Runs are scored once, after their last step, on the task's own
validation set. 16 examples are trained for 20 epochs and 50 for 10 epochs with 5 seeds, 200 for 5 epochs and 1,000 for 3 epochs
with 3 seeds.
``--ways`` names the ways to compare, such as heads that read the mean of all tokens with several numbers of layers.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import score_text, settings_of, write_result

import frostline
from frostline.sweeps.progress import LineProgress

WAYS = (
    *("last-2", "full", "lora-2", "lora-all", "llrd", "gradual", "lp-ft", "reinit-2", "l2-sp", "mixout"),
    *("random-2", "spectrum-33", "mean-pooled-2", "mean-pooled"),
)
GRIDS: Mapping[str, Mapping[str, Any]] = {  # by the number of examples
    "16": {"train_size": 16, "num_train_epochs": 20, "seeds": 5},
    "50": {"train_size": 50, "num_train_epochs": 10, "seeds": 5},
    "200": {"train_size": 200, "num_train_epochs": 5, "seeds": 3},
    "1000": {"train_size": 1000, "num_train_epochs": 3, "seeds": 3},
}
RATES, HEAD_RATES = (1e-4, 3e-4), (1e-3, 3e-3, 1e-2)
CELL = ("recipe", "learning_rate", "trainable_parameters", "seconds", "peak_memory_bytes", "tuned_share")


def train(folder: Path, ways: Sequence[str], sizes: Sequence[str], settings: Mapping[str, str]) -> None:
    """Compare these ways on one task, with results in ``folder``."""
    for size in sizes:
        rates = {"learning_rate": RATES, "head_learning_rate": HEAD_RATES}
        fixed = {**rates, "evaluations_per_epoch": 0, "test": "none", **GRIDS[size]}
        frostline.sweep(
            save_model=False, tune=ways, progress=LineProgress(), out=folder / size, **{**fixed, **settings}
        )


def summary(folder: Path) -> list[dict[str, Any]]:
    """What the answers of one task say, for each train size."""
    sizes = []
    for path in sorted(folder.glob("*/answer.json")):
        answer = json.loads(path.read_bytes())
        for size in answer["sizes"]:
            beside = {choice["choice"]: choice for choice in size["choices"]}
            sizes.append(
                {
                    "task": folder.name,
                    "metric": answer["metric"],
                    "train_size": size["train_size"],
                    "seeds": size["seeds"],
                    "sentence": size["sentence"],
                    "decision": size["decision"],
                    "cells": [_cell(cell, beside.get(cell["recipe"])) for cell in size["cells"]],
                }
            )
    return sorted(sizes, key=lambda one: one["train_size"])


def _cell(cell: Mapping[str, Any], choice: Mapping[str, Any] | None) -> dict[str, Any]:
    scores = {name: cell["validation"][name] for name in ("n", "mean", "std", "low", "high")}
    difference = cell["difference"] and {
        name: cell["difference"].get(name) for name in ("estimate", "low", "high", "p_holm")
    }
    expected = choice and {name: choice[name] for name in ("expected", "below_full", "low", "high", "beside_k")}
    return {
        **{name: cell[name] for name in CELL},
        **{"runs": cell["runs"], "failed": cell["failures"]["failed"], "scores": scores},
        **{"beside_full": difference, "expected": expected},
    }


def table(size: Mapping[str, Any]) -> dict[str, Any]:
    """The table of one task and train size: each way, and how it compares with the last k layers at the same cost."""
    header = ["way", size["metric"], "failed runs", "beside", "points above it", "probability of more", "parameters"]
    rows = [
        [
            cell["recipe"],
            score_text(cell["scores"]),
            f"{cell['failed']} of {cell['runs']}",
            *_beside(cell["expected"] and cell["expected"]["beside_k"]),
            f"{cell['trainable_parameters']:,}",
            f"{cell['seconds']:.1f} s, {cell['peak_memory_bytes'] / 1e6:.0f} MB",
        ]
        for cell in size["cells"]
    ]
    caption = f"**{size['task']}, {size['train_size']:,} examples, {size['seeds']} seeds.** {size['sentence']}"
    return {"caption": caption, "header": [*header, "time and memory of a run"], "rows": rows}


def _beside(beside: Mapping[str, Any] | None) -> list[str]:
    if beside is None:
        return ["", "", ""]
    points = f"{beside['above']:.1f} ({beside['low']:.1f} to {beside['high']:.1f})"
    return [beside["choice"], points, f"{100 * beside['probability']:.0f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all tasks")
    parser.add_argument("--name", help="name of this task")
    parser.add_argument("--ways", default=",".join(WAYS), help="the ways to compare")
    parser.add_argument("--sizes", default=",".join(GRIDS), help="numbers of training examples")
    parser.add_argument("--json", type=Path, help="write the summary of all tasks here")
    known, others = parser.parse_known_args()
    if known.name:
        train(known.out / known.name, known.ways.split(","), known.sizes.split(","), settings_of(others))
    if known.json:
        folders = sorted(path for path in known.out.iterdir() if path.is_dir())
        sizes = [size for folder in folders for size in summary(folder)]
        question = "Is any other way to tune better than the last k layers, with few examples?"
        write_result(known.json, question, [table(size) for size in sizes], sizes)


if __name__ == "__main__":
    main()
