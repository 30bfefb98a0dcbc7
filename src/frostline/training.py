"""One training loop, for every k and for full: AdamW, a schedule, clipping, and scores on the way.

The loop knows nothing of layers or files. It is given a function from rows to logits and the parameters to train.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import get_scheduler

from frostline.metrics import is_constant, score
from frostline.specification import Settings

Rows = NDArray[np.int64]
Forward = Callable[[Rows], Tensor]  # rows of the pool -> logits [B, C]


@dataclass(frozen=True)
class Problem:
    """What is learned: ``targets`` and ``lengths`` (tokens) of all rows of the pool, and how loss and scores see them."""

    problem_type: str
    targets: NDArray[Any]
    lengths: NDArray[np.int64]
    class_weights: Tensor | None
    metric: str

    def loss(self, logits: Tensor, rows: Rows) -> Tensor:
        """Mean loss of a batch: cross entropy (weighted where asked), or squared error."""
        targets = torch.from_numpy(self.targets[rows]).to(logits.device)
        if self.problem_type == "regression":
            return F.mse_loss(logits[:, 0].float(), targets.float())
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        return F.cross_entropy(logits.float(), targets, weight=weights)

    def scores(self, logits: NDArray[np.float32], rows: Rows) -> dict[str, float]:
        """Every metric that suits the task, and the loss."""
        loss = float(self.loss(torch.from_numpy(logits), rows))
        return {**score(self.targets[rows], logits, self.problem_type), "loss": loss}

    def logits(self, forward: Forward, rows: Rows, batch: int) -> NDArray[np.float32]:
        """Logits ``[n, C]`` of rows, without gradients, in batches of texts of like length."""
        order = np.argsort(self.lengths[rows], kind="stable")
        with torch.no_grad():
            parts = [forward(rows[order[n : n + batch]]).float() for n in range(0, len(rows), batch)]
        logits = torch.cat(parts).cpu().numpy()
        return logits[np.argsort(order)]


@dataclass(frozen=True)
class Evaluation:
    """Scores at one point of the training."""

    epoch: float
    step: int
    validation: dict[str, float]  # every metric, and the loss
    train: dict[str, float]  # the same of the training batches since the last evaluation, as they were trained
    logits: NDArray[np.float32]  # [validation rows, C]


@dataclass
class Trained:
    """What a training leaves behind; the parameters themselves are those of the best epoch."""

    outcome: str = "ok"  # ok, degenerate, diverged
    reason: str = ""
    evaluations: list[Evaluation] = field(default_factory=list)
    train_last: dict[str, float] = field(default_factory=dict)  # after the last step, on training rows, in eval mode
    best: int = 0  # which evaluation
    steps: int = 0
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0


def parameter_groups(
    parameters: Mapping[str, nn.Parameter], head: frozenset[str], settings: Settings, learning_rate: float
) -> list[dict[str, Any]]:
    """Four groups at most: body and head, with decay (matrices) and without (biases, norms and all of one dimension)."""
    rates = {False: learning_rate, True: settings.head_learning_rate or learning_rate}
    groups = []
    for is_head, rate in rates.items():
        for decays in (True, False):
            members = [p for n, p in parameters.items() if (n in head) == is_head and (p.dim() > 1) == decays]
            if members:
                decay = settings.weight_decay if decays else 0.0
                groups.append({"params": members, "lr": rate, "weight_decay": decay})
    return groups


def shuffled(rows: Rows, order: torch.Generator) -> Rows:
    """The rows of one epoch, in the order of its steps."""
    mixed: Rows = rows[torch.randperm(len(rows), generator=order).numpy()]
    return mixed


def evaluation_steps(total: int, per_epoch: int, times: int) -> list[int]:
    """After which steps to evaluate: ``times`` in each epoch, and after the last step."""
    points = {min(total, math.ceil(n * per_epoch / times)) for n in range(1, math.ceil(total / per_epoch * times) + 1)}
    return sorted(points | {total})


def train(
    forward: Forward,
    parameters: Mapping[str, nn.Parameter],
    groups: list[dict[str, Any]],
    problem: Problem,
    train_rows: Rows,
    validation_rows: Rows,
    settings: Settings,
    *,
    order: torch.Generator,
    set_mode: Callable[[bool], None],
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> Trained:
    """Train ``parameters`` and leave them at the best evaluation, or where the training ends if that is asked for.

    ``order`` shuffles the rows of each epoch; dropout draws from torch's global generator, which the caller seeds.
    A loss or a gradient that is not finite ends the run before the step, as ``diverged``.
    """
    batch = settings.per_device_train_batch_size
    per_epoch = math.ceil(len(train_rows) / batch)
    total = max(1, math.ceil(settings.num_train_epochs * per_epoch))
    warmup = settings.warmup_steps if settings.warmup_steps >= 1 else settings.warmup_steps * total
    optimizer = torch.optim.AdamW(
        groups, betas=(settings.adam_beta1, settings.adam_beta2), eps=settings.adam_epsilon, fused=True
    )
    schedule = get_scheduler(settings.lr_scheduler_type, optimizer, math.ceil(warmup), total)
    evaluate_after = set(evaluation_steps(total, per_epoch, settings.evaluations_per_epoch))
    trained, seen, best_values = Trained(), _Seen(problem), {}
    trainable = list(parameters.values())
    start = perf_counter()
    set_mode(True)
    rows = np.zeros(0, np.int64)
    for step in range(1, total + 1):
        if not len(rows):
            rows = shuffled(train_rows, order)
        batch_rows, rows = rows[:batch], rows[batch:]
        output = forward(batch_rows)
        loss = problem.loss(output, batch_rows)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.get_total_norm([p.grad for p in trainable if p.grad is not None])
        if not math.isfinite(float(loss.detach() + norm)):
            what = "gradient" if math.isfinite(float(loss.detach())) else "loss"
            trained.outcome = "diverged"
            trained.reason = f"the {what} of step {step} of {total} is not finite"
            break
        if settings.max_grad_norm:
            nn.utils.clip_grads_with_norm_(trainable, settings.max_grad_norm, norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        seen.add(batch_rows, output)
        trained.steps = step
        on_step(step, total)
        if step in evaluate_after:
            begun = perf_counter()
            set_mode(False)
            logits = problem.logits(forward, validation_rows, settings.per_device_eval_batch_size)
            scores = problem.scores(logits, validation_rows)
            trained.evaluations.append(Evaluation(step / per_epoch, step, scores, seen.scores(), logits))
            if not settings.load_best_model_at_end or _is_new_best(problem.metric, trained.evaluations, trained.best):
                trained.best = len(trained.evaluations) - 1
                if step < total and settings.load_best_model_at_end:
                    best_values = {name: p.detach().clone() for name, p in parameters.items()}
            set_mode(True)
            trained.evaluation_seconds += perf_counter() - begun
    set_mode(False)
    if trained.outcome == "ok":
        begun = perf_counter()
        rows = train_rows[: settings.train_score_rows]
        trained.train_last = problem.scores(problem.logits(forward, rows, settings.per_device_eval_batch_size), rows)
        trained.evaluation_seconds += perf_counter() - begun
        if is_constant(trained.evaluations[trained.best].logits, problem.problem_type):
            trained.outcome, trained.reason = "degenerate", "it predicts the same for every validation row"
        if not np.isfinite(trained.evaluations[trained.best].logits).all():
            trained.outcome, trained.reason = "diverged", "its logits of the validation rows are not finite"
    if best_values and trained.best < len(trained.evaluations) - 1:
        with torch.no_grad():
            for name, value in best_values.items():
                parameters[name].copy_(value)
    trained.train_seconds = perf_counter() - start - trained.evaluation_seconds
    return trained


class _Seen:
    """What the training batches showed since the last evaluation: scores for nothing, with dropout on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.parts: list[tuple[Rows, Tensor]] = []

    def add(self, rows: Rows, logits: Tensor) -> None:
        self.parts.append((rows, logits.detach()))

    def scores(self) -> dict[str, float]:
        rows = np.concatenate([rows for rows, _ in self.parts])
        logits = torch.cat([logits for _, logits in self.parts]).float().cpu().numpy()
        self.parts.clear()
        return self.problem.scores(logits, rows)


def _is_new_best(metric: str, evaluations: Sequence[Evaluation], best: int) -> bool:
    """Whether the last evaluation is the first, or beats the best so far; a score that is not defined beats nothing."""
    new, old = evaluations[-1].validation[metric], evaluations[best].validation[metric]
    return len(evaluations) == 1 or new > old or (math.isnan(old) and not math.isnan(new))
