"""Comparisons: which runs count as failed, and what holds for any runs: order, ties, gaps, failures, shifts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Difference
from frostline.statistics.cells import FAILURES, clear_distance, failures, succeeded, with_outcomes
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.inference import holm, seeds_needed
from frostline.statistics.recipe import Recipe
from synthetic_results import answer, by_name, one

KS = ("0", "1", "2", "full")
scores = st.floats(0.0, 1.0, allow_nan=False).map(lambda value: round(value, 3))
tables = st.dictionaries(st.tuples(st.sampled_from(KS), st.integers(0, 4)), scores, min_size=1)


def runs_of(table: dict[tuple[str, int], float]) -> list[dict[str, Any]]:
    return [one(k, seed, score) for (k, seed), score in table.items()]


def close(a: Any, b: Any) -> bool:
    """Whether both are equal up to rounding errors."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    return bool(a == b)


@settings(max_examples=25)
@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(table: dict[tuple[str, int], float], random: Any) -> None:
    runs = runs_of(table)
    mixed = random.sample(runs, len(runs))
    ours, theirs = answer(runs), answer(mixed)
    for got in (ours, theirs):
        for cell in got.cells:
            cell.points = sorted(cell.points, key=lambda point: point.seed)
    assert close(asdict(ours), asdict(theirs))


@settings(max_examples=60)
@given(tables, st.one_of(st.none(), scores), st.booleans())
def test_any_table_gives_a_coherent_answer(
    table: dict[tuple[str, int], float], chance: float | None, corrected: bool
) -> None:
    """Points are ordered and intervals contain their means, with ties, gaps, one seed, no spread or failed cells."""
    got = answer(runs_of(table), chance, corrected=corrected)
    place = {cell.recipe: n for n, cell in enumerate(got.cells)}
    for cell in got.cells:
        summary = cell.validation
        assert summary.n <= cell.runs == sum(k == cell.recipe.short for k, _ in table)
        assert cell.failures.failed == sum(getattr(cell.failures, name.replace(" ", "_")) for name in FAILURES)
        if summary.low is not None:
            assert summary.low - 1e-9 <= summary.mean <= summary.high + 1e-9
        assert cell.share_corrected is None or chance is not None
    assert chance is not None or not got.learned
    for point in got.operating_points:
        named = [getattr(point, name) for name in ("not_ruled_out", "estimate", "confident")]
        if point.verdict != "undefined" and None not in named:
            assert place[named[0]] <= place[named[2]] and place[named[0]] <= place[named[1]]
        assert point.verdict == "undefined" or chance is not None or not point.corrected
        if point.verdict == "undefined":
            assert named == [None] * 3


def test_one_seed_has_no_interval() -> None:
    got = answer([one(k, 0, score) for k, score in zip(KS, (0.5, 0.7, 0.8, 0.9), strict=True)])
    assert all(cell.validation.low is None for cell in got.cells)
    difference = by_name(got)["1"].difference
    assert difference == Difference(means=pytest.approx((0.7, 0.9)), estimate=pytest.approx(-0.2))
    assert got.seeds_to_decide is None and not got.learned


def test_no_spread_is_certain() -> None:
    got = answer([one(k, seed, 0.8 if k != "0" else 0.5) for k in KS for seed in range(3)])
    point = next(p for p in got.operating_points if p.corrected and p.target == 0.95)
    assert point == replace(point, estimate="last 1", confident="last 1", not_ruled_out="last 1", verdict="decided")
    assert by_name(got)["1"].difference.p == 1 and by_name(got)["0"].difference.p < 1e-20


def test_failed_runs_only_and_a_cell_without_finished_runs() -> None:
    diverged = [one(k, seed, None, outcome="diverged") for k in KS for seed in range(3)]
    got = answer(diverged)
    assert got.reference is None and all(cell.validation.mean is None for cell in got.cells)
    assert all(cell.failures.failed == 3 for cell in got.cells)
    assert {p.verdict for p in got.operating_points} == {"undefined"}
    pending = [one(k, seed, 0.8, status="pending" if k == "1" else "done") for k in KS for seed in range(3)]
    empty = by_name(answer(pending))["1"]
    assert (empty.runs, empty.share, empty.difference, empty.failures.interval) == (0, None, None, None)


