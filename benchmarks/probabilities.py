"""Do stated probabilities come true? Simulated curves whose true means are known, down to single predictions.

    python benchmarks/probabilities.py

Each task has a curve (five invented shapes, or one that was recorded on a real task; 6 or 12 layers) and runs of every k, down
to the validation examples that each predicts correctly. In half of the tasks with several seeds, one run in ten ends at the
baseline. What counts as failed is decided as in an answer, and the truth is the mean of the runs that do not fail. The posterior
(``frostline.statistics.posterior``) gives the probability of two events for every k: that it reaches 95 % of full fine-tuning's
gain, and that it comes within one point of it. The truth says whether they happen, for invented and recorded curves and for each
kind of task.

Recorded curves are the means over seeds of ``results/decisions.json`` and ``results/recipes.json``, where full fine-tuning learns
something and the standard error of the means is at most one point. So they are a little rougher than true ones.

The last table compares the recommended k with rules that people use. It uses one thread and a fixed seed.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Facts, write_result
from numpy.typing import NDArray
from simulation.draw import left_out, predictions, run

from frostline.statistics.analysis_settings import POINT, Goal
from frostline.statistics.cells import CLEAR, succeeded, with_outcomes
from frostline.statistics.decision import Option, Rule
from frostline.statistics.inference import shared_row_covariance
from frostline.statistics.posterior import HIGHEST, Observed, posterior
from frostline.statistics.recipe import Recipe

RESULT = Path(__file__).parent / "results" / "probabilities.json"
BASELINE, TARGET, FAIL = 0.5, 0.95, 0.1
SHAPES = ("saturating", "linear", "flat", "step", "peak")
RECORDED, LEARNED, CERTAIN, LARGEST = "recorded", 0.05, 0.01, 0.45
CHANCE = {"CoLA": 0.0, "STS-B": 0.0, "MRPC": 0.81}  # of the metrics of these tasks; that of the others is ``BASELINE``
Array = NDArray[np.float64]


def recorded() -> list[tuple[Array, Array]]:
    """Depths and gains over chance of each recorded curve.

    Full fine-tuning gains at least ``LEARNED``, and the standard error of all k is at most ``CERTAIN`` in the mean. Gains of
    other metrics than accuracy are made smaller until the best one is ``LARGEST``.
    """
    curves: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    files = [json.loads(RESULT.with_name(f"{name}.json").read_text()) for name in ("decisions", "recipes")]
    for task, facts in [task for file in files for task in file["raw"].items()]:
        layers = 12 if task.endswith("12 layers") else 6
        depths = {f"last {k}": k / layers for k in range(layers + 1)}
        depths |= {"head only": 0.0, "full": 1 + 1 / layers, "all": 1 + 1 / layers}
        for name, one in facts["runs"].items():
            tuned, _, length = name.partition(" for ")
            if tuned in depths:
                gains = np.array(one["scores"]) - CHANCE.get(task.split()[0], BASELINE)
                point = depths[tuned], float(gains.mean()), float(gains.std(ddof=1)) / len(gains) ** 0.5
                curves.setdefault((task, length), []).append(point)
    found = [np.array(sorted(points)).T for points in curves.values()]
    return [
        (depth, gains * min(1.0, LARGEST / gains.max()))
        for depth, gains, errors in found
        if gains[-1] >= LEARNED and errors.mean() <= CERTAIN
    ]


def curve(random: np.random.Generator, shape: str, layers: int) -> Array:
    """True mean scores of k = 0 to ``layers`` and of full fine-tuning, of an invented shape."""
    place = np.arange(layers + 2) / (layers + 1)
    start = random.uniform(0.3, 0.98)
    share = {
        "saturating": start + (1 - start) * (1 - np.exp(-random.uniform(1.5, 8) * place)),
        "linear": start + (1 - start) * place,
        "flat": 1 + random.normal(0, 0.004, len(place)),
        "step": np.where(place < random.uniform(0.1, 0.8), start, 1.0),
        "peak": 1
        - np.exp(-6 * place) * random.uniform(0.05, 0.4)
        - np.clip(place - 0.6, 0, 1) * random.uniform(0, 0.08),
    }[shape]
    return np.clip(BASELINE + random.uniform(0.12, 0.43) * share, BASELINE, 0.985)


def runs(random: np.random.Generator, truth: Array, seeds: int, rows: int, fail: float) -> tuple[Array, Array]:
    """Scores ``[seeds, k]`` of one task, and without each group of rows ``[groups, seeds, k]``."""
    spread = random.uniform(0.002, 0.02) * random.uniform(0.8, 1.25, len(truth))
    shared = random.choice([0.0, 0.0, 0.3, 0.6])  # the correlation between runs of one seed
    luck = np.sqrt(shared) * random.standard_normal((seeds, 1))
    luck = luck + np.sqrt(1 - shared) * random.standard_normal((seeds, len(truth)))
    expected = np.clip(truth + spread * luck, 0.02, 0.995)
    expected[random.random(expected.shape) < fail] = BASELINE
    scores, groups = left_out(next(predictions(random, expected[None], rows)))
    return scores[0], groups[0]


def observed(scores: Array, groups: Array, rows: int, depth: Sequence[float | None]) -> Observed:
    """What an answer knows about these runs: those of each k that did not fail."""
    every = [run(str(k), seed, score) for seed, some in enumerate(scores) for k, score in enumerate(some)]
    known = with_outcomes(every, BASELINE, CLEAR / 2 / np.sqrt(rows))
    good = [
        [int(one.seed) for one in succeeded([r for r in known if r.recipe == Recipe(k)])] for k in range(len(depth))
    ]
    by_seed = [{str(seed): float(scores[seed, k]) for seed in seeds} for k, seeds in enumerate(good)]
    without = [{str(seed): groups[:, seed, k] for seed in seeds} for k, seeds in enumerate(good)]
    return Observed(by_seed, shared_row_covariance(without, 1 / rows), depth)


def tasks(
    random: np.random.Generator, count: int, shapes: Sequence[str]
) -> Iterator[tuple[Facts, Array, Array, Array, Array]]:
    """Facts, true means, measured means, draws of the posterior, and the cost of each k."""
    known_curves = recorded()
    for _ in range(count):
        layers, shape = int(random.choice([6, 12])), str(random.choice(shapes))
        seeds, rows = int(random.choice([1, 3, 5, 10])), int(random.choice([100, 300, 1000, 2000]))
        # with one seed, a failed run cannot be told from a k that fails
        fail = float(random.choice([0.0, FAIL])) if seeds > 1 else 0.0
        depth = [*(np.arange(layers + 1) / layers), 1 + 1 / layers]
        if shape == RECORDED:
            truth = BASELINE + np.interp(depth, *known_curves[random.integers(len(known_curves))])
        else:
            truth = curve(random, shape, layers)
        known = observed(*runs(random, truth, seeds, rows, fail), rows, depth)
        cost = np.array([*((np.arange(layers + 1) + 0.3) / (layers + 1.3)), 1.0])
        facts = {"shape": shape, "seeds": seeds, "rows": rows, "runs fail": "yes" if fail else "no"}
        yield facts, truth, known.means, np.minimum(posterior(known).draws, HIGHEST), cost


def measure(count: int, seed: int, shapes: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of tasks with such curves: stated probabilities with what is true, and what each rule names with its loss and its cost."""
    stated, named = [], []
    goals = {"95 % of the gain": Goal.of_gain(TARGET, BASELINE), "within one point": Goal.within(POINT)}
    for facts, truth, means, draws, cost in tasks(np.random.default_rng(seed), count, shapes):
        choices = [
            Option(
                name=Recipe(n),
                score=float(means[n]),
                comparable=float(means[n]),
                cost=float(cost[n]),
                draws=draws[:, n],
            )
            for n in range(len(truth))
        ]
        full = choices[-1]
        for name, goal in goals.items():
            rule, distance = Rule(goal=goal), truth - goal.share * truth[-1] - goal.threshold
            stated += [
                {**facts, "goal": name, "p": rule.probability(one, full), "true": distance[n] >= 0}
                for n, one in enumerate(choices[:-1])
            ]
        enough = means - BASELINE >= TARGET * (means[-1] - BASELINE)
        chosen = {
            "frostline": Rule(goal=goals["95 % of the gain"]).choose(choices, full).name.k or 0,
            "smallest k whose mean reaches 95 % of the gain": int(enough.argmax()),
            "best mean": int(means.argmax()),
            "always full": len(truth) - 1,
            "always the last half": (len(truth) - 2) // 2,
        }
        named += [
            {**facts, "rule": rule, "loss": 100 * (truth[-1] - truth[k]), "cost": cost[k]} for rule, k in chosen.items()
        ]
    return pd.DataFrame(stated), pd.DataFrame(named)


