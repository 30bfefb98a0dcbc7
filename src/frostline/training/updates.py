"""One optimizer step of all runs in the training loop: gradients, clipping, divergence, updates."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import get_scheduler

from frostline.fast.optimizer import AdamW, clear_gradients, gradients_of
from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import Anatomy
from frostline.model.device import to_device
from frostline.model.terms import HEAD, POOLER
from frostline.training.learner import Learner
from frostline.training.problem import Forward, Problem
from frostline.training.run import Run, State, StepPlan
from frostline.training.settings import TrainingSettings
from frostline.training.start import matrix_of

POLYNOMIAL_END = 1e-7  # a learning rate, of transformers


def schedule_factors(settings: TrainingSettings, steps: StepPlan, rate: float) -> list[float]:
    """The factor of the learning rates in each step, from the schedules of transformers.

    The polynomial one ends at ``POLYNOMIAL_END``, whatever the learning ``rate`` is.
    """
    unused = torch.optim.AdamW([torch.zeros(1)], lr=max(rate, 2 * POLYNOMIAL_END))  # it must be above that end
    schedule = get_scheduler(settings.lr_scheduler_type, unused, steps.warmup, steps.total)
    return [schedule.lr_lambdas[0](step) for step in range(steps.total)]


def optimizer_groups(spec: Run, anatomy: Anatomy, parameters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The parameter groups of a run: those of its layers, then those of its head, each with and without weight decay.

    Head and pooler have a separate learning rate, and so has each layer if the way of the run says so. Weight decay applies to
    matrices, not to parameters of one dimension, such as biases and norms.
    """
    if spec.learning_rate is None:  # the run trains no parameter of the model
        return []
    head_rate = spec.head_learning_rate or spec.learning_rate
    groups: dict[tuple[bool, float, bool], dict[str, Any]] = {}
    for name, p in parameters.items():
        place = anatomy.places[matrix_of(name)]
        of_head, single = place in (HEAD, POOLER), p.dim() <= 1
        rate = head_rate if of_head else spec.learning_rate * spec.way.learning_rate_factor(place, anatomy)
        options = {"lr": rate, "weight_decay": 0.0 if single else spec.weight_decay}
        options["bias_correction"] = spec.way.bias_correction
        groups.setdefault((of_head, rate, single), {"params": [], **options})["params"].append(p)
    return [groups[key] for key in sorted(groups)]


