"""One optimizer step of all runs in the training loop: clip gradients, notice divergence, update parameters.

On a CPU, each step reads losses and gradient norms. With Apple's MPS too, because torch's fused AdamW for MPS has ignored the
tensors by which a step is skipped and gradients are scaled. On other devices a read makes the host wait until the device has
finished all work. There, the device tests for divergence and freezes a diverged run by itself. The host reads in arrears.

Loss scaling for float16, whose smallest numbers are too large for many gradients.

Each run multiplies its loss by its own scale and divides its gradients by it. A step whose gradients overflow is skipped, and
the scale is halved. After enough steps without overflow, it is doubled. Start, factors and interval are those of
``torch.amp.GradScaler``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from frostline.fast.optimizer import clear_gradients, clip, total_norm
from frostline.training.checkpoint import State
from frostline.training.learner import LearnerState
from frostline.training.optimizer import (
    learning_rates,
    load_optimizer_state,
    make_optimizer,
    make_schedule,
    optimizer_state,
)
from frostline.training.settings import TrainingSettings
from frostline.training.steps import StepPlan
from frostline.training.ways.restraint import AllRestraints

START, GROWTH, BACKOFF, INTERVAL = 65536.0, 2.0, 0.5, 2000
LEAST = 1.0  # an overflow at this scale is no matter of the scale: the run diverges


class LossScale:
    """The scales of K runs.

    Attributes:
        values: ``[K]``, on the device.
    """

    def __init__(self, runs: int, device: torch.device) -> None:
        self.values = torch.full((runs,), START, device=device)
        self._in_row = torch.zeros(runs, device=device)  # steps without overflow, since the scale changed

    def unscale(self, parameters: Sequence[Sequence[Tensor]]) -> None:
        """Divide the gradients of the parameters of each run by its scale."""
        inverse = self.values.reciprocal()
        for n, own in enumerate(parameters):
            gradients = [p.grad for p in own if p.grad is not None]
            torch._foreach_mul_(gradients, inverse[n])

    def state(self) -> dict[str, Tensor]:
        """Scales and numbers of steps without overflow, for :meth:`load_state`."""
        return {"values": self.values, "in_row": self._in_row}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        self.values, self._in_row = (state[name].to(self.values.device) for name in ("values", "in_row"))

    def update(self, overflowed: Tensor) -> None:
        """Adapt the scales after a step. ``overflowed`` ``[K]``: whether a gradient of the run was not finite."""
        in_row = torch.where(overflowed, 0, self._in_row + 1)
        grows = in_row == INTERVAL
        factor = torch.where(overflowed, BACKOFF, torch.where(grows, GROWTH, 1.0))
        self.values = (self.values * factor).clamp(min=LEAST)
        self._in_row = torch.where(grows, 0, in_row)


NORM_ERROR = 1.005  # the norm is approximate; below max_norm / 1.005 clipping is certainly a no-op
FLAGS = ("alive", "done", "taken", "bad_loss")  # of each run, on its device
HOST_READS = {"cpu", "mps"}  # devices whose losses and gradient norms are read in every step
READ_EVERY = 32  # steps: how often a device is asked which runs have diverged, beside every evaluation


class Updates(Protocol):
    """The optimizer steps of K runs.

    A run whose loss or gradient norm is not finite diverges. It keeps the parameters that it had before this step.
    """

    @property
    def counted(self) -> Sequence[int]:
        """The runs whose losses the next step needs."""

    @property
    def loss_scales(self) -> Tensor | None:
        """``[K]``, what losses are multiplied by before gradients are computed; None: nothing."""

    def prepare(self) -> None:
        """Set the parameters of the model for the forward pass of a step."""

    def step(self, number: int, losses: Tensor) -> None:
        """Take the step with this number, from 1. ``losses`` are those of the ``counted`` runs, ``[len(counted)]``.

        Gradients are cleared.
        """

    def settle(self) -> None:
        """End all runs that have diverged so far."""

    def flush(self) -> None:
        """Apply all deferred updates, so that the parameters can be read."""

    def state(self) -> State:
        """What steps have changed besides the parameters."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The parameters must have the values that they had then."""


