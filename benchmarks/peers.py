"""From a table to a model: is ``frostline find`` better than what people use otherwise?

    pip install optuna
    python benchmarks/peers.py --out DIR --data DATA --model MINILM --rows 300 --draws 2 --json benchmarks/results/peers.json

DATA has the folders ``sst2``, ``cola``, ``mrpc``, ``stsb`` and ``amazon_reviews`` with the original files. Each draw has some
training rows of a task. Every side makes one model of them, in a process of its own. The model predicts the task's dev rows,
which no side has seen. Optuna and SetFit get the time that ``find`` took; Optuna then goes on to all of its trials. The journal
in DIR continues where it stopped, also with more rows or draws.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from measuring import Facts, Journal, timed, warm_up, write_result
from peer_sides import score
from refit import Rows, lines, parser_of_draws, tasks, written

import frostline

MAX_LENGTH = 64  # of reviews, which are long
PEERS = ("trainer", "logistic", "optuna", "setfit")
FREE = "free, by find --price 0"


def known_tasks(data: Path) -> dict[str, tuple[Rows, Rows, str]]:
    """Of each task the training rows, the dev rows, and the metric."""
    cola, mrpc = (tuple(data / name / f"{split}.tsv" for split in ("train", "dev")) for name in ("cola", "mrpc"))
    columns = {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"}

    def pairs(path: Path) -> Rows:
        header, *rows = lines(path)
        places = {name: header.index(column) for name, column in columns.items()}
        return [{name: row[place] for name, place in places.items()} for row in rows]

    def sentences(path: Path) -> Rows:
        return [{"text": row[3], "label": row[1]} for row in lines(path)]

    metrics = {"STS-B": "spearmanr"}
    found = {name: (train, dev, metrics.get(name, "accuracy")) for name, (train, dev, _) in tasks(data).items()}
    found["CoLA"] = sentences(cola[0]), sentences(cola[1]), "matthews_correlation"
    found["MRPC"] = pairs(mrpc[0]), pairs(mrpc[1]), "accuracy"
    return found


class Draw:
    """Some rows of a task as files, and a side's models of them."""

    def __init__(self, folder: Path, model: str, task: tuple[Rows, Rows, str], rows: int, draw: int) -> None:
        train, self.dev, self.metric = task
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.model, self.draw = folder, model, draw
        drawn = np.random.default_rng(draw).permutation(len(train))[:rows]
        unlabelled = [{name: cell for name, cell in row.items() if name != "label"} for row in self.dev]
        self.train, self.new = (
            written(folder / "train.csv", [train[n] for n in drawn]),
            written(folder / "new.csv", unlabelled),
        )

    def out(self, side: str = "find") -> Path:
        """The folder of a search."""
        return self.folder / side.split(",")[0]

    def find(self, side: str = "find", *options: str) -> Iterator[Facts]:
        """``frostline find`` with its defaults and these options, but no test rows."""
        out = self.out(side)
        shutil.rmtree(out, ignore_errors=True)  # of a call that was interrupted
        command = [sys.executable, "-m", "frostline", "find", "--model", self.model, "--train", str(self.train)]
        command += ["--test", "none", "--max-length", str(MAX_LENGTH), "--max-truncated", "1", "--metric", self.metric]
        command += ["--task-type", "regression"] * (self.metric == "spearmanr")
        seconds = timed([*command, *options, "--out", str(out)], out.with_suffix(".txt"))
        results = frostline.open(out)
        rows = list(frostline.predict(results.model_folder, self.new).rows())
        named = "label" in rows[0]
        predicted = [row["label"] if named else next(v for v in row.values() if isinstance(v, float)) for row in rows]
        yield {
            "side": side,
            "seconds": seconds,
            "score": score(predicted, self.dev, self.metric),
            "sentence": results.answer.sentence.split(" To be surer")[0],
        }

    def peer(self, side: str, seconds: float, in_time: bool) -> Iterator[Facts]:
        facts = {"model": self.model, "train": str(self.train), "new": str(self.new), "max_length": MAX_LENGTH}
        facts["in_time"] = in_time
        facts |= {"classes": self.metric != "spearmanr", "metric": self.metric, "seed": self.draw, "seconds": seconds}
        task, out = self.folder / "task.json", self.folder / f"{side}.json"
        task.write_text(json.dumps(facts))
        script = [sys.executable, str(Path(__file__).with_name("peer_sides.py")), side, str(task), repr(time.time())]
        timed([*script, str(out)], self.folder / f"{side}.txt")
        for made in json.loads(out.read_text()):
            yield {"side": made.pop("name"), "score": score(made.pop("predictions"), self.dev, self.metric), **made}