def test_a_repeated_seed_counts_once_if_seeds_are_paired() -> None:
    runs = [
        one(k, seed, 0.8 + 0.01 * seed + 0.003 * (k == "full") * seed**2) for k in ("1", "full") for seed in range(4)
    ]
    twice = by_name(answer([*runs, replace(runs[0], run="again")]))["1"]
    assert twice.difference == by_name(answer(runs))["1"].difference and twice.runs == 5


@pytest.mark.parametrize(
    ("ours", "theirs", "paired"), [(5, 5, True), (4, 5, True), (3, 5, False), (2, 2, True), (10, 5, False)]
)
def test_seeds_are_paired_if_that_drops_few_runs(ours: int, theirs: int, paired: bool) -> None:
    """Otherwise every run counts: all ten runs have more information than two common seeds of five."""
    draw = np.random.default_rng(0)
    runs = [one(k, n, draw.uniform(0.8, 0.9)) for k, count in (("1", ours), ("full", theirs)) for n in range(count)]
    got, by_k = by_name(answer(runs))["1"], {k: [r.validation_best for r in runs if r.recipe.short == k] for k in KS}
    common = min(ours, theirs)
    means = [np.mean(by_k[k][:common] if paired else by_k[k]) for k in ("1", "full")]
    assert got.difference.estimate == pytest.approx(means[0] - means[1])
    test = stats.ttest_rel if paired else partial(stats.ttest_ind, equal_var=False)
    assert got.difference.p == pytest.approx(
        test(by_k["1"][: common if paired else None], by_k["full"][: common if paired else None]).pvalue
    )


@settings(max_examples=25)
@given(tables, st.floats(-0.3, 0.3))
def test_differences_do_not_change_if_all_scores_are_shifted(table: dict[tuple[str, int], float], by: float) -> None:
    here, there = (
        by_name(answer(runs_of({key: 0.3 + 0.3 * score + move for key, score in table.items()}), 0.3 + move))
        for move in (0.0, by)
    )
    for name, cell in here.items():
        ours, theirs = cell.difference, there[name].difference
        assert (ours is None) == (theirs is None)
        for end in ("estimate", "low", "high") if ours else ():
            assert getattr(ours, end) == (
                None if getattr(theirs, end) is None else pytest.approx(getattr(theirs, end), abs=1e-9)
            )


def test_a_k_below_the_target_is_rarely_confident() -> None:
    """Two k just below the target: .94 of the gain, where .95 is the target. See docs/benchmarks/statistics.md for more."""
    draw, wrong, full_by_mean = np.random.default_rng(0), 0, 0
    truth = {k: 0.5 + 0.35 * share for k, share in zip(KS, (0.5, 0.94, 0.94, 1.0), strict=True)}
    for _ in range(50):
        runs = [one(k, seed, mean + 0.01 * draw.standard_normal()) for k, mean in truth.items() for seed in range(5)]
        point = next(p for p in answer(runs, 0.5).operating_points if p.corrected and p.target == 0.95)
        wrong += point.confident != "full"
        full_by_mean += point.estimate == "full"
    assert wrong <= 4 and full_by_mean < 35  # 8 %; by the means, a k below the target is chosen in many of the tries


