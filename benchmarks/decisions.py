"""Does `frostline find` decide well on real tasks? What it names, against the rules that people use.

For one task after the other (each call goes on where it stopped):

    python benchmarks/decisions.py --out DIR --name "SST-2 500" --model FOLDER --glue SST-2 --data sst2 --train-size 500

and at the end, over all tasks in DIR, and those that the JSON file has from earlier recordings:

    python benchmarks/decisions.py --out DIR --json benchmarks/results/decisions.json

Runs are recorded first: every k and full at every learning rate with one seed, then at the best of these rates with fresh seeds.
One real `find` with an empty cache, and one full fine-tuning with Trainer as users run it, are timed.

A search is a pure function of scores, so many searches are then replayed on the recorded runs, each with the seeds in another
order. A run that was not recorded, at another learning rate and a further seed, is replaced by a recorded seed of that rate.
The truth of a replay is the mean over the fresh seeds that are not among its first two. A loss is how many points what is named
scores below full fine-tuning. A cost is the training time of what is named relative to full.
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
from frostline.sweeps.progress import LineProgress
from frostline.sweeps.results.folder import Folder

HERE = Path(__file__).parent
RATES, OF_HEAD = "5e-5,1e-4,2e-4", "1e-3,3e-3,1e-2,3e-2"
CHOOSING, FRESH, REPLAYS = (1000,), 5, 20


def measure(folder: Path, settings: Mapping[str, str], rates: str, fresh: int) -> None:
    """Record the runs of one task, a real search and Trainer, with results in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    record(folder / "runs", settings, rates, range(2000, 2000 + fresh))
    seconds = _known(folder / "seconds.json")
    if "find" not in seconds:
        command = ["frostline", "find", *flags_of({**settings, "learning_rate": rates})]
        seconds["find"] = _process(command, folder / "find")
    if "trainer" not in seconds:
        seconds["trainer"] = _trainer(settings)
    (folder / "seconds.json").write_text(json.dumps(seconds, indent=1) + "\n")


def record(out: Path, settings: Mapping[str, str], rates: str, fresh: Sequence[int]) -> None:
    """Train every k at every learning rate with one seed, then at its best one with fresh seeds."""

    def run(**grid: Any) -> None:
        own = {**settings, "evaluations_per_epoch": "0", "head_learning_rate": OF_HEAD, **grid}
        frostline.sweep(save_model=False, **own, out=out, progress=LineProgress())

    run(tune=[*range(7), "all"], learning_rate=rates, seeds=list(CHOOSING))
    best = RecordedRuns(Folder(out), CHOOSING).best_rates
    first, *others = [{"tune": k, "learning_rate": rate, "seeds": list(fresh)} for k, rate in best.items()]
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
    runs = RecordedRuns(Folder(folder / "runs"), CHOOSING, folder / "find")
    judged = [
        {"rule": rule, **facts} for seed in range(REPLAYS) for rule, facts in _rules(runs, np.random.default_rng(seed))
    ]
    seconds = _known(folder / "seconds.json")
    day = datetime.fromtimestamp((folder / "runs" / "sweep.toml").stat().st_mtime, UTC)
    return {"recorded": f"{day:%Y-%m-%d}", "runs": runs.facts(), "seconds": seconds, "judged": judged}


def _rules(runs: RecordedRuns, random: np.random.Generator) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule with what it names in one replay; none if the search has used every fresh seed, so that the truth is unknown."""
    search = replayed(runs, random)
    if not search.held_out:
        return
    layers = runs.folder.identity.layers
    named = {
        "find": search.named,
        "always full": "full",
        "always the last half": f"last {layers // 2}",
        "always the last quarter": f"last {round(layers / 4)}",
        "best probe": "probe",
        "one standard error, 3 seeds of every k": runs.one_standard_error(search.seeds[:3]),
        "smallest mean with 95 % of the gain, 3 seeds of every k": runs.smallest_mean(search.seeds[:3], 0.95),
    }
    truth = runs.truth(search.held_out)
    for rule, name in named.items():
        if name in truth:
            loss, cost = round(100 * (truth["full"] - truth[name]), 3), round(runs.costs[name], 4)
            facts = {"named": name, "loss": loss, "cost": cost, "learned": search.learned}
            stated = search.probabilities if rule == "find" else {}
            came = {k: truth[k] >= runs.required(truth["full"]) for k in stated}
            yield rule, {**facts, "stated": [(round(p, 3), bool(came[k])) for k, p in stated.items() if k != "full"]}


def result(tasks: Mapping[str, Facts]) -> list[Facts]:
    """Tables: the rules over all tasks, what is named on each task, and whether stated probabilities come true."""
    found = pd.DataFrame({"task": task, **one} for task, facts in tasks.items() for one in facts["judged"])
    learned = found[found["learned"]]
    rules = [
        [rule, f"{some['loss'].mean():.2f}", f"{some['cost'].mean():.2f}", f"{_worst(some):.1f}"]
        for rule, some in learned.groupby("rule", sort=False)
    ]
    named = []
    for task, some in found[found["rule"] == "find"].groupby("task", sort=False):
        own = {rule: one["loss"].mean() for rule, one in found[found["task"] == task].groupby("rule")}
        times = tasks[str(task)]["seconds"]
        counts = ", ".join(f"{name} ({n})" for name, n in some["named"].value_counts().items())
        named.append(
            [
                str(task) if some["learned"].all() else f"{task} (nothing learned in {(~some['learned']).sum()})",
                counts,
                f"{some['loss'].mean():.2f}",
                f"{own['always the last half']:.2f}",
                f"{some['cost'].mean():.2f}",
                f"{times['find'] / times['trainer']:.2f}" if times else "-",
                tasks[str(task)]["recorded"],
            ]
        )
    return [
        {
            "caption": "Means over all tasks on which something is learned.",
            "header": ["rule", "points below full", "cost of full", "worst task, points"],
            "rows": rules,
        },
        {
            "caption": f"What at most {REPLAYS} replayed searches name on each task, and the time of a real one by Trainer's.",
            "header": [
                "task",
                "named (times)",
                "points below full",
                "last half",
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
            "rows": probabilities(learned),
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
    parser.add_argument("--rates", default=RATES, help="learning rates of the layers")
    parser.add_argument("--fresh", type=int, default=FRESH, help="number of fresh seeds")
    parser.add_argument("--json", type=Path, help="file for the result; its other tasks stay in the tables")
    options, rest = parser.parse_known_args()
    if options.name:
        try:
            measure(options.out / options.name, {"test": "none", **settings_of(rest)}, options.rates, options.fresh)
        except Failed as error:
            sys.exit(f"{options.name}: {error}")
        return
    known = json.loads(options.json.read_text())["raw"] if options.json and options.json.exists() else {}
    recorded = {path.parent.name: judge(path.parent) for path in options.out.glob("*/runs")}
    tasks = dict(sorted({**known, **recorded}.items()))
    tables = result(tasks)
    for table in tables:
        shown = pd.DataFrame(table["rows"], columns=table["header"]).to_string(index=False)
        print(table["caption"], shown, "", sep="\n")
    if options.json:
        write_result(options.json, "Does a search decide well on real tasks?", tables, tasks)


if __name__ == "__main__":
    main()
