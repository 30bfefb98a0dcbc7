"""How does the cost of a sweep grow with training examples, runs, tuned layers, text length and layers?

    python benchmarks/scaling.py --model FOLDER --train FILE --json scaling.json

Each question has a short series of points, and every point is measured ``--repeats`` times. The results of the runs have the
seconds of the forward pass over the frozen layers, of training and of evaluation; the tables show the median and the spread.
Exponents are slopes on logarithmic axes, between neighbouring points and fitted to the whole series. ``length``, ``layers`` and
``full`` use small random models; ``n``, ``runs`` and ``k`` need a model and a table. Start-up and report are left out, because
they do not grow.
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
from measuring import Facts, Spread, as_json, machine, markdown, spread_text

PARTS = ("pass", "training", "evaluation", "all")
BEND = 0.25  # a curve bends where neighbouring exponents differ by more than this
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
    """One question: what x is, its values, and the settings of a sweep for each value."""

    what: str
    xs: tuple[int, ...]
    settings: Callable[[int], dict[str, Any]]


def all_series(model: str | None, train: str | None, work: Path) -> dict[str, Series]:
    """All series. Those that need a model and a table are only included if both are given."""
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
            "runs that share one forward pass (seeds, the last 2 layers tuned)",
            (1, 2, 4, 8),
            lambda runs: {**real, "train_size": 125, "subset": "fixed", "seeds": runs},
        ),
        "k": Series("tuned layers", (1, 2, 4, 6), lambda k: {**real, "tune": k}),
        **series,
    }


def seconds(settings: Mapping[str, Any], work: Path) -> dict[str, float]:
    """Run one sweep with an empty cache; returns the seconds of each part from its results."""
    from frostline.sweeps.execution.execute import execute
    from frostline.sweeps.prepare import prepare
    from frostline.sweeps.progress import Progress
    from frostline.sweeps.settings import make_settings

    shutil.rmtree(os.environ["HF_ASSETS_CACHE"], ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=work) as out:
        given = {name: value for name, value in settings.items() if value is not None}
        plan = prepare(make_settings({**given, "out": out}), {}, Progress())
        execute(plan, plan.runs, Progress())
        costs = [run.cost for run in plan.store.results().values()]
        if failures := plan.store.failures():
            sys.exit(f"a run failed: {next(iter(failures.values())).reason}")
    columns = {"training": "train_seconds", "evaluation": "evaluation_seconds"}
    taken = {part: float(sum(getattr(cost, column) for cost in costs)) for part, column in columns.items()}
    taken = {"pass": max(cost.forward_pass_seconds for cost in costs), **taken}
    return {**taken, "all": sum(taken.values())}


def exponents(xs: Sequence[float], repeats: Sequence[Sequence[float]]) -> Facts:
    """The exponents between neighbouring points, the fitted exponent, and the points where the curve bends.

    A curve bends where neighbouring exponents differ in the same direction in every repeat. Each repeat has a value for each x.
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
        spreads = [as_json(Spread.of(some)) for some in values]
        facts["parts"][part] = {"seconds": spreads, **exponents(series.xs, list(zip(*values, strict=True)))}
    return facts


def table(name: str, facts: Facts) -> str:
    """A row for each x: seconds, and the exponent from the previous point."""
    rows = []
    for n, x in enumerate(facts["x"]):
        cells = [str(x)]
        for part in facts["parts"].values():
            local = part["local"][n - 1] if n else None
            cells.append(spread_text(part["seconds"][n], ".3f") + ("" if local is None else f", ^{local:.2f}"))
        rows.append(cells)
    fitted = [part["fitted"] for part in facts["parts"].values()]
    rows.append(["fitted", *("-" if one is None else f"^{one:.2f}" for one in fitted)])
    words = [
        f"Bends: {part} at {bend['at']}, from ^{bend['before']:.2f} to ^{bend['after']:.2f}."
        for part, own in facts["parts"].items()
        for bend in own["bends"]
    ]
    title = f"{name}: {facts['what']}. Seconds, and the exponent from the previous point."
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
    parser.add_argument("--model", help="model for n, runs and k")
    parser.add_argument("--train", help="table for n, runs and k")
    parser.add_argument("--only", metavar="NAME,NAME,...", help="n, runs, k, length, layers, full")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of every point")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all measurements")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        os.environ["HF_ASSETS_CACHE"] = str(work / "cache")  # must be set before frostline is imported
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
