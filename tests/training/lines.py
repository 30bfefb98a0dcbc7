"""A linear model with a few parameters, for tests of the training loop."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from frostline.data.kinds import CLASSIFICATION
from frostline.training.learner import Learner
from frostline.training.problem import Problem
from frostline.training.settings import TrainingSettings
from frostline.training.train import train

ROWS = np.arange(40)
TRAIN, VALIDATION = ROWS[:24], ROWS[24:]
ONE_EPOCH = TrainingSettings(num_train_epochs=1, per_device_train_batch_size=4, warmup_steps=0)


def problem_of(targets, *, task_type=CLASSIFICATION, weights=None, metric="accuracy"):
    return Problem(task_type, np.asarray(targets), np.ones(len(targets), np.int64), weights, metric)


class Line:
    """A linear model on two linearly separable classes: ``forward`` and its parameters."""

    def __init__(self, seed=0):
        draw = torch.Generator().manual_seed(seed)
        self.x = torch.randn(40, 3, generator=draw)
        self.targets = (self.x[:, 0] > 0).long().numpy()
        weight, bias = torch.randn(2, 3, generator=draw), torch.randn(2, generator=draw)
        self.parameters = {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)}
        self.calls = []

    def forward(self, rows):
        self.calls.append(rows.tolist())
        return self.x[rows] @ self.parameters["weight"].T + self.parameters["bias"]

    def groups(self, settings, rate):
        """Its parameters as groups for the optimizer."""
        decays = zip(self.parameters.values(), (settings.weight_decay, 0.0), strict=True)
        return [{"params": [p], "lr": rate, "weight_decay": decay} for p, decay in decays]

    def values(self):
        return {name: p.detach().clone() for name, p in self.parameters.items()}


def fit(
    line, settings, *, forward=None, problem=None, seed=0, rate=0.05, after=lambda step: None, modes=None, patience=0
):
    groups, order = line.groups(settings, rate), torch.Generator().manual_seed(seed)
    (trained,) = train(
        lambda rows: (forward or line.forward)(rows[0])[None],
        [Learner(line.parameters, groups, TRAIN, order, line.parameters)],
        problem or problem_of(line.targets),
        VALIDATION,
        settings,
        set_mode=(modes if modes is not None else []).append,
        on_step=lambda step, total: after(step),
        patience=patience,
    )
    return trained


def fit_together(lines, settings, seeds, rates, rows, *, forward=None):
    orders = [torch.Generator().manual_seed(seed) for seed in seeds]
    learners = [
        Learner(line.parameters, line.groups(settings, rate), own, order, line.parameters)
        for line, order, rate, own in zip(lines, orders, rates, rows, strict=True)
    ]
    forwards = forward or [line.forward for line in lines]
    return train(
        lambda rows: torch.stack([one(own) for one, own in zip(forwards, rows, strict=True)]),
        learners,
        problem_of(lines[0].targets),
        VALIDATION,
        settings,
        set_mode=lambda training: None,
    )


def record_facts(trained):
    points = [(e.epoch, e.step, e.validation, e.train, e.logits.tobytes()) for e in trained.evaluations]
    return trained.outcome, trained.reason, trained.best, trained.steps, trained.train_last, points


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def scripted(line, scores):
    """A forward function whose validation logits are right for the given share of rows: one share for each evaluation."""
    shares = iter(scores)

    def forward(rows):
        if rows[0] in TRAIN:
            return line.forward(rows)
        share = next(shares)
        if math.isnan(share):
            return torch.zeros(len(rows), 1)
        right = np.arange(len(rows)) < round(share * len(rows))
        predicted = np.where(right, line.targets[rows], 1 - line.targets[rows])
        return F.one_hot(torch.from_numpy(predicted), 2).float()

    return forward
