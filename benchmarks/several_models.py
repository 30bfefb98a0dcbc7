"""Does ``frostline find`` with several models name the better one, and what does it take?

    python benchmarks/several_models.py --out DIR --data DATA --model MINILM,E5 --rows 500 --draws 1 \
        --json benchmarks/results/several_models.json

DATA has the folders ``sst2``, ``amazon_reviews`` and ``nsmc`` with the original files. Each draw has some training rows
of a task. They are searched with each model alone, and with all of them and one of random weights together. Every delivered model
predicts the dev rows of the task, which no search has seen. The truth about a model is the mean of five seeds of what its own
search names, trained on all rows. The journal in DIR continues where it stopped.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from draws import TASKS, Draw, Task, draws_of, is_in, parser_of_draws
from expected import truths
from measuring import Facts, Journal, warm_up, write_result
from peer_sides import Rows
from transformers import AutoConfig, AutoModel, AutoTokenizer

import frostline
from frostline.api.results import SeveralModels
from frostline.statistics.answer import Answer
from frostline.sweeps.results.folder import Folder

TOGETHER, DEV_ROWS, SEEDS = "together", 2_000, range(100, 105)
NAMES = ("SST-2", "reviews: sentiment", "reviews: kind of product")


def korean_reviews(data: Path) -> Task:
    """NSMC, with dev rows whose texts are not among the training rows."""

    def rows(name: str) -> Rows:
        found = (line.split("\t") for line in (data / "nsmc" / name).read_text(encoding="utf-8").split("\n")[1:])
        return [{"text": row[1], "label": row[2]} for row in found if len(row) == 3 and row[1].strip()]

    train = rows("ratings_train.txt")
    seen = {row["text"] for row in train}
    return Task(train, [row for row in rows("ratings_test.txt") if row["text"] not in seen][:DEV_ROWS])


def write_random(model: str, folder: Path) -> Path:
    """Write a model of the same form with random weights."""
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.from_pretrained(model)).save_pretrained(folder)
        AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def measure(drawn: Draw, rows: int) -> Facts:
    """One search, its seconds and its score on unseen rows; of several models what became of each, of one model its truth."""
    facts = drawn.find()
    results = frostline.open(drawn.out())
    if isinstance(results, SeveralModels):
        kept = ("model", "choice", "expected", "below", "low", "high", "probe", "runs", "seconds", "why")
        facts |= {"named": results.answer.recommended, "training_seconds": results.answer.seconds}
        facts["models"] = [{name: getattr(one, name) for name in kept} for one in results.answer.models]
    else:
        search = results.answer.search
        facts["training_seconds"] = search["spent_seconds"] if search else None
        facts["truth"] = truth(drawn, rows, results.answer) or [facts["score"]]
    return facts


def truth(drawn: Draw, rows: int, answer: Answer) -> list[float]:
    """Scores on the dev rows of what a search names, trained on all rows with five seeds; none if it trains no layer."""
    named = answer.sizes[0].recommended
    if named is None:
        return []
    run = next(run for run in Folder(drawn.out()).runs if run.digest == named.run)
    scores: list[float] = truths(drawn, rows, {run.recipe: run}, SEEDS)[run.recipe]
    return scores


def table_of(found: Sequence[Facts], names: Sequence[str]) -> Facts:
    """A row for each draw: the truth and the delivered score of each model, those of the search over all, and times."""
    body, right, ratios, losses = [], 0, [], []
    for cell in dict.fromkeys((one["task"], one["rows"], one["draw"]) for one in found):
        of = {one["search"]: one for one in found if (one["task"], one["rows"], one["draw"]) == cell}
        if TOGETHER not in of or any(name not in of for name in names):
            continue
        together = of[TOGETHER]
        best = max(names, key=lambda name: float(np.mean(of[name]["truth"])))
        ratio = together["training_seconds"] / of[best]["training_seconds"]
        right += together["named"] == best
        ratios.append(ratio)
        losses.append(of[best]["score"] - together["score"])
        random = next(one for one in together["models"] if one["model"] not in names)
        body.append(
            [
                *map(str, cell),
                *(spread(of[name]["truth"]) for name in names),
                *(f"{100 * of[name]['score']:.1f}" for name in (*names, TOGETHER)),
                together["named"],
                f"{ratio:.2f}",
                str(random["runs"]),
            ]
        )
    empty = [""] * (2 * len(names) + 2)
    below = f"{100 * np.mean(losses):.1f} below"
    body.append(["all", *empty, below, f"{right} of {len(body)} right", f"{np.mean(ratios):.2f}", ""])
    truths, delivered = ([f"{name}{what}" for name in names] for what in (", truth", " delivers"))
    header = ["task", "rows", "draw", *truths, *delivered, "together", "named", "times its time alone"]
    return {
        "caption": "Points on unseen rows. Truth: the mean of five seeds (± standard error); a model that trains no layer "
        "has one. Below: what the search over all delivers loses on average against what the better model delivers alone. "
        "The time is that of training, over the better model alone.",
        "header": [*header, "runs of random weights"],
        "rows": body,
    }


def spread(scores: Sequence[float]) -> str:
    """The mean in points, with its standard error over seeds if there are several."""
    error = f" ± {100 * np.std(scores, ddof=1) / np.sqrt(len(scores)):.1f}" if len(scores) > 1 else ""
    return f"{100 * np.mean(scores):.1f}{error}"


def main() -> None:
    parser = parser_of_draws(__doc__, 1)
    parser.add_argument("--rows", default="500", help="numbers with commas between them")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = options.model.split(",")
    names = [Path(model).name for model in models]
    random = write_random(models[0], options.out / "random-weights")
    journal = Journal(options.out / "journal.jsonl")
    journal.begin({"models": names})
    tasks = {name: TASKS[name] for name in NAMES} | {"NSMC": korean_reviews}
    warm_up("torch", "transformers", "sklearn")
    for drawn, task, folder in draws_of(options, tasks, [int(rows) for rows in options.rows.split(",")]):
        for search, model in zip((*names, TOGETHER), (*models, f"{options.model},{random}"), strict=True):
            cell, rows = {**drawn, "search": search}, drawn["rows"]
            if not is_in(journal, cell):
                made = Draw(folder.with_name(f"{folder.name}-{search}"), model, task, rows, drawn["draw"])
                journal.add({**cell, **measure(made, rows)})
    found = [line for line in journal.lines() if "search" in line]
    question = "Does a search over several models name the better one?"
    write_result(options.json, question, [table_of(found, names)], found)


if __name__ == "__main__":
    main()