def calibration(stated: pd.DataFrame) -> Facts:
    """For every tenth of the stated probability, each target and kind of curve: how often it came true."""
    tenth = np.minimum((stated["p"] * 10).astype(int), 9)
    kinds = [(goal, kind) for goal in stated["goal"].unique() for kind in stated["curves"].unique()]

    def cell(n: int, goal: str, kind: str) -> str:
        some = stated[(stated["goal"] == goal) & (stated["curves"] == kind) & (tenth == n)]
        return f"{100 * some['p'].mean():.0f} → {100 * some['true'].mean():.0f} % ({len(some)})"

    rows = [[f"{10 * n} to {10 * n + 10} %", *(cell(n, *kind) for kind in kinds)] for n in range(10)]
    header = ("stated", *(f"{goal}, {kind}" for goal, kind in kinds))
    caption = "**How often a stated probability comes true**: mean stated → true (cases), by target and curves."
    return {"caption": caption, "header": header, "rows": rows}


def by_fact(stated: pd.DataFrame) -> Facts:
    """Mean stated probability and how often it comes true, by each fact about the tasks."""
    open_ones = stated[stated["p"].between(0.1, 0.9)]
    rows = [
        [fact, str(value), f"{100 * some['p'].mean():.0f} %", f"{100 * some['true'].mean():.0f} %", str(len(some))]
        for fact in ("seeds", "rows", "runs fail", "shape")
        for value, some in open_ones.groupby(fact)
    ]
    header = ("of the tasks", "value", "mean stated", "true", "cases")
    return {"caption": "**Probabilities between 10 and 90 %, by kind of task.**", "header": header, "rows": rows}


