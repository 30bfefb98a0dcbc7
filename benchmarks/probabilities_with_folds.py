"""Are searches with cross-validation right about what they name?

    python benchmarks/probabilities_with_folds.py

Each seed is scored on a fold of its own. The k of a search have 0 to 3 seeds. Curves are simulated as in ``probabilities.py``.
A row has a difficulty that all models share, one that neighbouring k share, and luck in each run, part of which the learning
rates of a run share. A probe and a TF-IDF model are scored on all rows; what is hard for words is hardly hard for the others.
Scores as measured are compared with scores without the effects of folds, and with what other learning rates tell besides.
There are many rows, or few of which most runs see the first fold only. It uses a fixed seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from frostline.statistics.run_result import PROBE, WORDS, RunResult, Scored

RESULT = Path(__file__).parent / "results" / "probabilities_with_folds.json"
LAYERS, FOLDS = 6, 5
SHARED, OF_K, LUCK, OF_SEED = 1.0, 0.5, 0.6, 0.06  # standard deviations of what makes a row hard or easy
OF_RATE = 0.4  # the part of the luck that is not that of other learning rates
OF_WORDS = 0.4  # how much of the shared difficulty a TF-IDF model has
TOTAL = float(np.sqrt(SHARED**2 + OF_K**2 + LUCK**2 + OF_SEED**2))
RATES = {"head only": 4, "last 3": 2, "full": 2}  # learning rates that were compared on the first seed; k = 0 on all
WORSE = (0.003, 0.01, 0.05)  # how much worse the next learning rate of a task may be, in score
BASELINE, GOAL = 0.5, Goal.of_gain(0.95, 0.5)


@dataclass(frozen=True)
class Kind:
    """A kind of search.

    Attributes:
        rows: Validation rows.
        seeds: How many seeds a k has; k = 0 has two, full has one or more.
        shares: How often.
        gain: How much of the gain of the simulated curves there is.
        head_learns: Whether k = 0 learns anything. If not, a probe is drawn around what full fine-tuning scores.
    """

    rows: int
    seeds: Sequence[int]
    shares: Sequence[float]
    gain: float = 1.0
    head_learns: bool = True


KINDS = {
    "900 rows": Kind(900, (0, 1, 2, 3), (0.35, 0.3, 0.2, 0.15)),
    "120 rows, short budget": Kind(120, (0, 1, 2), (0.45, 0.45, 0.1)),
    "120 rows, short budget, hard task": Kind(120, (0, 1, 2), (0.45, 0.45, 0.1), gain=0.3),
    "300 rows, short budget, k = 0 learns nothing": Kind(300, (0, 1, 2), (0.45, 0.45, 0.1), head_learns=False),
}


class AsMeasured(RunPredictions):
    """Scores with the effects of folds."""

    def _comparable(self, cells: Sequence[Sequence[Scored]]) -> dict[str, Array]:
        return {run.run: self[run.run] for runs in cells for run in runs}


# the class of the evidence, and whether it has runs at other learning rates
SIDES: dict[str, tuple[type[RunPredictions], bool]] = {
    "as measured": (AsMeasured, False),
    "without effects of folds": (RunPredictions, False),
    "and with other learning rates": (RunPredictions, True),
}


@dataclass(frozen=True)
class Task:
    """A simulated search: the runs of each k at its best learning rate, those at others, logits by run, and true scores."""

    cells: dict[Recipe, list[RunResult]]
    others: list[RunResult]
    logits: dict[str, Array]
    true: dict[str, float]


def search(random: np.random.Generator, kind: Kind) -> Task:
    truth = BASELINE + kind.gain * (curve(random, str(random.choice(SHAPES)), LAYERS) - BASELINE)
    truth, rows = np.clip(truth, 0.52, 0.98), kind.rows
    like = truth[0] if kind.head_learns else truth[-1] - 0.1
    truth[0] = truth[0] if kind.head_learns else random.uniform(BASELINE, 0.53)
    folds, hard = random.permutation(rows) % FOLDS, SHARED * random.standard_normal(rows)
    walk = np.cumsum(random.standard_normal((len(truth), rows)), 0)
    of_k = OF_K * walk / np.sqrt(np.arange(1, len(truth) + 1))[:, None]
    logits: dict[str, Array] = {}

    def add(name: str, accuracy: float, own: Array, scored: Array) -> float:
        right = norm.ppf(accuracy) * TOTAL + own > 0
        logits[name] = np.where(scored[:, None], np.stack([right, ~right], 1), np.nan)
        return float(right[scored].mean())

    cells: dict[Recipe, list[RunResult]] = {}
    others: list[RunResult] = []
    true: dict[str, float] = {}
    for k, accuracy in enumerate(truth.tolist()):
        name = Recipe("full" if k > LAYERS else k)
        some = int(random.choice(kind.seeds, p=kind.shares))
        count = {"head only": 2, "full": int(random.integers(1, max(kind.seeds) + 1))}.get(name, some)
        rates = RATES.get(name, 1)
        away = np.abs(np.cumsum(random.standard_normal(rates))) * random.choice(WORSE)
        level = accuracy - (away - away.min())
        shared = [np.sqrt(LUCK**2 - OF_RATE**2) * random.standard_normal(rows) for _ in range(count)]

        def run(
            rate: int, seed: int, name: Recipe = name, k: int = k, level: Array = level, shared: list[Array] = shared
        ) -> RunResult:
            own = hard + of_k[k] + shared[seed] + OF_RATE * random.standard_normal(rows)
            own += OF_SEED * random.standard_normal()
            found = RunResult(recipe=name, run=f"{name}/{rate}/{seed}", seed=seed, learning_rate=1.0 + rate)
            score = add(found.run, float(level[rate]), own, folds == seed)
            return RunResult(**{**vars(found), "validation_best": score})

        compared = range(count if name == "head only" else min(count, 1))
        by_rate = [[run(rate, seed) for seed in compared] for rate in range(rates)]
        best = int(np.argmax([sum(one.score for one in runs) for runs in by_rate]))
        cells[name] = by_rate[best] + [run(best, seed) for seed in range(len(compared), count)]
        others += [one for runs in by_rate[:best] + by_rate[best + 1 :] for one in runs]
        true[name] = float(level[best])
    every = np.ones(rows, bool)
    for name, low, high, part in ((PROBE, -0.03, 0.15, 1.0), (WORDS, -0.2, 0.05, OF_WORDS)):
        true[name] = float(np.clip(like + random.uniform(low, high), 0.52, 0.98))
        rest = np.sqrt(TOTAL**2 - (part * SHARED) ** 2) * random.standard_normal(rows)
        add(name, true[name], part * hard + rest, every)
    return Task(cells, others, logits, true)


def measure(kind: Kind, count: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What each side states of every choice but full, and what it names, with the truth."""
    random, stated, named = np.random.default_rng(seed), list[dict[str, Any]](), list[dict[str, Any]]()
    depth = [*(np.arange(LAYERS + 1) / LAYERS), 1 + 1 / LAYERS]
    split = Labelled(np.zeros(kind.rows, int), "text-classification", ("a", "b"), "accuracy")
    for _ in range(count):
        task = search(random, kind)
        for side, (evidence, with_rates) in SIDES.items():
            known, others = evidence(split, task.logits.__getitem__), task.others if with_rates else ()
            found = JointEstimate.of(task.cells, depth, [PROBE, WORDS], known, at_other_rates=others)
            stated += [{"side": side, **facts} for facts in _stated(found, task.true)]
            full = next(choice for choice in found.choices if choice.name == "full")
            value = {choice.name: task.true[choice.name] - PRICE * choice.cost for choice in found.choices}
            choice = Rule(goal=GOAL).choose(found.choices, full)
            true, (low, high) = task.true[choice.name], np.quantile(choice.draws, (0.025, 0.975))
            named.append(
                {
                    "side": side,
                    "lost": (max(value.values()) - value[choice.name]) / POINT,
                    "below": (task.true["full"] - true) / POINT,
                    "cost": choice.cost,
                    "error": (choice.expected - true) / POINT,
                    "covered": low <= true <= high,
                    "width": (high - low) / POINT,
                }
            )
    return pd.DataFrame(stated), pd.DataFrame(named)


