"""Do our intervals cover, and are our operating points right? Simulated scores with a known truth.

    python benchmarks/coverage.py --out FOLDER

prints six tables and writes each as CSV, and all as JSON. One thread, a fixed seed. What is vectorised here follows
``frostline.statistics.intervals`` and ``frostline.comparison``; ``check`` holds it to them on some of the tries.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from frostline.statistics import points
from frostline.statistics.choices import Choices
from frostline.statistics.curve import compare, main_point
from frostline.statistics.evidence import Evidence, Labelled, Predictions, Scores
from frostline.statistics.goal import Goal
from frostline.statistics.intervals import GROUPS, QUANTILE, holm, pair, ratio, seeds_needed, unpaired
from frostline.statistics.outcomes import AT_CHANCE, CLEAR, COLLAPSED, clear_distance, judged, succeeded

Array = NDArray[Any]

# What scores look like, from the results per seed of Lee, Tang and Lin (2019; four models on eight GLUE tasks, 306 points
# with 5 to 20 seeds): standard deviation of .001 to .027, .01 and more on the small tasks; skewness between -.4 and .2 for
# half of the points; 1.6 % of runs below 90 % of the best of their point (CoLA's heads apart), most of them at chance;
# correlation over seeds between a k and full .05 in the mean, which is 0 within its error.
CHANCE, FULL, SPREAD = 0.5, 0.85, 0.01
ROWS = 200  # where it matters how many there are
HARD = (
    3.0  # spread of the rows' difficulty against that of one answer: two runs disagree on 8 % of rows at accuracy .85
)


# --- the intervals, vectorised --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Many of :class:`frostline.statistics.intervals.Pair` at once: means ``[...]`` and errors (variance of the cell, covariance,
    variance of full, degrees of freedom)."""

    cell: Array
    full: Array
    errors: tuple[tuple[Array, Array, Array, Any], ...]
    twice: tuple[Array, Array, Array, float] | None = None  # of the rows' error, what the seeds' error holds too; rows

    def contrast(self, share: Any, base: float = 0.0) -> tuple[Array, Array, Array]:
        """``cell - base - share (full - base)``: value, standard error, degrees of freedom."""
        parts = [(a - 2 * share * ab + share**2 * b, freedom) for a, ab, b, freedom in self.errors]
        if self.twice is not None:
            a, ab, b, rows = self.twice
            least = (1 + share**2) / rows**2
            parts[-1] = np.maximum(parts[-1][0] - (a - 2 * share * ab + share**2 * b), least), parts[-1][1]
        total = sum(part for part, _ in parts)
        freedom = total**2 / sum(part**2 / freedom for part, freedom in parts)
        return self.cell - base - share * (self.full - base), np.sqrt(total), freedom

    def interval(self, share: Any, base: float = 0.0) -> tuple[Array, Array]:
        value, error, freedom = self.contrast(share, base)
        half = special.stdtrit(freedom, QUANTILE) * error
        return value - half, value + half

    def surely_above(self, base: float) -> Array:
        swapped = Pairs(self.full, self.cell, tuple((b, ab, a, freedom) for a, ab, b, freedom in self.errors))
        return swapped.interval(0.0, 0.0)[0] > base


def pairs(cell: Array, full: Array, rows: tuple[Array, Array, float] | None = None, paired: bool = True) -> Pairs:
    """Of scores ``[..., seeds]``; ``rows``: the same means with a group left out, ``[..., groups]``, and how many rows."""
    cell, full = np.broadcast_arrays(cell, full)
    n = cell.shape[-1]
    a, b = cell.var(-1, ddof=1) / n, full.var(-1, ddof=1) / n
    zero = np.zeros_like(a)
    errors: list[tuple[Array, Array, Array, Any]] = [(a, zero, zero, n - 1), (zero, zero, b, n - 1)]
    if paired:
        errors = [(a, _covariance(cell, full) * n / (n - 1) / n, b, n - 1)]
    if rows is not None:
        ours, theirs = np.broadcast_arrays(*rows[:2])
        groups, one = ours.shape[-1], rows[2] ** -2
        a, b, ab = (groups - 1) * ours.var(-1), (groups - 1) * theirs.var(-1), (groups - 1) * _covariance(ours, theirs)
        errors.append((a + one, ab, b + one, groups - 1))
    return Pairs(cell.mean(-1), full.mean(-1), tuple(errors))


