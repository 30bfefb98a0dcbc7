"""The two grids of the ablation: short sentences, and long texts that are joined from such sentences."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from generated_reviews import generate

from frostline.api.demo import packaged_model

FIXED = {"seeds": "1", "num_train_epochs": "1", "test": "none"}
GRIDS: dict[str, dict[str, str]] = {
    "short": {**FIXED, "tune": "0,1,2,3,4,6,all", "train_size": "1000"},
    "long": {**FIXED, "tune": "0,2,all", "train_size": "64", "per_device_train_batch_size": "16", "max_length": "512"},
}
QUICK = {"tune": "0,1", "train_size": "24"}
SIZES = {"short": (1000, 500), "long": (64, 32)}  # training and validation texts
JOINED = (18, 36)  # sentences of a long text, of about 11 tokens each


def write_tables(grid: str, folder: Path, *, quick: bool) -> dict[str, str]:
    """Write training and validation texts as CSV; returns the settings of a sweep on them."""
    train, validation = (24, 16) if quick else SIZES[grid]
    most = JOINED[1] if grid == "long" else 1
    tables = generate(train=train * most, validation=validation * most)
    settings = {**GRIDS[grid], **(QUICK if quick else {}), "model": str(packaged_model())}
    for split, count in (("train", train), ("validation", validation)):
        table = tables[split] if grid == "short" else _reviews(tables[split], count)
        settings[split] = str(folder / f"{grid}-{split}.csv")
        pyarrow.csv.write_csv(table, settings[split])
    return settings


def _reviews(sentences: pa.Table, count: int) -> pa.Table:
    """Long texts, each joined from sentences of the same label."""
    rng = random.Random(0)
    by_label: dict[str, list[str]] = {}
    for row in sentences.to_pylist():
        by_label.setdefault(row["label"], []).append(row["text"])
    labels = sorted(by_label)
    texts = []
    for number in range(count):
        own = by_label[labels[number % len(labels)]]
        texts.append(" ".join(own.pop() for _ in range(rng.randint(*JOINED))))
    return pa.table({"text": texts, "label": [labels[number % len(labels)] for number in range(count)]})
