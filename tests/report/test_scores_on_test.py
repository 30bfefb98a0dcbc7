"""Test scores in an answer, which never change a choice."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from frostline.report.answer.scores_on_test import add_test_scores, sentences_on_test
from frostline.statistics.run_result import PROBE
from synthetic_answer import ROWS, VALIDATION, answer_of, cells, clear, make_runs, with_named


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


def test_a_run_without_test_score_is_left_out() -> None:
    runs, logits = make_runs(clear)
    answer = answer_of((runs, logits))
    recommended = answer.sizes[0].recommended.run
    add_test_scores(answer, [run for run in runs if run.run != recommended], VALIDATION, logits.__getitem__, {})
    assert answer.sizes[0].recommended.test is None
    assert cells(answer.sizes[0])["last 2"].test.n == 4


def test_test_scores_of_named_parts() -> None:
    made = make_runs(with_named, ks=("named",))
    answer = answer_of(made)
    add_test_scores(answer, made[0], VALIDATION, made[1].__getitem__, {})
    assert cells(answer.sizes[0])["named"].test.mean == pytest.approx(0.89)


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
