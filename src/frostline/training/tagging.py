"""The learning problem of token classification: a tag for each word of a sentence.

Shapes: N rows of the pool, B rows of a batch, K runs, T tokens of a batch, W words and P labelled tokens of a sentence, C tags.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.specification import TOKENS
from frostline.data.tags import BEGIN, INSIDE, NO_WORD
from frostline.frozen.batches import Rows
from frostline.model.device import to_device
from frostline.model.tokens import Tokens
from frostline.statistics.metrics import is_constant, score
from frostline.training.problem import Problem


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
