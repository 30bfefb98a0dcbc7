"""Spectrum (Hartford et al. 2024, arXiv:2406.06623): train the weight matrices with the highest signal-to-noise ratios.

The singular values of a matrix above the Marchenko-Pastur limit are its signal, the others its noise. The limit is
``sigma * (1 + sqrt(small / large))`` for a matrix with these two dimensions. There, sigma is the interquartile range of the
singular values divided by 1.349, as for a normal distribution. The ratio of both sums is divided by the largest singular value.
Matrices are ranked among those of the same kind, such as all query matrices.
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from frostline.model.anatomy import Anatomy, module_of
from frostline.model.terms import layer_number
from frostline.training.ways.way import Way

NORMAL_RANGE = 1.349  # the interquartile range of a normal distribution, in standard deviations


def with_modules(ways: Mapping[str, Way], model: nn.Module, anatomy: Anatomy) -> dict[str, Way]:
    """The ways that choose modules by their weights, with the modules that they choose in this pretrained model."""
    chosen = {name: way for name, way in ways.items() if way.chooses_by_weights}
    if not chosen:
        return {}
    ratios = {
        name: signal_to_noise(p)
        for name, p in model.named_parameters()
        if name in anatomy.matrices and layer_number(anatomy.places[name]) is not None
    }
    return {name: way.model_copy(update={"modules": _top(ratios, way.signal_share)}) for name, way in chosen.items()}


@torch.no_grad()
def signal_to_noise(matrix: Tensor) -> float:
    """The ratio by which matrices are ranked; infinite if all singular values are signal."""
    values = torch.linalg.svdvals(matrix.float())
    lower, upper = torch.quantile(values, torch.tensor([0.25, 0.75], device=values.device)).tolist()
    small, large = sorted(matrix.shape)
    limit = (upper - lower) / NORMAL_RANGE * (1 + math.sqrt(small / large))
    signal, noise = float(values[values > limit].sum()), float(values[values <= limit].sum())
    return signal / noise / float(values[0]) if noise else math.inf


def _top(ratios: Mapping[str, float], share: float) -> tuple[str, ...]:
    """The modules of this share of the matrices of each kind, at least one, with the highest ratios."""
    kinds: dict[str, list[str]] = {}
    for name in ratios:
        kinds.setdefault(re.sub(r"\.\d+\.", ".N.", name), []).append(name)
    chosen: list[str] = []
    for alike in kinds.values():
        ranked = sorted(alike, key=lambda name: -ratios[name])
        chosen += ranked[: max(1, round(share * len(ranked)))]
    return tuple(sorted(map(module_of, chosen)))
