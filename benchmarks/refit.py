"""Is the delivered model better if it is trained once more on all labelled rows?

    python benchmarks/refit.py --out DIR --data DATA --model MINILM --draws 5 --json benchmarks/results/refit.json

DATA has the folders ``sst2``, ``stsb`` and ``amazon_reviews`` with the original files. Each draw has 300 training rows of a task.
One recipe is trained with five folds. The best fold's model is what a sweep delivers without ``--refit``. Both models then
predict the task's own dev rows, which no run has seen. The journal in DIR continues where it stopped.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Facts, Journal, write_result
from scipy.stats import spearmanr

import frostline
from frostline.sweeps.progress import Progress

ROWS, FOLDS, RECIPE = 300, 5, {"tune": 3, "learning_rate": 2e-4, "num_train_epochs": 5.0}
Rows = list[dict[str, str]]


def lines(path: Path) -> Iterator[list[str]]:
    """The cells of a tab-separated file without quoting."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def of_columns(path: Path, text: str, label: str) -> Rows:
    header, *rows = lines(path)
    return [{"text": row[header.index(text)], "label": row[header.index(label)]} for row in rows]


def tasks(data: Path) -> dict[str, tuple[Rows, Rows, dict[str, Any]]]:
    """Of each task the training rows, the dev rows, and settings of its sweep."""
    splits, short = ("train", "dev"), {"max_length": 64, "max_truncated": 1.0}
    films, reviews = (tuple(data / name / f"{split}.tsv" for split in splits) for name in ("sst2", "amazon_reviews"))
    pairs = [list(lines(data / "stsb" / f"sts-{split}.csv")) for split in splits]
    train, dev = ([{"text": row[5], "text_pair": row[6], "label": row[4]} for row in rows] for rows in pairs)

    def of_table(
        paths: Sequence[Path], text: str, label: str, more: dict[str, Any]
    ) -> tuple[Rows, Rows, dict[str, Any]]:
        return of_columns(paths[0], text, label), of_columns(paths[1], text, label), more

    return {
        "SST-2": of_table(films, "sentence", "label", {}),
        "STS-B": (train, dev, {"text_column": "text", "text_pair_column": "text_pair", "task_type": "regression"}),
        "reviews: sentiment": of_table(reviews, "text", "label", short),
        "reviews: kind of product": of_table(reviews, "text", "domain", short),
    }


def written(path: Path, rows: Rows) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


def measure(folder: Path, model: str, train: Rows, dev: Rows, settings: dict[str, Any], draw: int) -> Facts:
    """The scores on the dev rows of the delivered model, without and with a refit, and the validated score."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(draw).permutation(len(train))[:ROWS]
    table = written(folder / "train.csv", [train[n] for n in drawn])
    unlabelled = [{name: cell for name, cell in row.items() if name != "label"} for row in dev]
    new = written(folder / "dev.csv", unlabelled)
    given = {**RECIPE, **settings, "train": table, "folds": FOLDS, "seeds": FOLDS, "data_seed": draw, "model": model}
    found: Facts = {"draw": draw}
    for name, refit in (("without", False), ("with", True)):
        answer = frostline.sweep(**given, refit=refit, out=folder / "sweep", progress=Progress()).answer
        found["validated"] = answer.sizes[0].cells[0].validation.mean
        found[name] = score(list(frostline.predict(folder / "sweep" / "model", new).rows()), dev)
    return found


def score(predicted: Sequence[dict[str, Any]], dev: Rows) -> float:
    """Accuracy, or Spearman's correlation of numbers."""
    true = [row["label"] for row in dev]
    if "label" in predicted[0]:
        return float(np.mean([one["label"] == label for one, label in zip(predicted, true, strict=True)]))
    numbers = [next(value for value in one.values() if isinstance(value, float)) for one in predicted]
    return float(spearmanr(numbers, [float(label) for label in true]).statistic)


def table_of(found: Sequence[Facts]) -> Facts:
    """A row for each task, and one for all draws together."""
    rows = []
    names = list(dict.fromkeys(line["task"] for line in found))
    for name in (*names, "all"):
        some = [line for line in found if name in ("all", line["task"])]
        gains = 100 * np.array([line["with"] - line["without"] for line in some])
        error = f" ± {gains.std(ddof=1) / np.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
        means = [np.mean([line[key] for line in some]) for key in ("validated", "without", "with")]
        wins = f"{int((gains > 0).sum())} of {len(gains)}"
        rows.append([name, *(f"{mean:.3f}" for mean in means), f"{gains.mean():+.2f}{error}", wins])
    return {
        "caption": f"**The delivered model on rows that nobody has seen**: the last 3 of 6 layers, {ROWS} rows, {FOLDS} folds.",
        "header": ["task", "validated", "best fold's model", "refit", "points gained ± standard error", "draws won"],
        "rows": rows,
    }


def parser_of_draws(description: str | None, draws: int) -> argparse.ArgumentParser:
    """The flags of a benchmark that draws rows of tasks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("out", "data", "json"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--tasks", help="names with commas between them; by default all")
    return parser


def missing(options: argparse.Namespace, tasks: Sequence[str], journal: Journal) -> Iterator[Facts]:
    """Task and draw of each cell that the journal does not have."""
    for draw in range(options.draws):
        for name in options.tasks.split(",") if options.tasks else tasks:
            cell = {"task": name, "draw": draw}
            if not any(cell.items() <= line.items() for line in journal.lines()):
                yield cell


def main() -> None:
    options = parser_of_draws(__doc__, 5).parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal, known = Journal(options.out / "journal.jsonl"), tasks(options.data)
    journal.begin({"rows": ROWS, "folds": FOLDS, **RECIPE})
    for cell in missing(options, tuple(known), journal):
        name, draw = cell["task"], cell["draw"]
        folder = options.out / f"{list(known).index(name)}-{draw}"
        journal.add({**cell, **measure(folder, options.model, *known[name], draw)})
    found = [line for line in journal.lines() if "task" in line]
    table = table_of(found)
    write_result(options.json, "Is the delivered model better if it is trained once more on all rows?", [table], found)
    print(table["caption"], *("  ".join(row) for row in (table["header"], *table["rows"])), sep="\n")


if __name__ == "__main__":
    main()
