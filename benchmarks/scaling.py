"""How the cost of a sweep grows with examples, runs, tuned layers, length of texts and layers.

    python benchmarks/scaling.py --model FOLDER --train FILE --json scaling.json

Each question has a short series. All points are measured in turn, ``--repeats`` times. The seconds of the forward pass over
the frozen layers, of training and of evaluation come from the results (median and spread). The exponents are those between
neighbouring points and one fitted to the whole series, on logarithms. Lengths and layers use small random models; ``n``,
``runs`` and ``k`` need a model and a table. Start-up and report are left out because they do not grow.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Facts, Spread, machine, markdown, plain, said

PARTS = ("pass", "training", "evaluation", "all")
BEND = 0.25  # two neighbouring exponents that differ by more are said to bend
VOCABULARY, WIDTH, HEADS = 1000, 128, 4
REAL = {
    "first_rows": 1500,
    "test": "none",
    "workers": 1,
    "num_train_epochs": 1,
    "train_size": 250,
    "seeds": 1,
    "tune": 2,
}


@dataclass(frozen=True)
class Series:
    """One question: the name of x, its values, and the settings for a value."""

    what: str
    xs: tuple[int, ...]
    settings: Callable[[int], dict[str, Any]]


def all_series(model: str | None, train: str | None, work: Path) -> dict[str, Series]:
    """All series; those that need a model and a table are included if both are given."""
    real = {**REAL, "model": model, "train": train}
    small = {**REAL, "first_rows": None, "model": str(work / "4-layers"), "train": str(work / "32.csv")}
    series = {
        "length": Series(
            f"tokens in a text (4 layers of width {WIDTH}, the last 2 tuned)",
            (16, 32, 64, 128, 256),
            lambda length: {**small, "train": str(work / f"{length}.csv")},
        ),
        "layers": Series(
            f"layers of width {WIDTH} (the last 1 tuned)",
            (2, 4, 8, 16),
            lambda layers: {**small, "model": str(work / f"{layers}-layers"), "tune": 1},
        ),
        "full": Series(
            f"layers of width {WIDTH} (all tuned)",
            (2, 4, 8, 16),
            lambda layers: {**small, "model": str(work / f"{layers}-layers"), "tune": "all"},
        ),
    }
    if not (model and train):
        return series
    return {
        "n": Series(
            "training examples (the last 2 layers tuned)", (125, 250, 500, 1000), lambda n: {**real, "train_size": n}
        ),
        "runs": Series(
            "runs that share one pass (seeds, the last 2 layers tuned)",
            (1, 2, 4, 8),
            lambda runs: {**real, "train_size": 125, "subset": "fixed", "seeds": runs},
        ),
        "k": Series("tuned layers", (1, 2, 4, 6), lambda k: {**real, "tune": k}),
        **series,
    }


def seconds(settings: Mapping[str, Any], work: Path) -> dict[str, float]:
    """Run one sweep with an empty cache; gives the costs that its results report."""
    from frostline.sweep.execution.execute import execute
    from frostline.sweep.execution.progress import Progress
    from frostline.sweep.prepare import prepare
    from frostline.sweep.specification import make_spec

    shutil.rmtree(os.environ["HF_ASSETS_CACHE"], ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=work) as out:
        given = {name: value for name, value in settings.items() if value is not None}
        prepared = prepare(make_spec({**given, "out": out}), {}, Progress())
        execute(prepared, prepared.plan.runs, Progress())
        costs = [run["cost"] for run in prepared.store.results().values()]
        if failures := prepared.store.failures():
            sys.exit(f"a run failed: {next(iter(failures.values()))['reason']}")
    columns = {"training": "train_seconds", "evaluation": "evaluation_seconds"}
    taken = {part: float(sum(cost[column] for cost in costs)) for part, column in columns.items()}
    taken = {"pass": max(cost["forward_pass_seconds"] for cost in costs), **taken}
    return {**taken, "all": sum(taken.values())}


def exponents(xs: Sequence[float], repeats: Sequence[Sequence[float]]) -> Facts:
    """The exponents between neighbouring points, the fitted exponent, and the points where the curve bends.

    A curve bends where neighbouring exponents differ in the same direction in every repeat. ``repeats`` has a value for each x,
    several times.
    """
    if np.min(repeats) <= 0:
        return {"local": [None] * (len(xs) - 1), "fitted": None, "bends": []}
    x, y = np.log(xs), np.log(repeats)
    each = np.diff(y) / np.diff(x)
    middle = np.median(y, axis=0)
    local = np.diff(middle) / np.diff(x)
    bends = [
        {"at": at, "before": float(local[n]), "after": float(local[n + 1])}
        for n, at in enumerate(xs[1:-1])
        if len(each) > 1
        and abs(local[n + 1] - local[n]) > BEND
        and abs(np.sign(each[:, n + 1] - each[:, n]).sum()) == len(each)
    ]
    return {"local": local.tolist(), "fitted": float(np.polyfit(x, middle, 1)[0]), "bends": bends}


def summarise(series: Series, taken: Mapping[int, Sequence[Mapping[str, float]]]) -> Facts:
    facts: Facts = {"what": series.what, "x": list(series.xs), "parts": {}}
    for part in PARTS:
        values = [[one[part] for one in taken[x]] for x in series.xs]
        spreads = [plain(Spread.of(some)) for some in values]
        facts["parts"][part] = {"seconds": spreads, **exponents(series.xs, list(zip(*values, strict=True)))}
    return facts


def table(name: str, facts: Facts) -> str:
    """A row for each x: seconds, and the exponent from the previous point."""
    rows = []
    for n, x in enumerate(facts["x"]):
        cells = [str(x)]
        for part in facts["parts"].values():
            local = part["local"][n - 1] if n else None
            cells.append(said(part["seconds"][n], ".3f") + ("" if local is None else f", ^{local:.2f}"))
        rows.append(cells)
    fitted = [part["fitted"] for part in facts["parts"].values()]
    rows.append(["fitted", *("-" if one is None else f"^{one:.2f}" for one in fitted)])
    words = [
        f"Bends: {part} at {bend['at']}, from ^{bend['before']:.2f} to ^{bend['after']:.2f}."
        for part, own in facts["parts"].items()
        for bend in own["bends"]
    ]
    title = f"{name}: {facts['what']}. Seconds, and the exponent from the point before."
    header = (name, *(f"{part}, s" for part in PARTS))
    return "\n".join([title, "", markdown(header, rows), *words])


def write_small(work: Path) -> None:
    """Write random models of several depths, and tables of random texts of several lengths."""
    from random_model import write_model, write_rows

    for layers in (2, 4, 8, 16):
        write_model(work / f"{layers}-layers", layers, WIDTH, HEADS, VOCABULARY)
    for length in (16, 32, 64, 128, 256):
        write_rows(work / f"{length}.csv", 400, (length, length), VOCABULARY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="for n, runs and k")
    parser.add_argument("--train", help="table for n, runs and k")
    parser.add_argument("--only", metavar="NAME,NAME,...", help="n, runs, k, length, layers, full")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, in turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        os.environ["HF_ASSETS_CACHE"] = str(work / "cache")  # read when frostline is imported, so before that
        series = all_series(options.model, options.train, work)
        names = options.only.split(",") if options.only else list(series)
        if unknown := set(names) - set(series):
            sys.exit(f"there is no series {', '.join(sorted(unknown))} (n, runs and k need --model and --train)")
        facts = {"machine": machine(), "series": {}}
        write_small(work)
        seconds(series[names[0]].settings(series[names[0]].xs[0]), work)  # a warm-up
        taken: dict[str, dict[int, list[dict[str, float]]]] = {name: {x: [] for x in series[name].xs} for name in names}
        for repeat in range(options.repeats):
            for name in names:
                print(f"repeat {repeat + 1} of {options.repeats}: {name}", file=sys.stderr, flush=True)
                for x in series[name].xs:
                    taken[name][x].append(seconds(series[name].settings(x), work))
    facts["series"] = {name: summarise(series[name], taken[name]) for name in names}
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts["machine"]))
    for name in names:
        print(f"\n{table(name, facts['series'][name])}")


if __name__ == "__main__":
    main()
