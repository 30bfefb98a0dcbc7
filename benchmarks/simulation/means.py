"""How often the interval of a mean covers the truth, beside other intervals."""

import numpy as np
import pandas as pd
from scipy import special

from frostline.statistics.cells import AT_CHANCE, CLEAR, COLLAPSED, clear_distance, succeeded, with_outcomes
from frostline.statistics.evidence import Scores
from frostline.statistics.inference import QUANTILE
from simulation.draw import CHANCE, FULL, ROWS, SPREAD, Array, judge, run


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
    """The runs of cells ``[tries, seeds]`` that the mean is of, as :mod:`frostline.statistics.cells` has it, scored on so
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
        cell = [one for one in with_outcomes(runs, CHANCE, clear) if one.recipe == "last 1"]
        assert {one.seed for one in succeeded(cell)} == set(np.flatnonzero(mask).tolist())


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
