"""Does the best of many ways beat the k of the same cost as often as its probability says?

    python benchmarks/probabilities_of_ways.py

Simulated curves as in ``probabilities.py``, with eight ways beside them. Most ways score nearly as the k of the same cost, some
differ by points, and a few are far worse. The way that is expected to gain most over its k is named, with the probability that
it is better. The posterior of an answer ties each way to its k. It is compared with one whose prior of ways is flat.
It uses one thread and a fixed seed.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Facts, write_result
from probabilities import SHAPES, Array, curve, log_loss, observed, options_of_simulation, runs

from frostline.statistics.posterior import HIGHEST, posterior

RESULT = Path(__file__).parent / "results" / "probabilities_of_ways.json"
WAYS, LAYERS = 8, 6
PRIORS = {"flat": False, "tied to k": True}
ALIKE, DIFFERENT, WORSE = 0.003, 0.015, 0.08  # standard deviations of the true gaps of three kinds of ways
SHARES = (0.6, 0.3, 0.1)


def gaps(random: np.random.Generator) -> Array:
    """How far each way truly scores above its k."""
    kinds = random.choice(3, WAYS, p=SHARES)
    drawn = random.standard_normal(WAYS) * np.array([ALIKE, DIFFERENT, WORSE])[kinds]
    found: Array = np.where(kinds == 2, -np.abs(drawn), drawn)
    return found


def measure(count: int, seed: int) -> pd.DataFrame:
    """For each task, prior and way: the expected gain over its k, its probability, what is true, and which way is named."""
    random, found = np.random.default_rng(seed), []
    depth = [*(np.arange(LAYERS + 1) / LAYERS), 1 + 1 / LAYERS]
    for task in range(count):
        seeds, rows = int(random.choice([3, 5])), int(random.choice([300, 1000]))
        truth = curve(random, str(random.choice(SHAPES)), LAYERS)
        ks, true_gaps = random.integers(1, len(truth), WAYS), gaps(random)
        every = np.concatenate([truth, np.clip(truth[ks] + true_gaps, 0.02, 0.99)])
        known = observed(*runs(random, every, seeds, rows, 0.0), rows, [*depth, *[None] * WAYS])
        beside = {len(truth) + n: int(k) for n, k in enumerate(ks)}
        for prior, tied in PRIORS.items():
            draws = np.minimum(posterior(replace(known, beside=beside) if tied else known).draws, HIGHEST)
            above = np.stack([draws[:, way] - draws[:, k] for way, k in beside.items()], 1)
            gain, p = above.mean(0), (above > 0).mean(0)
            true = np.array([every[way] - every[k] for way, k in beside.items()])
            found += [
                {
                    **{"task": task, "seeds": seeds, "prior": prior, "best": n == gain.argmax()},
                    **{"gain": 100 * gain[n], "p": p[n], "true": true[n] > 0, "true gain": 100 * true[n]},
                }
                for n in range(WAYS)
            ]
    return pd.DataFrame(found)


def table(found: pd.DataFrame, caption: str) -> Facts:
    """What each prior says of these ways, and what is true."""
    rows = []
    for (prior, seeds), some in found.groupby(["prior", "seeds"]):
        loss = log_loss(some["p"].to_numpy(), some["true"].to_numpy())
        rows.append(
            [
                *(str(prior), str(seeds), f"{100 * some['p'].mean():.0f} %", f"{100 * some['true'].mean():.0f} %"),
                *(f"{some['gain'].mean():.2f}", f"{some['true gain'].mean():.2f}", f"{loss:.3f}", str(len(some))),
            ]
        )
    header = (
        *("prior of ways", "seeds", "mean stated probability", "true"),
        *("expected points above k", "true points above k", "log loss", "cases"),
    )
    return {"caption": caption, "header": header, "rows": rows}


def by_fifth(found: pd.DataFrame) -> Facts:
    """For every fifth of the stated probability of the named way: how often it came true."""
    fifth = np.minimum((found["p"] * 5).astype(int), 4)
    rows = [
        [
            *(str(prior), f"{20 * n} to {20 * n + 20} %"),
            *(f"{100 * some[name].mean():.0f} %" for name in ("p", "true")),
            str(len(some)),
        ]
        for prior in PRIORS
        for n in range(5)
        if len(some := found[(found["prior"] == prior) & (fifth == n)])
    ]
    header = ("prior of ways", "stated", "mean stated", "true", "cases")
    return {"caption": "**The best of eight ways, by its stated probability.**", "header": header, "rows": rows}


def main() -> None:
    options = options_of_simulation(__doc__, 1000)
    found = measure(options.tasks, options.seed)
    best = found[found["best"]]
    tables = [
        table(best, "**The way that is expected to gain most over its k.**"),
        by_fifth(best),
        table(found, "**All ways.**"),
    ]
    write_result(RESULT, "Does the best of many ways beat the k of the same cost as often as stated?", tables, {})


if __name__ == "__main__":
    main()