def _stated(found: JointEstimate, true: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The probability of 95 % of full's gain, and the expected points below full, of each choice but full."""
    full = next(choice for choice in found.choices if choice.name == "full")
    for choice in found.choices:
        if choice is full:
            continue
        below, truly = (full.draws - choice.draws) / POINT, (true["full"] - true[choice.name]) / POINT
        low, high = np.quantile(below, (0.025, 0.975))
        yield {
            "p": Rule(goal=GOAL).probability(choice, full),
            "true": true[choice.name] - GOAL.share * true["full"] >= GOAL.threshold,
            "error": below.mean() - truly,
            "covered": low <= truly <= high,
            "width": high - low,
        }


def tables(found: dict[str, tuple[pd.DataFrame, pd.DataFrame]]) -> tuple[Facts, Facts]:
    """How well each side decides; and how right it is about the score of what it names."""
    decisions, scores = list[list[str]](), list[list[str]]()
    for kind, (every_stated, every_named) in found.items():
        for side in SIDES:
            stated, named = (frame[frame["side"] == side] for frame in (every_stated, every_named))
            error = named["error"]
            lost, of_error = (named[one].std() / np.sqrt(len(named)) for one in ("lost", "error"))
            decisions.append(
                [
                    *(kind, side, f"{named['lost'].mean():.2f} ± {lost:.2f}", f"{named['below'].mean():.2f}"),
                    f"{named['cost'].mean():.2f}",
                    f"{log_loss(stated['p'].to_numpy(), stated['true'].to_numpy()):.3f}",
                    f"{np.sqrt((stated['error'] ** 2).mean()):.2f}",
                    *(f"{100 * stated['covered'].mean():.0f} %", f"{stated['width'].mean():.1f}"),
                ]
            )
            scores.append(
                [
                    *(kind, side, f"{error.mean():+.2f} ± {of_error:.2f}", f"{np.sqrt((error**2).mean()):.2f}"),
                    *(f"{100 * named['covered'].mean():.0f} %", f"{named['width'].mean():.1f}"),
                ]
            )
    return {
        "caption": "**What is named, and what is stated of every other choice.**",
        "header": (
            *("search", "scores", "value lost, points ± standard error", "points below full", "cost of full"),
            *("log loss of probabilities", "error of differences, points", "95 % interval covers", "its width, points"),
        ),
        "rows": decisions,
    }, {
        "caption": "**The expected score of what is named, less its true score.**",
        "header": (
            *("search", "scores", "mean error, points ± standard error", "root mean square", "95 % interval covers"),
            "its width, points",
        ),
        "rows": scores,
    }


def main() -> None:
    options = options_of_simulation(__doc__, 500)
    both = tables({name: measure(kind, options.tasks, options.seed) for name, kind in KINDS.items()})
    write_result(RESULT, "Are searches with folds right about what they name?", [*both], {})


if __name__ == "__main__":
    main()
