"""The answer from synthetic runs: the recommended k, the runs that it is computed from, and scores on test."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.report.answer.scores_on_test import add_test_scores, sentences_on_test
from frostline.report.explanations import trouble
from frostline.report.rebuild import write_report
from frostline.statistics.answer import Answer, Counts
from frostline.statistics.predictions import Labelled
from frostline.statistics.recipe import HEAD_ONLY
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import PROBE
from synthetic_answer import LAYERS, ROWS, VALIDATION, answer_of, cells, clear, make_runs
from synthetic_sweep import make_folder


def test_a_clear_winner() -> None:
    answer = answer_of(make_runs(clear))
    (size,) = answer.sizes
    assert size.recommended.recipe == "last 2" and size.reference == "full" and size.learned
    assert answer.chance == 0.5 and answer.sentence == size.sentence
    assert cells(size)["last 1"].share_corrected.estimate == pytest.approx(0.25 / 0.4)
    assert cells(size)["last 1"].share.estimate == pytest.approx(0.75 / 0.9)
    assert cells(size)["last 2"].times_cheaper == pytest.approx(5 / 3.5)  # with its share of the forward pass


def test_every_train_size_has_an_answer_and_a_search_concerns_its_own_only() -> None:
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) if size == 1000 else 0.85, sizes=(500, 1000)
    )
    plain = answer_of(made)
    found = answer_of(made, search=SearchOutcome(skipped=[HEAD_ONLY], instead="No answer.", train_size=500))
    assert [size.train_size for size in found.sizes] == [1000, 500]  # the largest is first
    assert [size.recommended.recipe for size in plain.sizes] == ["last 2", "head only"]
    assert found.sizes[0].recommended == plain.sizes[0].recommended
    assert found.sizes[1].sentence.startswith("Tune ") and found.sizes[1].sentence.endswith(" No answer.")
    assert found.sentence == found.sizes[0].sentence == plain.sizes[0].sentence


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
        assert one.difference.high - one.difference.low < other.difference.high - other.difference.low
    assert (once.interim_analyses, thrice.interim_analyses) == (1, 3)


def test_k_is_sorted_by_number() -> None:
    made = make_runs(lambda k, *_: 0.9, ks=("full", 10, 2, 0))
    with_all = [replace(run, **({"tuned_layers": 12} if run.tune_embeddings else {})) for run in made[0]]
    for runs in (made[0], with_all):
        size = answer_of((runs, made[1])).sizes[0]
        assert [cell.recipe for cell in size.cells] == ["head only", "last 2", "last 10", "full"]
        assert size.reference == "full" and size.recommended.recipe == "head only"
    size = answer_of(make_runs(lambda k, *_: 0.9, ks=("full", LAYERS))).sizes[0]
    assert [cell.recipe for cell in size.cells] == ["last 4", "full"] and size.reference_is_full
    size = answer_of(make_runs(clear, outcome=lambda k, *_: "diverged" if k == "full" else "ok")).sizes[0]
    assert size.reference == "last 2" and not size.reference_is_full


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


@pytest.mark.parametrize(("seeds", "said"), [(5, "Tune the last 2"), (1, "no answer: the metric is not defined")])
def test_a_metric_that_is_not_defined_on_a_fold_is_no_failure(seeds: int, said: str) -> None:
    made = make_runs(lambda k, seed, *_: clear(k, 0, 0, 0) if seed else None, seeds=seeds)  # type: ignore[arg-type, return-value]
    answer = answer_of(made)
    assert said in answer.sentence and "failed" not in answer.sentence and answer.unusable_runs == 0
    assert {point.outcome for cell in answer.sizes[0].cells for point in cell.points if not point.seed} == {"undefined"}
    assert str(trouble(answer)).startswith("4 runs have no score: the metric is not defined")


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
    luck = {2: 0.02, 3: 0.02}
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) - (0 if rate == best[k] else 0.1) + luck.get(seed, 0),
        rates=(1e-4, 1e-3, 1e-2),
    )
    size = answer_of(made).sizes[0]
    assert [cell.learning_rate for cell in size.cells] == list(best.values())
    assert all(cell.learning_rates_tried == [1e-4, 1e-3, 1e-2] for cell in size.cells)
    assert cells(size)["last 2"].validation.mean == pytest.approx(0.908)
    assert size.recommended.recipe == "last 2" and size.recommended.run.startswith("2-2-")  # the first of the best


def test_a_diverged_run_counts_as_the_baseline_for_its_learning_rate() -> None:
    def quality(k: int | str, seed: int, rate: float, size: int) -> float:
        return 0.9 if rate == 1e-2 else 0.8

    made = make_runs(
        quality, rates=(1e-3, 1e-2), outcome=lambda k, s, rate: "diverged" if s < 2 and rate == 1e-2 else "ok"
    )
    assert {cell.learning_rate for cell in answer_of(made).sizes[0].cells} == {1e-3}


def test_the_baseline_of_a_regression_scores_zero() -> None:
    draw = np.random.default_rng(0)
    targets = draw.normal(size=ROWS)
    runs, _ = make_runs(clear)
    noise = {"head only": 3.0, "last 1": 1.0, "last 2": 0.3, "full": 0.3}
    logits = {run.run: (targets + noise[run.recipe] * draw.normal(size=ROWS))[:, None] for run in runs}
    answer = answer_of((runs, logits), validation=Labelled(targets, "regression", (), "spearmanr"))
    assert answer.chance == 0 and answer.sizes[0].recommended.recipe in ("last 2", "full")
    assert all(cell.share == cell.share_corrected for cell in answer.sizes[0].cells)


def test_test_scores_never_change_a_choice() -> None:
    runs, logits = make_runs(clear, rates=(1e-4, 1e-3))
    chosen = json.dumps([_choice(size) for size in answer_of((runs, logits)).sizes])
    draw = np.random.default_rng(1)
    for _ in range(2):
        shuffled = {run: values[draw.permutation(ROWS)] for run, values in logits.items()}
        answer = answer_of((runs, logits))
        add_test_scores(answer, runs, VALIDATION, shuffled.__getitem__, {})
        assert json.dumps([_choice(size) for size in answer.sizes]) == chosen
        assert all(0.3 < cell.test.mean < 0.7 for cell in answer.sizes[0].cells)


def _choice(size: Mapping[str, Any]) -> Any:
    recommended = {name: x for name, x in asdict(size.recommended).items() if not name.startswith("test")}
    return [[asdict(one) for one in size.operating_points], recommended, size.sentence, size.learned]


def test_test_scores_are_those_of_the_chosen_runs() -> None:
    made = make_runs(clear, rates=(1e-4, 1e-3))
    answer = answer_of(made)
    add_test_scores(answer, made[0], VALIDATION, made[1].__getitem__, {})
    (size,) = answer.sizes
    assert {name: cell.test.mean for name, cell in cells(size).items()} == {
        name: pytest.approx(cell.validation.mean) for name, cell in cells(size).items()
    }
    assert size.recommended.test_share_corrected.estimate == pytest.approx(1)
    assert size.recommended.test == size.recommended.validation_best
    others = [run for run in made[0] if run.run != size.recommended.run]  # a run without a score on test is left out
    add_test_scores(answer, others, VALIDATION, made[1].__getitem__, {})
    assert size.recommended.test is None and cells(size)["last 2"].test.n == 4


def test_a_recommended_model_that_trains_no_layer_has_its_score_on_test() -> None:
    runs, logits = make_runs(clear)
    answer = answer_of((runs, logits))
    (size,) = answer.sizes
    size.recommended, size.decision = None, replace(size.decision, choice=PROBE)
    probe = logits[next(run.run for run in runs if run.recipe == "last 1")]
    for alternatives, said in (
        ({PROBE: probe}, "A linear probe on frozen features reaches accuracy 0.750 on test."),
        ({}, "A linear probe on frozen features was not scored on test."),
    ):
        add_test_scores(answer, runs, VALIDATION, logits.__getitem__, alternatives)
        own, full = sentences_on_test(size, "accuracy")
        assert own == said and full.startswith("Full fine-tuning reaches accuracy 0.900 on test (mean of 5 seeds, 95 %")
    assert sentences_on_test(replace(size, reference=None), "accuracy") == [said]
    assert sentences_on_test(replace(size, reference=None, decision=None), "accuracy") == []


def test_rows_with_the_same_text_count_as_one_text_in_a_sweep(tmp_path: Path) -> None:
    """The same scores on 300 texts, and on 300 rows that share 20 texts."""
    many = write_report(make_folder(tmp_path / "many", tune=(0, 2, "full"))).sizes[0]
    few = write_report(
        make_folder(tmp_path / "few", tune=(0, 2, "full"), texts=[f"text {n}" for n in range(20)])
    ).sizes[0]
    assert few.clear_distance == pytest.approx(many.clear_distance * (300 / 20) ** 0.5)
    for rare, often in zip(few.cells, many.cells, strict=True):
        assert rare.validation.mean == often.validation.mean
        widths = [one.validation.high - one.validation.low for one in (rare, often)]  # type: ignore[operator]
        assert widths[0] > widths[1] + 0.02
