"""The answer from synthetic runs: the recommended k, and the runs that it is computed from."""

from dataclasses import replace

import numpy as np
import pytest

from frostline.statistics.answer import Answer, Counts
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import FULL
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import RunResult
from synthetic_answer import LAYERS, ROWS, TARGETS, VALIDATION, answer_of, cells, clear, make_runs, point


def test_a_clear_winner() -> None:
    answer = answer_of(make_runs(clear))
    (size,) = answer.sizes
    assert size.recommended.recipe == "last 2" and size.reference == "full" and size.learned
    assert (size.recommended.tuned_layers, size.recommended.tune_embeddings) == (2, False)
    assert answer.chance == 0.5 and answer.sentence == size.sentence
    assert cells(size)["last 1"].share_corrected.estimate == pytest.approx(0.25 / 0.4)
    assert cells(size)["last 1"].share.estimate == pytest.approx(0.75 / 0.9)
    assert cells(size)["last 2"].times_cheaper == pytest.approx(5 / 3.5)  # with its share of the forward pass


def test_a_search_concerns_its_own_train_size_only() -> None:
    made = make_runs(lambda k, seed, rate, size: {0: 0.6, 1: 0.9, 2: 0.9, "full": 0.9}[k], sizes=(1000, 500))
    plain = answer_of(made)
    found = answer_of(made, search=SearchOutcome(skipped=["head only"], instead="No answer.", train_size=500))
    assert [size.train_size for size in found.sizes] == [1000, 500]
    assert [size.recommended.recipe for size in plain.sizes] == ["last 1", "last 1"]
    assert found.sizes[0].recommended == plain.sizes[0].recommended
    assert found.sizes[1].sentence.startswith("Tune ") and found.sizes[1].sentence.endswith(" No answer.")
    assert found.sizes[0].sentence == plain.sizes[0].sentence


def test_times_are_compared_for_equally_many_concurrent_runs() -> None:
    rows, logits = make_runs(clear)
    alone = [row.recipe == "last 1" or (row.recipe == "last 2" and row.seed == 0) for row in rows]
    rows = [
        replace(row, concurrent_runs=1 if one else 2, train_seconds=(row.train_seconds or 0) * (1.5 if one else 1))
        for row, one in zip(rows, alone, strict=True)
    ]
    (size,) = answer_of((rows, logits)).sizes
    found = cells(size)
    assert (found["last 2"].seconds, found["last 2"].concurrent_runs) == (3.0, 2)
    assert found["last 2"].times_cheaper == pytest.approx(5 / 3.5)
    assert (found["last 1"].seconds, found["last 1"].concurrent_runs) == (3.0, 1)
    assert found["last 1"].times_cheaper is None and found["full"].times_cheaper == 1.0


def test_a_margin_can_replace_the_share() -> None:
    made = make_runs(lambda k, *_: {0: 0.6, 1: 0.75, 2: 0.88, "full": 0.9}[k])

    def within(margin: float) -> Answer:
        return answer_of(made, margin=margin, by_margin=True, sure=0.5)

    near = within(0.1)
    assert near.target is None and near.margin == 0.1
    assert near.sizes[0].recommended.recipe == "last 2"
    assert near.sentence.partition("It is more than 99 % sure to come within 0.1 of full fine-tuning (95 % interval")[2]
    assert within(0.5).sizes[0].recommended.recipe == "head only"
    assert within(1e-4).sizes[0].recommended.recipe == "full"


def test_interim_analyses_make_intervals_wider() -> None:
    once, thrice = (answer_of(make_runs(clear), search=SearchOutcome(interim_analyses=looks)) for looks in (1, 3))
    for one, other in zip(once.sizes[0].cells[:-1], thrice.sizes[0].cells[:-1], strict=True):
        for name in ("validation", "share_corrected", "difference"):
            assert (
                getattr(one, name).high - getattr(one, name).low < getattr(other, name).high - getattr(other, name).low
            )
    assert (once.interim_analyses, thrice.interim_analyses) == (1, 3)


