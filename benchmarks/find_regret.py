"""Whether `frostline find` names the right k, and what it costs, against the whole grid and the rules that people use.

For one task after the other (each call goes on where it stopped):

    python benchmarks/find_regret.py --out DIR --name SST-2 --model FOLDER --train FILE --validation FILE --train-size 500

and at the end, over all tasks in DIR:

    python benchmarks/find_regret.py --out DIR --table search.md --json find.json

The truth comes from a full grid. First, every k and full are trained at every learning rate with two seeds. Then each k is
trained at its best learning rate with five fresh seeds, and only these scores are the truth. Full is trained first: if it is not
above the baseline with 95 % confidence, the task is listed but left out.

`find` runs three times, each time in a new process with an empty cache and with seeds that the truth does not use. Full
fine-tuning with Trainer, as users run it and scored after each epoch, is timed before the first search and after the last. The
share of the grid's work is measured in operations, including the fresh seeds; they do not depend on the load of the machine.

A k meets the target if the interval of its true share of full's gain over the baseline reaches the target. A search may recommend
no k, because no run is above the baseline with 95 % confidence. It is shown but not counted.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Failed, flags_of, markdown, settings_of, timed

from frostline import Sweep
from frostline.report.answer.answer import make_answer
from frostline.statistics.choices import Choices
from frostline.statistics.predictions import Labelled
from frostline.sweep.progress import LineProgress
from frostline.sweep.results.folder import Folder
from frostline.sweep.specification import OF_MODEL_AND_DATA

HERE = Path(__file__).parent
RATES, OF_HEAD = "5e-5,1e-4,2e-4", "1e-3,3e-3,1e-2,3e-2"
MEETS = {True: "yes", False: "no", None: "-"}
CHOOSING, FRESH, FINDS, TRAINERS = (1000, 1001), tuple(range(2000, 2005)), 3, 2


def measure(folder: Path, settings: Mapping[str, str]) -> None:
    """Run the grid, the searches, Trainer and the probes of one task, with results in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings, indent=1))
    truth(folder / "truth", settings)
    seconds = _known(folder / "seconds.json")
    if not _learned(folder):
        _write(folder / "seconds.json", seconds)
        return
    trainer = seconds.setdefault("trainer", [])  # timed before and after the searches, as the speed of a machine varies
    if not trainer:
        trainer.append(_trainer(settings))
        _write(folder / "seconds.json", seconds)
    for n in range(FINDS):
        if f"find-{n}" not in seconds:
            seeds = ",".join(str(3000 + 10 * n + seed) for seed in range(5))
            command = ["frostline", "find", *flags_of({**settings, "learning_rate": RATES, "seeds": seeds})]
            seconds[f"find-{n}"] = _process(command, folder / f"find-{n}")
            _write(folder / "seconds.json", seconds)
    if "probe" not in seconds:
        own = {name: value for name, value in settings.items() if name in OF_MODEL_AND_DATA}
        seconds["probe"] = _process(["frostline", "probe", *flags_of(own)], folder / "probe")
        _write(folder / "seconds.json", seconds)
    if len(trainer) < TRAINERS:
        trainer.append(_trainer(settings))
        _write(folder / "seconds.json", seconds)


def truth(out: Path, settings: Mapping[str, str]) -> None:
    """Train full with two seeds at every learning rate, then with fresh seeds at the best one. If it learned, also every k."""
    _two_stages(out, settings, ["all"])
    if _learned(out.parent):
        _two_stages(out, settings, [*range(Folder(out).identity.layers + 1), "all"])


def _two_stages(out: Path, settings: Mapping[str, str], tunes: Sequence[Any]) -> None:
    def run(**grid: Any) -> None:
        Sweep(**{**settings, **grid}, out=out, progress=LineProgress()).run(save_model=False)

    run(tune=tunes, learning_rate=RATES, seeds=list(CHOOSING))
    best = _best_rates(Folder(out).rows())
    first, *others = [{"tune": k, "learning_rate": best[_printed(k)], "seeds": list(FRESH)} for k in tunes]
    run(**first, grid=others)