def counted_twice(groups: Array) -> tuple[Array, Array, Array]:
    """The luck of a run with a row is in its seed's score and in its row's: its variance, from ``[tries, groups, seeds, 2]``."""
    own = groups - groups.mean(2, keepdims=True)
    ours, theirs, times = own[..., 0], own[..., 1], (groups.shape[1] - 1) / (groups.shape[2] * (groups.shape[2] - 1))
    ours, theirs = ours.swapaxes(1, 2), theirs.swapaxes(1, 2)
    a, ab, b = (times * value.sum(1) for value in (ours.var(-1), _covariance(ours, theirs), theirs.var(-1)))
    return a, ab, b


def _covariance(a: Array, b: Array) -> Array:
    centred = (a - a.mean(-1, keepdims=True)) * (b - b.mean(-1, keepdims=True))
    return np.asarray(centred.mean(-1))


def fieller(p: Pairs, base: float) -> tuple[Array, Array]:
    """As in :func:`frostline.statistics.intervals.ratio`; NaN where not defined, infinite where there is no bound."""
    estimate = (p.cell - base) / (p.full - base)

    def excess(share: Array) -> Array:
        value, error, freedom = p.contrast(share, base)
        return np.abs(value) - special.stdtrit(freedom, QUANTILE) * error

    def bound(side: int) -> Array:
        far, step = np.full_like(estimate, np.inf), 1e-3
        while step < 10:
            found = np.isinf(far) & (excess(estimate + side * step) > 0)
            far[found] = step
            step *= 1.5
        low, high = np.zeros_like(far), np.where(np.isinf(far), 0.0, far)
        for _ in range(30):
            middle = (low + high) / 2
            outside = excess(estimate + side * middle) > 0
            low, high = np.where(outside, low, middle), np.where(outside, middle, high)
        return np.where(np.isinf(far), side * np.inf, estimate + side * high)

    defined = p.surely_above(base)
    return np.where(defined, bound(-1), np.nan), np.where(defined, bound(+1), np.nan)


# --- what is simulated ----------------------------------------------------------------------------------------------


def seed_scores(draw: np.random.Generator, tries: int, seeds: int, truth: Array, correlation: float) -> Array:
    """Scores ``[tries, seeds, k]`` around ``truth`` ``[k]``; those of one seed are correlated."""
    shared = draw.standard_normal((tries, seeds, 1)) * correlation**0.5
    own = draw.standard_normal((tries, seeds, len(truth))) * (1 - correlation) ** 0.5
    return np.asarray(truth + SPREAD * (shared + own))


