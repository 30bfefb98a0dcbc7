"""The training loop for one run or for a stack of runs, for every k and for full fine-tuning.

The loop does not depend on the model's architecture or on files. Its inputs are a function from rows to logits and the
parameters to train.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.fast.optimizer import AdamW, clear_gradients, clip, total_norm
from frostline.frozen.batches import Rows
from frostline.training.learner import Learner, LearnerState, TrainingRecord
from frostline.training.optimizer import make_optimizer, make_schedule
from frostline.training.problem import Forward, Problem
from frostline.training.specification import Settings
from frostline.training.steps import StepPlan

NORM_ERROR = 1.005  # the norm is approximate; below max_norm / 1.005 clipping is certainly a no-op


def train(
    forward: Forward,
    learners: Sequence[Learner],
    problem: Problem,
    validation_rows: Rows,
    settings: Settings,
    *,
    set_mode: Callable[[bool], None],
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> list[TrainingRecord]:
    """Train the parameters of K runs, and set them to their values at the best evaluation.

    Without ``load_best_model_at_end``, they keep their values after the last step. Loss, clipping, scores, best evaluation and
    outcome are computed separately for each run, so no run influences another.

    A run whose loss or gradient is not finite ends before that step, with the outcome ``diverged``. The other runs continue.
    A diverged run still occupies its part of the batches, so batch shapes and the rounding of the other runs do not change.

    Args:
        forward: A function from rows ``[K, B]``, one row of the array for each run, to logits ``[K, B, C]``.
        learners: The runs. All have the same number of training rows.
        problem: Targets, loss and metrics.
        validation_rows: The rows to evaluate on, ``[n]``.
        settings: The training settings.
        set_mode: Sets the model to training mode (True) or evaluation mode (False).
        on_step: Called after each step with its number and the total number of steps.

    Returns:
        A record of each run, in order. Wall-clock seconds are divided equally among the runs.
    """
    steps = StepPlan.of(settings, len(learners[0].rows))
    optimizer = make_optimizer([group for learner in learners for group in learner.groups], settings)
    schedule = make_schedule(optimizer, settings, steps)
    states = [LearnerState(learner, problem) for learner in learners]
    evaluator = _Evaluator(forward, states, problem, validation_rows, settings, optimizer, set_mode)
    start = perf_counter()
    set_mode(True)
    for step in range(1, steps.total + 1):
        rows = np.stack([state.next_rows(settings.per_device_train_batch_size) for state in states])
        logits, losses = _backward(forward, rows, states, problem)
        _clip(states, losses, settings.max_grad_norm, f"step {step} of {steps.total}")
        if not any(state.active for state in states):
            break
        optimizer.step()
        schedule.step()
        for n, state in enumerate(states):
            state.add_batch(rows[n], logits[n], step)
        on_step(step, steps.total)
        if step in steps.evaluate_after:
            evaluator.evaluate(epoch=step / steps.per_epoch, last=step == steps.total)
    set_mode(False)
    optimizer.flush()
    evaluator.finish()
    for state in states:
        state.restore_best()
    seconds = perf_counter() - start
    for state in states:
        state.record.train_seconds = (seconds - evaluator.seconds) / len(states)
        state.record.evaluation_seconds = evaluator.seconds / len(states)
    return [state.record for state in states]


def _backward(
    forward: Forward, rows: Rows, states: Sequence[LearnerState], problem: Problem
) -> tuple[Tensor, list[Tensor]]:
    """Compute the gradients of one batch ``[K, B]``.

    Returns:
        Logits ``[K, B, C]`` to score, and the loss of each active run.
    """
    logits = forward(rows)
    losses = [problem.loss(logits[n], rows[n]) for n, state in enumerate(states) if state.active]
    torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    scored = problem.predictions(logits.detach(), rows)  # detached, as the losses are, so that the graph is freed
    return scored, [loss.detach() for loss in losses]


def _clip(states: Sequence[LearnerState], losses: Sequence[Tensor], max_norm: float, step: str) -> None:
    """Clip the gradients of each active run to ``max_norm``; 0 disables clipping.

    A run whose loss or gradient norm is not finite diverges. The gradients of diverged runs are cleared, so that the optimizer
    does not change their parameters.
    """
    active = [state for state in states if state.active]
    norms = [total_norm(state.tensors) for state in active]
    on_host = torch.stack([torch.stack([x.float() for x in values]) for values in (losses, norms)]).tolist()
    for state, loss, size, norm in zip(active, *on_host, norms, strict=True):
        if not (math.isfinite(loss) and math.isfinite(size)):
            what = "gradient" if math.isfinite(loss) else "loss"
            state.diverge(f"the {what} of {step} is not finite")
        elif 0 < max_norm < NORM_ERROR * size:
            clip(state.tensors, max_norm, norm)
    for state in states:
        if not state.active:
            clear_gradients(state.tensors)


@dataclass
class _Evaluator:
    """Evaluates all runs together and measures the wall-clock seconds of the evaluations."""

    forward: Forward
    states: Sequence[LearnerState]
    problem: Problem
    validation_rows: Rows
    settings: Settings
    optimizer: AdamW
    set_mode: Callable[[bool], None]
    seconds: float = 0.0

    def evaluate(self, epoch: float, *, last: bool) -> None:
        """Score the validation rows, then set the model to training mode again."""
        begun = perf_counter()
        self.optimizer.flush()
        self.set_mode(False)
        logits = self._logits(np.stack([self.validation_rows] * len(self.states)))
        for n, state in enumerate(self.states):
            if state.active:
                state.evaluate(logits[n], self.validation_rows, epoch, self.settings, last=last)
        self.set_mode(True)
        self.seconds += perf_counter() - begun

    def finish(self) -> None:
        """After the last step, score some training rows in evaluation mode."""
        if not any(state.active for state in self.states):
            return
        begun = perf_counter()
        rows = np.stack([state.learner.rows[: self.settings.train_score_rows] for state in self.states])
        logits = self._logits(rows)
        for n, state in enumerate(self.states):
            if state.active:
                state.finish(logits[n], rows[n], self.validation_rows)
        self.seconds += perf_counter() - begun

    def _logits(self, rows: Rows) -> NDArray[np.float32]:  # [K, n] -> [K, n, C]
        return self.problem.logits(self.forward, rows, self.settings.per_device_eval_batch_size)
