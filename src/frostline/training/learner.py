"""One run in the training loop: its parameters and rows, its state during training, and its record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.forward_pass import Rows
from frostline.training.forward import shuffled
from frostline.training.problem import READ_TOGETHER, Problem
from frostline.training.run import State
from frostline.training.start import Restraint


@dataclass(frozen=True)
class Evaluation:
    """Scores after one step of the training.

    Attributes:
        epoch: The number of epochs so far.
        step: The number of steps so far.
        validation: Every metric and the loss on the validation rows.
        train: Every metric and the loss on the training batches since the last evaluation, in training mode.
        logits: Logits of the validation rows, ``[n, C]``.
    """

    epoch: float
    step: int
    validation: dict[str, float]
    train: dict[str, float]
    logits: NDArray[np.float32]


@dataclass
class TrainingRecord:
    """The course of a training.

    Attributes:
        outcome: ``ok``, ``degenerate`` or ``diverged``.
        reason: Why the outcome is not ``ok``.
        evaluations: All evaluations, in order.
        train_last: Scores of training rows after the last step, in evaluation mode.
        best: The index of the best evaluation.
    """

    outcome: str = "ok"
    reason: str = ""
    evaluations: list[Evaluation] = field(default_factory=list)
    train_last: dict[str, float] = field(default_factory=dict)
    best: int = 0
    steps: int = 0
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0

    def judge(self, problem: Problem, logits: NDArray[np.float32], validation_rows: Rows) -> None:
        """Set the outcome by the logits of the best evaluation."""
        if not problem.is_finite(logits, validation_rows):
            self.outcome, self.reason = "diverged", "its logits of the validation rows are not finite"
        elif problem.is_degenerate(logits, validation_rows):
            self.outcome, self.reason = "degenerate", "it predicts the same for every validation row"

    def state(self) -> State:
        """This course, for :meth:`from_state`."""
        return {**vars(self), "evaluations": [dict(vars(one)) for one in self.evaluations]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The course with this state."""
        return cls(**{**state, "evaluations": [Evaluation(**one) for one in state["evaluations"]]})


def joined(phases: Sequence[TrainingRecord]) -> TrainingRecord:
    """The course of a run in several phases. Outcome, best evaluation and scores of training rows are those of the last one."""
    *before, last = phases
    if not before:
        return last
    epochs = steps = 0.0
    evaluations: list[Evaluation] = []
    for phase in phases:
        evaluations += [replace(one, epoch=one.epoch + epochs, step=one.step + int(steps)) for one in phase.evaluations]
        epochs, steps = evaluations[-1].epoch if evaluations else 0.0, steps + phase.steps
    return replace(
        last,
        evaluations=evaluations,
        best=len(evaluations) - len(last.evaluations) + last.best,
        steps=int(steps),
        train_seconds=sum(phase.train_seconds for phase in phases),
        evaluation_seconds=sum(phase.evaluation_seconds for phase in phases),
    )