def test_learning_rates_are_compared_on_common_seeds() -> None:
    runs = [
        *(one("1", seed, score, learning_rate=1e-4) for seed, score in enumerate((0.80, 0.70))),
        one("1", 0, 0.79, learning_rate=2e-4),
        one("1", 7, 0.99, learning_rate=2e-4, status="failed"),
    ]
    assert by_name(answer([*runs, one("full", 0, 0.9)]))["1"].learning_rate == 1e-4
    alone = [run for run in runs if run.seed != 0]  # no common seed: the means of all runs decide
    alone[-1] = replace(alone[-1], status="done", outcome="ok")
    assert by_name(answer([*alone, one("full", 0, 0.9)]))["1"].learning_rate == 2e-4
    equal = [one("1", 0, 0.7, learning_rate=1e-4, outcome="degenerate"), one("1", 0, 0.7, learning_rate=2e-4)]
    assert by_name(answer([*equal, one("full", 0, 0.9)]))["1"].learning_rate == 2e-4  # the other one has failed
    for seed, failed in ((0, (None, "diverged")), (0, (0.5, "degenerate")), (1, (None, "diverged"))):
        below = [one("1", n, 0.4 - 0.1 * n, learning_rate=1e-4) for n in (0, 1)]  # below the baseline, but scores
        below += [replace(run, run=f"{run.run}'", learning_rate=2e-4) for run in below]
        below[2 + seed :] = [replace(run, validation_best=failed[0], outcome=failed[1]) for run in below[2 + seed :]]
        assert by_name(answer([*below, one("full", 0, 0.9)], 0.5))["1"].learning_rate == 1e-4
    few = [one("1", seed, 0.6 + 0.2 * (seed == 4), learning_rate=1e-4) for seed in range(5)]
    few += [one("1", seed, 0.7, learning_rate=2e-4) for seed in range(4, 9)]  # one common seed of five is too few
    assert by_name(answer([*few, one("full", 0, 0.9)]))["1"].learning_rate == 2e-4


@given(st.lists(scores, min_size=1, max_size=12), scores, st.one_of(st.none(), scores))
def test_a_mean_has_at_least_half_of_a_cell_and_its_best_run(
    cell: list[float], best: float, chance: float | None
) -> None:
    runs = [*(one("1", seed, score) for seed, score in enumerate(cell)), one("full", 0, best)]
    ours = [run for run in with_outcomes(runs, chance) if run.recipe.short == "1"]
    good = succeeded(ours)
    assert 2 * len(good) >= len(cell)
    assert max(run.validation_best for run in good) == max(cell)
    assert failures(ours).failed == sum(run.outcome != "ok" for run in ours)
    if chance is None:
        assert len(good) == len(cell)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(ours >= raw and ours <= 1 for ours, raw in zip(adjusted, p, strict=True))
    order = np.argsort(p, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)
    assert adjusted[order[0]] == min(1.0, len(p) * min(p))  # Bonferroni's
    assert all(ours <= min(1.0, len(p) * raw) for ours, raw in zip(adjusted, p, strict=True))
    # times the number of hypotheses that are still open, and never below the one before
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06]) and holm([]) == []


@given(st.floats(0.001, 0.3), st.floats(1.01, 5), st.floats(1e-6, 1e-2), st.floats(0, 1e-4))
def test_a_larger_distance_never_needs_more_seeds(near: float, times: float, by_seed: float, by_row: float) -> None:
    few, many = (seeds_needed(distance, by_seed, by_row, 49) for distance in (near * times, near))
    assert many is None or (few is not None and 2 <= few <= many)
    assert seeds_needed(-near, by_seed, by_row, 49) == many


def test_a_way_is_expected_to_score_as_the_k_of_its_cost_also_if_that_k_was_not_trained() -> None:
    """The last 3 of 4 layers lie between the last one, which scores .80, and all of them, with .86. So .845 is no surprise."""
    way = {"recipe": Recipe("lora-3"), "tuned_layers": 3, "tuned_share": 0.75, "run": "way"}
    ends = (("1", 0.78, 0.82, 0.25), ("full", 0.84, 0.88, 1.0))
    trained = [one(k, seed, score, tuned_share=share) for k, *both, share in ends for seed, score in enumerate(both)]
    found = answer([*trained, one("1", 0, 0.845, **way)])
    expected = {choice.choice: choice.expected for choice in found.choices}
    assert expected["lora-3"] == pytest.approx(0.844, abs=0.004)  # .830 if it were expected to score as the last layer
    assert "last 3" not in expected


# --- Which runs count as failed ---


def outcomes(cell: Sequence[float], best: float, chance: float = 0.5) -> list[str]:
    runs = [*(one("1", seed, score) for seed, score in enumerate(cell)), one("full", 0, best)]
    return [run.outcome for run in with_outcomes(runs, chance) if run.recipe.short == "1"]


def test_a_run_far_below_its_cell_has_failed() -> None:
    assert outcomes([0.84, 0.85, 0.50, 0.86, 0.55], 0.9) == ["ok", "ok", "at chance", "ok", "collapsed"]
    assert outcomes([0.50, 0.51, 0.49, 0.86, 0.85], 0.9) == ["at chance"] * 3 + ["ok"] * 2
    assert outcomes([0.51, 0.52], 0.9) == ["at chance"] * 2
    assert outcomes([0.86, 0.5], 0.9) == ["ok", "at chance"]


