"""One optimizer step of all runs in the training loop: gradients, clipping, divergence, updates."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from frostline.fast.optimizer import AdamW, clear_gradients, clip, sparse_gradient, total_norm
from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import Anatomy
from frostline.model.terms import HEAD, POOLER
from frostline.training.learner import Learner
from frostline.training.problem import Forward, Problem
from frostline.training.run import Run, State, StepPlan
from frostline.training.settings import TrainingSettings
from frostline.training.start import matrix_of

CHANGING = ("lr", "members")  # options of a group that steps change


def make_optimizer(groups: Sequence[Mapping[str, Any]], settings: TrainingSettings) -> AdamW:
    """AdamW on these parameter groups."""
    return AdamW(_merged(groups), betas=(settings.adam_beta1, settings.adam_beta2), eps=settings.adam_epsilon)


def make_schedule(optimizer: AdamW, settings: TrainingSettings, steps: StepPlan) -> LambdaLR:
    """The learning-rate schedule of transformers."""
    schedule: LambdaLR = get_scheduler(settings.lr_scheduler_type, optimizer, steps.warmup, steps.total)
    return schedule


def learning_rates(schedule: LambdaLR, steps: StepPlan) -> Tensor:
    """``[steps, G]``: the learning rate of each of G parameter groups in each step."""
    factors = [[factor(step) for factor in schedule.lr_lambdas] for step in range(steps.total)]
    return torch.tensor(factors) * torch.tensor(schedule.base_lrs)


def optimizer_groups(spec: Run, anatomy: Anatomy, parameters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The parameter groups of a run. Head and pooler have a separate learning rate.

    Where the way of the run has other learning rates for some layers, these have groups of their own.
    """
    if spec.learning_rate is None:  # the run trains no parameter of the model
        return []
    places = {name: anatomy.places[matrix_of(name)] for name in parameters}
    head = frozenset(name for name, place in places.items() if place in (HEAD, POOLER))
    by_factor: dict[float, dict[str, Tensor]] = {}
    for name, p in parameters.items():
        by_factor.setdefault(spec.way.learning_rate_factor(places[name], anatomy), {})[name] = p
    head_rate = spec.head_learning_rate or spec.learning_rate
    return [
        {**group, "bias_correction": spec.way.bias_correction}
        for factor, members in by_factor.items()
        for group in parameter_groups(members, head, spec, spec.learning_rate * factor, head_rate)
    ]


def parameter_groups(
    parameters: Mapping[str, Tensor],
    head: frozenset[str],
    settings: TrainingSettings,
    learning_rate: float,
    head_learning_rate: float | None = None,
) -> list[dict[str, Any]]:
    """At most four groups: layers and head, each with and without weight decay.

    Weight decay applies to matrices, not to parameters of one dimension, such as biases and norms.

    Args:
        parameters: The trained parameters by name.
        head: The names of the parameters that belong to the head.
        settings: Contains the weight decay.
        learning_rate: The learning rate of the layers.
        head_learning_rate: The learning rate of the head; None: the same as for the layers.
    """
    groups = []
    for is_head, rate in {False: learning_rate, True: head_learning_rate or learning_rate}.items():
        for decays in (True, False):
            members = [p for n, p in parameters.items() if (n in head) == is_head and (p.dim() > 1) == decays]
            if members:
                decay = settings.weight_decay if decays else 0.0
                groups.append({"params": members, "lr": rate, "weight_decay": decay})
    return groups


def optimizer_state(optimizer: AdamW, schedule: LambdaLR) -> State:
    """What steps change besides the parameters: moments, learning rates, deferred updates and the place in the schedule."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tables = [sparse_gradient(p) for p in parameters]
    return {
        "moments": [dict(optimizer.state.get(p, {})) for p in parameters],
        "groups": [{name: group[name] for name in CHANGING if name in group} for group in optimizer.param_groups],
        "tables": [table.state() if table else None for table in tables],
        "schedule": schedule.state_dict(),
    }


def load_optimizer_state(optimizer: AdamW, schedule: LambdaLR, state: Mapping[str, Any]) -> None:
    """Continue from a state. The parameters must have the values that they had then."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p, moments, deferred in zip(parameters, state["moments"], state["tables"], strict=True):
        if moments:
            optimizer.state[p] = {name: value.to(p.device) for name, value in moments.items()}
        if deferred:
            table = sparse_gradient(p)
            assert table is not None, "the state has deferred updates of a table that has none here"
            table.load_state(deferred)
    for group, values in zip(optimizer.param_groups, state["groups"], strict=True):
        group.update(values)
    schedule.load_state_dict(state["schedule"])


