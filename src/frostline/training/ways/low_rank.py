"""LoRA (Hu et al. 2022, arXiv:2106.09685): each weight matrix gets an update of low rank, which alone is trained.

The weight in the model is always ``W = W0 + scale * up @ down``. After a backward pass, the chain rule turns its gradient G
into those of the factors: ``scale * G @ down.T`` and ``scale * up.T @ G``. No module is replaced. The cut, packed batches and
the saved model are therefore the same as without LoRA. The result equals that of PEFT, with its LoRA dropout off, except for
rounding.

Shapes: W ``[out, in]``, down ``[rank, in]``, up ``[out, rank]``. A ``Conv1D`` of transformers keeps W as ``[in, out]``; its
update is transposed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from frostline.training.ways.restraint import Parameters, Untouched

UP, DOWN = ".up", ".down"  # after the name of the matrix


@dataclass(frozen=True)
class LowRank(Untouched):
    """The low-rank updates of some weight matrices.

    Attributes:
        weights: The matrices in the model, by name.
        start: Their values without updates, by name.
        factors: The trained factors; their names are those of the matrices, with ``UP`` and ``DOWN``.
        transposed: The names of the matrices that are stored as ``[in, out]``.
        scale: The factor of the updates.
    """

    weights: Parameters
    start: Parameters
    factors: Parameters
    transposed: frozenset[str]
    scale: float

    def after_backward(self) -> None:
        """Set the gradients of the factors, and delete those of the matrices."""
        for name, weight in self.weights.items():
            up, down, gradient = self.factors[name + UP], self.factors[name + DOWN], weight.grad
            if gradient is None:
                continue
            if name in self.transposed:
                gradient = gradient.T
            up.grad, down.grad = self.scale * gradient @ down.T.detach(), self.scale * up.T.detach() @ gradient
            weight.grad = None

    @torch.no_grad()
    def after_step(self) -> None:
        """Add the updates to the matrices."""
        for name, weight in self.weights.items():
            up, down = self.factors[name + UP], self.factors[name + DOWN]
            if name in self.transposed:
                up, down = down.T, up.T
            torch.addmm(self.start[name], up, down, alpha=self.scale, out=weight.data)


def factors_of(weights: Parameters, transposed: frozenset[str], rank: int, seed: int) -> dict[str, Tensor]:
    """New factors for these matrices: ``up`` is zero, ``down`` is uniform as PEFT's, so that training starts at W0."""
    random = torch.Generator().manual_seed(seed)
    factors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        (down, up), device = shapes(weight, name in transposed, rank), weight.device
        limit = 1 / math.sqrt(down[1])  # nn.init.kaiming_uniform_ with a = sqrt(5)
        values = torch.empty(down).uniform_(-limit, limit, generator=random)
        factors[name + UP] = nn.Parameter(torch.zeros(up, device=device))
        factors[name + DOWN] = nn.Parameter(values.to(device))
    return factors


def shapes(weight: Tensor, transposed: bool, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of ``down`` and ``up`` for a matrix."""
    out, width = reversed(weight.shape) if transposed else weight.shape
    return (rank, width), (out, rank)


def matrix_of(name: str) -> str:
    """The name of the matrix that a factor belongs to; the name of any other parameter itself."""
    return name.removesuffix(UP).removesuffix(DOWN)


def planned_factors(weights: Parameters, transposed: frozenset[str], rank: int) -> Iterator[tuple[str, Tensor]]:
    """The factors without values, for a plan."""
    for name, weight in weights.items():
        down, up = shapes(weight, name in transposed, rank)
        yield name + UP, torch.empty(up, device="meta")
        yield name + DOWN, torch.empty(down, device="meta")
