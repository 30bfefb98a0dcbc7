"""The best epoch, the scores and the outcome of one run in the training loop."""

import math

import pytest
import torch

from frostline.data.kinds import REGRESSION
from frostline.training.settings import TrainingSettings
from training.lines import ONE_EPOCH, TRAIN, VALIDATION, Line, fit, problem_of, same, scripted


def test_a_run_that_diverges_restores_its_best_epoch():
    line, steps = Line(), []

    def forward(rows):
        return line.forward(rows) * (float("inf") if len(steps) == 8 else 1.0)

    settings = TrainingSettings(num_train_epochs=2, per_device_train_batch_size=4, warmup_steps=0)
    trained = fit(line, settings, forward=forward, after=lambda step: steps.append(line.values()))
    assert (trained.outcome, trained.steps, len(trained.evaluations)) == ("diverged", 8, 1)
    assert same(line.values(), steps[5]) and not same(line.values(), steps[-1])


@pytest.mark.parametrize(
    "scores, best, kept",
    [
        *(([0.5, 0.75, 0.5], 1, "best"), ([0.5, 0.75, 0.75], 1, "best"), ([1, 0.5, 1], 0, "best")),
        *(([0.25, 0.5, 0.75], 2, "best"), ([0.5] * 3, 0, "best"), ([0.5, 0.75, 0.25], 2, "last")),
    ],
)
def test_the_best_epoch_is_restored_unless_the_last_is_kept_and_of_equal_epochs_the_earlier_one(scores, best, kept):
    settings = TrainingSettings(
        num_train_epochs=3, per_device_train_batch_size=8, warmup_steps=0, load_best_model_at_end=kept == "best"
    )
    line, steps = Line(), []
    trained = fit(line, settings, forward=scripted(line, scores), after=lambda step: steps.append(line.values()))
    assert [e.validation["accuracy"] for e in trained.evaluations] == scores
    assert trained.best == best and trained.outcome == "ok"
    assert same(line.values(), steps[trained.evaluations[best].step - 1])
    assert not same(steps[2], steps[5])


def test_every_defined_score_is_better_than_an_undefined_one():
    """The correlation of a constant is undefined."""
    settings = TrainingSettings(num_train_epochs=2, per_device_train_batch_size=8)
    line = Line()
    problem = problem_of(line.x[:, 0].numpy().astype(float), task_type=REGRESSION, metric="pearson")
    outputs = iter([torch.zeros(16, 1), -line.x[VALIDATION, :1], torch.zeros(24, 1)])
    calls = []

    def forward(rows):
        calls.append(len(rows))
        return line.forward(rows)[:, :1] if len(rows) == 8 else next(outputs)[: len(rows)]

    trained = fit(line, settings, forward=forward, problem=problem)
    first, second = (e.validation["pearson"] for e in trained.evaluations)
    assert math.isnan(first) and second == pytest.approx(-1, abs=1e-6) and trained.best == 1


def test_a_run_with_validation_logits_that_are_not_finite_has_diverged():
    line = Line()
    trained = fit(line, ONE_EPOCH, forward=lambda rows: line.forward(rows) * (1 if rows[0] in TRAIN else math.nan))
    assert trained.outcome == "diverged" and math.isnan(trained.evaluations[0].validation["accuracy"])


@pytest.mark.parametrize(("label", "outcome"), [(None, "degenerate"), (1, "ok")])
def test_a_constant_prediction_is_valid_only_if_all_rows_have_the_same_class(label, outcome):
    line = Line()
    if label is not None:
        line.targets[VALIDATION] = label

    def forward(rows):
        return line.forward(rows) * (1 if rows[0] in TRAIN else 0) + torch.tensor([0.0, 1.0])

    trained = fit(line, ONE_EPOCH, forward=forward)
    assert trained.outcome == outcome and ("same for every validation row" in trained.reason) == (label is None)