def test_k_is_sorted_by_number() -> None:
    made = make_runs(lambda k, *_: 0.9, ks=("full", 10, 2, 0))
    size = answer_of(made).sizes[0]
    assert [cell.recipe for cell in size.cells] == ["head only", "last 2", "last 10", "full"]
    with_all = [replace(run, **({"tuned_layers": 12} if run.tune_embeddings else {})) for run in made[0]]
    size = answer_of((with_all, made[1])).sizes[0]
    assert [cell.recipe for cell in size.cells] == ["head only", "last 2", "last 10", "full"]
    assert size.reference == "full" and size.recommended.recipe == "head only"


def test_full_comes_after_all_layers_without_embeddings() -> None:
    size = answer_of(make_runs(lambda k, *_: 0.9, ks=("full", LAYERS))).sizes[0]
    assert [cell.recipe for cell in size.cells] == ["last 4", "full"] and size.reference_is_full


def test_failures_are_counted_and_left_out_of_the_mean() -> None:
    def outcome(k: int | str, seed: int, rate: float) -> str:
        return {(2, 0): "diverged", (2, 1): "degenerate", (2, 2): "failed", (1, 0): "pending"}.get((k, seed), "ok")  # type: ignore[arg-type]

    answer = answer_of(
        make_runs(lambda k, seed, *_: 0.5 if (k, seed) == (2, 1) else clear(k, 0, 0, 0), outcome=outcome)
    )
    (size,) = answer.sizes
    two = cells(size)["last 2"]
    assert (two.runs, two.validation.n, two.validation.mean) == (4, 2, pytest.approx(0.9))
    assert (two.failures.failed, two.failures.diverged, two.failures.degenerate) == (2, 1, 1)
    assert two.failures.interval == pytest.approx([0.0676, 0.9324], abs=1e-4)
    rate = next(rate for rate in answer.rates if rate.recipe == "last 2")
    assert rate.mean == two.validation.mean and rate.mean_with_failures < 0.8
    assert two.errors == 1
    assert answer.runs == Counts(done=18, failed=1, pending=1) and answer.unusable_runs == 2


def test_if_full_fails_everywhere_the_next_k_is_the_reference() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, *_: "diverged" if k == "full" else "ok"))
    assert answer.sizes[0].reference == "last 2" and not answer.sizes[0].reference_is_full


def test_with_folds_one_common_seed_is_compared_on_its_examples() -> None:
    easy = np.arange(len(TARGETS)) < len(TARGETS) // 2
    right, wrong = np.eye(2)[TARGETS], np.eye(2)[1 - TARGETS]
    folds = {"easy": np.where(easy[:, None], right, np.nan), "hard": np.where(easy[:, None], np.nan, wrong)}
    runs = [RunResult(recipe=FULL, run=name, seed=seed) for seed, name in enumerate(folds)]
    both = RunPredictions(VALIDATION, folds.__getitem__).pair(runs[:1], runs)
    assert both is not None and both.means.tolist() == [1.0, 1.0] and both.runs == 1
    assert both.covered == pytest.approx(0.5)


def test_without_a_common_seed_all_runs_are_compared_unpaired() -> None:
    made = make_runs(
        clear,
        ks=(2, "full"),
        seeds=4,
        outcome=lambda k, seed, rate: "ok" if (k == "full") == (seed < 2) else "diverged",
    )
    answer = answer_of(made)
    share = cells(answer.sizes[0])["last 2"].share_corrected
    assert share.low < 1 < share.high and share.estimate == pytest.approx(1)
    assert answer.sizes[0].recommended.recipe == "last 2"


