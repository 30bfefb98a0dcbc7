"""What the benchmarks on unseen rows share: tasks in their original files, draws of their rows, and searches of these."""

import argparse
import csv
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from measuring import Facts, Journal, timed
from peer_sides import Rows, score

import frostline

MAX_LENGTH = 64  # of reviews, which are long
SPLITS = ("train", "dev")


@dataclass(frozen=True)
class Task:
    """The training rows, the dev rows, and the metric."""

    train: Rows
    dev: Rows
    metric: str = "accuracy"


def lines(path: Path) -> Iterator[list[str]]:
    """The cells of a tab-separated file without quoting."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def picked(rows: Iterable[list[str]], places: Mapping[str, int]) -> Rows:
    return [{name: row[place] for name, place in places.items()} for row in rows]


def of_columns(data: Path, folder: str, **columns: str) -> Task:
    """A task whose files have a header: the name of the column of the text, the second text and the label."""
    tables = []
    for split in SPLITS:
        header, *rows = lines(data / folder / f"{split}.tsv")
        tables.append(picked(rows, {name: header.index(column) for name, column in columns.items()}))
    train, dev = tables
    return Task(train, dev)


def of_places(data: Path, files: str, metric: str, **places: int) -> Task:
    """A task whose files have no header: the number of these columns. ``{}`` stands for the split in the name of a file."""
    train, dev = (picked(lines(data / files.format(split)), places) for split in SPLITS)
    return Task(train, dev, metric)


TASKS: Mapping[str, Callable[[Path], Task]] = {
    "SST-2": partial(of_columns, folder="sst2", text="sentence", label="label"),
    "STS-B": partial(of_places, files="stsb/sts-{}.csv", metric="spearmanr", text=5, text_pair=6, label=4),
    "reviews: sentiment": partial(of_columns, folder="amazon_reviews", text="text", label="label"),
    "reviews: kind of product": partial(of_columns, folder="amazon_reviews", text="text", label="domain"),
    "CoLA": partial(of_places, files="cola/{}.tsv", metric="matthews_correlation", text=3, label=1),
    "MRPC": partial(of_columns, folder="mrpc", text="#1 String", text_pair="#2 String", label="Quality"),
}


def written(path: Path, rows: Rows) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


class Draw:
    """Some rows of a task as files, and models of them."""

    def __init__(self, folder: Path, model: str, task: Task, rows: int, draw: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.model, self.task, self.draw = folder, model, task, draw
        drawn = np.random.default_rng(draw).permutation(len(task.train))[:rows]
        unlabelled = [{name: cell for name, cell in row.items() if name != "label"} for row in task.dev]
        self.train = written(folder / "train.csv", [task.train[n] for n in drawn])
        self.new = written(folder / "new.csv", unlabelled)

    @property
    def is_regression(self) -> bool:
        return self.task.metric == "spearmanr"

    def out(self, side: str = "find") -> Path:
        """The folder of a search."""
        return self.folder / side.split(",")[0]

    def find(self, side: str = "find", *options: str) -> Facts:
        """``frostline find`` with its defaults and these options, but no test rows."""
        out = self.out(side)
        shutil.rmtree(out, ignore_errors=True)  # of a call that was interrupted
        command = [sys.executable, "-m", "frostline", "find", "--model", self.model, "--train", str(self.train)]
        command += ["--test", "none", "--max-length", str(MAX_LENGTH), "--max-truncated", "1"]
        command += ["--metric", self.task.metric, *["--task-type", "regression"] * self.is_regression]
        seconds = timed([*command, *options, "--out", str(out)], out.with_suffix(".txt"))
        results = frostline.open(out)
        sentence = results.answer.sentence.split(" To be surer")[0]
        return {"side": side, "seconds": seconds, "score": self.delivered(results.model_folder), "sentence": sentence}

    def delivered(self, model: Path) -> float:
        """The score of a saved model on the dev rows."""
        rows = list(frostline.predict(model, self.new).rows())
        named = "label" in rows[0]
        predicted = [row["label"] if named else next(v for v in row.values() if isinstance(v, float)) for row in rows]
        return score(predicted, self.task.dev, self.task.metric)


def parser_of_draws(description: str | None, draws: int) -> argparse.ArgumentParser:
    """The flags of a benchmark that draws rows of tasks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("out", "data", "json"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--tasks", help="names with commas between them; by default all")
    return parser


def draws_of(
    options: argparse.Namespace, tasks: Mapping[str, Callable[[Path], Task]], sizes: Sequence[int]
) -> Iterator[tuple[Facts, Task, Path]]:
    """Task, number of rows and draw of each cell, with the task and a folder for the cell."""
    names = options.tasks.split(",") if options.tasks else [*tasks]
    known = {name: tasks[name](options.data) for name in names}
    for rows in sizes:
        for draw in range(options.draws):
            for name in names:
                folder = options.out / f"{[*tasks].index(name)}-{rows}-{draw}"
                yield {"task": name, "rows": rows, "draw": draw}, known[name], folder


def is_in(journal: Journal, cell: Facts) -> bool:
    """Whether the journal has measurements of a cell."""
    return any(cell.items() <= line.items() for line in journal.lines())
