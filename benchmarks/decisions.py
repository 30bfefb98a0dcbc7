"""Does `frostline find` decide well on real tasks? What it names, against the rules that people use.

For one task after the other (each call goes on where it stopped):

    python benchmarks/decisions.py --out DIR --name "SST-2 500" --model FOLDER --glue SST-2 --data sst2 --train-size 500

and at the end, over all tasks in DIR, and those that the JSON file has from earlier recordings:

    python benchmarks/decisions.py --out DIR

``decisions.json`` is older: searches over k alone, with one training length and three learning rates.

Runs are recorded first: recipes (some k, full and heads that read the mean of all tokens) with two training lengths, at every
learning rate with one seed, then at the best of these rates with fresh seeds. One real `find` with an empty cache, and one full
fine-tuning with Trainer as users run it, are timed.

A search is a pure function of scores, so many searches are then replayed on the recorded runs, each with the seeds in another
order: as by default, over the shorter training; over k alone; and over both lengths. A run that was not recorded, at another
learning rate and a further seed, is replaced by a recorded seed of that rate.
The truth of a replay is the mean over the fresh seeds that are not among its first two. A loss is how many points what is named
scores below full fine-tuning of the shorter training, or below the recipe with the best mean over all fresh seeds. A cost is the
training time of what is named relative to full fine-tuning of the shorter training.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import Facts, Failed, flags_of, settings_of, timed, write_result
from simulation.recorded import RecordedRuns, replayed

import frostline
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweeps.progress import LineProgress
from frostline.sweeps.results.folder import Folder

HERE = Path(__file__).parent
RESULT = HERE / "results" / "recipes.json"
RATES, OF_HEAD = "5e-5,1e-4,2e-4,5e-4", "1e-3,3e-3,1e-2,3e-2"
RECIPES, LENGTHS = "0,1,2,3,4,full,mean-pooled-1,mean-pooled-2,mean-pooled-3", "3,10"
CHOOSING, FRESH, REPLAYS = (1000,), 4, 20
FIND, ALONE, BOTH = "find, 3 epochs", "find, 3 epochs, k alone", "find, both lengths"


def measure(folder: Path, settings: Mapping[str, str], recipes: str, fresh: int) -> None:
    """Record the runs of one task, a real search and Trainer, with results in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    record(folder / "runs", settings, recipes.split(","), range(2000, 2000 + fresh))
    seconds = _known(folder / "seconds.json")
    if "find" not in seconds:
        seconds["find"] = _process(["frostline", "find", *flags_of(settings)], folder / "find")
    if "trainer" not in seconds:
        seconds["trainer"] = _trainer(settings)
    (folder / "seconds.json").write_text(json.dumps(seconds, indent=1) + "\n")


def record(out: Path, settings: Mapping[str, str], recipes: Sequence[str], fresh: Sequence[int]) -> None:
    """Train every recipe at every learning rate with one seed, then at its best one with fresh seeds."""

    def run(**grid: Any) -> None:
        fixed = {"evaluations_per_epoch": "0", "head_learning_rate": OF_HEAD, "num_train_epochs": LENGTHS}
        frostline.sweep(save_model=False, **{**settings, **fixed, **grid}, out=out, progress=LineProgress())

    run(tune=list(recipes), learning_rate=RATES, seeds=list(CHOOSING))
    best = RecordedRuns(Folder(out), CHOOSING).best_rates
    first, *others = [
        {"tune": str(one.trained), "num_train_epochs": one.epochs, "learning_rate": rate, "seeds": list(fresh)}
        for one, rate in best.items()
    ]
    run(**first, grid=others)


def _process(command: Sequence[str], out: Path) -> float:
    with tempfile.TemporaryDirectory() as cache:
        return timed([*command, "--out", str(out)], out.with_suffix(".log"), HF_ASSETS_CACHE=cache)


