"""The probe and the TF-IDF model of a run, and the form of their results."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import computed_states
from frostline.model.ways import Way
from frostline.training.estimators import ESTIMATORS, WrongTrainSize, examples_of
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows
from frostline.training.linear_models import WordsModel
from frostline.training.probes import best_probe, fit_probes
from frostline.training.train import run
from tagged import LABELS, small_base
from training.runs import context_of, spec_of, with_states
from training.test_tagging import context_of as tagging_context


@pytest.fixture(scope="module")
def experiment(tiny_bert: Path) -> Experiment:
    return context_of(tiny_bert)


PROBE, WORDS = (spec_of(name, way=Way(estimator=name), learning_rate=None) for name in ("probe", "words"))


def test_the_result_of_an_estimator_has_scores_predictions_and_costs(experiment: Experiment) -> None:
    result, usual = run(PROBE, experiment), run(spec_of(1), experiment)
    assert result.record.digest == PROBE.digest and result.record.cost.run_seconds > 0
    assert result.record.outcome == "ok" and result.record.validation_best > 0.7
    assert result.record.audit.tuned_share == 0.0
    assert all(not counts.trained for counts in result.record.audit.by_place.values())
    assert {name: x.shape for name, x in result.logits.items()} == {name: x.shape for name, x in usual.logits.items()}
    assert result.test is not None and usual.test is not None
    assert result.test.scores.keys() == usual.test.scores.keys()
    scored = {(row.split, row.metric) for row in result.record.scores}
    assert ("validation", "accuracy") in scored and ("train", "loss") in scored


def test_the_error_of_a_worker_reaches_its_parent() -> None:
    error = WrongTrainSize(PROBE, "it has too few", "give more")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.reason) == (WrongTrainSize, str(error), "it has too few")


def test_cached_and_computed_features_give_the_same_probe(experiment: Experiment, tmp_path: Path) -> None:
    selection = StateSelection((), head=False, pooled=(0, 1, 2, 3))
    rows = np.arange(len(experiment.tokens))
    states = computed_states(tmp_path, experiment.forward_pass(selection), experiment.tokens, rows)
    of_words = replace(tagging_context(small_base(tmp_path / "base", "bert")), labels=LABELS)
    for one, cached in (
        (experiment, experiment.with_worker(states=states)),
        (of_words, with_states(of_words, tmp_path / "base", (0, 1, 2, 3))),
    ):
        mixed = np.random.default_rng(0).permutation(one.splits["test"])
        logits = [ESTIMATORS["probe"].fit(PROBE, some).logits(mixed, "test") for some in (one, cached)]
        assert logits[0].shape == (*one.problem.targets[mixed].shape, len(one.labels))
        np.testing.assert_allclose(*logits, atol=1e-5)
        vectors = [examples_of(some, mixed, range(4)).vectors(2) for some in (one, cached)]
        np.testing.assert_allclose(*vectors, atol=1e-5)


def test_states_without_pooled_vectors_are_not_read(experiment: Experiment, tmp_path: Path) -> None:
    experiment = with_states(experiment, tmp_path)
    rows = experiment.splits["validation"]
    assert examples_of(experiment, rows, (0, 3)).vectors(3).shape == (len(rows), 3, 32)


def test_the_subset_of_the_seed_is_fitted(experiment: Experiment) -> None:
    logits: list[Any] = []
    rows = experiment.splits["validation"]
    for seed in (0, 1):
        spec = PROBE.model_copy(update={"seed": seed, "train_size": 24})
        by_hand = best_probe(fit_probes(examples_of(experiment, train_rows(experiment, spec), range(4)), 3))
        fitted = ESTIMATORS["probe"].fit(spec, experiment)
        expected: Any = by_hand.logits(examples_of(experiment, rows, range(4)))
        logits.append(fitted.logits(rows, "validation"))
        np.testing.assert_allclose(logits[-1], expected, rtol=1e-4, atol=1e-5)
        assert fitted.parameters == (len(by_hand.input.layers) * 32 + 1) * 2
    assert not np.array_equal(*logits)


def test_the_words_model_is_that_of_the_texts_of_the_run(experiment: Experiment) -> None:
    by_hand = WordsModel.fit(experiment.examples_of(train_rows(experiment, WORDS), "train"), 2)
    fitted, test = ESTIMATORS["words"].fit(WORDS, experiment), experiment.splits["test"]
    assert by_hand is not None and fitted.parameters == by_hand.weights.size + 2
    expected = by_hand.logits(experiment.examples_of(test, "test"))
    np.testing.assert_allclose(fitted.logits(test, "test"), expected, rtol=1e-5)


def test_the_words_model_predicts_numbers_of_any_size(tiny_bert: Path) -> None:
    experiment = context_of(tiny_bert, regression=True)
    far = {name: replace(part, targets=part.targets - 1e6) for name, part in experiment.examples.items()}
    fitted = ESTIMATORS["words"].fit(WORDS, replace(experiment, examples=far), None)
    assert (fitted.logits(experiment.splits["test"], "test") < -9e5).all()


def test_tiny_numbers_that_differ_are_not_the_same(tiny_bert: Path) -> None:
    """Such as concentrations in moles: numbers up to 1e-6 counted as equal, so that the run was degenerate."""
    experiment = context_of(tiny_bert, regression=True)
    small = {name: replace(part, targets=part.targets * 1e-9) for name, part in experiment.examples.items()}
    problem = replace(experiment.problem, targets=experiment.problem.targets * 1e-9)
    assert run(WORDS, replace(experiment, examples=small, problem=problem)).record.outcome == "ok"