@dataclass
class Learner:
    """One run in the training loop: what it trains, its rows, and its state.

    Attributes:
        parameters: The trained parameters. Their gradients come from the rows of this run alone.
        groups: The same parameters as groups for the optimizer.
        rows: The training rows, ``[n]``. All runs of a stack have the same n.
        order: Shuffles the rows of each epoch.
        learned: The parameters of the model that the trained ones determine, by name; mostly the trained ones themselves.
        restraints: What determines the model's parameters besides the gradients of the loss.
        record: The course of its training.
        best_values: The trained parameters at the best evaluation, unless that was the last one.
        upcoming: The remaining rows of this epoch.
        trained_batches: Rows and logits of the batches since the last evaluation, with dropout.
    """

    parameters: Mapping[str, Tensor]
    groups: list[dict[str, Any]]
    rows: Rows
    order: torch.Generator
    learned: Mapping[str, Tensor]
    restraints: Sequence[Restraint] = ()
    record: TrainingRecord = field(default_factory=TrainingRecord, init=False)
    best_values: dict[str, Tensor] = field(default_factory=dict, init=False)
    upcoming: Rows = field(default_factory=lambda: np.zeros(0, np.int64), init=False)
    trained_batches: list[tuple[Rows, Tensor]] = field(default_factory=list, init=False)

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The trained parameters."""
        return list(self.parameters.values())

    @property
    def active(self) -> bool:
        """Whether the run is still trained, which means that it has not diverged."""
        return self.record.outcome == "ok"

    def next_rows(self, batch: int) -> Rows:
        """The rows of the next step. The last batch of an epoch may have fewer than ``batch`` rows."""
        if not len(self.upcoming):
            self.upcoming = shuffled(self.rows, self.order)
        rows, self.upcoming = self.upcoming[:batch], self.upcoming[batch:]
        return rows

    def state(self) -> State:
        """The state after a step, with the values of the parameters."""
        return {
            "parameters": {name: p.detach() for name, p in self.parameters.items()},
            "best_values": self.best_values,
            "record": self.record.state(),
            "order": self.order.get_state(),
            "upcoming": self.upcoming,
            "trained_batches": [list(batch) for batch in self.trained_batches],
            "restraints": [restraint.state() for restraint in self.restraints],
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        for name, p in self.parameters.items():
            p.copy_(state["parameters"][name])
        device = self.tensors[0].device
        self.best_values = {name: value.to(device) for name, value in state["best_values"].items()}
        self.record = TrainingRecord.from_state(state["record"])
        self.order.set_state(state["order"])
        self.upcoming = state["upcoming"]
        self.trained_batches = [(rows, logits) for rows, logits in state["trained_batches"]]
        for restraint, one in zip(self.restraints, state["restraints"], strict=True):
            restraint.load_state(one)

    def diverge(self, reason: str) -> None:
        """End this run as diverged."""
        self.record.outcome, self.record.reason = "diverged", reason

    def add_batch(self, rows: Rows, logits: Tensor, step: int) -> None:
        """Record a completed step."""
        if self.active:
            self.trained_batches.append((rows, logits))
            self.record.steps = step
            if step % READ_TOGETHER == 0:
                self._read_logits()

    def _read_logits(self) -> None:
        """Copy the logits of the latest training batches to the host, so that they take no memory of the device."""
        latest = [batch for batch in self.trained_batches if batch[1].device.type != "cpu"]
        if latest:
            rows, logits = zip(*latest, strict=True)
            self.trained_batches[-len(latest) :] = [(np.concatenate(rows), torch.cat(logits).cpu())]

    def evaluate(
        self, problem: Problem, logits: NDArray[np.float32], rows: Rows, epoch: float, *, keep_best: bool, last: bool
    ) -> None:
        """Score the validation logits and the latest training batches.

        With ``keep_best``, copy the parameters if the score is the best so far; else the latest evaluation counts as the best.
        """
        record = self.record
        self._read_logits()
        trained = torch.cat([logits for _, logits in self.trained_batches]).float().numpy()
        train = problem.scores(trained, np.concatenate([rows for rows, _ in self.trained_batches]))
        self.trained_batches.clear()
        record.evaluations.append(Evaluation(epoch, record.steps, problem.scores(logits, rows), train, logits))
        if not keep_best or _is_new_best(problem.metric, record.evaluations, record.best):
            record.best = len(record.evaluations) - 1
            copies = keep_best and not last
            self.best_values = {n: p.detach().clone() for n, p in self.parameters.items()} if copies else {}

    def finish(self, problem: Problem, logits: NDArray[np.float32], rows: Rows, validation_rows: Rows) -> None:
        """After the last step, score training rows and check the logits of the best evaluation."""
        record = self.record
        record.train_last = problem.scores(logits, rows)
        record.judge(problem, record.evaluations[record.best].logits, validation_rows)

    def improved_within(self, evaluations: int) -> bool:
        """Whether the best evaluation is one of the last ``evaluations``; one of them must be the best to be saved."""
        return self.record.best >= len(self.record.evaluations) - evaluations

    def restore_best(self) -> None:
        """Set the parameters to their values at the best evaluation."""
        with torch.no_grad():
            for name, value in self.best_values.items():
                self.parameters[name].copy_(value)
        for restraint in self.restraints:
            restraint.after_step()


def _is_new_best(metric: str, evaluations: Sequence[Evaluation], best: int) -> bool:
    """Whether the last evaluation is the only one or better than the best so far. An undefined score is never better."""
    new, old = evaluations[-1].validation[metric], evaluations[best].validation[metric]
    return len(evaluations) == 1 or new > old or (math.isnan(old) and not math.isnan(new))
