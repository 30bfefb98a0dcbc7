"""Several train sizes: from which size full fine-tuning is better, and the interaction with k."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.train_sizes import over_sizes
from synthetic_results import noisy, synthetic_runs

SIZES = (50, 200, 1000)


def curves(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sizes = sorted({run.train_size for run in runs})
    return [compare([r for r in runs if r.train_size == n], Scores("accuracy", 0.5), AnalysisSettings()) for n in sizes]


def growing(k: int | str, seed: int, size: int | None) -> float:
    """With ten times as many examples, full gains 10 points on the head, and none on the last 2 layers."""
    assert size is not None
    gap = {0: 0.1 * np.log10(size / 50), 2: 0.0, "full": 0.0}[k]
    return noisy({0: 0.8, 2: 0.8, "full": 0.8}, 0.005)(k, seed, size) - gap


def test_the_size_from_which_full_is_better() -> None:
    """At every larger size, too."""
    rows = {row.recipe: row for row in over_sizes(curves(synthetic_runs(growing, ks=(0, 2, "full"), sizes=SIZES)))}
    assert rows["head only"].full_better_from == 200 and rows["last 2"].full_better_from is None
    head, two = rows["head only"], rows["last 2"]
    assert head.slope == pytest.approx(-0.1, abs=0.01) and head.slope_p_holm < 0.001 and two.slope_p_holm > 0.05
    assert head.slope_low < -0.1 < head.slope_high

    def once(k: int | str, seed: int, size: int | None) -> float:
        return noisy({0: 0.6 if size == 200 else 0.8, "full": 0.8}, 0.005)(k, seed, size)

    (row,) = over_sizes(curves(synthetic_runs(once, ks=(0, "full"), sizes=SIZES)))
    assert row.full_better_from is None


def test_full_is_not_compared_with_itself() -> None:
    """Where its runs predict a constant at one size, the largest other k is the reference there."""
    runs = synthetic_runs(growing, ks=(0, 2, "full"), sizes=SIZES)
    failed = [
        replace(run, outcome="degenerate") if run.recipe == "full" and run.train_size == 50 else run for run in runs
    ]
    rows = {row.recipe: row for row in over_sizes(curves(failed))}
    assert {*rows} == {"head only", "last 2"}
    assert rows["head only"].slope_p_holm == pytest.approx(2 * rows["head only"].slope_p)


def test_an_absent_interaction_is_rarely_significant() -> None:
    found = []
    for seed in range(16):
        level = noisy({0: 0.7, 2: 0.78, "full": 0.8}, 0.02, seed)
        runs = synthetic_runs(level, ks=(0, 2, "full"), sizes=SIZES, seeds=4)
        found.append(min(row.slope_p_holm for row in over_sizes(curves(runs))) < 0.05)
    assert sum(found) <= 1


def test_one_size_or_one_seed_has_no_slope() -> None:
    for sizes, seeds in (((50,), 5), (SIZES, 1)):
        (row,) = over_sizes(curves(synthetic_runs(growing, ks=(0, "full"), sizes=sizes, seeds=seeds)))
        assert row.slope is row.slope_p is row.slope_p_holm is None
