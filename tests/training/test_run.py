"""Runs of a tiny BERT. A run depends only on its specification."""

import numpy as np
import pytest
import torch

from frostline.training.train import run
from training.runs import (
    context_of,
    losses,
    outcome,
    same,
    spec_of,
    weights_of,
    with_states,
)


@pytest.mark.parametrize("tune", [0, 1, 2, 3, "full"])
def test_the_same_run_twice_is_bitwise_identical(experiment, tune):
    first = run(spec_of(tune), experiment)
    weights = weights_of(experiment)
    assert first.record.outcome in ("ok", "degenerate") and first.record.digest == spec_of(tune).digest
    again = run(spec_of(tune), experiment)
    assert outcome(again) == outcome(first) and same(weights_of(experiment), weights)
    other = run(spec_of(tune, seed=1), experiment)
    assert outcome(other)[1] != outcome(first)[1]


def test_a_run_does_not_depend_on_earlier_runs(experiment):
    """Neither on which runs were before, nor on their order."""
    short = {"num_train_epochs": 1}
    specs = [
        spec_of(1, **short),
        spec_of("full", learning_rate=1e-2, **short),
        spec_of(0, **short),
        spec_of(3, seed=1, **short),
        spec_of(2, tune_pooler=False, **short),
    ]
    forwards = [outcome(run(spec, experiment)) for spec in specs]
    backwards = [outcome(run(spec, experiment)) for spec in specs[::-1]]
    assert backwards[::-1] == forwards
    torch.manual_seed(99)
    assert outcome(run(specs[0], experiment)) == forwards[0]


def test_a_run_does_not_change_the_global_random_state(experiment):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(spec_of(1), experiment)
    assert torch.equal(torch.get_rng_state(), before)


def test_after_a_run_the_model_has_the_weights_of_the_best_epoch(experiment):
    result = run(spec_of(2), experiment)
    rows = experiment.splits["validation"]
    with torch.no_grad():
        logits = experiment.pretrained.model.eval()(**experiment.tokens.batch(rows)).logits.numpy()
    assert np.abs(logits - result.logits["validation_best"]).max() < 1e-4


def test_training_reduces_the_loss(experiment):
    result = run(spec_of("full", num_train_epochs=10, train_size=48), experiment)
    assert losses(result)["train", 10] < losses(result)["train_running", 1] - 0.2


def test_regression(tiny_bert, tmp_path):
    experiment = with_states(context_of(tiny_bert, regression=True), tmp_path)
    result = run(spec_of(1), experiment)
    assert {s.metric for s in result.record.scores} == {"pearson", "spearmanr", "r2", "loss"}
    assert result.logits["validation_best"].shape == (24, 1)
    assert outcome(run(spec_of(1), experiment)) == outcome(result)