def backward(
    forward: Forward,
    rows: Rows,
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
        problem: Has the loss.
        micro_batch: Divide the batch into parts of this many examples of each run; None: do not divide it.
        scales: ``[K]``, what the loss of each run is multiplied by before its gradients are computed; None: nothing.
        prefetch: Called with each part but the first, before the part before it has been computed on the device.

    Returns:
        Logits ``[K, B, C]`` to score, and the losses, ``[K]``, on the device.
    """
    size = micro_batch or rows.shape[1]
    parts = [rows[:, start : start + size] for start in range(0, rows.shape[1], size)]
    whole = [problem.weight(own) or 1.0 for own in rows] if len(parts) > 1 else []
    predictions: list[Tensor] = []
    total: Tensor | None = None
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        logits = forward(part)
        losses = problem.losses(logits, part)
        if whole:
            shares = torch.tensor([problem.weight(own) / weight for own, weight in zip(part, whole, strict=True)])
            losses = losses * to_device(shares, losses.device)
        losses.backward(torch.ones_like(losses) if scales is None else scales)  # type: ignore[no-untyped-call]
        total = losses.detach() if total is None else total + losses.detach()
        predictions.append(problem.predictions(logits.detach(), part))
        if prefetch and following is not None:
            prefetch(following)
    assert total is not None
    return predictions[0] if len(parts) == 1 else torch.cat(predictions, 1), total


START, GROWTH, BACKOFF, INTERVAL = 65536.0, 2.0, 0.5, 2000
LEAST = 1.0  # an overflow at this scale is no matter of the scale: the run diverges


def next_scales(scales: Tensor, in_row: Tensor, overflowed: Tensor) -> tuple[Tensor, Tensor]:
    """The scales of the losses of K runs after a step, and the steps without overflow since each changed. All are ``[K]``.

    ``overflowed`` says whether a gradient of the run was not finite.
    """
    in_row = torch.where(overflowed, 0, in_row + 1)
    grows = in_row == INTERVAL
    factor = torch.where(overflowed, BACKOFF, torch.where(grows, GROWTH, 1.0))
    return (scales * factor).clamp(min=LEAST), torch.where(grows, 0, in_row)


HOST_READS = {"cpu", "mps"}  # devices whose losses and gradient norms are read in every step
READ_EVERY = 32  # steps: how often another device is asked which runs have diverged, beside every evaluation
VECTORS = ("finite", "done", "taken", "loss_scales", "in_row")  # of K runs, on their device


class Updates:
    """The optimizer steps of K runs.

    A run whose loss or gradient norm is not finite diverges. It keeps the parameters that it had before this step. Its losses
    still count, which changes nothing for the other runs.

    On a CPU, the host reads in every step which runs take it. A GPU skips steps by itself, and the host learns later which runs
    have diverged.

    With float16, losses are scaled. A step whose gradients overflow is skipped, and the scale is halved. The next step has its
    learning rate, as with transformers' Trainer.

    Attributes:
        finite: ``[2, K]``, 1, or 0 from the first step on in which the loss, or the gradient norm, was not finite.
        done: ``[2, K]``, the number of steps before that one.
        taken: ``[K]``, the steps of the optimizer.
        loss_scales: ``[K]``, what losses are multiplied by before gradients are computed; None without float16.
        in_row: ``[K]``, steps without overflow since the scale changed.
    """

    loss_scales: Tensor | None

    def __init__(self, learners: Sequence[Learner], settings: TrainingSettings, steps: StepPlan) -> None:
        self.learners, self.max_norm, self.total = learners, settings.max_grad_norm, steps.total
        self.restraints = [one for learner in learners for one in learner.restraints]
        betas = settings.adam_beta1, settings.adam_beta2
        self.optimizers = [AdamW(learner.groups, betas=betas, eps=settings.adam_epsilon) for learner in learners]
        rates = [min((group["lr"] for group in learner.groups), default=1.0) for learner in learners]
        self.factors = [schedule_factors(settings, steps, rate) for rate in rates]
        device, runs = learners[0].tensors[0].device, len(learners)
        self.on_host = device.type in HOST_READS
        self.finite, self.done = torch.ones(2, runs, device=device), torch.zeros(2, runs, device=device)
        self.taken, self.in_row = torch.zeros(2, runs, device=device)
        self.loss_scales = torch.full((runs,), START, device=device) if settings.precision == "float16" else None

    @torch.no_grad()
    def step(self, number: int, losses: Tensor) -> None:
        """Take the step with this number, from 1, after a batch with these ``losses`` ``[K]``. Gradients are cleared."""
        if self.loss_scales is not None:
            for learner, factor in zip(self.learners, self.loss_scales.reciprocal(), strict=True):
                torch._foreach_mul_(gradients_of(learner.learned.values()), factor)
        for restraint in self.restraints:
            restraint.after_backward()
        gradients = [gradients_of(learner.tensors) for learner in self.learners]
        norms = total_norms(gradients)
        takes = self._takes(losses, norms)
        if self.on_host:
            self._step_on_host(takes, norms, gradients)
            self.taken += takes
        else:
            self._step_on_device(number, takes, norms)
        for restraint in self.restraints:
            restraint.after_step()

    def _takes(self, losses: Tensor, norms: Tensor) -> Tensor:
        """``[K]``: 1, or 0 for the runs that skip this step, because they have diverged or their scaled gradients overflowed."""
        finite = torch.stack([losses, norms]).abs() < math.inf  # false for NaN
        acceptable = finite
        if self.loss_scales is not None:
            acceptable = torch.stack([finite[0], finite[1] | (self.loss_scales > LEAST)])
            self.loss_scales, self.in_row = next_scales(self.loss_scales, self.in_row, ~finite[1])
        self.finite *= acceptable
        self.done += self.finite
        alive = self.finite.amin(0)
        return alive if self.loss_scales is None else alive * finite[1]

    def _step_on_host(self, takes: Tensor, norms: Tensor, gradients: Sequence[list[Tensor]]) -> None:
        clipped = (self.max_norm / (norms + 1e-6)).clamp(max=1.0) if self.max_norm else torch.ones_like(norms)
        for n, (steps, factor, taken) in enumerate(torch.stack([takes, clipped, self.taken], 1).tolist()):
            if not steps:
                clear_gradients(self.learners[n].tensors)
                self.settle()
                continue
            if factor < 1:
                torch._foreach_mul_(gradients[n], factor)
            self.optimizers[n].step(self.factors[n][int(taken)])

    def _step_on_device(self, number: int, takes: Tensor, norms: Tensor) -> None:
        divisors = ((norms + 1e-6) / self.max_norm).clamp(min=1.0) if self.max_norm else None
        factors: Sequence[float] | Tensor = [own[number - 1] for own in self.factors]
        if self.loss_scales is not None:
            every = to_device(torch.tensor(self.factors), takes.device)
            factors = every.gather(1, self.taken.long()[:, None])[:, 0]
        self.taken += takes
        skips = 1 - takes
        for n, optimizer in enumerate(self.optimizers):
            divisor = None if divisors is None else divisors[n]
            optimizer.step(factors[n], count=self.taken[n], divisor=divisor, skip=skips[n])
        if number % READ_EVERY == 0:
            self.settle()

    def settle(self) -> None:
        """End all runs that have diverged so far."""
        for learner, *finite, before_loss, before_gradient in zip(
            self.learners, *torch.cat([self.finite, self.done]).tolist(), strict=True
        ):
            if learner.active and not all(finite):
                steps, what = (
                    min(before_loss, before_gradient),
                    "loss" if before_loss <= before_gradient else "gradient",
                )
                learner.diverge(f"the {what} of step {steps + 1:.0f} of {self.total} is not finite")
                learner.record.steps = int(steps)

    def flush(self) -> None:
        """Apply all deferred updates, so that the parameters can be read."""
        for optimizer in self.optimizers:
            optimizer.flush()

    def state(self) -> State:
        """What steps have changed besides the parameters."""
        return {
            "optimizers": [optimizer.state() for optimizer in self.optimizers],
            "vectors": {name: getattr(self, name) for name in VECTORS},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The parameters must have the values that they had then."""
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state(one)
        for name, value in state["vectors"].items():
            setattr(self, name, None if value is None else value.to(self.taken.device))


def total_norms(gradients: Sequence[Sequence[Tensor]]) -> Tensor:
    """``[K]``: the Euclidean norm of all gradients of each of K runs."""
    norms = torch.stack(torch._foreach_norm([gradient for own in gradients for gradient in own]))
    if len(counts := {len(own) for own in gradients}) == 1:
        of_runs: Tensor = torch.linalg.vector_norm(norms.view(-1, *counts), dim=1)
        return of_runs
    return torch.stack([torch.linalg.vector_norm(own) for own in torch.split(norms, [len(own) for own in gradients])])