def _merged(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge groups with equal settings, because every group costs the optimizer time."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for group in groups:
        settings = {name: value for name, value in group.items() if name != "params"}
        merged.setdefault(tuple(settings.items()), {**settings, "params": []})["params"] += group["params"]
    return list(merged.values())


def backward(
    forward: Forward,
    rows: Rows,
    counted: Sequence[int],
    problem: Problem,
    *,
    micro_batch: int | None = None,
    scales: Tensor | None = None,
    prefetch: Callable[[Rows], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the gradients of one batch ``[K, B]``.

    The parts of a divided batch add up to the mean loss of the whole batch. Sums of floats are then rounded in another order. The
    gradients therefore equal those of the undivided batch within rounding only.

    Args:
        forward: A function from rows to logits.
        rows: The batch.
        counted: The runs whose losses count.
        problem: Has the loss.
        micro_batch: Divide the batch into parts of this many examples of each run; None: do not divide it.
        scales: ``[K]``, what the loss of each run is multiplied by before its gradients are computed; None: nothing.
        prefetch: Called with each part but the first, before the part before it has been computed on the device.

    Returns:
        Logits ``[K, B, C]`` to score, and the losses of the counted runs, ``[len(counted)]``, on the device.
    """
    size = micro_batch or rows.shape[1]
    parts = [rows[:, start : start + size] for start in range(0, rows.shape[1], size)]
    if len(parts) == 1:
        logits = forward(rows)
        of_runs = _losses(problem, logits, rows, counted)
        _scaled(of_runs, counted, scales).sum().backward()  # type: ignore[no-untyped-call]
        return problem.predictions(logits.detach(), rows), of_runs.detach()  # frees the graph
    whole = {n: problem.weight(rows[n]) for n in counted}
    predictions: list[Tensor] = []
    sums: dict[int, Tensor] = {}
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        logits = forward(part)
        shares = {n: problem.weight(part[n]) / whole[n] if whole[n] else 1.0 for n in counted}
        with_loss = [n for n in counted if shares[n]]  # a part without labelled words has no loss
        of_part = _losses(problem, logits, part, with_loss).unbind() if with_loss else ()
        losses = [loss * shares[n] for n, loss in zip(with_loss, of_part, strict=True)]
        if losses:
            _scaled(torch.stack(losses), with_loss, scales).sum().backward()  # type: ignore[no-untyped-call]
        for n, loss in zip(with_loss, losses, strict=True):
            sums[n] = sums[n] + loss.detach() if n in sums else loss.detach()
        predictions.append(problem.predictions(logits.detach(), part))
        if prefetch and following is not None:
            prefetch(following)
    return torch.cat(predictions, 1), torch.stack([sums[n] for n in counted])


def _losses(problem: Problem, logits: Tensor, rows: Rows, runs: Sequence[int]) -> Tensor:
    """The losses of these runs, ``[len(runs)]``."""
    if len(runs) == len(rows):
        return problem.losses(logits, rows)
    return torch.stack([problem.loss(logits[n], rows[n]) for n in runs])


def _scaled(losses: Tensor, runs: Sequence[int], scales: Tensor | None) -> Tensor:
    """The losses of these runs, with the scale of each run."""
    return losses if scales is None else losses * (scales if len(runs) == len(scales) else scales[list(runs)])


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


def updates_of(learners: Sequence[Learner], settings: TrainingSettings, steps: StepPlan) -> Updates:
    """The optimizer steps of these runs, for the device of their parameters. On every device, float16 needs scaled losses."""
    devices = {tensor.device.type for learner in learners for tensor in learner.tensors}
    if devices <= HOST_READS and settings.precision != "float16":
        return HostUpdates(learners, settings, steps)
    return DeviceUpdates(learners, settings, steps)


class HostUpdates:
    """Reads losses and norms in every step. One optimizer has the parameters of all runs."""

    loss_scales = None

    def __init__(self, learners: Sequence[Learner], settings: TrainingSettings, steps: StepPlan) -> None:
        self.learners, self.max_norm, self.total = learners, settings.max_grad_norm, steps.total
        self.restraints = [one for learner in learners for one in learner.restraints]
        self.optimizer = make_optimizer([group for learner in learners for group in learner.groups], settings)
        self.schedule = make_schedule(self.optimizer, settings, steps)

    @property
    def counted(self) -> list[int]:
        return [n for n, learner in enumerate(self.learners) if learner.active]

    def step(self, number: int, losses: Tensor) -> None:
        for restraint in self.restraints:
            restraint.after_backward()
        self._clip(losses, f"step {number} of {self.total}")
        if any(learner.active for learner in self.learners):
            self.optimizer.step()
            self.schedule.step()
            for restraint in self.restraints:
                restraint.after_step()

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
        active = [learner for learner in self.learners if learner.active]
        norms = [total_norm(learner.tensors) for learner in active]
        on_host = torch.stack([losses.float(), torch.stack([norm.float() for norm in norms])]).tolist()
        for learner, loss, size, norm in zip(active, *on_host, norms, strict=True):
            if not (math.isfinite(loss) and math.isfinite(size)):
                what = "gradient" if math.isfinite(loss) else "loss"
                learner.diverge(f"the {what} of {step} is not finite")
            elif 0 < self.max_norm < NORM_ERROR * size:
                clip(learner.tensors, self.max_norm, norm)
        for learner in self.learners:
            if not learner.active:
                clear_gradients(learner.tensors)


class DeviceUpdates:
    """Reads nothing back in a step. Each run has its own optimizer, which skips a step by a number on the device.

    A diverged run is frozen from its first step that is not finite. It ends as in :class:`HostUpdates`, but the host learns of it
    later. Until then its losses still count, which changes nothing for the other runs.

    With float16, losses are scaled. A step whose gradients overflow is then skipped, and the scale is halved. The next step has
    its learning rate, as with transformers' Trainer.
    """

    def __init__(self, learners: Sequence[Learner], settings: TrainingSettings, steps: StepPlan) -> None:
        self.learners, self.max_norm, self.total = learners, settings.max_grad_norm, steps.total
        self.restraints = [one for learner in learners for one in learner.restraints]
        self.optimizers = [make_optimizer(learner.groups, settings) for learner in learners]
        self.schedules = [make_schedule(optimizer, settings, steps) for optimizer in self.optimizers]
        device, runs = learners[0].tensors[0].device, len(learners)
        self.alive = torch.ones(runs, device=device)  # 1, or 0 from the first step on that is not finite
        self.done = torch.zeros(runs, device=device)  # steps until it diverged
        self.taken = torch.zeros(runs, device=device)  # steps of the optimizer, which float16 may skip
        self.bad_loss = torch.zeros(runs, device=device)  # 1 if it was the loss that was not finite
        self.scale = LossScale(runs, device) if settings.precision == "float16" else None
        self.rates = [learning_rates(one, steps).to(device) for one in self.schedules] if self.scale else None

    @property
    def counted(self) -> range:
        return range(len(self.learners))

    @property
    def loss_scales(self) -> Tensor | None:
        return None if self.scale is None else self.scale.values

    @torch.no_grad()
    def step(self, number: int, losses: Tensor) -> None:
        if self.scale is not None:
            self.scale.unscale([list(learner.learned.values()) for learner in self.learners])
        for restraint in self.restraints:
            restraint.after_backward()
        norms = total_norms([learner.tensors for learner in self.learners])
        takes = self._takes(losses.abs() < math.inf, norms < math.inf)  # false for NaN
        taken, skipped = self.taken, 1 - takes
        self.taken = taken + takes
        excess = ((norms + 1e-6) / self.max_norm).clamp(min=1.0) if self.max_norm else None
        for n, optimizer in enumerate(self.optimizers):
            rates = None if self.rates is None else self.rates[n].index_select(0, taken[n : n + 1].long())[0]
            optimizer.step_unless(skipped[n], None if excess is None else excess[n], self.taken[n], rates)
            self.schedules[n].step()
        for restraint in self.restraints:
            restraint.after_step()
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
        for n, learner in enumerate(self.learners):
            if learner.active and not alive[n]:
                steps, what = int(done[n]), "loss" if bad_loss[n] else "gradient"
                learner.diverge(f"the {what} of step {steps + 1} of {self.total} is not finite")
                learner.record.steps = steps

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
