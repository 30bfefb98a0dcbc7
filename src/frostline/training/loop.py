"""The training loop for one run or for a stack of runs, for every k and for full fine-tuning.

The loop does not depend on the model's architecture or on files. Its inputs are a function from rows to logits and the
parameters to train.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.frozen.forward_pass import Rows
from frostline.training.learner import Learner, TrainingRecord
from frostline.training.problem import Forward, Problem
from frostline.training.run import NO_CHECKPOINTS, Checkpoints, State, StepPlan
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
    checkpoints: Checkpoints = NO_CHECKPOINTS,
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
    updates = Updates(learners, settings, steps)
    training = _Training(forward, learners, problem, validation_rows, settings, updates, set_mode)
    if (saved := checkpoints.load()) is not None:
        training.load_state(saved)
    set_mode(True)
    for step in range(training.step + 1, steps.total + 1):
        rows = np.stack([learner.next_rows(settings.batch_size) for learner in learners])
        for restraint in (one for learner in learners for one in learner.restraints):
            restraint.before_forward()
        logits, losses = backward(
            forward,
            rows,
            problem,
            micro_batch=micro_batch,
            scales=updates.loss_scales,
            prefetch=prefetch,
        )
        updates.step(step, losses)
        if not any(learner.active for learner in learners):
            break
        training.step = step
        for n, learner in enumerate(learners):
            learner.add_batch(rows[n], logits[n], step)
        on_step(step, steps.total)
        if step in steps.evaluate_after:
            training.evaluate(epoch=step / steps.per_epoch, last=step == steps.total)
            if patience and not any(learner.active and learner.improved_within(patience) for learner in learners):
                break
        checkpoints.after_step(training.state)
        # After the last batch of an epoch, the rows of the next one are not known.
        if prefetch and step < steps.total and all(len(learner.upcoming) for learner in learners):
            prefetch(np.stack([learner.upcoming[:micro_batch] for learner in learners]))
    training.finish()
    return [learner.record for learner in learners]


@dataclass
class _Training:
    """A training after ``step`` steps. All runs are evaluated together, in ``seconds`` of the wall-clock time since ``begun``."""

    forward: Forward
    learners: Sequence[Learner]
    problem: Problem
    validation_rows: Rows
    settings: TrainingSettings
    updates: Updates
    set_mode: Callable[[bool], None]
    step: int = 0
    seconds: float = 0.0
    begun: float = field(default_factory=perf_counter)

    def state(self) -> State:
        """The state from which :meth:`load_state` continues."""
        self.updates.settle()
        return {
            "step": self.step,
            "runs": [learner.state() for learner in self.learners],
            "updates": self.updates.state(),
            "seconds": [perf_counter() - self.begun, self.seconds],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.step = state["step"]
        for learner, one in zip(self.learners, state["runs"], strict=True):
            learner.load_state(one)
        self.updates.load_state(state["updates"])
        whole, self.seconds = state["seconds"]
        self.begun = perf_counter() - whole

    def evaluate(self, epoch: float, *, last: bool) -> None:
        """Score the validation rows, then set the model to training mode again."""
        self.updates.settle()
        if not any(learner.active for learner in self.learners):
            return
        begun = perf_counter()
        self.updates.flush()
        self.set_mode(False)
        rows, best = self.validation_rows, self.settings.load_best_model_at_end
        logits = self._logits(np.stack([rows] * len(self.learners)))
        for n, learner in enumerate(self.learners):
            if learner.active:
                learner.evaluate(self.problem, logits[n], rows, epoch, keep_best=best, last=last)
        self.set_mode(True)
        self.seconds += perf_counter() - begun

    def finish(self) -> None:
        """After the last step, score some training rows in evaluation mode, and restore the best parameters of all runs."""
        self.set_mode(False)
        self.updates.flush()
        if any(learner.active for learner in self.learners):
            begun = perf_counter()
            rows = np.stack([learner.rows[: self.settings.train_score_rows] for learner in self.learners])
            logits = self._logits(rows)
            for n, learner in enumerate(self.learners):
                if learner.active:
                    learner.finish(self.problem, logits[n], rows[n], self.validation_rows)
            self.seconds += perf_counter() - begun
        seconds = perf_counter() - self.begun
        for learner in self.learners:  # with equal shares of the seconds
            learner.restore_best()
            learner.record.train_seconds = (seconds - self.seconds) / len(self.learners)
            learner.record.evaluation_seconds = self.seconds / len(self.learners)

    def _logits(self, rows: Rows) -> NDArray[np.float32]:  # [K, n] -> [K, n, C]
        return self.problem.logits(self.forward, rows, self.settings.per_device_eval_batch_size)
