"""One of the runs that are trained together: its parameters and rows, its state during training, and its record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.statistics.metrics import is_constant
from frostline.training.problem import Problem
from frostline.training.rows import shuffled
from frostline.training.specification import Settings


@dataclass(frozen=True)
class Learner:
    """What one run trains, on which rows, in which order."""

    parameters: Mapping[str, Tensor]  # their gradients come from this run's rows alone
    groups: list[dict[str, Any]]  # the same parameters, for the optimizer
    rows: Rows  # [n], with the same n for all runs that are trained together
    order: torch.Generator  # shuffles the rows of each epoch


@dataclass(frozen=True)
class Evaluation:
    """Scores at one point of the training."""

    epoch: float
    step: int
    validation: dict[str, float]  # every metric, and the loss
    train: dict[str, float]  # the same, of the training batches since the last evaluation, as they were trained
    logits: NDArray[np.float32]  # [validation rows, C]


@dataclass
class TrainingRecord:
    """How a training went. The parameters themselves are left at the best evaluation."""

    outcome: str = "ok"  # ok, degenerate, diverged
    reason: str = ""  # why it is not ok
    evaluations: list[Evaluation] = field(default_factory=list)
    train_last: dict[str, float] = field(default_factory=dict)  # after the last step, on training rows, in eval mode
    best: int = 0  # index of the best evaluation
    steps: int = 0
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0


class LearnerState:
    """A learner during its training."""

    def __init__(self, learner: Learner, problem: Problem) -> None:
        self.learner, self.problem = learner, problem
        self.tensors = list(learner.parameters.values())
        self.record = TrainingRecord()
        self.best_values: dict[str, Tensor] = {}
        self.upcoming = np.zeros(0, np.int64)  # rows of this epoch that were not trained on yet
        self.trained_batches: list[tuple[Rows, Tensor]] = []  # since the last evaluation; logits have dropout on

    @property
    def active(self) -> bool:
        """Whether it is still trained; a run that diverged is not."""
        return self.record.outcome == "ok"

    def next_rows(self, batch: int) -> Rows:
        """The rows of the next step; an epoch ends with a smaller batch if ``batch`` does not divide its rows."""
        if not len(self.upcoming):
            self.upcoming = shuffled(self.learner.rows, self.learner.order)
        rows, self.upcoming = self.upcoming[:batch], self.upcoming[batch:]
        return rows

    def diverge(self, reason: str) -> None:
        """End this run as diverged."""
        self.record.outcome, self.record.reason = "diverged", reason

    def add_batch(self, rows: Rows, logits: Tensor, step: int) -> None:
        """Record a step that was taken."""
        if self.active:
            self.trained_batches.append((rows, logits))
            self.record.steps = step

    def evaluate(
        self, logits: NDArray[np.float32], rows: Rows, epoch: float, settings: Settings, *, last: bool
    ) -> None:
        """Score validation logits and the last training batches; copy the parameters if they are the best so far."""
        record = self.record
        trained = torch.cat([logits for _, logits in self.trained_batches]).float().cpu().numpy()
        train = self.problem.scores(trained, np.concatenate([rows for rows, _ in self.trained_batches]))
        self.trained_batches.clear()
        scores = self.problem.scores(logits, rows)
        record.evaluations.append(Evaluation(epoch, record.steps, scores, train, logits))
        if not settings.load_best_model_at_end or _is_new_best(self.problem.metric, record.evaluations, record.best):
            record.best = len(record.evaluations) - 1
            copies = not last and settings.load_best_model_at_end
            self.best_values = {n: p.detach().clone() for n, p in self.learner.parameters.items()} if copies else {}

    def finish(self, logits: NDArray[np.float32], rows: Rows, validation_rows: Rows) -> None:
        """After the last step: score training rows, and check that the best evaluation is usable."""
        record = self.record
        record.train_last = self.problem.scores(logits, rows)
        best = record.evaluations[record.best].logits
        targets = self.problem.targets[validation_rows]
        if is_constant(best, self.problem.problem_type) and (targets != targets[0]).any():
            record.outcome, record.reason = "degenerate", "it predicts the same for every validation row"
        if not np.isfinite(best).all():
            self.diverge("its logits of the validation rows are not finite")

    def restore_best(self) -> None:
        """Set the parameters to their values at the best evaluation."""
        with torch.no_grad():
            for name, value in self.best_values.items():
                self.learner.parameters[name].copy_(value)


def _is_new_best(metric: str, evaluations: Sequence[Evaluation], best: int) -> bool:
    """Whether the last evaluation is the first, or beats the best so far; an undefined score beats nothing."""
    new, old = evaluations[-1].validation[metric], evaluations[best].validation[metric]
    return len(evaluations) == 1 or new > old or (math.isnan(old) and not math.isnan(new))