def _best_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The best learning rate of every k, by its mean over the seeds ``CHOOSING``."""
    scores: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row["seed"] in CHOOSING and row["validation_best"] is not None:
            scores.setdefault(row["trainable"], {}).setdefault(row["learning_rate"], []).append(row["validation_best"])
    return {k: max(rates, key=lambda rate: float(np.mean(rates[rate]))) for k, rates in scores.items()}


def _curve(folder: Path, target: float) -> dict[str, Any]:
    """The true curve: the comparison of every k with full on the fresh seeds."""
    truth = Folder(folder / "truth")
    identity, examples = truth.identity, truth.split("validation")
    assert examples is not None
    rows = Labelled(examples.targets, identity.problem_type, identity.labels, identity.metric)
    best = _best_rates(every := truth.rows())
    fresh = [row for row in every if row["seed"] in FRESH and row["learning_rate"] == best.get(row["trainable"])]
    answer = make_answer(fresh, rows, truth.predictions, Choices(target=target), layers=identity.layers)
    return {**answer["sizes"][0], "baseline": rows.chance}


def _learned(folder: Path) -> bool:
    """Whether full is above the baseline with 95 % confidence."""
    return bool(_curve(folder, 0.95)["learned"])


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


def judge(folder: Path, target: float) -> dict[str, Any]:
    """Compare every search and rule with the truth. If full did not learn, return only its scores."""
    curve, layers = _curve(folder, target), Folder(folder / "truth").identity.layers
    cells = {cell["trainable"]: cell for cell in curve["cells"]}
    if not curve["learned"]:
        return {"left_out": {"full": cells["all"]["validation"], "baseline": curve["baseline"]}}
    every, seconds = Folder(folder / "truth").rows(), _known(folder / "seconds.json")
    searches = [json.loads((folder / f"find-{n}" / "search.json").read_text()) for n in range(FINDS)]
    work = searches[0]["operations"]
    grid = sum(work[row["trainable"]] for row in every)
    probes = json.loads((folder / "probe" / "probes.json").read_text())["probes"][0]["probes"]
    known = [probe for probe in probes if len(probe["layers"]) == 1 and probe["held_out"] is not None]
    layer = max(known, key=lambda probe: probe["held_out"])["layers"][0]
    rules = {
        "last quarter": [_printed(round(layers / 4))],
        "last half": [_printed(round(layers / 2))],
        "full": ["all"],
        "random k": [_printed(k) for k in range(layers + 1)],
        "best probe layer": [_printed(layers - layer)],
        "find": ["a probe" if search["by_probe"] else search["recommended"] for search in searches],
    }
    gain = cells["all"]["validation"]["mean"] - curve["baseline"]
    best = searches[0]["probes"]["best"]

    def judge_k(name: str | None) -> dict[str, Any]:
        if name is None:
            return {"meets": None, "regret": None}
        if name == "a probe":
            share = {
                "estimate": (best["score"] - curve["baseline"]) / gain,
                "high": (best["high"] - curve["baseline"]) / gain,
            }
        else:
            share = cells[name]["share_corrected"]
        high = np.inf if share["high"] is None else share["high"]
        return {"meets": bool(max(share["estimate"], high) >= target), "regret": max(0.0, target - share["estimate"])}

    return {
        "shares": {name: cell["share_corrected"] for name, cell in cells.items()},
        "rules": {rule: [{"k": name, **judge_k(name)} for name in names] for rule, names in rules.items()},
        "of_grid": [
            sum(work[run["trainable"]] for step in search["steps"] for run in step["runs"]) / grid
            for search in searches
        ],
        "of_trainer": [seconds[f"find-{n}"] / np.mean(seconds["trainer"]) for n in range(FINDS)],
        "seconds": seconds,
    }


def tables(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: a row for each task, and a row for each rule over all tasks."""
    known = {task: facts for task, facts in found.items() if "rules" in facts}
    tasks = [
        [
            task,
            ", ".join(
                f"{name.removeprefix('last ')} {100 * share['estimate']:.0f}" for name, share in facts["shares"].items()
            ),
            ", ".join(one["k"] or "nothing" for one in facts["rules"]["find"]),
            ", ".join(MEETS[one["meets"]] for one in facts["rules"]["find"]),
            ", ".join(f"{100 * share:.0f} %" for share in facts["of_grid"]),
            ", ".join(f"{facts['seconds'][f'find-{n}']:.0f}" for n in range(FINDS)),
            ", ".join(f"{some:.0f}" for some in facts["seconds"]["trainer"]),
            ", ".join(f"{share:.2f}" for share in facts["of_trainer"]),
        ]
        for task, facts in known.items()
    ]
    rules = []
    for rule in next(iter(known.values()))["rules"] if known else ():
        counted = [one for facts in known.values() for one in facts["rules"][rule] if one["k"] is not None]
        regrets = np.array([one["regret"] for one in counted])
        spread = f" ± {100 * regrets.std(ddof=1) / len(regrets) ** 0.5:.1f}" if len(regrets) > 1 else ""
        meets = np.mean([one["meets"] for one in counted])
        rules.append([rule, f"{100 * meets:.0f} %", f"{100 * regrets.mean():.1f}{spread}", str(len(counted))])
    parts = [
        markdown(
            (
                *("task", "% of full's gain, by k", "recommended", "meets the target", "share of the grid's work"),
                *("seconds", "full with Trainer, before and after", "relative to Trainer"),
            ),
            tasks,
        ),
        markdown(("rule", "meets the target", "regret, points of gain", "cases"), rules),
    ]
    left_out = [
        f"{task} ({full['mean']:.3f}, standard deviation {full['std']:.3f}; baseline {facts['left_out']['baseline']:.3f})"
        for task, facts in found.items()
        if "left_out" in facts and (full := facts["left_out"]["full"])
    ]
    if left_out:
        parts.append(f"Left out, because full is not above the baseline with 95 % confidence: {', '.join(left_out)}.")
    return "\n\n".join(parts)


def _printed(k: Any) -> str:
    return f"last {k}" if isinstance(k, int) else str(k)


def _known(path: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return known


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all results")
    parser.add_argument("--name", help="task to measure; without it, only the tables are made")
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--table", type=Path, help="file for the tables, which are also printed")
    parser.add_argument("--json", type=Path, help="file for the measurements")
    options, rest = parser.parse_known_args()
    if options.name:
        try:
            given = {"test": "none", "evaluations_per_epoch": "0", "head_learning_rate": OF_HEAD, **settings_of(rest)}
            measure(options.out / options.name, given)
        except Failed as error:
            sys.exit(f"{options.name}: {error}")
    done = [path.parent for path in sorted(options.out.glob("*/seconds.json"))]
    found = {
        folder.name: judge(folder, options.target)
        for folder in done
        if len(_known(folder / "seconds.json").get("trainer", ())) == TRAINERS or not _learned(folder)
    }
    text = tables(found)
    print(text)
    if options.table:
        options.table.write_text(f"{text}\n")
    if options.json:
        _write(options.json, found)


if __name__ == "__main__":
    main()
