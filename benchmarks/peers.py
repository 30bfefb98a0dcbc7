"""From a table to a model: is ``frostline find`` better than what people use otherwise?

    pip install optuna
    python benchmarks/peers.py --out DIR --data DATA --model MINILM --rows 300 --draws 2 --json benchmarks/results/peers.json

DATA has the folders ``sst2``, ``cola``, ``mrpc``, ``stsb`` and ``amazon_reviews`` with the original files. Each draw has some
training rows of a task. Every side makes one model of them, in a process of its own. The model predicts the task's dev rows,
which no side has seen. Optuna and SetFit get the time that ``find`` took; Optuna then goes on to all of its trials. The journal
in DIR continues where it stopped, also with more rows or draws.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from draws import MAX_LENGTH, TASKS, Draw, draws_of, parser_of_draws
from measuring import Facts, Journal, timed, warm_up, write_result
from peer_sides import score

PEERS = ("trainer", "logistic", "optuna", "setfit")
FREE = "free, by find --price 0"


def peer(made: Draw, side: str, seconds: float, in_time: bool) -> Iterator[Facts]:
    """The models of another side."""
    task, out = made.folder / "task.json", made.folder / f"{side}.json"
    facts = {"model": made.model, "train": str(made.train), "new": str(made.new), "max_length": MAX_LENGTH}
    facts |= {"classes": not made.is_regression, "metric": made.task.metric, "seed": made.draw}
    task.write_text(json.dumps({**facts, "seconds": seconds, "in_time": in_time}))
    script = [sys.executable, str(Path(__file__).with_name("peer_sides.py")), side, str(task), repr(time.time())]
    timed([*script, str(out)], made.folder / f"{side}.txt")
    for one in json.loads(out.read_text()):
        predicted = one.pop("predictions")
        yield {"side": one.pop("name"), "score": score(predicted, made.task.dev, made.task.metric), **one}


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
    journal = Journal(options.out / "journal.jsonl")
    journal.begin({"max_length": MAX_LENGTH})
    warm_up("torch", "transformers", "sklearn", "sentence_transformers")
    for cell, task, folder in draws_of(options, TASKS, [int(size) for size in options.rows.split(",")]):
        made, there = Draw(folder, options.model, task, cell["rows"], cell["draw"]), sides_in(journal, cell)
        if "find" not in there:
            journal.add({**cell, **made.find()})
        seconds = sides_in(journal, cell)["find"]["seconds"]
        for side in options.sides.split(","):
            impossible = side == "setfit" and (made.is_regression or "text_pair" in task.train[0])
            if side not in there and not impossible:
                free = side == "free"
                models = [made.find(FREE, "--price", "0")] if free else peer(made, side, seconds, options.in_time)
                journal.add(*({**cell, **line} for line in models))
    found = [line for line in journal.lines() if "side" in line]
    tables = [table_of(found, rows) for rows in dict.fromkeys(line["rows"] for line in found)]
    write_result(options.json, "Is find better than what people use otherwise, in equal time?", tables, found)


if __name__ == "__main__":
    main()