def updates_of(states: Sequence[LearnerState], settings: TrainingSettings, steps: StepPlan) -> Updates:
    """The optimizer steps of these runs, for the device of their parameters. On every device, float16 needs scaled losses."""
    devices = {tensor.device.type for state in states for tensor in state.tensors}
    if devices <= HOST_READS and settings.precision != "float16":
        return HostUpdates(states, settings, steps)
    return DeviceUpdates(states, settings, steps)


class HostUpdates:
    """Reads losses and norms in every step. One optimizer has the parameters of all runs."""

    loss_scales = None

    def __init__(self, states: Sequence[LearnerState], settings: TrainingSettings, steps: StepPlan) -> None:
        self.states, self.max_norm, self.total = states, settings.max_grad_norm, steps.total
        self.restraints = AllRestraints([one for state in states for one in state.learner.restraints])
        self.optimizer = make_optimizer([group for state in states for group in state.learner.groups], settings)
        self.schedule = make_schedule(self.optimizer, settings, steps)

    @property
    def counted(self) -> list[int]:
        return [n for n, state in enumerate(self.states) if state.active]

    def prepare(self) -> None:
        self.restraints.before_forward()

    def step(self, number: int, losses: Tensor) -> None:
        self.restraints.after_backward()
        self._clip(losses, f"step {number} of {self.total}")
        if any(state.active for state in self.states):
            self.optimizer.step()
            self.schedule.step()
            self.restraints.after_step()

    def settle(self) -> None:
        """Nothing: every step ends diverged runs."""

    def flush(self) -> None:
        self.optimizer.flush()

    def state(self) -> State:
        return {"optimizer": optimizer_state(self.optimizer, self.schedule)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        load_optimizer_state(self.optimizer, self.schedule, state["optimizer"])

    def _clip(self, losses: Tensor, step: str) -> None:
        """Clip the gradients of each active run; a largest norm of 0 disables clipping.

        The gradients of diverged runs are cleared, so that the optimizer does not change their parameters.
        """
        active = [state for state in self.states if state.active]
        norms = [total_norm(state.tensors) for state in active]
        on_host = torch.stack([losses.float(), torch.stack([norm.float() for norm in norms])]).tolist()
        for state, loss, size, norm in zip(active, *on_host, norms, strict=True):
            if not (math.isfinite(loss) and math.isfinite(size)):
                what = "gradient" if math.isfinite(loss) else "loss"
                state.diverge(f"the {what} of {step} is not finite")
            elif 0 < self.max_norm < NORM_ERROR * size:
                clip(state.tensors, self.max_norm, norm)
        for state in self.states:
            if not state.active:
                clear_gradients(state.tensors)


class DeviceUpdates:
    """Reads nothing back in a step. Each run has its own optimizer, which skips a step by a number on the device.

    A diverged run is frozen from its first step that is not finite. It ends as in :class:`HostUpdates`, but the host learns of it
    later. Until then its losses still count, which changes nothing for the other runs.

    With float16, losses are scaled. A step whose gradients overflow is then skipped, and the scale is halved. The next step has
    its learning rate, as with transformers' Trainer.
    """

    def __init__(self, states: Sequence[LearnerState], settings: TrainingSettings, steps: StepPlan) -> None:
        self.states, self.max_norm, self.total = states, settings.max_grad_norm, steps.total
        self.restraints = AllRestraints([one for state in states for one in state.learner.restraints])
        self.optimizers = [make_optimizer(state.learner.groups, settings) for state in states]
        self.schedules = [make_schedule(optimizer, settings, steps) for optimizer in self.optimizers]
        device, runs = states[0].tensors[0].device, len(states)
        self.alive = torch.ones(runs, device=device)  # 1, or 0 from the first step on that is not finite
        self.done = torch.zeros(runs, device=device)  # steps until it diverged
        self.taken = torch.zeros(runs, device=device)  # steps of the optimizer, which float16 may skip
        self.bad_loss = torch.zeros(runs, device=device)  # 1 if it was the loss that was not finite
        self.scale = LossScale(runs, device) if settings.precision == "float16" else None
        self.rates = [learning_rates(one, steps).to(device) for one in self.schedules] if self.scale else None

    @property
    def counted(self) -> range:
        return range(len(self.states))

    @property
    def loss_scales(self) -> Tensor | None:
        return None if self.scale is None else self.scale.values

    def prepare(self) -> None:
        self.restraints.before_forward()

    @torch.no_grad()
    def step(self, number: int, losses: Tensor) -> None:
        if self.scale is not None:
            self.scale.unscale([list(state.learner.learned.values()) for state in self.states])
        self.restraints.after_backward()
        norms = total_norms([state.tensors for state in self.states])
        takes = self._takes(losses.abs() < math.inf, norms < math.inf)  # false for NaN
        taken, skipped = self.taken, 1 - takes
        self.taken = taken + takes
        excess = ((norms + 1e-6) / self.max_norm).clamp(min=1.0) if self.max_norm else None
        for n, optimizer in enumerate(self.optimizers):
            rates = None if self.rates is None else self.rates[n].index_select(0, taken[n : n + 1].long())[0]
            optimizer.step_unless(skipped[n], None if excess is None else excess[n], self.taken[n], rates)
            self.schedules[n].step()
        self.restraints.after_step()
        if number % READ_EVERY == 0:
            self.settle()

    def _takes(self, finite_loss: Tensor, finite_norm: Tensor) -> Tensor:
        """``[K]``: 1, or 0 for the runs that skip this step, because they have diverged or their scaled gradients overflowed."""
        self.bad_loss = torch.where(finite_loss, self.bad_loss, torch.maximum(self.bad_loss, self.alive))
        acceptable = finite_norm
        if self.scale is not None:
            acceptable = finite_norm | (self.scale.values > LEAST)
            self.scale.update(~finite_norm)
        self.alive = self.alive * (finite_loss & acceptable)
        self.done = self.done + self.alive
        return self.alive if self.scale is None else self.alive * finite_norm

    def settle(self) -> None:
        alive, done, bad_loss = torch.stack([self.alive, self.done, self.bad_loss]).tolist()  # the only read
        for n, state in enumerate(self.states):
            if state.active and not alive[n]:
                steps, what = int(done[n]), "loss" if bad_loss[n] else "gradient"
                state.diverge(f"the {what} of step {steps + 1} of {self.total} is not finite")
                state.record.steps = steps

    def flush(self) -> None:
        for optimizer in self.optimizers:
            optimizer.flush()

    def state(self) -> State:
        both = zip(self.optimizers, self.schedules, strict=True)
        return {
            "optimizers": [optimizer_state(optimizer, schedule) for optimizer, schedule in both],
            "flags": {name: getattr(self, name) for name in FLAGS},
            "scale": None if self.scale is None else self.scale.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        for optimizer, schedule, one in zip(self.optimizers, self.schedules, state["optimizers"], strict=True):
            load_optimizer_state(optimizer, schedule, one)
        for name, value in state["flags"].items():
            setattr(self, name, value.to(self.alive.device))
        if self.scale is not None:
            self.scale.load_state(state["scale"])


def total_norms(parameters: Sequence[Sequence[Tensor]]) -> Tensor:
    """``[K]``: the Euclidean norm of all gradients of each of K runs. All runs have gradients of the same parameters."""
    gradients = [p.grad for own in parameters for p in own if p.grad is not None]
    norms: Tensor = torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm(gradients)).view(len(parameters), -1), dim=1
    )
    return norms