def predictions(draw: np.random.Generator, scores: Array, rows: int) -> Iterator[Array]:
    """Which rows are right, ``[some tries, rows, seeds, k]``, by runs whose scores on endless rows are ``scores``."""
    cut = (special.ndtri(scores) * np.sqrt(1 + HARD**2)).astype(np.float32)[:, None]
    some = max(1, 4_000_000 // (rows * scores[0].size))
    for start in range(0, len(scores), some):
        part = cut[start : start + some]
        hard = np.float32(HARD) * draw.standard_normal((len(part), rows, 1, 1), np.float32)
        yield draw.standard_normal((len(part), rows, *scores.shape[1:]), np.float32) + hard < part


def left_out(right: Array) -> tuple[Array, Array]:
    """Scores ``[tries, seeds, k]``, and with each group of rows left out ``[tries, groups, seeds, k]``."""
    rows = right.shape[1]
    sizes = np.array([len(part) for part in np.array_split(np.arange(rows), min(GROUPS, rows))])
    sums = np.add.reduceat(right, np.cumsum(sizes) - sizes, axis=1, dtype=np.float64)
    total = sums.sum(1)
    return total / rows, (total[:, None] - sums) / (rows - sizes)[:, None, None]


def judge(low: Array, high: Array, truth: float) -> dict[str, float]:
    """Coverage and the two one-sided errors in percent, its simulation error, the median width."""
    known = ~np.isnan(low)
    low, high = low[known], high[known]
    covers = np.mean((low <= truth) & (truth <= high))
    return {
        "covers": 100 * covers,
        "+-": 100 * np.sqrt(covers * (1 - covers) / len(low)),
        "low end wrong": 100 * np.mean(low > truth),
        "high end wrong": 100 * np.mean(high < truth),
        "width": float(np.median(high - low)),
        "defined": 100 * np.mean(known),
    }


# --- 1. means -------------------------------------------------------------------------------------------------------


def means(draw: np.random.Generator, tries: int) -> pd.DataFrame:
    """Intervals of a mean: how often they hold what they are an interval of."""
    table = []
    strong, weak, noisy = (
        (FULL, SPREAD, FULL + 0.02),
        (0.535, SPREAD, FULL + 0.02),
        (0.53, 0.03, 0.65),
    )  # mean, spread, best
    near = (0.53, 0.03, 0.56)
    failing = [(0.0, 0.0), (0.02, 0.30), (0.05, 0.30), (0.02, 0.35), (0.05, 0.35)]
    cases = [("normal", *strong, *f) for f in failing] + [("skewed", *strong, *f) for f in failing]
    cases += [("weak cell", *weak, 0.0, 0.0), ("weak and noisy", *noisy, 0.0, 0.0), ("near guessing", *near, 0.0, 0.0)]
    cases += [
        ("near guessing", *near, 0.05, 0.30),
        ("of 200 rows", *strong, 0.05, 0.30),
        ("of 200 rows", *noisy, 0.0, 0.0),
    ]
    for shape, mean, spread, best, rate, lower in cases:
        kind = "none" if not rate else f"{100 * rate:.0f} %, " + ("30 lower" if lower < 0.35 else "at chance")
        for n in (3, 5, 10, 20):
            noise = draw.standard_normal((tries, n))
            if shape == "skewed":  # to low scores, skewness -1
                noise = (4 - draw.gamma(4, size=(tries, n))) / 2
            scores = mean + spread * noise - lower * (draw.random((tries, n)) < rate)
            rows = ROWS if shape in ("near guessing", "of 200 rows") else None
            good = counted(scores, best, rows)
            check_counted(scores, good, best, rows)
            every = mean - lower * rate
            for name, (low, high), truth in (
                ("bootstrap, all runs", bootstrap(draw, scores), every),
                ("BCa, all runs", bca(draw, scores), every),
                ("t, all runs", student(scores, np.ones_like(good)), every),
                ("trimmed t", trimmed(scores), mean),
                ("t, above a tenth of the gain", student(scores, above_a_tenth(scores, best)), mean),
                ("t, half of the gain alone", student(scores, counted(scores, best)), mean),
                ("t, succeeded (ours)", student(scores, good), mean),
            ):
                of = "all runs" if "all" in name else "runs that succeed"
                table.append(
                    {"scores": shape, "failures": kind, "seeds": n, "interval": name, "of the mean of": of}
                    | judge(low, high, truth)
                    | {"mean width": float(np.nanmean(high - low))}
                )
    return pd.DataFrame(table).drop(columns="defined")


def counted(scores: Array, best: float, rows: int | None = None) -> Array:
    """The runs of cells ``[tries, seeds]`` that the mean is of, as :mod:`frostline.statistics.outcomes` has it, scored on so
    many rows (None: that is not known)."""
    gain = np.maximum(scores.max(1, keepdims=True), best) - CHANCE
    clear = CLEAR / 2 / np.sqrt(rows) if rows else 0.0
    learned = scores > CHANCE + AT_CHANCE * gain
    others = np.where(learned | (~learned.any(1, keepdims=True) & (gain < clear)), scores, np.nan)
    others[np.isnan(others).all(1)] = np.inf
    return half(scores >= np.nanmedian(others, 1, keepdims=True) - np.maximum(COLLAPSED * gain, clear))


def above_a_tenth(scores: Array, best: float) -> Array:
    """A rule that looks at each run alone: it has a tenth of the best gain. It was ours, and was not good."""
    return half(scores > CHANCE + AT_CHANCE * (np.maximum(scores.max(1, keepdims=True), best) - CHANCE))


def half(good: Array) -> Array:
    return np.where(2 * good.sum(1, keepdims=True) >= good.shape[1], good, True)


def check_counted(scores: Array, good: Array, best: float, rows: int | None) -> None:
    for row, mask in zip(scores[:100], good[:100], strict=True):
        runs = [*(run("1", seed, score) for seed, score in enumerate(row)), run("all", 0, best)]
        clear = clear_distance(runs, Scores("accuracy", CHANCE, rows=rows))
        cell = [one for one in judged(runs, CHANCE, clear) if one["trainable"] == "1"]
        assert {one["seed"] for one in succeeded(cell)} == set(np.flatnonzero(mask).tolist())


def student(scores: Array, good: Array) -> tuple[Array, Array]:
    """Student's interval of the runs that are good; NaN of one run."""
    n = good.sum(1).astype(float)
    n[n < 2] = np.nan
    mean = np.where(good, scores, 0).sum(1) / n
    error = np.sqrt(np.where(good, (scores - mean[:, None]) ** 2, 0).sum(1) / (n - 1) / n)
    half = special.stdtrit(n - 1, QUANTILE) * error
    return mean - half, mean + half


def trimmed(scores: Array) -> tuple[Array, Array]:
    """Tukey and McLaughlin's interval of the 20 % trimmed mean (of two seeds or more that stay)."""
    n = scores.shape[1]
    cut = int(0.2 * n)
    ordered = np.sort(scores, 1)
    middle = ordered[:, cut : n - cut]
    winsorised = np.clip(ordered, middle[:, :1], middle[:, -1:])
    stay = n - 2 * cut
    error = np.sqrt(winsorised.var(1, ddof=1) * (n - 1) / (stay * (stay - 1)))
    half = special.stdtrit(stay - 1, QUANTILE) * error
    return middle.mean(1) - half, middle.mean(1) + half


def resampled(draw: np.random.Generator, n: int, times: int) -> Array:
    """How often each of n is drawn, over n, ``[times, n]``; every try is resampled alike."""
    return draw.multinomial(n, np.full(n, 1 / n), size=times) / n


def bootstrap(draw: np.random.Generator, scores: Array) -> tuple[Array, Array]:
    low, high = np.quantile(scores @ resampled(draw, scores.shape[1], 999).T, [0.025, 0.975], axis=1)
    return low, high


def bca(draw: np.random.Generator, scores: Array) -> tuple[Array, Array]:
    """Efron's bias-corrected and accelerated bootstrap (1987)."""
    again = np.sort(scores @ resampled(draw, scores.shape[1], 999).T, axis=1)
    below = (again < scores.mean(1, keepdims=True)).mean(1)
    bias = special.ndtri(np.clip(below, 1e-3, 1 - 1e-3))[:, None]
    centred = scores.mean(1, keepdims=True) - scores  # the jackknife of a mean
    bent = (centred**3).sum(1) / (6 * (centred**2).sum(1) ** 1.5)
    z = bias + special.ndtri(np.array([0.025, 0.975]))
    level = special.ndtr(bias + z / (1 + bent[:, None] * z))
    place = np.clip((level * 1000).astype(int) - 1, 0, 998)
    ends = np.take_along_axis(again, place, 1)
    return ends[:, 0], ends[:, 1]


# --- 2. shares of full ----------------------------------------------------------------------------------------------


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
                    others = []
                    if rows is not None:
                        a, ab, b = (np.concatenate(part) for part in zip(*double, strict=True))
                        others = [
                            ("Fieller, no two rows more", fieller(pairs(*columns, bare), base)),
                            ("Fieller, luck counted once", fieller(replace(paired, twice=(a, ab, b, rows)), base)),
                        ]
                    for name, ends in (
                        ("Fieller, paired (ours)", fieller(paired, base)),
                        *others,
                        ("Fieller, unpaired", fieller(apart, base)),
                        ("delta, paired", delta(paired, base)),
                        ("bootstrap, paired", (low, high)),
                    ):
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


# --- 3. paired or not -----------------------------------------------------------------------------------------------


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


# --- 4. failure rates -----------------------------------------------------------------------------------------------


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


# --- 5. operating points --------------------------------------------------------------------------------------------

NAMES = ("0", "1", "2", "3", "4", "5", "6", "all")
CURVES = {  # shares of full's gain; the smallest k that reaches 95 %
    "clear": ((0.45, 0.65, 0.85, 0.975, 0.985, 0.995, 1.0, 1.0), 3),
    "near tie": ((0.45, 0.70, 0.90, 0.945, 0.955, 0.975, 0.99, 1.0), 4),
    "just below": ((0.45, 0.70, 0.94, 0.94, 0.94, 0.94, 0.94, 1.0), 7),
    "slow": ((0.40, 0.50, 0.60, 0.70, 0.80, 0.88, 0.93, 1.0), 7),
    "flat": ((1.0,) * 8, 0),
}
TARGET = 0.95


def operating_points(draw: np.random.Generator, tries: int, checks: int = 4) -> pd.DataFrame:
    """How often the smallest k that is enough is named, wrongly named, or not told."""
    table = []
    for curve, (gains, true) in CURVES.items():
        truth = CHANCE + (FULL - CHANCE) * np.array(gains)
        for rows in (None, 200, 872):
            for n in (3, 5, 10):
                scores, left = seed_scores(draw, tries, n, truth, 0.1), None
                if rows:
                    parts = [left_out(right) for right in predictions(draw, scores, rows)]
                    scores, left = (np.concatenate(part) for part in zip(*parts, strict=True))
                got = decide(scores, left, rows)
                for one in range(checks):
                    check_decision(
                        scores[one], None if left is None else left[one], rows, {k: v[one] for k, v in got.items()}
                    )
                table.append({"curve": curve, "rows": rows or "none", "seeds": n} | described(got, true, truth))
    return pd.DataFrame(table)


def decide(scores: Array, left: Array | None, rows: int | None) -> dict[str, Array]:
    """Every rule's k by its place, for scores ``[tries, seeds, k]``; -1: none."""
    each = scores.transpose(0, 2, 1)  # [tries, k, seeds]
    groups = None if left is None else left.mean(2).transpose(0, 2, 1)  # [tries, k, groups]
    both = pairs(each, each[:, -1:], None if groups is None else (groups, groups[:, -1:], rows))  # type: ignore[arg-type]
    low, high = both.interval(TARGET, CHANCE)
    low[:, -1] = high[:, -1] = np.inf  # full is enough of itself
    steps = pairs(each[:, :-1], each[:, -1:], None if groups is None else (groups[:, :-1], groups[:, -1:], rows))  # type: ignore[arg-type]
    value, error, freedom = steps.contrast(1.0)
    p = 2 * special.stdtr(freedom, -np.abs(value) / error)
    mean, best = each.mean(2), each.mean(2).argmax(1)
    spread = np.take_along_axis(each.std(2, ddof=1), best[:, None], 1) / scores.shape[1] ** 0.5
    with np.errstate(divide="ignore", invalid="ignore"):  # a flat curve has no bend
        bend = (mean[:, :7] - mean[:, :1]) / (mean[:, 6:7] - mean[:, :1]) - np.arange(7) / 6
    return {
        "defined": both.surely_above(CHANCE)[:, -1],
        "estimate": first(mean - CHANCE >= TARGET * (mean[:, -1:] - CHANCE)),
        "sure": first(low >= 0),
        "possible": first(high >= 0),
        "published": first(mean >= 0.9 * mean[:, -1:]),
        "one_standard_error": first(mean >= mean.max(1, keepdims=True) - spread),
        "knee": np.where((bend.max(1) >= points.KNEE) & (mean[:, 6] > mean[:, 0]), bend.argmax(1), -1),
        "p": p,
    }


def first(reached: Array) -> Array:
    return np.asarray(reached.argmax(1))


def described(got: dict[str, Array], true: int, truth: Array) -> dict[str, float]:
    sure, possible, defined = got["sure"], got["possible"], got["defined"]
    told = (sure == possible) & defined
    wrong = {
        name: 100 * np.mean((got[name] >= 0) & (got[name] < true))
        for name in ("estimate", "one_standard_error", "knee")
    }
    published = int(first((truth >= 0.9 * truth[-1])[None])[0])
    rejected = np.array([min(holm(p.tolist())) <= 0.05 for p in got["p"]]) if np.ptp(truth) == 0 else np.array([np.nan])
    return {
        "(a) sure, too small": 100 * np.mean(defined & (sure < true)),
        "(b) true k ruled out": 100 * np.mean(defined & (possible > true)),
        "(c) cannot tell": 100 * np.mean(~told),
        "(d) tells the true k": 100 * np.mean(told & (sure == true)),
        "sure, less than full": 100 * np.mean(defined & (sure < len(truth) - 1)),
        "sure = true k": 100 * np.mean(defined & (sure == true)),
        "means, too small": wrong["estimate"],
        "means, true k": 100 * np.mean(got["estimate"] == true),
        "1 SE, too small": wrong["one_standard_error"],
        "1 SE, true k": 100 * np.mean(got["one_standard_error"] == true),
        "knee, too small": wrong["knee"],
        "knee, true k": 100 * np.mean(got["knee"] == true),
        "published 90 %, too small for 95 % of gain": 100 * np.mean(got["published"] < true),
        "published 90 %, its own true k": 100 * np.mean(got["published"] == published),
        "Holm, any k differs": 100 * float(np.mean(rejected)),
    }


def run(k: str, seed: int, score: float) -> dict[str, Any]:
    return {
        **{"trainable": k, "tuned_layers": 6 if k == "all" else int(k), "tune_embeddings": k == "all"},
        **{"seed": seed, "learning_rate": 1e-4, "train_size": 100, "status": "done", "run": f"{k}-{seed}"},
        **{"validation_best": float(score), "validation_last": float(score), "train_last": 1.0, "outcome": "ok"},
        **{"train_seconds": 1.0, "cache_seconds": 0.0, "trainable_parameters": 1, "peak_memory_bytes": 1},
    }


def check_decision(scores: Array, left: Array | None, rows: int | None, got: dict[str, Array]) -> None:
    """What :func:`decide` says of one try is what the library says."""
    runs = [run(k, seed, scores[seed, place]) for place, k in enumerate(NAMES) for seed in range(len(scores))]
    evidence: Evidence = Scores("accuracy", CHANCE)
    if left is not None:
        assert rows is not None
        split = Labelled(np.repeat([0, 1], rows // 2), "single_label_classification", ("no", "yes"), "accuracy")
        known = Predictions(split, lambda _: np.zeros((rows, 2)))
        known.known = {
            f"{k}-{seed}": np.append(scores[seed, place], left[:, seed, place])
            for place, k in enumerate(NAMES)
            for seed in range(len(scores))
        }
        evidence = known
    answer = compare(runs, evidence, Choices(target=TARGET))
    if any(cell["failures"]["failed"] for cell in answer["cells"]):
        return  # decide() judges no runs
    point = main_point(answer)
    assert (point["verdict"] != "undefined") == got["defined"]
    if got["defined"]:
        named = {name: NAMES[int(got[name])] for name in ("estimate", "sure", "possible")}
        assert named == {name: point[name] for name in named}, (named, point)
    assert answer["one_standard_error"] == NAMES[int(got["one_standard_error"])]
    assert answer["knee"] == (None if got["knee"] < 0 else NAMES[int(got["knee"])])
    assert np.allclose([cell["difference"]["p"] for cell in answer["cells"][:-1]], got["p"])


# --- 6. seeds that would tell ---------------------------------------------------------------------------------------


def seeds_to_tell(draw: np.random.Generator, pilots: int) -> pd.DataFrame:
    """How likely so many seeds as are named give a verdict: named from the truth, and from a pilot that cannot tell."""
    table = []
    for share in (0.90, 0.93, 0.94, 0.955, 0.97, 0.99):
        truth = CHANCE + (FULL - CHANCE) * np.array([share, 1.0])
        distance = (share - TARGET) * (FULL - CHANCE)
        by_seed = SPREAD**2 * (1 + TARGET**2 - 2 * TARGET * 0.1)
        exact = seeds_needed(distance, by_seed, 0.0, 1.0)
        for n in (3, 5, 10):
            scores = seed_scores(draw, pilots, n, truth, 0.1)
            low, high = pairs(scores[..., 0], scores[..., 1]).interval(TARGET, CHANCE)
            unsure = scores[(low < 0) & (high >= 0)]
            named = [points.seeds_to_tell(pair(one), Goal.of_gain(TARGET, CHANCE)) for one in unsure]
            known = np.array([m for m in named if m is not None])
            chance = power(distance, by_seed, known)
            table.append(
                {
                    "true share": share,
                    "seeds": n,
                    "needed by the truth": exact,
                    "a verdict then %": np.nan
                    if exact is None
                    else 100 * float(power(distance, by_seed, np.array([exact]))[0]),
                    "pilots that cannot tell %": 100 * len(unsure) / pilots,
                    "named, median": float(np.median(known)),
                    "named, quarter": float(np.quantile(known, 0.25)),
                    "named, three quarters": float(np.quantile(known, 0.75)),
                    "none named %": 100 * (1 - len(known) / len(unsure)),
                    "a verdict with those %": 100 * float(chance.mean()),
                    "of these with at least 80 % chance %": 100 * float((chance >= 0.795).mean()),
                }
            )
    return pd.DataFrame(table)


def power(distance: float, by_seed: float, seeds: Array) -> Array:
    """The chance that an interval from so many new seeds leaves out 0."""
    away = np.clip(np.abs(distance) / np.sqrt(by_seed / seeds), None, 30.0)  # beyond, it is certain
    quantile = special.stdtrit(seeds - 1, QUANTILE)
    other_side = np.where(away < 4, special.nctdtr(seeds - 1, np.minimum(away, 4.0), -quantile), 0.0)
    return np.asarray(other_side + 1 - special.nctdtr(seeds - 1, away, quantile))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tries", type=int, default=4000, help="of each case; a quarter of it where rows are simulated"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tables = {
        "means": lambda draw: means(draw, options.tries),
        "shares": lambda draw: shares(draw, options.tries // 4),
        "pairing": lambda draw: pairing(draw, 5 * options.tries),
        "failure rates": lambda draw: rates(),
        "operating points": lambda draw: operating_points(draw, options.tries // 4),
        "seeds to tell": lambda draw: seeds_to_tell(draw, options.tries // 4),
    }
    whole = {}
    for name, draw in zip(tables, np.random.default_rng(options.seed).spawn(len(tables)), strict=True):
        start = time.monotonic()
        table = tables[name](draw)
        print(f"\n{name} ({time.monotonic() - start:.0f} s)\n{table.round(4).to_string(index=False)}", flush=True)
        table.to_csv(options.out / f"{name.replace(' ', '_')}.csv", index=False)
        whole[name] = json.loads(table.to_json(orient="records", double_precision=6))
    (options.out / "coverage.json").write_text(
        json.dumps({"seed": options.seed, "tries": options.tries} | whole, indent=1)
    )


if __name__ == "__main__":
    main()
