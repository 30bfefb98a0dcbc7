"""Are the expected scores of real searches right, and how often do their intervals contain the truth?

    python benchmarks/expected.py --out DIR --data DATA --model MINILM --draws 1 --json benchmarks/results/expected.json

Every recipe that a search has trained is trained again, at the learning rate that represents it and on as many of the 300 rows
as a fold leaves, with three other seeds. The truth is its mean score on 1,000 other rows of the same file. (GLUE's dev rows are
drawn differently.) DIR may have the searches of a call of ``peers.py``. The journal in it continues where it stopped.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from draws import MAX_LENGTH, TASKS, Draw, Task, draws_of, is_in, parser_of_draws, written
from measuring import Facts, Journal, warm_up, write_result

import frostline
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.training.run import Run

ROWS, UNSEEN, SEEDS = 300, 1_000, (100, 101, 102)


def with_unseen(task: Task, draw: int) -> Task:
    """A task with rows of its training file, whose texts are not among those drawn, as dev rows."""
    train = task.train
    order = np.random.default_rng(draw).permutation(len(train))
    seen = {(row["text"], row.get("text_pair")) for row in (train[n] for n in order[:ROWS])}
    others = [train[n] for n in order[ROWS:] if (train[n]["text"], train[n].get("text_pair")) not in seen]
    return replace(task, dev=others[:UNSEEN])


def truths(made: Draw, trained_on: int, runs: Mapping[Recipe, Run], seeds: Sequence[int]) -> dict[str, Any]:
    """The scores on unseen rows of each recipe with these seeds, given a run of it."""
    together = defaultdict[tuple[float | None, float | None, float], list[Recipe]](list)
    for recipe, run in runs.items():
        together[run.learning_rate, run.head_learning_rate, run.num_train_epochs].append(recipe)
    given: dict[str, Any] = {"model": made.model, "train": made.train, "metric": made.task.metric, "test": "none"}
    given |= {"validation": written(made.folder / "unseen.csv", made.task.dev), "train_size": trained_on}
    given |= {"max_length": MAX_LENGTH, "max_truncated": 1.0, "seeds": seeds, "refit": False, "progress": Progress()}
    given |= {"evaluations_per_epoch": 0, "save_model": False}  # as in a search: the best epoch is no truth
    if made.is_regression:
        given["task_type"] = "regression"
    found: dict[str, Any] = {}
    for n, ((rate, head, epochs), recipes) in enumerate(together.items()):
        rates: dict[str, Any] = {"learning_rate": rate, "head_learning_rate": rate if head is None else head}
        tune = [recipe.trained for recipe in recipes]
        if not any(recipe.is_k for recipe in tune):
            tune.append(HEAD_ONLY)  # the cheapest k: a sweep of ways needs one
        out = made.folder / f"truth-{n}"
        cells = frostline.sweep(**given, **rates, tune=tune, num_train_epochs=epochs, out=out).answer.sizes[0].cells
        scores = {cell.recipe.trained: [point.validation_best for point in cell.points] for cell in cells}
        found |= {recipe: scores[recipe.trained] for recipe in recipes}
    return found


def measure(made: Draw) -> list[Facts]:
    """Of each recipe that the search has trained: what is expected of it, and its scores on unseen rows."""
    if not (made.out() / "answer.json").exists():
        made.find()
    size = frostline.open(made.out()).answer.sizes[0]
    assert size.folds, "the search had no folds"
    specs = {digest: run.spec for digest, run in Folder(made.out()).store.results().items()}
    runs = {cell.recipe: specs[cell.in_mean[0].run] for cell in size.cells if cell.in_mean}
    scores = truths(made, ROWS - ROWS // size.folds, runs, SEEDS)
    full = np.array(scores[str(size.reference)])
    return [
        {
            **{"recipe": choice.choice, "expected": choice.expected, "low": choice.low, "high": choice.high},
            **{"truth": float(np.mean(own := np.array(scores[choice.choice]))), "seeds": own.tolist()},
            **{"below": choice.below_full, "truly_below": 100 * float(full.mean() - own.mean())},
            "error": 100 * float(np.std(own - full, ddof=1) / np.sqrt(len(own))),
            "reference": choice.choice == size.reference,
        }
        for choice in size.choices
        if choice.choice in scores
    ]


def table_of(found: Sequence[Facts]) -> Facts:
    """A row for each search, and one for all."""
    body = []
    names = list(dict.fromkeys((line["task"], line["draw"]) for line in found))
    for name in (*names, None):
        some = [line for line in found if name in (None, (line["task"], line["draw"]))]
        others = [line for line in some if not line["reference"]]
        errors = 100 * np.array([line["expected"] - line["truth"] for line in some])
        inside = [line["low"] <= line["truly_below"] <= line["high"] for line in others]
        body.append(
            [
                *(("all", "") if name is None else map(str, name)),
                str(len(some)),
                f"{errors.mean():+.1f}",
                f"{np.sqrt((errors**2).mean()):.1f}",
                f"{np.sqrt(np.mean([(line['below'] - line['truly_below']) ** 2 for line in others])):.1f}",
                f"{sum(inside)} of {len(inside)}",
            ]
        )
    return {
        "caption": f"**Expected scores against the mean of {len(SEEDS)} seeds on unseen rows**, in points ({ROWS} rows).",
        "header": [
            "task",
            "draw",
            "recipes",
            "mean error",
            "its size",
            "size for points below full",
            "in the 95 % interval",
        ],
        "rows": body,
    }


def main() -> None:
    options = parser_of_draws(__doc__, 1).parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "expected.jsonl")
    journal.begin({"rows": ROWS, "unseen": UNSEEN, "seeds": list(SEEDS)})
    warm_up("torch", "transformers", "sklearn")
    for cell, task, folder in draws_of(options, TASKS, [ROWS]):
        if not is_in(journal, cell):
            made = Draw(folder, options.model, with_unseen(task, cell["draw"]), ROWS, cell["draw"])
            journal.add(*({**cell, **line} for line in measure(made)))
    found = [line for line in journal.lines() if "recipe" in line]
    write_result(options.json, "Are the expected scores of real searches right?", [table_of(found)], found)


if __name__ == "__main__":
    main()
