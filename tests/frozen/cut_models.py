"""Helpers for tests of the cut: hidden states at every cut, gradients, and relative differences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from frostline.frozen.cut import cut_at
from frostline.model.anatomy import Anatomy
from frostline.model.packing import Packing, packable

LAYERS = 4  # of a small model


@contextmanager
def packing_for(model: Any, batches: str) -> Iterator[Packing | None]:
    """The packing of ``model`` if ``batches`` is "packed"; None if it is "padded"."""
    with packable(model) if batches == "packed" else nullcontext() as packing:
        assert batches == "padded" or packing
        yield packing


def states_by_cut(
    model: Any, anatomy: Anatomy, batch: Mapping[str, Tensor], packing: Packing | None = None
) -> dict[int, Tensor]:
    """Hidden states of the batch after 0 .. L layers, ``[1, T, D]`` each, from a forward pass over the same batch."""
    seen: dict[int, Tensor] = {}
    mask = batch["attention_mask"].bool()

    def tap(cut: int, hidden: Tensor) -> None:
        seen[cut] = hidden[:, : int(mask.sum())] if packing else hidden[mask][None]

    with torch.no_grad(), cut_at(model, anatomy, None, packing=packing, tap=tap) as whole:
        whole(batch)
    return seen


def train_only(model: Any, names: Set[str]) -> dict[str, Tensor]:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return {name: p for name, p in model.named_parameters() if name in names}


def loss_of(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)) % 3)


def logits_and_gradients(logits: Tensor, trained: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    gradients = torch.autograd.grad(loss_of(logits), list(trained.values()))
    return logits.detach(), dict(zip(trained, gradients, strict=True))


def largest_difference(actual: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest difference, relative to the largest expected value."""
    pairs: Sequence[tuple[Tensor, Tensor]] = list(zip(actual, expected, strict=True))
    return float(max((a - b).abs().max() for a, b in pairs) / max(b.abs().max() for _, b in pairs))
