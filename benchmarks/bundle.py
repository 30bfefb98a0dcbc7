"""Several tasks with one frozen part: a bundle of five models compared with the five separate models.

    python benchmarks/bundle.py --repeats 5

The models come from all-MiniLM-L6-v2 (6 layers). The weights of the last layers and of the head are random, and differ between
the tasks. Each measurement is a new process, and the two sides alternate. Predictions must be bitwise identical. A pass is
the time of one model. The goal is a time of at most 1 + 5 x (share of the own layers) passes plus 10 %, and likewise
for the disk.
"""

import argparse
import gc
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import psutil
from measuring import Facts, Spread, alternating, printed_by, write_result

BUNDLE, SEPARATE = SIDES = ("bundle", "separate")
RESULT = Path(__file__).parent / "results" / "bundle.json"
TASKS, LAYERS = 5, 6
ROWS = {  # by measurement: its name in the table, its unit and the format of a number
    "seconds": ("time to predict, s", 1, ".2f"),
    "processor_seconds": ("processor time to predict, s", 1, ".2f"),
    "load_seconds": ("time to load, s", 1, ".2f"),
    "memory_bytes": ("peak memory above the imports, MB", 1e6, ".0f"),
}
Predict = Callable[[Any], list[Any]]


def write_models(work: Path, k: int) -> list[Path]:
    """Write the models of all tasks."""
    import torch

    from frostline.api.demo import packaged_model
    from frostline.model.loading import load_pretrained
    from frostline.model.ways import Way
    from frostline.statistics.recipe import Recipe

    folders = []
    for n in range(TASKS):
        pretrained = load_pretrained(str(packaged_model()), labels=("no", "yes"), task_type="text-classification")
        torch.manual_seed(n)
        with torch.no_grad():
            for name in sorted(Way(tune=Recipe(k)).parameters(pretrained.anatomy)):
                weight = pretrained.model.get_parameter(name)
                weight += 0.02 * torch.randn_like(weight)
        folders.append(work / f"task{n}")
        pretrained.model.save_pretrained(folders[-1])
        pretrained.tokenizer.save_pretrained(folders[-1])
    return folders


def write_texts(work: Path, rows: int) -> None:
    """Write generated film reviews."""
    from generated_reviews import generate
    from pyarrow import csv

    csv.write_csv(generate(train=rows)["train"], work / "texts.csv")


def bundle_side(work: Path) -> Predict:
    """Load the bundle. Returns a function from texts to the values of each task."""
    import frostline

    together = frostline.load_bundle(work / "bundle")
    return lambda texts: [one.values for one in together(texts).values()]


def separate_side(work: Path) -> Predict:
    """Load the separate models. Returns a function from texts to the values of each task."""
    from frostline.data.kinds import CLASSIFICATION
    from frostline.frozen.logits import logits_of_texts
    from frostline.model.classifier import Classifier, load_classifier
    from frostline.statistics.class_outputs import OUTPUTS

    classifiers = [load_classifier(folder) for folder in sorted(work.glob("task*"))]

    def values(one: Classifier, texts: Any) -> Any:
        return OUTPUTS[CLASSIFICATION](logits_of_texts(one, one.encode(texts)).numpy())

    return lambda texts: [values(one, texts) for one in classifiers]


def measure(work: Path, side: str) -> Facts:
    """The seconds and bytes of one side, and a digest of all its predictions."""
    import frostline
    from frostline.data.load import read_unlabelled
    from frostline.model.device import sampled_peak

    texts, _ = read_unlabelled(work / "texts.csv")
    frostline.predict(next(work.glob("task*")), texts.texts[:64])  # imports what a prediction needs
    gc.collect()
    before = psutil.Process().memory_info().rss
    with sampled_peak(lambda: int(psutil.Process().memory_info().rss)) as peak:
        start = perf_counter()
        predict_all = bundle_side(work) if side == BUNDLE else separate_side(work)
        loaded, before_cpu = perf_counter(), process_time()
        values = predict_all(texts)
        seconds, cpu = perf_counter() - loaded, process_time() - before_cpu
    digest = hashlib.sha256(b"".join(one.tobytes() for one in values)).hexdigest()
    return {
        "load_seconds": loaded - start,
        "seconds": seconds,
        "processor_seconds": cpu,
        "memory_bytes": peak.bytes - before,
        "predictions": digest,
    }


def table(lines: dict[str, list[Facts]], disk: dict[str, int], k: int, rows: int) -> Facts:
    """The table of both sides, with the goal in its caption."""
    found: list[list[str]] = []
    for key, (name, unit, form) in ROWS.items():
        one, many = (Spread.of(x[key] / unit for x in lines[side]) for side in SIDES)
        assert one and many
        found.append([name, many.text(form), one.text(form), f"{TASKS * one.median / many.median:.2f}"])
    sizes = [f"{disk[side] / 1e6:.0f}" for side in (SEPARATE, BUNDLE)]
    found.append(["disk, MB", *sizes, f"{TASKS * disk[BUNDLE] / disk[SEPARATE]:.2f}"])
    caption = (
        f"{TASKS} tasks with the last {k} of {LAYERS} layers of MiniLM tuned, {rows:,} short texts. The last column compares the "
        f"bundle with one model. The goal is at most {1.1 * (1 + TASKS * k / LAYERS):.2f} for time and disk: 1 + {TASKS} x "
        f"{k}/{LAYERS}, plus 10 %. The layers that run are {(LAYERS - k + TASKS * k) / LAYERS:.2f} times those of one model."
    )
    return {"caption": caption, "header": ("", f"{TASKS} separate models", "bundle", "of one model"), "rows": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", type=int, default=2, help="how many of the last layers are tuned")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.work, options.side)))
        return
    import frostline

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_texts(work, options.rows)
        made = frostline.bundle(write_models(work, options.tune), out=work / "bundle")
        lines: dict[str, list[Facts]] = {side: [] for side in SIDES}
        for _, side in alternating(SIDES, options.repeats):
            lines[side].append(printed_by([sys.executable, __file__, "--side", side, "--work", folder]))
            print(side, lines[side][-1], flush=True)
    assert len({line["predictions"] for side in SIDES for line in lines[side]}) == 1, "the predictions differ"
    disk = {BUNDLE: made.cost.disk_bytes, SEPARATE: made.separate.disk_bytes}
    question = "What do several tasks cost in one bundle, compared with separate models?"
    write_result(RESULT, question, [table(lines, disk, options.tune, options.rows)], {"disk": disk, "lines": lines})


if __name__ == "__main__":
    main()