def sides_in(journal: Journal, cell: Facts) -> dict[str, Facts]:
    """The measurements of a cell by the first word of their side."""
    return {line["side"].split()[0].strip(","): line for line in journal.lines() if cell.items() <= line.items()}


def table_of(found: Sequence[Facts], rows: int) -> Facts:
    """Scores of each task, in points, and the seconds of each side."""
    some = [line for line in found if line["rows"] == rows]
    names, sides = (list(dict.fromkeys(line[key] for line in some)) for key in ("task", "side"))

    def mean(side: str, key: str, task: str | None = None) -> float | None:
        values = [line[key] for line in some if line["side"] == side and task in (None, line["task"])]
        return float(np.mean(values)) if values else None

    def text(side: str, task: str) -> str:
        values = [100 * line["score"] for line in some if line["side"] == side and line["task"] == task]
        spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
        return f"{np.mean(values):.1f}{spread}" if values else "-"

    def difference(side: str) -> str:
        """Points that ``find`` is above a side on the draws that both have, with the standard error over draws."""
        score_of = {(line["task"], line["draw"]): line["score"] for line in some if line["side"] == side}
        ours = [line for line in some if line["side"] == "find" and (line["task"], line["draw"]) in score_of]
        gains = [100 * (line["score"] - score_of[line["task"], line["draw"]]) for line in ours]
        error = f" ± {np.std(gains, ddof=1) / np.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
        return f"{np.mean(gains):+.2f}{error} ({len(gains)})" if side != "find" else "-"

    body = [[task, *(text(side, task) for side in sides)] for task in names]
    body.append(["find is above by (draws)", *(difference(side) for side in sides)])
    times = [(mean(side, "seconds"), side) for side in sides]
    body.append(["seconds in the mean", *(f"{value:.0f}" for value, _ in times if value is not None)])
    return {
        "caption": f"**{rows} rows**, points on unseen rows (smallest to largest).",
        "header": ["task", *sides],
        "rows": body,
    }


def main() -> None:
    parser = parser_of_draws(__doc__, 3)
    parser.add_argument("--rows", default="300", help="numbers with commas between them")
    parser.add_argument(
        "--sides", default="trainer,logistic,optuna", help=f"of {', '.join(PEERS)}, free; find is always there"
    )
    parser.add_argument("--in-time", action="store_true", help="without all of Optuna's trials")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal, known = Journal(options.out / "journal.jsonl"), known_tasks(options.data)
    journal.begin({"max_length": MAX_LENGTH})
    sizes = [int(size) for size in options.rows.split(",")]
    warm_up("torch", "transformers", "sklearn", "sentence_transformers")
    for rows, draw in ((rows, draw) for rows in sizes for draw in range(options.draws)):
        for name in options.tasks.split(",") if options.tasks else known:
            cell = {"task": name, "rows": rows, "draw": draw}
            made = Draw(
                options.out / f"{list(known).index(name)}-{rows}-{draw}", options.model, known[name], rows, draw
            )
            there = sides_in(journal, cell)
            if "find" not in there:
                journal.add(*({**cell, **line} for line in made.find()))
            seconds = sides_in(journal, cell)["find"]["seconds"]
            for side in options.sides.split(","):
                impossible = side == "setfit" and (made.metric == "spearmanr" or "text_pair" in known[name][0][0])
                if side not in there and not impossible:
                    free = side == "free"
                    models = made.find(FREE, "--price", "0") if free else made.peer(side, seconds, options.in_time)
                    journal.add(*({**cell, **line} for line in models))
    found = [line for line in journal.lines() if "side" in line]
    tables = [table_of(found, rows) for rows in dict.fromkeys(line["rows"] for line in found)]
    write_result(options.json, "Is find better than what people use otherwise, in equal time?", tables, found)
    for table in tables:
        print(table["caption"], *("  ".join(row) for row in (table["header"], *table["rows"])), sep="\n")


if __name__ == "__main__":
    main()
