"""Does a search with cross-validation decide better without the effects of folds?

    python benchmarks/probabilities_with_folds.py

Each seed is scored on a fold of its own. The k of a search have 0 to 3 seeds. Curves are simulated as in ``probabilities.py``.
A row has a difficulty that all models share, one that neighbouring k share, and luck in each run. A probe is scored on all rows.
Scores as measured are compared with scores without the effects of folds. It uses a fixed seed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import Facts, write_result
from probabilities import SHAPES, Array, curve, log_loss, options_of_simulation
from scipy.stats import norm

from frostline.statistics.analysis_settings import POINT, PRICE, Goal
from frostline.statistics.decision import JointEstimate, Rule
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import PROBE, RunResult, Scored

RESULT = Path(__file__).parent / "results" / "probabilities_with_folds.json"
LAYERS, ROWS, FOLDS = 6, 900, 5
SHARED, OF_K, LUCK, OF_SEED = 1.0, 0.5, 0.6, 0.06  # standard deviations of what makes a row hard or easy
TOTAL = float(np.sqrt(SHARED**2 + OF_K**2 + LUCK**2 + OF_SEED**2))
# How many seeds a k has, and how often. k = 0 has two, full has one to three.
SEEDS, SEED_SHARES = (0, 1, 2, 3), (0.35, 0.3, 0.2, 0.15)


class AsMeasured(RunPredictions):
    """Scores with the effects of folds."""

    def _comparable(self, cells: Sequence[Sequence[Scored]]) -> tuple[dict[str, Array], float]:
        return {run.run: self[run.run] for runs in cells for run in runs}, 0.0


SIDES: dict[str, type[RunPredictions]] = {"as measured": AsMeasured, "without effects of folds": RunPredictions}


def search(
    random: np.random.Generator, truth: Array, probe: float
) -> tuple[dict[str, list[RunResult]], dict[str, Array]]:
    """The runs of each k of a simulated search, and the logits of every run and of the probe."""
    folds, hard = random.permutation(ROWS) % FOLDS, SHARED * random.standard_normal(ROWS)
    walk = np.cumsum(random.standard_normal((len(truth), ROWS)), 0)
    of_k = OF_K * walk / np.sqrt(np.arange(1, len(truth) + 1))[:, None]
    logits: dict[str, Array] = {}

    def add(name: str, accuracy: float, own: Array, rows: Array) -> None:
        luck = LUCK * random.standard_normal(ROWS) + OF_SEED * random.standard_normal()
        right = norm.ppf(accuracy) * TOTAL + hard + own + luck > 0
        logits[name] = np.where(rows[:, None], np.stack([right, ~right], 1), np.nan)

    cells: dict[str, list[RunResult]] = {}
    for k, accuracy in enumerate(truth):
        name = str(Recipe("full" if k > LAYERS else k))
        some = int(random.choice(SEEDS, p=SEED_SHARES))
        count = {"head only": 2, "full": int(random.integers(1, 4))}.get(name, some)
        cells[name] = [RunResult(recipe=Recipe(name), run=f"{name}/{seed}", seed=seed) for seed in range(count)]
        for run in cells[name]:
            add(run.run, accuracy, of_k[k], folds == run.seed)
    add(PROBE, probe, OF_K * random.standard_normal(ROWS), np.ones(ROWS, bool))
    return cells, logits


def measure(count: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What each side states of every choice but full, and what it names, with the truth."""
    random, stated, named = np.random.default_rng(seed), list[dict[str, Any]](), list[dict[str, Any]]()
    depth = [*(np.arange(LAYERS + 1) / LAYERS), 1 + 1 / LAYERS]
    for _ in range(count):
        truth = np.clip(curve(random, str(random.choice(SHAPES)), LAYERS), 0.52, 0.98)
        probe = float(np.clip(truth[0] + random.uniform(-0.02, 0.05), 0.52, 0.98))
        cells, logits = search(random, truth, probe)
        true = dict(zip(cells, truth.tolist(), strict=True)) | {PROBE: probe}
        split = Labelled(np.zeros(ROWS, int), "text-classification", ("a", "b"), "accuracy")
        for side, evidence in SIDES.items():
            found = JointEstimate.of(cells, depth, [PROBE], evidence(split, logits.__getitem__))
            stated += [{"side": side, **facts} for facts in _stated(found, true)]
            full = next(choice for choice in found.choices if choice.name == "full")
            value = {choice.name: true[choice.name] - PRICE * choice.cost for choice in found.choices}
            choice = Rule(goal=Goal.of_gain(0.95, 0.5)).choose(found.choices, full)
            lost = (max(value.values()) - value[choice.name]) / POINT
            below = (true["full"] - true[choice.name]) / POINT
            named.append({"side": side, "lost": lost, "below": below, "cost": choice.cost})
    return pd.DataFrame(stated), pd.DataFrame(named)


def _stated(found: JointEstimate, true: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The probability of 95 % of full's gain, and the expected points below full, of each choice but full."""
    goal, full = Goal.of_gain(0.95, 0.5), next(choice for choice in found.choices if choice.name == "full")
    for choice in found.choices:
        if choice is full:
            continue
        below, truly = (full.draws - choice.draws) / POINT, (true["full"] - true[choice.name]) / POINT
        low, high = np.quantile(below, (0.025, 0.975))
        reached = true[choice.name] - goal.share * true["full"] >= goal.threshold
        p = Rule(goal=goal).probability(choice, full)
        yield {
            "p": p,
            "true": reached,
            "error": below.mean() - truly,
            "covered": low <= truly <= high,
            "width": high - low,
        }


def decisions(stated: pd.DataFrame, named: pd.DataFrame) -> Facts:
    """How well each side decides."""
    rows = []
    for side in SIDES:
        some, choices = stated[stated["side"] == side], named[named["side"] == side]
        loss = log_loss(some["p"].to_numpy(), some["true"].to_numpy())
        error, deviation = np.sqrt((some["error"] ** 2).mean()), choices["lost"].std() / np.sqrt(len(choices))
        rows.append(
            [
                *(side, f"{choices['lost'].mean():.2f} ± {deviation:.2f}", f"{choices['below'].mean():.2f}"),
                *(
                    f"{choices['cost'].mean():.2f}",
                    f"{loss:.3f}",
                    f"{error:.2f}",
                    f"{100 * some['covered'].mean():.0f} %",
                ),
                f"{some['width'].mean():.1f}",
            ]
        )
    header = (
        *("scores", "value lost, points ± standard error", "points below full", "cost of full"),
        *("log loss of probabilities", "error of differences, points", "95 % interval covers", "its width, points"),
    )
    return {"caption": "**What is named, and what is stated of every other choice.**", "header": header, "rows": rows}


def main() -> None:
    options = options_of_simulation(__doc__, 1000)
    table = decisions(*measure(options.tasks, options.seed))
    write_result(RESULT, "Does a search with folds decide better without their effects?", [table], {})
    print(table["caption"], *("  ".join(row) for row in (table["header"], *table["rows"])), sep="\n")


if __name__ == "__main__":
    main()