def test_each_k_takes_its_best_learning_rate_on_validation() -> None:
    best = {0: 1e-2, 1: 1e-3, 2: 1e-3, "full": 1e-4}
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) - (0 if rate == best[k] else 0.1),
        rates=(1e-4, 1e-3, 1e-2),
    )
    size = answer_of(made).sizes[0]
    assert {name: cell.learning_rate for name, cell in cells(size).items()} == {
        "head only": 1e-2,
        "last 1": 1e-3,
        "last 2": 1e-3,
        "full": 1e-4,
    }
    assert all(cell.learning_rates_tried == [1e-4, 1e-3, 1e-2] for cell in size.cells)
    assert cells(size)["last 2"].validation.mean == pytest.approx(0.9)
    assert size.recommended.learning_rate == 1e-3 and size.recommended.run.startswith("2-")


def test_a_diverged_run_counts_as_the_baseline_for_its_learning_rate() -> None:
    def quality(k: int | str, seed: int, rate: float, size: int) -> float:
        return 0.9 if rate == 1e-2 else 0.8

    made = make_runs(
        quality, rates=(1e-3, 1e-2), outcome=lambda k, s, rate: "diverged" if s < 2 and rate == 1e-2 else "ok"
    )
    assert {cell.learning_rate for cell in answer_of(made).sizes[0].cells} == {1e-3}


def test_every_train_size_has_an_answer_and_the_largest_is_first() -> None:
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) if size == 1000 else 0.85, sizes=(100, 1000)
    )
    answer = answer_of(made)
    assert [size.train_size for size in answer.sizes] == [1000, 100]
    assert [size.recommended.recipe for size in answer.sizes] == ["last 2", "head only"]
    assert answer.sentence == answer.sizes[0].sentence


def test_the_recommended_run_is_the_best_seed_and_the_first_of_equals() -> None:
    made = make_runs(lambda k, seed, *_: clear(k, 0, 0, 0) + (0.02 if seed in (2, 3) else 0))
    assert answer_of(made).sizes[0].recommended.seed == 2


def test_another_target_is_another_operating_point() -> None:
    made = make_runs(lambda k, *_: {0: 0.6, 1: 0.88, 2: 0.99, "full": 0.99}[k])
    assert [choice.probability > 0.5 for choice in answer_of(made, target=0.7).sizes[0].choices][:2] == [False, True]
    points = answer_of(made, target=0.7).sizes[0].operating_points
    assert {p.target for p in points if p.margin is None} == {0.7, 0.9, 0.95, 0.99}
    assert answer_of(made, target=0.99).sizes[0].choices[1].probability < 0.01


def test_shares_of_score_and_gain_differ() -> None:
    size = answer_of(make_runs(lambda k, *_: {0: 0.6, 1: 0.93, 2: 0.985, "full": 0.99}[k])).sizes[0]
    assert point(size, 0.9, corrected=False).estimate == "last 1"
    assert point(size, 0.9, corrected=True).estimate == "last 2"


def test_the_baseline_of_a_regression_scores_zero() -> None:
    draw = np.random.default_rng(0)
    targets = draw.normal(size=ROWS)
    runs, _ = make_runs(clear)
    noise = {"head only": 3.0, "last 1": 1.0, "last 2": 0.3, "full": 0.3}
    logits = {run.run: (targets + noise[run.recipe] * draw.normal(size=ROWS))[:, None] for run in runs}
    answer = answer_of((runs, logits), validation=Labelled(targets, "regression", (), "spearmanr"))
    assert answer.chance == 0 and answer.sizes[0].recommended.recipe in ("last 2", "full")
    assert all(cell.share == cell.share_corrected for cell in answer.sizes[0].cells)


def test_failed_runs_are_counted_at_every_learning_rate() -> None:
    def outcome(k: int | str, seed: int, rate: float) -> str:
        return "diverged" if rate > 1e-4 and k == 2 else "ok"

    answer = answer_of(make_runs(clear, rates=(1e-4, 2e-4), seeds=2, outcome=outcome))
    assert sum(cell.failures.failed for cell in answer.sizes[0].cells) == 0  # each k at its best rate
    assert answer.runs == Counts(done=16, failed=0, pending=0) and answer.unusable_runs == 2
