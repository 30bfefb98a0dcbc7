"""The training loop on models with a few parameters, compared with a plain PyTorch loop."""

import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import get_linear_schedule_with_warmup

from frostline.training.settings import TrainingSettings
from training.lines import TRAIN, VALIDATION, Line, fit, same, scripted


def test_the_autograd_graph_is_freed_after_each_step():
    """Otherwise tensors of the graph (dropout masks, copies of weights) would need memory during the next step."""
    held = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.own = torch.ones(3)
            held.append(weakref.ref(ctx.own))
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.own.mean()

    def after(step):
        assert len(held) == step and [one() for one in held] == [None] * step

    line = Line()
    settings = TrainingSettings(num_train_epochs=1, per_device_train_batch_size=10, evaluations_per_epoch=0)
    fit(line, settings, forward=lambda rows: Identity.apply(line.forward(rows)), after=after)
    assert len(held) > 3  # training and scoring


def test_the_loop_equals_a_plain_pytorch_loop():
    settings = TrainingSettings(
        **{"num_train_epochs": 3, "per_device_train_batch_size": 10, "max_grad_norm": 0.5, "warmup_steps": 0.25},
        **{"adam_beta1": 0.5, "adam_beta2": 0.9, "adam_epsilon": 1e-4},
    )
    line, other = Line(), Line()
    order = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(
        [
            {"params": [other.parameters["weight"]], "weight_decay": 0.01},
            {"params": [other.parameters["bias"]], "weight_decay": 0.0},
        ],
        lr=0.05,
        betas=(0.5, 0.9),
        eps=1e-4,
    )
    schedule = get_linear_schedule_with_warmup(optimizer, 3, 9)  # 3 steps per epoch, with 10, 10 and 4 rows
    after = []
    for _ in range(3):
        rows = TRAIN[torch.randperm(24, generator=order).numpy()]
        for n in range(0, 24, 10):
            batch = rows[n : n + 10]
            F.cross_entropy(other.forward(batch), torch.from_numpy(other.targets[batch])).backward()
            nn.utils.clip_grad_norm_(other.parameters.values(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            after.append(other.values())
    steps = []
    trained = fit(line, settings, after=lambda step: steps.append(line.values()))
    assert trained.steps == 9 and [e.step for e in trained.evaluations] == [3, 6, 9]
    assert [e.epoch for e in trained.evaluations] == [1, 2, 3]
    for mine, theirs in zip(steps, after, strict=True):
        for name, value in theirs.items():
            assert (mine[name] - value).abs().max() < 1e-6


def test_scores_belong_to_the_parameters_at_that_step():
    settings = TrainingSettings(
        num_train_epochs=2, per_device_train_batch_size=8, per_device_eval_batch_size=5, warmup_steps=0
    )
    line, steps = Line(), []
    trained = fit(line, settings, after=lambda step: steps.append(line.values()))
    for evaluation in trained.evaluations:
        at = steps[evaluation.step - 1]
        logits = line.x[VALIDATION] @ at["weight"].T + at["bias"]
        targets = torch.from_numpy(line.targets[VALIDATION])
        assert np.allclose(evaluation.logits, logits.numpy(), atol=1e-6)
        assert evaluation.validation["accuracy"] == pytest.approx(float((logits.argmax(1) == targets).float().mean()))
        assert evaluation.validation["loss"] == pytest.approx(float(F.cross_entropy(logits, targets)), abs=1e-6)
        assert 0 <= evaluation.train["accuracy"] <= 1
    last = line.x[TRAIN] @ steps[-1]["weight"].T + steps[-1]["bias"]
    expected = float(F.cross_entropy(last, torch.from_numpy(line.targets[TRAIN])))
    assert trained.train_last["loss"] == pytest.approx(expected, abs=1e-6)


def test_every_evaluation_is_in_evaluation_mode():
    modes = []
    fit(Line(), TrainingSettings(num_train_epochs=2, per_device_train_batch_size=8), modes=modes)
    assert modes == [True, False, True, False, True, False]


@pytest.mark.parametrize(("patience", "evaluations"), [(0, 6), (1, 3), (2, 6), (3, 6)])
def test_training_ends_when_the_score_no_longer_improves(patience, evaluations):
    line, steps, scores = Line(), [], [0.5, 0.75, 0.75, 1.0, 0.9, 0.8]
    settings = TrainingSettings(num_train_epochs=6, per_device_train_batch_size=12)
    forward = scripted(line, [*scores[:evaluations], 0.5])
    trained = fit(line, settings, forward=forward, patience=patience, after=lambda step: steps.append(line.values()))
    assert len(trained.evaluations) == evaluations and trained.steps == 2 * evaluations
    assert trained.best == (3 if evaluations > 3 else 1)
    assert same(line.values(), steps[2 * trained.best + 1])  # those of its best evaluation
