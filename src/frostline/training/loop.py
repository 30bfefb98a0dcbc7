"""The training loop for one run or for a stack of runs, for every k and for full fine-tuning.

The loop does not depend on the model's architecture or on files. Its inputs are a function from rows to logits and the
parameters to train.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.forward_pass import Rows
from frostline.training.learner import Learner, LearnerState, TrainingRecord
from frostline.training.problem import Forward, Problem
from frostline.training.run import NONE, Checkpoints, State, StepPlan
from frostline.training.settings import TrainingSettings
from frostline.training.updates import Updates, backward


def train(
    forward: Forward,
    learners: Sequence[Learner],
    problem: Problem,
    validation_rows: Rows,
    settings: TrainingSettings,
    *,
    set_mode: Callable[[bool], None],
    micro_batch: int | None = None,
    prefetch: Callable[[Rows], None] | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    patience: int = 0,
    checkpoints: Checkpoints = NONE,
) -> list[TrainingRecord]:
    """Train the parameters of K runs, and set them to their values at the best evaluation. Returns a record of each run.

    Without ``load_best_model_at_end``, they keep their values after the last step. No run influences another one: loss, clipping,
    scores, best evaluation and outcome are computed for each run.

    A run whose loss or gradient is not finite ends before that step, with the outcome ``diverged``. The others continue. Devices
    other than CPUs notice it some steps later (:mod:`frostline.training.updates`).

    Args:
        forward: A function from rows ``[K, B]``, one row of the array for each run, to logits ``[K, B, C]``.
        learners: The runs. All have the same number of training rows.
        problem: Targets, loss and metrics.
        validation_rows: The rows to evaluate on, ``[n]``.
        settings: The training settings.
        set_mode: Sets the model to training mode (True) or evaluation mode (False).
        micro_batch: Compute the gradients of a batch in parts of this many examples of each run; None: the setting's.
        prefetch: Called with the rows ``[K, B]`` of a batch or of its first part, while the device still computes another one.
        on_step: Called after each step with its number and the total number of steps.
        patience: End after this many evaluations in which no run has a new best score; 0: never.
        checkpoints: Keep states of this training, and have the one to continue from.
    """
    steps = StepPlan.of(settings, len(learners[0].rows))
    micro_batch = min(micro_batch or settings.batch_size, settings.per_device_train_batch_size)
    states = [LearnerState(learner, problem) for learner in learners]
    updates = Updates(states, settings, steps)
    evaluator = _Evaluator(forward, states, problem, validation_rows, settings, updates, set_mode)
    training = _Training(states, updates, evaluator).continued_from(checkpoints.load())
    gradients = partial(backward, forward, problem=problem, micro_batch=micro_batch, prefetch=prefetch)
    set_mode(True)
    for step in range(training.step + 1, steps.total + 1):
        rows = np.stack([state.next_rows(settings.batch_size) for state in states])
        updates.prepare()
        logits, losses = gradients(rows, scales=updates.loss_scales)
        updates.step(step, losses)
        if not any(state.active for state in states):
            break
        training.add_step(rows, logits)
        on_step(step, steps.total)
        if step in steps.evaluate_after:
            evaluator.evaluate(epoch=step / steps.per_epoch, last=step == steps.total)
            if evaluator.none_improved_within(patience):
                break
        checkpoints.after_step(training.state)
        training.look_ahead(prefetch if step < steps.total else None, micro_batch)
    evaluator.finish()
    return evaluator.records()


@dataclass
class _Training:
    """The state of a training after ``step`` steps."""

    states: Sequence[LearnerState]
    updates: Updates
    evaluator: "_Evaluator"
    step: int = 0

    def add_step(self, rows: Rows, logits: Tensor) -> None:
        """Record a completed step. ``rows`` ``[K, B]`` and ``logits`` ``[K, B, C]`` are those of its batches."""
        self.step += 1
        for n, state in enumerate(self.states):
            state.add_batch(rows[n], logits[n], self.step)

    def look_ahead(self, prefetch: Callable[[Rows], None] | None, count: int) -> None:
        """Prefetch the first ``count`` examples of each run's next batch. After the last batch of an epoch, it is not known."""
        if prefetch and all(len(state.upcoming) for state in self.states):
            prefetch(np.stack([state.upcoming[:count] for state in self.states]))

    def state(self) -> State:
        self.updates.settle()
        return {
            "step": self.step,
            "runs": [state.state() for state in self.states],
            "updates": self.updates.state(),
            "seconds": [perf_counter() - self.evaluator.begun, self.evaluator.seconds],
        }

    def continued_from(self, saved: Mapping[str, Any] | None) -> Self:
        """This training, continued from a state; None: from its beginning."""
        if saved is None:
            return self
        self.step = saved["step"]
        for state, one in zip(self.states, saved["runs"], strict=True):
            state.load_state(one)
        self.updates.load_state(saved["updates"])
        whole, self.evaluator.seconds = saved["seconds"]
        self.evaluator.begun = perf_counter() - whole
        return self


@dataclass
class _Evaluator:
    """Evaluates all runs together and measures the wall-clock seconds of the evaluations and of the whole training."""

    forward: Forward
    states: Sequence[LearnerState]
    problem: Problem
    validation_rows: Rows
    settings: TrainingSettings
    updates: Updates
    set_mode: Callable[[bool], None]
    seconds: float = 0.0
    begun: float = field(default_factory=perf_counter)

    def evaluate(self, epoch: float, *, last: bool) -> None:
        """Score the validation rows, then set the model to training mode again."""
        self.updates.settle()
        if not any(state.active for state in self.states):
            return
        begun = perf_counter()
        self.updates.flush()
        self.set_mode(False)
        logits = self._logits(np.stack([self.validation_rows] * len(self.states)))
        for n, state in enumerate(self.states):
            if state.active:
                state.evaluate(logits[n], self.validation_rows, epoch, self.settings, last=last)
        self.set_mode(True)
        self.seconds += perf_counter() - begun

    def none_improved_within(self, evaluations: int) -> bool:
        """Whether no run has its best score in the last ``evaluations``; never with 0."""
        return evaluations > 0 and not any(state.improved_within(evaluations) for state in self.states if state.active)

    def finish(self) -> None:
        """After the last step, score some training rows in evaluation mode."""
        self.set_mode(False)
        self.updates.flush()
        if not any(state.active for state in self.states):
            return
        begun = perf_counter()
        rows = np.stack([state.learner.rows[: self.settings.train_score_rows] for state in self.states])
        logits = self._logits(rows)
        for n, state in enumerate(self.states):
            if state.active:
                state.finish(logits[n], rows[n], self.validation_rows)
        self.seconds += perf_counter() - begun

    def records(self) -> list[TrainingRecord]:
        """Restore the best parameters of all runs. Returns their records, with their equal shares of the seconds."""
        seconds = perf_counter() - self.begun
        for state in self.states:
            state.restore_best()
            state.record.train_seconds = (seconds - self.seconds) / len(self.states)
            state.record.evaluation_seconds = self.seconds / len(self.states)
        return [state.record for state in self.states]

    def _logits(self, rows: Rows) -> NDArray[np.float32]:  # [K, n] -> [K, n, C]
        return self.problem.logits(self.forward, rows, self.settings.per_device_eval_batch_size)