def _trainer(settings: Mapping[str, str]) -> float:
    """Seconds of a process that runs one full fine-tuning with Trainer as users run it."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        given = {**settings, "tune": "all", "seeds": "1", "learning_rate": "1e-4", "evaluations_per_epoch": "1"}
        command = [sys.executable, str(HERE / "versus_trainer.py"), "--sides", "trainer", "--json", str(figures)]
        timed([*command, *flags_of(given)], Path(folder) / "log")
        lines = json.loads(figures.read_text())["lines"]
    return float(next(line["seconds"] for line in lines if line["kind"] == "whole"))


def judge(folder: Path) -> Facts:
    """What each replayed search and each rule names on one task, with its loss and its cost."""
    runs = RecordedRuns(Folder(folder / "runs"), CHOOSING, folder / "find" if (folder / "find").exists() else None)
    judged = [
        {"rule": rule, **facts} for seed in range(REPLAYS) for rule, facts in _rules(runs, np.random.default_rng(seed))
    ]
    seconds = _known(folder / "seconds.json")
    day = datetime.fromtimestamp((folder / "runs" / "sweep.toml").stat().st_mtime, UTC)
    return {"recorded": f"{day:%Y-%m-%d}", "runs": runs.facts(), "seconds": seconds, "judged": judged}


def _rules(runs: RecordedRuns, random: np.random.Generator) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule with what it names in one replay; none if full's truth is unknown: every fresh seed was used, or failed."""
    order = random.permutation([*runs.choosing, *runs.fresh]).tolist()
    short, long = runs.full.epochs, runs.recipes[-1].epochs
    half = Recipe(runs.folder.identity.layers // 2)
    searches = {
        FIND: replayed(runs, runs.searched(lengths=False, ways=True), order),
        ALONE: replayed(runs, runs.searched(lengths=False, ways=False), order),
        BOTH: replayed(runs, runs.recipes, order),
    }
    truth, means = runs.truth(searches[FIND].held_out), runs.truth(runs.fresh)
    if runs.full not in truth:
        return
    seeds = searches[FIND].seeds[:3]
    named = {
        **{rule: search.named for rule, search in searches.items()},
        **{
            f"always {name} for {epochs:g} epochs": str(one.for_epochs(epochs))
            for name, one, epochs in (
                ("full", FULL, short),
                ("half of the layers", half, short),
                ("full", FULL, long),
                ("half of the layers", half, long),
                ("last 2", Recipe(2), long),
            )
        },
        "best probe": "probe",
        "one standard error, 3 seeds of every k, one length": runs.one_standard_error(seeds),
    }
    best = max(truth, key=lambda name: means[name])
    for rule, name in named.items():
        if name in truth:
            facts = {
                "named": name,
                "loss": round(100 * (truth[runs.full] - truth[name]), 3),
                "below_best": round(100 * (truth[best] - truth[name]), 3),
                "cost": round(runs.costs[name], 4),
                "learned": searches[FIND].learned,
            }
            search = searches.get(rule)
            facts["seconds"] = None if search is None else round(search.seconds / runs.seconds[runs.full], 2)
            stated = search.probabilities if search is not None else {}
            required = runs.required(truth[runs.full])
            others = [k for k in stated if k in truth and k != runs.full]
            yield rule, {**facts, "stated": [(round(stated[k], 3), bool(truth[k] >= required)) for k in others]}


def result(tasks: Mapping[str, Facts]) -> list[Facts]:
    """Tables: the rules over all tasks, what is named on each task, and whether stated probabilities come true."""
    found = pd.DataFrame({"task": task, **one} for task, facts in tasks.items() for one in facts["judged"])
    learned = found[found["learned"]]
    rules = [
        [
            rule,
            f"{some['below_best'].mean():.2f}",
            f"{some['loss'].mean():.2f}",
            f"{_worst(some):.1f}",
            f"{some['cost'].mean():.2f}",
            f"{some['seconds'].astype(float).mean():.1f}" if some["seconds"].notna().all() else "",
        ]
        for rule, some in learned.groupby("rule", sort=False)
    ]
    named = []
    for task, some in found[found["rule"] == FIND].groupby("task", sort=False):
        own = {rule: one["loss"].mean() for rule, one in found[found["task"] == task].groupby("rule")}
        times = tasks[str(task)]["seconds"]
        counts = ", ".join(f"{name} ({n})" for name, n in some["named"].value_counts().items())
        named.append(
            [
                str(task) if some["learned"].all() else f"{task} (nothing learned in {(~some['learned']).sum()})",
                counts,
                f"{some['below_best'].mean():.2f}",
                f"{some['loss'].mean():.2f}",
                f"{own[ALONE]:.2f}",
                f"{some['cost'].mean():.2f}",
                f"{times['find'] / times['trainer']:.2f}" if times else "-",
                tasks[str(task)]["recorded"],
            ]
        )
    return [
        {
            "caption": "Means over all tasks on which something is learned. Full is that of the shorter training, and costs 1.",
            "header": [
                "rule",
                "points below best",
                "below full",
                "worst task, below full",
                "cost of full",
                "the search, in full trainings",
            ],
            "rows": rules,
        },
        {
            "caption": f"What at most {REPLAYS} replayed searches name on each task, and the time of a real one by Trainer's.",
            "header": [
                "task",
                "named (times)",
                "points below best",
                "below full",
                "of a search over k alone",
                "cost of full",
                "search / full by Trainer",
                "recorded",
            ],
            "rows": named,
        },
        {
            "caption": "Probabilities that a k reaches 95 % of full's gain, at the end of a search, and how often that is true "
            "(95 % interval by a bootstrap over tasks).",
            "header": ["stated", "mean stated", "true", "cases"],
            "rows": probabilities(learned[learned["rule"] == FIND]),
        },
    ]


def probabilities(found: pd.DataFrame) -> list[list[str]]:
    """How often the probabilities of each fifth come true."""
    cases = pd.DataFrame(
        [(row["task"], p, came) for _, row in found.iterrows() for p, came in row["stated"]],
        columns=["task", "stated", "came"],
    )
    fifths = np.minimum((cases["stated"] * 5).astype(int), 4)
    random, rows = np.random.default_rng(0), []
    for fifth in range(5):
        if (some := cases[fifths == fifth]).empty:
            continue
        counts = some.groupby("task")["came"].agg(["sum", "size"]).to_numpy(float)
        drawn = counts[random.integers(0, len(counts), (1000, len(counts)))].sum(1)
        low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
        came = f"{100 * some['came'].mean():.0f} % ({100 * low:.0f} to {100 * high:.0f})"
        rows.append(
            [f"{20 * fifth} to {20 * fifth + 20} %", f"{100 * some['stated'].mean():.0f} %", came, str(len(some))]
        )
    return rows


def _worst(found: pd.DataFrame) -> float:
    return float(found.groupby("task")["loss"].mean().max())


def _known(path: Path) -> dict[str, float]:
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all runs")
    parser.add_argument("--name", help="task to measure; without it, only the tables are made")
    parser.add_argument("--recipes", default=RECIPES, help="what is recorded")
    parser.add_argument("--fresh", type=int, default=FRESH, help="number of fresh seeds")
    parser.add_argument(
        "--json", type=Path, default=RESULT, help="file for the result; its other tasks stay in the tables"
    )
    options, rest = parser.parse_known_args()
    if options.name:
        try:
            measure(options.out / options.name, {"test": "none", **settings_of(rest)}, options.recipes, options.fresh)
        except Failed as error:
            sys.exit(f"{options.name}: {error}")
        return
    known = json.loads(options.json.read_text())["raw"] if options.json.exists() else {}
    recorded = {path.parent.name: judge(path.parent) for path in options.out.glob("*/runs")}
    tasks = dict(sorted({**known, **recorded}.items()))
    write_result(options.json, "Does a search decide well on real tasks?", result(tasks), tasks)


if __name__ == "__main__":
    main()
