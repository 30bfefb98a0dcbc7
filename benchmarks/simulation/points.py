"""How often an operating point is right, and how many seeds would tell."""

import numpy as np
import pandas as pd
from scipy import special

from frostline.statistics.analysis_settings import AnalysisSettings, Goal, seeds_to_decide
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.inference import QUANTILE, holm, pair, seeds_needed
from frostline.statistics.predictions import Evidence, Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from simulation.draw import CHANCE, FULL, SPREAD, Array, left_out, pairs, predictions, run, seed_scores
from simulation.shares import NAMES

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
    """The k of every operating point by its place, for scores ``[tries, seeds, k]``; -1: none."""
    each = scores.transpose(0, 2, 1)  # [tries, k, seeds]
    groups = None if left is None else left.mean(2).transpose(0, 2, 1)  # [tries, k, groups]
    both = pairs(each, each[:, -1:], None if groups is None else (groups, groups[:, -1:], rows))  # type: ignore[arg-type]
    low, high = both.interval(TARGET, CHANCE)
    low[:, -1] = high[:, -1] = np.inf  # full is enough of itself
    steps = pairs(each[:, :-1], each[:, -1:], None if groups is None else (groups[:, :-1], groups[:, -1:], rows))  # type: ignore[arg-type]
    value, error, freedom = steps.contrast(1.0)
    p = 2 * special.stdtr(freedom, -np.abs(value) / error)
    mean = each.mean(2)
    return {
        "defined": both.surely_above(CHANCE)[:, -1],
        "estimate": first(mean - CHANCE >= TARGET * (mean[:, -1:] - CHANCE)),
        "confident": first(low >= 0),
        "not_ruled_out": first(high >= 0),
        "published": first(mean >= 0.9 * mean[:, -1:]),
        "p": p,
    }


def first(reached: Array) -> Array:
    return np.asarray(reached.argmax(1))


def described(got: dict[str, Array], true: int, truth: Array) -> dict[str, float]:
    sure, possible, defined = got["confident"], got["not_ruled_out"], got["defined"]
    told = (sure == possible) & defined
    published = int(first((truth >= 0.9 * truth[-1])[None])[0])
    rejected = np.array([min(holm(p.tolist())) <= 0.05 for p in got["p"]]) if np.ptp(truth) == 0 else np.array([np.nan])
    return {
        "(a) sure, too small": 100 * np.mean(defined & (sure < true)),
        "(b) true k ruled out": 100 * np.mean(defined & (possible > true)),
        "(c) cannot tell": 100 * np.mean(~told),
        "(d) tells the true k": 100 * np.mean(told & (sure == true)),
        "sure, less than full": 100 * np.mean(defined & (sure < len(truth) - 1)),
        "sure = true k": 100 * np.mean(defined & (sure == true)),
        "means, too small": 100 * np.mean(got["estimate"] < true),
        "means, true k": 100 * np.mean(got["estimate"] == true),
        "published 90 %, too small for 95 % of gain": 100 * np.mean(got["published"] < true),
        "published 90 %, its own true k": 100 * np.mean(got["published"] == published),
        "Holm, any k differs": 100 * float(np.mean(rejected)),
    }


def check_decision(scores: Array, left: Array | None, rows: int | None, got: dict[str, Array]) -> None:
    """What :func:`decide` says of one try is what the library says."""
    runs = [run(k, seed, scores[seed, place]) for place, k in enumerate(NAMES) for seed in range(len(scores))]
    evidence: Evidence = Scores("accuracy", CHANCE)
    if left is not None:
        assert rows is not None
        split = Labelled(np.repeat([0, 1], rows // 2), "text-classification", ("no", "yes"), "accuracy")
        known = RunPredictions(split, lambda _: np.zeros((rows, 2)))
        known.scores = {
            f"{k}-{seed}": np.append(scores[seed, place], left[:, seed, place])
            for place, k in enumerate(NAMES)
            for seed in range(len(scores))
        }
        evidence = known
    answer = compare(runs, evidence, AnalysisSettings(target=TARGET))
    if any(cell.failures.failed for cell in answer.cells):
        return  # decide() judges no runs
    point = answer.deciding_point
    assert (point.verdict != "undefined") == got["defined"]
    if got["defined"]:
        named = {name: Recipe(NAMES[int(got[name])]) for name in ("estimate", "confident", "not_ruled_out")}
        assert named == {name: getattr(point, name) for name in named}, (named, point)
    assert np.allclose(np.array([cell.difference.p for cell in answer.cells if cell.difference], float), got["p"])


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
            named = [seeds_to_decide(pair(one), Goal.of_gain(TARGET, CHANCE)) for one in unsure]
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
