"""Is the delivered model better if it is trained once more on all labelled rows?

    python benchmarks/refit.py --out DIR --data DATA --model MINILM --draws 5 --json benchmarks/results/refit.json

DATA has the folders ``sst2``, ``stsb`` and ``amazon_reviews`` with the original files. Each draw has 300 training rows of a task.
One recipe is trained with five folds. The best fold's model is what a sweep delivers without ``--refit``. Both models then
predict the task's own dev rows, which no run has seen. The journal in DIR continues where it stopped.
"""

from collections.abc import Sequence

import numpy as np
from draws import MAX_LENGTH, TASKS, Draw, draws_of, is_in, parser_of_draws
from measuring import Facts, Journal, write_result

import frostline
from frostline.sweeps.progress import Progress

ROWS, FOLDS, RECIPE = 300, 5, {"tune": 3, "learning_rate": 2e-4, "num_train_epochs": 5.0}
NAMES = ("SST-2", "STS-B", "reviews: sentiment", "reviews: kind of product")


def measure(made: Draw, name: str) -> Facts:
    """The scores on the dev rows of the delivered model, without and with a refit, and the validated score."""
    given: Facts = {
        **RECIPE,
        "model": made.model,
        "train": made.train,
        "folds": FOLDS,
        "seeds": FOLDS,
        "data_seed": made.draw,
    }
    given |= {"task_type": "regression"} if made.is_regression else {}
    given |= {"max_length": MAX_LENGTH, "max_truncated": 1.0} if name.startswith("reviews") else {}
    found: Facts = {}
    for kind, refit in (("without", False), ("with", True)):
        answer = frostline.sweep(**given, refit=refit, out=made.folder / "sweep", progress=Progress()).answer
        found["validated"] = answer.sizes[0].cells[0].validation.mean
        found[kind] = made.delivered(made.folder / "sweep" / "model")
    return found


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


def main() -> None:
    options = parser_of_draws(__doc__, 5).parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "journal.jsonl")
    journal.begin({"rows": ROWS, "folds": FOLDS, **RECIPE})
    for cell, task, folder in draws_of(options, {name: TASKS[name] for name in NAMES}, [ROWS]):
        if not is_in(journal, cell):
            made = Draw(folder, options.model, task, ROWS, cell["draw"])
            journal.add({**cell, **measure(made, cell["task"])})
    found = [line for line in journal.lines() if "task" in line]
    question = "Is the delivered model better if it is trained once more on all rows?"
    write_result(options.json, question, [table_of(found)], found)


if __name__ == "__main__":
    main()
