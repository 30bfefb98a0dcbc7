"""One training loop, for every k and for full: AdamW, a schedule, clipping, and scores on the way.

The loop knows nothing of layers or files. It is given a function from rows to logits and the parameters to train, of
one run or of several that are computed as one.
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
from torch import Tensor
from transformers import get_scheduler

from frostline.fast.gradients import AdamW, clip, drop, total_norm
from frostline.statistics.metrics import is_constant, score
from frostline.training.specification import Settings

CLIPPED_FROM = 1.005  # so much shorter than the limit a gradient is surely left as it is

Rows = NDArray[np.int64]
Forward = Callable[[Rows], Tensor]  # rows of the pool [..., B] -> logits [..., B, C]


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
        """Logits ``[..., n, C]`` of rows ``[..., n]``, without gradients, in batches of texts of like length."""
        order = np.argsort(self.lengths[rows], axis=-1, kind="stable")
        by_length = np.take_along_axis(rows, order, -1)
        with torch.no_grad():
            parts = [forward(by_length[..., n : n + batch]).float() for n in range(0, rows.shape[-1], batch)]
        logits = torch.cat(parts, -2).cpu().numpy()
        return np.take_along_axis(logits, np.argsort(order, axis=-1)[..., None], -2)


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
    parameters: Mapping[str, Tensor],
    head: frozenset[str],
    settings: Settings,
    learning_rate: float,
    head_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Four groups at most: body and head (by default at the body's rate), with decay (matrices) and without (biases, norms
    and all of one dimension)."""
    groups = []
    for is_head, rate in {False: learning_rate, True: head_rate or learning_rate}.items():
        for decays in (True, False):
            members = [p for n, p in parameters.items() if (n in head) == is_head and (p.dim() > 1) == decays]
            if members:
                decay = settings.weight_decay if decays else 0.0
                groups.append({"params": members, "lr": rate, "weight_decay": decay})
    return groups