def test_a_weak_run_among_weak_runs_has_not_failed() -> None:
    """Scores are above and below a tenth of the best gain (.54). The mean includes all of them."""
    weak = [0.525, 0.535, 0.53, 0.545, 0.55]
    assert outcomes(weak, 0.9) == ["ok"] * 5
    cell = by_name(answer([*(one("1", n, s) for n, s in enumerate(weak)), one("full", 0, 0.9)], 0.5))["1"]
    assert (cell.validation.n, cell.validation.mean) == (5, pytest.approx(np.mean(weak)))


def test_a_difference_that_the_sample_of_rows_explains_is_no_failure() -> None:
    """Four standard errors on 200 rows are .14. Without the number of rows, smaller differences count too."""
    near = [*(one("1", n, score) for n, score in enumerate((0.48, 0.555, 0.575))), one("full", 0, 0.53)]
    far = [one("1", 3, 0.42), *near]
    flat = [*(one("1", n, score) for n, score in enumerate((0.97, 0.97, 0.96, 0.30))), one("full", 0, 0.97)]
    lost = [one("1", 0, 0.52), one("1", 1, 0.51), one("full", 0, 0.80)]
    weak = [one("1", n, score, outcome="degenerate" if n else "ok") for n, score in enumerate((0.42, 0.43))]
    for rows, runs, failed in (
        (None, near, {"1-0"}),
        (200, near, set()),
        (None, far, {"1-0", "1-3"}),
        (200, far, {"1-3"}),
        (100, far, set()),
        (300, flat, {"1-3"}),
        (200, lost, {"1-0", "1-1"}),
        (40, lost, set()),
        (200, weak, {"1-1"}),  # a degenerate run has failed whatever its score
    ):
        evidence = Scores("accuracy", 0.95 if runs is flat else 0.5, rows=rows)
        found = with_outcomes(runs, evidence.chance, clear_distance(runs, evidence))
        assert {run.run for run in found if run.outcome != "ok"} == failed
        got = compare(runs, evidence, AnalysisSettings())
        assert got.clear_distance == (pytest.approx(2 / math.sqrt(rows)) if rows else 0)
        assert sum(cell.failures.failed for cell in got.cells) == len(failed)


def test_the_clear_distance_depends_on_the_fewest_rows_and_the_metric() -> None:
    class Folds(Scores):
        def texts_of(self, runs: Iterable[str]) -> int:
            return {"1-0": 64, "1-1": 100, "1-2": 16}[next(iter(runs))]

    runs = [one("1", 0, 0.8), one("1", 1, 0.7), one("1", 2, None), one("1", 3, 0.9, status="pending")]
    assert clear_distance(runs, Folds("accuracy", 0.5)) == 4 * 0.5 / 8
    assert clear_distance(runs, Folds("matthews_correlation", 0.0)) == 4 * 1.0 / 8
    assert clear_distance(runs, Folds("bleu", 0.0)) == clear_distance([], Folds("accuracy", 0.5)) == 0


def test_a_run_is_compared_with_runs_of_the_same_k_and_learning_rate() -> None:
    runs = [
        one("1", n, s, learning_rate=rate)
        for rate, base in ((1e-4, 0.8), (1e-3, 0.55))
        for n, s in enumerate([base] * 3)
    ]
    assert {run.outcome for run in with_outcomes([*runs, one("full", 0, 0.85)], 0.5)} == {"ok"}


def test_runs_not_above_the_baseline_are_counted_even_if_they_failed() -> None:
    runs = with_outcomes(
        [one(0, seed, score) for seed, score in enumerate((0.45, 0.5, 0.53))] + [one("full", 0, 0.9)], 0.5
    )
    weak = failures([run for run in runs if run.recipe.short != "full"])
    assert (weak.not_above_baseline, weak.at_chance, weak.runs) == (2, 3, 3)  # a cell that has not learned
    assert failures(with_outcomes([one(0, 0, 0.45)], None)).not_above_baseline is None