def rules(named: pd.DataFrame) -> Facts:
    """Mean loss against full fine-tuning and mean cost of the k that each rule names."""
    rows = [
        [kind, str(rule), *(f"{some[name].mean():.2f} ± {2 * some[name].sem():.2f}" for name in ("loss", "cost"))]
        for kind in named["curves"].unique()
        for rule, some in named[named["curves"] == kind].groupby("rule", sort=False)
    ]
    header = ("curves", "rule", "points below full fine-tuning", "training time, share of full's")
    return {
        "caption": "**What the recommended k loses and costs** (mean ± two standard errors).",
        "header": header,
        "rows": rows,
    }


def log_loss(stated: Array, true: NDArray[np.bool_]) -> float:
    """The mean log loss of stated probabilities, of at least .001 each way."""
    p = np.clip(stated, 1e-3, 1 - 1e-3)
    return float(-np.where(true, np.log(p), np.log(1 - p)).mean())


def options_of_simulation(description: str | None, tasks: int) -> argparse.Namespace:
    """The flags of a simulation: how many tasks, by default ``tasks``, and the seed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=tasks)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = options_of_simulation(__doc__, 2000)
    kinds = {"invented curves": SHAPES, "recorded curves": (RECORDED,)}
    both = {kind: measure(options.tasks, options.seed, shapes) for kind, shapes in kinds.items()}
    stated, named = (pd.concat([found[n].assign(curves=kind) for kind, found in both.items()]) for n in (0, 1))
    tables = [calibration(stated), by_fact(stated), rules(named)]
    raw = {"recorded curves": len(recorded())}
    write_result(RESULT, "Do stated probabilities come true, and is the recommended k a good choice?", tables, raw)


if __name__ == "__main__":
    main()