def _drawn_together(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups that are treated alike as one: the optimizer takes its time for each, however small it is."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for group in groups:
        how = {name: value for name, value in group.items() if name != "params"}
        found.setdefault(tuple(how.items()), {**how, "params": []})["params"] += group["params"]
    return list(found.values())


def shuffled(rows: Rows, order: torch.Generator) -> Rows:
    """The rows of one epoch, in the order of its steps."""
    mixed: Rows = rows[torch.randperm(len(rows), generator=order).numpy()]
    return mixed


def evaluation_steps(total: int, per_epoch: int, times: int) -> list[int]:
    """After which steps to evaluate: ``times`` in each epoch, and after the last step."""
    if not times:
        return [total]
    points = {min(total, math.ceil(n * per_epoch / times)) for n in range(1, math.ceil(total / per_epoch * times) + 1)}
    return sorted(points | {total})


@dataclass(frozen=True)
class Learner:
    """One of the runs that are trained together: what it learns, from which rows, in what order."""

    parameters: Mapping[str, Tensor]  # their gradients come from its rows alone
    groups: list[dict[str, Any]]  # of these parameters, for the optimizer
    rows: Rows  # [n], as many as the others have
    order: torch.Generator  # shuffles the rows of each epoch


def train(
    forward: Forward,
    learners: Sequence[Learner],
    problem: Problem,
    validation_rows: Rows,
    settings: Settings,
    *,
    set_mode: Callable[[bool], None],
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> list[Trained]:
    """Train the parameters of K learners and leave them at the best evaluation, or where the training ends if that is asked for.

    ``forward`` is given ``[K, B]`` rows, each learner's own, and gives logits ``[K, B, C]``. Loss, clipping, scores, best
    evaluation and failure are each learner's own: nothing that one computes reaches another. A loss or a gradient that
    is not finite ends a run before the step, as ``diverged``; the others go on, and it keeps its place in the batches,
    so that their shapes, and with them the last bits, stay. Seconds are shared equally.
    """
    batch = settings.per_device_train_batch_size
    per_epoch = math.ceil(len(learners[0].rows) / batch)
    total = max(1, math.ceil(settings.num_train_epochs * per_epoch))
    warmup = settings.warmup_steps if settings.warmup_steps >= 1 else settings.warmup_steps * total
    optimizer = AdamW(
        _drawn_together([group for learner in learners for group in learner.groups]),
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
    )
    schedule = get_scheduler(settings.lr_scheduler_type, optimizer, math.ceil(warmup), total)
    evaluate_after = set(evaluation_steps(total, per_epoch, settings.evaluations_per_epoch))
    courses = [_Course(learner, problem) for learner in learners]
    evaluation_seconds, start = 0.0, perf_counter()

    def logits_of(rows: Rows) -> NDArray[np.float32]:  # [K, n] -> [K, n, C]
        return problem.logits(forward, rows, settings.per_device_eval_batch_size)

    set_mode(True)
    for step in range(1, total + 1):
        rows = np.stack([course.next_rows(batch) for course in courses])
        output = forward(rows)
        going = [(n, course) for n, course in enumerate(courses) if course.goes_on]
        losses = [problem.loss(output[n], rows[n]) for n, _ in going]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        output, losses = output.detach(), [loss.detach() for loss in losses]  # what else the graph holds is let go
        norms = [total_norm(course.tensors) for _, course in going]
        both = torch.stack([torch.stack([x.float() for x in some]) for some in (losses, norms)]).tolist()
        for (_, course), loss, size, norm in zip(going, *both, norms, strict=True):
            if not (math.isfinite(loss) and math.isfinite(size)):
                what = "gradient" if math.isfinite(loss) else "loss"
                course.diverge(f"the {what} of step {step} of {total} is not finite")
            elif 0 < settings.max_grad_norm < CLIPPED_FROM * size:  # to clip what is shorter is to multiply it by 1
                clip(course.tensors, settings.max_grad_norm, norm)
        for course in courses:
            if not course.goes_on:
                drop(course.tensors)
        if not any(course.goes_on for course in courses):
            break
        optimizer.step()
        schedule.step()
        for n, course in enumerate(courses):
            course.seen(rows[n], output[n], step)
        on_step(step, total)
        if step in evaluate_after:
            begun = perf_counter()
            optimizer.settle()
            set_mode(False)
            logits = logits_of(np.stack([validation_rows] * len(courses)))
            for n, course in enumerate(courses):
                if course.goes_on:
                    course.evaluate(logits[n], validation_rows, step / per_epoch, settings, last=step == total)
            set_mode(True)
            evaluation_seconds += perf_counter() - begun
    set_mode(False)
    optimizer.settle()
    if any(course.goes_on for course in courses):
        begun = perf_counter()
        rows = np.stack([learner.rows[: settings.train_score_rows] for learner in learners])
        logits = logits_of(rows)
        for n, course in enumerate(courses):
            if course.goes_on:
                course.finish(logits[n], rows[n], validation_rows)
        evaluation_seconds += perf_counter() - begun
    for course in courses:
        course.restore_best()
    seconds = perf_counter() - start
    for course in courses:
        course.trained.train_seconds = (seconds - evaluation_seconds) / len(courses)
        course.trained.evaluation_seconds = evaluation_seconds / len(courses)
    return [course.trained for course in courses]


class _Course:
    """One learner on its way."""

    def __init__(self, learner: Learner, problem: Problem) -> None:
        self.learner, self.problem = learner, problem
        self.tensors = list(learner.parameters.values())
        self.trained = Trained()
        self.best_values: dict[str, Tensor] = {}
        self.to_come = np.zeros(0, np.int64)  # rows of this epoch
        self.parts: list[tuple[Rows, Tensor]] = []  # training batches since the last evaluation, dropout on

    @property
    def goes_on(self) -> bool:
        return self.trained.outcome == "ok"

    def next_rows(self, batch: int) -> Rows:
        if not len(self.to_come):
            rows = self.learner.rows
            self.to_come = shuffled(rows, self.learner.order)
        rows, self.to_come = self.to_come[:batch], self.to_come[batch:]
        return rows

    def diverge(self, reason: str) -> None:
        self.trained.outcome, self.trained.reason = "diverged", reason

    def seen(self, rows: Rows, logits: Tensor, step: int) -> None:
        if self.goes_on:
            self.parts.append((rows, logits))
            self.trained.steps = step

    def evaluate(
        self, logits: NDArray[np.float32], rows: Rows, epoch: float, settings: Settings, *, last: bool
    ) -> None:
        """Score validation logits and what was seen since the last time; keep the values if they are the best so far."""
        trained = self.trained
        seen = torch.cat([logits for _, logits in self.parts]).float().cpu().numpy()
        train = self.problem.scores(seen, np.concatenate([rows for rows, _ in self.parts]))
        self.parts.clear()
        scores = self.problem.scores(logits, rows)
        trained.evaluations.append(Evaluation(epoch, trained.steps, scores, train, logits))
        if not settings.load_best_model_at_end or _is_new_best(self.problem.metric, trained.evaluations, trained.best):
            trained.best = len(trained.evaluations) - 1
            keeps = not last and settings.load_best_model_at_end
            self.best_values = {n: p.detach().clone() for n, p in self.learner.parameters.items()} if keeps else {}

    def finish(self, logits: NDArray[np.float32], rows: Rows, validation_rows: Rows) -> None:
        """After the last step: score training rows, and look whether the best evaluation is worth anything."""
        trained = self.trained
        trained.train_last = self.problem.scores(logits, rows)
        best = trained.evaluations[trained.best].logits
        targets = self.problem.targets[validation_rows]
        if is_constant(best, self.problem.problem_type) and (targets != targets[0]).any():
            trained.outcome, trained.reason = "degenerate", "it predicts the same for every validation row"
        if not np.isfinite(best).all():
            self.diverge("its logits of the validation rows are not finite")

    def restore_best(self) -> None:
        with torch.no_grad():
            for name, value in self.best_values.items():
                self.learner.parameters[name].copy_(value)


def _is_new_best(metric: str, evaluations: Sequence[Evaluation], best: int) -> bool:
    """Whether the last evaluation is the first, or beats the best so far; a score that is not defined beats nothing."""
    new, old = evaluations[-1].validation[metric], evaluations[best].validation[metric]
    return len(evaluations) == 1 or new > old or (math.isnan(old) and not math.isnan(new))
