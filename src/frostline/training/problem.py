"""The learning problem of a run: targets, loss and scores. Rows refer to the pool, the concatenation of all splits.

Shapes: N rows of the pool, B rows of a batch, K runs, C classes, labels or tags; of tags also T tokens of a batch, W words and P
labelled tokens of a sentence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.kinds import REGRESSION, TOKENS
from frostline.data.tags import BEGIN, INSIDE, NO_WORD
from frostline.frozen.forward_pass import Rows
from frostline.model.device import to_device
from frostline.model.tokens import Tokens
from frostline.statistics.metrics import is_constant, score


@dataclass(frozen=True)
class Unit:
    """What the head of a regression learns: ``(number - centre) / scale``, with mean about 2.5 and standard deviation about 1.5.

    The scale is a power of 2, so it changes no digit of a weight, and the centre is a multiple of it. Both are of all training
    rows of a sweep, also with folds. They are so coarse that they tell a run next to nothing of the other rows.
    """

    centre: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Self:
        """The unit of these numbers, ``[n]``; that of the numbers themselves if all are equal."""
        mean, spread = float(np.mean(numbers)), float(np.std(numbers))
        if not 0 < spread < math.inf:
            return cls()
        scale = 2.0 ** round(math.log2(spread / SPREAD))
        return cls(round(mean / scale - MEAN) * scale, scale)

    @property
    def without_centre(self) -> "Unit":
        """For a head that has no bias: centre 0, and the scale at which the largest numbers are as large."""
        size = math.hypot(self.centre + MEAN * self.scale, SPREAD * self.scale) / math.hypot(MEAN, SPREAD)
        return Unit(0.0, 2.0 ** round(math.log2(size)))

    def number(self, logits: Tensor) -> Tensor:
        """The numbers that logits of the head stand for, in float32."""
        return logits if self == NUMBERS else logits.float() * self.scale + self.centre


NUMBERS = Unit()  # of the table
MEAN, SPREAD = 2.5, 1.5  # of the numbers that a head learns, as of STS-B; those near 0 are learned slower (docs/log.md)
READ_TOGETHER = 32  # batches whose logits are read from a device at once
Forward = Callable[[Rows], Tensor]  # rows of the pool [..., B] -> logits [..., B, C]


@dataclass(frozen=True)
class Problem:
    """Targets and lengths of all rows of the pool, with loss and scores.

    Attributes:
        task_type: ``CLASSIFICATION`` or ``REGRESSION``; other types have a class of their own.
        targets: The class index or the number of each row, ``[N]``.
        lengths: Tokens of each row, ``[N]``.
        class_weights: Weights of the classes in the loss, ``[C]``; None weights all classes equally.
        metric: The metric that chooses the best epoch.
        unit: Of the numbers of a regression, in the loss.
    """

    task_type: str
    targets: NDArray[Any]
    lengths: NDArray[np.int64]
    class_weights: Tensor | None
    metric: str
    unit: Unit = field(default=NUMBERS, kw_only=True)

    @property
    def predictions_per_row(self) -> tuple[int, ...]:
        """The shape of the predictions of a row, before their C logits: () for one prediction, (W,) for tags of words."""
        return ()

    def by_row(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits ``[K, B, C]`` of rows ``[K, B]``, from those of the model, ``[K * B, C]``."""
        return logits.view(*rows.shape, -1)

    def predictions(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits that are scored, of those that :meth:`by_row` returns."""
        return logits

    def loss(self, logits: Tensor, rows: Rows) -> Tensor:
        """The mean loss of a batch in float32: cross entropy for classification, squared error for regression.

        It is 0, with gradients of 0, if the rows have no weight.
        """
        if not self.weight(rows):
            return logits.flatten()[:0].float().sum()
        return self._weighted_mean(logits, rows)

    def _weighted_mean(self, logits: Tensor, rows: Rows) -> Tensor:
        return self._mean(logits, self._targets(rows, logits.device))

    def _mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.task_type == REGRESSION:
            return F.mse_loss(logits[:, 0].float() / self.unit.scale, targets / self.unit.scale)
        return self._cross_entropy(logits, targets)

    def losses(self, logits: Tensor, rows: Rows) -> Tensor:
        """The losses of K runs, ``[K]``, from logits ``[K, B, C]`` of rows ``[K, B]``.

        Devices other than CPUs compute all of them together, because they take longer to start an operation than to run it.
        """
        if logits.device.type == "cpu" or self.class_weights is not None:
            return torch.stack([self.loss(own, some) for own, some in zip(logits, rows, strict=True)])
        return self._by_run(logits, self._targets(rows, logits.device))

    def _targets(self, rows: Rows, device: torch.device) -> Tensor:
        """The targets of these rows on a device. Numbers are float32 there, because MPS has no float64."""
        targets = torch.from_numpy(self.targets[rows])
        return to_device(targets.float() if targets.is_floating_point() else targets, device)

    def _by_run(self, logits: Tensor, targets: Tensor) -> Tensor:  # [K, B, C], [K, B] -> [K]
        if self.task_type == REGRESSION:
            scaled = logits[..., 0].float() / self.unit.scale, targets / self.unit.scale
            return F.mse_loss(*scaled, reduction="none").mean(1)
        by_example = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        return by_example.view_as(targets).mean(1)

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        weights = None if self.class_weights is None else to_device(self.class_weights, logits.device)
        return F.cross_entropy(logits.float(), targets, weight=weights)

    def weight(self, rows: Rows) -> float:
        """The weight of these rows in the mean loss of a batch that contains them."""
        if self.class_weights is None or self.task_type == REGRESSION:
            return float(len(rows))
        return float(self.class_weights.cpu()[torch.from_numpy(self.targets[rows])].sum())

    def scores(self, logits: NDArray[np.float32], rows: Rows) -> dict[str, float]:
        """The loss, and every metric of this type of task."""
        loss = float(self._weighted_mean(torch.from_numpy(logits), rows))
        return {**score(self.targets[rows], logits, self.task_type), "loss": loss}

    def is_finite(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        """Whether all logits of these rows are finite."""
        return bool(np.isfinite(logits).all())

    def is_degenerate(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        """Whether the model predicts the same for all of these rows, and their targets differ."""
        targets = self.targets[rows]
        spread = float(np.ptp(targets)) if self.task_type == REGRESSION else 1.0
        return is_constant(logits, self.task_type, spread) and bool((targets != targets[0]).any())

    def logits(self, forward: Forward, rows: Rows, batch: int) -> NDArray[np.float32]:
        """Logits ``[..., n, C]`` of rows ``[..., n]``, without gradients, in batches of examples of similar length."""
        order = np.argsort(self.lengths[rows], axis=-1, kind="stable")
        by_length = np.take_along_axis(rows, order, -1)
        parts = [by_length[..., n : n + batch] for n in range(0, rows.shape[-1], batch)]
        axis, read = rows.ndim - 1, []
        with torch.no_grad():
            for n in range(0, len(parts), READ_TOGETHER):
                several = [self.predictions(forward(part), part).float() for part in parts[n : n + READ_TOGETHER]]
                read.append(torch.cat(several, axis).cpu())
        logits = torch.cat(read, axis).numpy()
        restore = np.argsort(order, axis=-1)
        return np.take_along_axis(logits, restore.reshape(*restore.shape, *[1] * (logits.ndim - rows.ndim)), axis)


@dataclass(frozen=True)
class MultiLabelProblem(Problem):
    """Targets are bool ``[N, C]``. Every label is predicted on its own, by the sigmoid of its logit.

    A class weight multiplies the loss of the texts that have the label.
    """

    def weight(self, rows: Rows) -> float:
        return float(len(rows))

    def _mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._binary_cross_entropies(logits, targets).mean()

    def _by_run(self, logits: Tensor, targets: Tensor) -> Tensor:  # [K, B, C], [K, B, C] -> [K]
        return self._binary_cross_entropies(logits, targets).mean((1, 2))

    def _binary_cross_entropies(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each label of each text."""
        weights = None if self.class_weights is None else to_device(self.class_weights, logits.device)
        return F.binary_cross_entropy_with_logits(logits.float(), targets.float(), pos_weight=weights, reduction="none")


@dataclass(frozen=True)
class TagProblem(Problem):
    """Tags of words. A word is scored at its first token. The loss reads that token, or all tokens of the word.

    Targets are ``[N, W]``. Words whose tokens were cut off are neither trained on nor scored. Their logits are NaN, as are those
    of words without a token, and those where a sentence has no further word.

    Attributes:
        tokens: The tokens of all rows.
        labels: The tags.
        known: The targets ``[N, W]`` of the words that have tokens; ``NO_WORD`` elsewhere.
        every_token: Whether the loss reads all tokens of a word. P is then the largest number of such tokens, else W.
        token_targets: The targets of the loss, ``[N, P]``; ``NO_WORD`` where there is no token.
        first: ``[N, W]``, the place of a word's first token among the P; -1 for a word without tokens.
    """

    tokens: Tokens
    labels: Sequence[str]
    known: NDArray[np.int64]
    every_token: bool
    token_targets: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        targets: NDArray[np.int64],
        tokens: Tokens,
        labels: Sequence[str],
        metric: str,
        *,
        class_weights: Tensor | None = None,
        every_token: bool = False,
    ) -> "TagProblem":
        """The problem of these targets ``[N, W]``."""
        labelled = tokens.labelled(np.arange(len(tokens)), every_token=every_token)
        tags = targets[labelled.example, labelled.word]
        first_of = labelled.example[labelled.is_first], labelled.word[labelled.is_first]
        known, first = np.full_like(targets, NO_WORD), np.full_like(targets, -1)
        known[first_of], first[first_of] = tags[labelled.is_first], labelled.place[labelled.is_first]
        width = int(labelled.place.max(initial=0)) + 1 if every_token else targets.shape[1]
        token_targets = np.full((len(targets), width), NO_WORD, np.int64)
        continued = np.array(_continued(labels))
        token_targets[labelled.example, labelled.place] = np.where(labelled.is_first, tags, continued[tags])
        return cls(
            task_type=TOKENS,
            targets=targets,
            lengths=tokens.lengths,
            class_weights=class_weights,
            metric=metric,
            tokens=tokens,
            labels=tuple(labels),
            known=known,
            every_token=every_token,
            token_targets=token_targets,
            first=first,
        )

    @property
    def predictions_per_row(self) -> tuple[int, ...]:
        return (int(self.targets.shape[1]),)

    def by_row(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits ``[K, B, P, C]`` of the labelled tokens of rows ``[K, B]``, from those of their real tokens, ``[T, C]``."""
        found = self.tokens.labelled(rows.ravel(), every_token=self.every_token)
        positions, examples, places = (
            to_device(torch.from_numpy(x), logits.device) for x in (found.position, found.example, found.place)
        )
        empty = logits.new_full((rows.size, self.token_targets.shape[1], logits.shape[-1]), torch.nan)
        return empty.index_put((examples, places), logits[positions]).view(*rows.shape, *empty.shape[1:])

    def predictions(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits ``[..., W, C]`` of the words' first tokens, of ``[..., P, C]``."""
        if not self.every_token:
            return logits
        first = to_device(torch.from_numpy(self.first[rows]), logits.device)[..., None]  # [..., W, 1]
        chosen = logits.gather(-2, first.clamp(min=0).expand(*first.shape[:-1], logits.shape[-1]))
        return chosen.masked_fill(first < 0, torch.nan)

    def _weighted_mean(self, logits: Tensor, rows: Rows) -> Tensor:
        """The mean cross entropy over the labelled tokens."""
        return self._mean_of_known(logits, self.token_targets[rows])

    def losses(self, logits: Tensor, rows: Rows) -> Tensor:
        return torch.stack([self.loss(own, some) for own, some in zip(logits, rows, strict=True)])

    def weight(self, rows: Rows) -> float:
        """That of the labelled tokens. Words of invisible characters have none."""
        targets = self.token_targets[rows]
        targets = targets[targets != NO_WORD]
        return float(len(targets) if self.class_weights is None else self.class_weights.cpu().numpy()[targets].sum())

    def scores(self, logits: NDArray[np.float32], rows: Rows) -> dict[str, float]:
        """The loss at the words' first tokens, and every metric. They are NaN if a logit of a word with tokens is not finite."""
        loss = float(self._mean_of_known(torch.from_numpy(logits), self.known[rows]))
        scores = {**score(self.targets[rows], logits, self.task_type, self.labels), "loss": loss}
        return scores if self.is_finite(logits, rows) else dict.fromkeys(scores, math.nan)

    def _mean_of_known(self, logits: Tensor, targets: NDArray[np.int64]) -> Tensor:
        flat = targets.ravel()
        labelled = np.flatnonzero(flat != NO_WORD)
        positions, known = (to_device(torch.from_numpy(x), logits.device) for x in (labelled, flat[labelled]))
        return self._cross_entropy(logits.flatten(0, 1)[positions], known)

    def is_finite(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        return bool(np.isfinite(logits[self.known[rows] != NO_WORD]).all())

    def is_degenerate(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        targets = self.known[rows]
        targets = targets[targets != NO_WORD]
        return is_constant(logits, self.task_type) and bool((targets != targets[:1]).any())


def _continued(labels: Sequence[str]) -> list[int]:
    """The index of the tag that a word's later tokens have: ``I-person`` for ``B-person``, if there is such a tag."""
    index = {label: n for n, label in enumerate(labels)}
    return [index.get(INSIDE + tag.removeprefix(BEGIN), n) if tag.startswith(BEGIN) else n for tag, n in index.items()]
