"""How often the intervals of shares of full, of differences and of failure rates cover the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from frostline.statistics.inference import QUANTILE, pair, ratio, unpaired
from simulation.draw import (
    CHANCE,
    FULL,
    SPREAD,
    Array,
    Pairs,
    counted_twice,
    fieller,
    judge,
    left_out,
    pairs,
    predictions,
    seed_scores,
)
from simulation.means import resampled


def shares(draw: np.random.Generator, tries: int) -> pd.DataFrame:
    """Intervals of a share of full."""
    table = []
    cases = [(0.82, FULL, rows) for rows in (None, 200, 872)] + [(0.60, 0.62, None)]
    for cell, full, rows in cases:
        for correlation in (0.0, 0.1, 0.6):
            for n in (3, 5, 10):
                truth = np.array([cell, full])
                scores = seed_scores(draw, tries, n, truth, correlation)
                again: dict[float, list[Array]] = {0.0: [], CHANCE: []}
                seeds = resampled(draw, n, 499)
                if rows is None:
                    jackknife = None
                    for base, parts in again.items():
                        drawn = np.einsum("tsk,bs->tbk", scores - base, seeds)
                        parts.append(drawn[..., 0] / drawn[..., 1])
                else:
                    chosen = resampled(draw, rows, 499).astype(np.float32)
                    seen, left, double = [], [], []
                    for right in predictions(draw, scores, rows):
                        ours, groups = left_out(right)
                        seen.append(ours)
                        left.append(groups.mean(2))
                        double.append(counted_twice(groups))
                        flat = right.reshape(len(right), rows, -1).astype(np.float32)
                        drawn = np.einsum("tbsk,bs->tbk", (chosen @ flat).reshape(len(right), 499, n, 2), seeds)
                        for base, parts in again.items():
                            parts.append((drawn[..., 0] - base) / (drawn[..., 1] - base))
                    scores, groups = np.concatenate(seen), np.concatenate(left)
                    jackknife = groups[..., 0], groups[..., 1], rows
                columns = scores[..., 0], scores[..., 1]
                bare = None if jackknife is None else (*jackknife[:2], np.inf)
                for base, parts in again.items():
                    paired = pairs(*columns, jackknife)
                    check_share(scores, jackknife, paired, base)
                    apart = pairs(*columns, jackknife, paired=False)
                    value, (low, high) = (
                        (cell - base) / (full - base),
                        np.quantile(np.concatenate(parts), [0.025, 0.975], 1),
                    )
                    ends_by_name = {
                        "Fieller, paired (ours)": fieller(paired, base),
                        **(_other_fiellers(paired, pairs(*columns, bare), double, base, rows) if rows else {}),
                        "Fieller, unpaired": fieller(apart, base),
                        "delta, paired": delta(paired, base),
                        "bootstrap, paired": (low, high),
                    }
                    for name, ends in ends_by_name.items():
                        table.append(
                            {
                                "share of": "gain" if base else "score",
                                "truth": value,
                                "rows": rows or "none",
                                "correlation": correlation,
                                "seeds": n,
                                "interval": name,
                                **judge(*ends, value),
                            }
                        )
    return pd.DataFrame(table)


def _other_fiellers(
    paired: Pairs, bare: Pairs, double: list[Any], base: float, rows: int
) -> dict[str, tuple[Array, Array]]:
    """Two other ways to count the examples."""
    a, ab, b = (np.concatenate(part) for part in zip(*double, strict=True))
    return {
        "Fieller, no two rows more": fieller(bare, base),
        "Fieller, luck counted once": fieller(replace(paired, twice=(a, ab, b, rows)), base),
    }


def delta(p: Pairs, base: float) -> tuple[Array, Array]:
    estimate = (p.cell - base) / (p.full - base)
    _, error, freedom = p.contrast(estimate, base)
    half = special.stdtrit(freedom, QUANTILE) * error / np.abs(p.full - base)
    return estimate - half, estimate + half


def check_share(scores: Array, jackknife: tuple[Array, Array, float] | None, got: Pairs, base: float) -> None:
    low, high = fieller(got, base)
    for n in range(3):
        left, one = None, 0.0
        if jackknife is not None:  # of the mean over seeds: the same for every seed
            left = np.repeat(np.stack([jackknife[0][n], jackknife[1][n]], -1)[:, None], scores.shape[1], 1)
            one = 1 / jackknife[2]
        truth = ratio(pair(scores[n], left, one), base)
        ours = [np.nan, np.nan] if truth.estimate is None else [truth.low, truth.high]
        ours = [end * np.inf if value is None else value for end, value in zip((-1, 1), ours, strict=True)]
        assert np.allclose([low[n], high[n]], ours, atol=1e-6, equal_nan=True), (low[n], high[n], ours)


def pairing(draw: np.random.Generator, tries: int) -> pd.DataFrame:
    """The difference of two means: paired, unpaired, and the one that looks better; ``common`` seeds of those on each side."""
    table = []
    for n, common in ((3, 3), (5, 5), (10, 10), (5, 4), (5, 3), (10, 9), (10, 5), (10, 2)):
        for correlation in (-0.3, 0.0, 0.1, 0.3, 0.6):
            one = seed_scores(draw, tries, 2 * n - common, np.array([FULL, FULL]), max(correlation, 0.0))
            if correlation < 0:  # cell and full pull apart
                shared = SPREAD * draw.standard_normal((tries, 2 * n - common)) * (-correlation) ** 0.5
                own = SPREAD * draw.standard_normal(one.shape) * (1 + correlation) ** 0.5
                one = FULL + own + np.stack([shared, -shared], -1)
            cell, full = one[:, :n, 0], one[:, n - common :, 1]
            both = slice(n - common, n)
            ends = {
                "paired, common seeds": pairs(one[:, both, 0], one[:, both, 1]).interval(1.0),
                "unpaired, all runs": pairs(cell, full, paired=False).interval(1.0),
            }
            known = unpaired(cell[0], full[0]).interval(np.array([1.0, -1.0]))
            assert np.allclose([end[0] for end in ends["unpaired, all runs"]], known)
            a, b = (np.stack(ends[name]) for name in ends)
            ends["the narrower"] = tuple(np.where((a[1] - a[0] < b[1] - b[0]), a, b))
            for name, (low, high) in ends.items():
                table.append(
                    {"seeds": n, "common": common, "correlation": correlation, "interval": name} | judge(low, high, 0.0)
                )
    return pd.DataFrame(table).drop(columns="defined")


def rates() -> pd.DataFrame:
    """Intervals of a failure rate: exact, no simulation."""
    table = []
    for rate in (0.0025, 0.02, 0.15):
        for n in (5, 10, 50):
            failed = np.arange(n + 1)
            chance = stats.binom.pmf(failed, n, rate)
            jeffreys = stats.beta(failed + 0.5, n - failed + 0.5)
            for name, ends in (
                ("Clopper-Pearson (ours)", [stats.binomtest(int(f), n).proportion_ci(0.95, "exact") for f in failed]),
                ("Wilson", [stats.binomtest(int(f), n).proportion_ci(0.95, "wilson") for f in failed]),
                (
                    "Jeffreys",
                    list(
                        zip(
                            np.where(failed == 0, 0.0, jeffreys.ppf(0.025)),
                            np.where(failed == n, 1.0, jeffreys.ppf(0.975)),
                            strict=True,
                        )
                    ),
                ),
            ):
                low, high = np.array([tuple(end) for end in ends]).T
                table.append(
                    {
                        "rate %": 100 * rate,
                        "runs": n,
                        "interval": name,
                        "covers": 100 * chance[(low <= rate) & (rate <= high)].sum(),
                        "low end wrong": 100 * chance[low > rate].sum(),
                        "high end wrong": 100 * chance[high < rate].sum(),
                        "mean width": (chance * (high - low)).sum(),
                        "width, none failed": high[0] - low[0],
                    }
                )
    return pd.DataFrame(table)


NAMES = ("0", "1", "2", "3", "4", "5", "6", "all")
