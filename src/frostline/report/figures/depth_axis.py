"""The axis over the number of tuned layers: where each k stands and how it is labelled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from frostline.report.names import depth
from frostline.statistics.cells import FULL, NAMED

Cell = Mapping[str, Any]
APART = (FULL, NAMED)  # drawn to the right of the last k
MAX_LABELS = 9  # tick labels; of more k only some are labelled


def positions(cells: Sequence[Cell]) -> list[float]:
    """The position of each k: its number of layers; full fine-tuning and named parts stand apart at the right."""
    layers = [cell["tuned_layers"] for cell in cells if cell["trainable"] not in APART]
    last, step = max(layers, default=0), max(1.0, (max(layers, default=0) - min(layers, default=0)) / 6)
    apart = [cell["trainable"] for cell in cells if cell["trainable"] in APART]
    beyond = {name: last + 1.5 * step * (n + bool(layers)) for n, name in enumerate(apart)}
    return [float(beyond[cell["trainable"]] if cell["trainable"] in APART else cell["tuned_layers"]) for cell in cells]


def smallest_step(places: Sequence[float]) -> float:
    """The smallest distance between two positions."""
    return float(np.diff(sorted(places)).min()) if len(places) > 1 else 1.0


def draw_depth_axis(axes: Axes, cells: Sequence[Cell], places: Sequence[float], label: str) -> None:
    """Label the x axis with k; without a ``label`` the tick labels are empty too."""
    every = -(-len(cells) // MAX_LABELS)
    shown = [n for n, cell in enumerate(cells) if n % every == 0 or cell["trainable"] in APART]
    labels = [depth(cells[n]["trainable"]) for n in shown]
    axes.set_xticks([places[n] for n in shown], labels if label else [""] * len(labels))
    margin = 0.6 if len(places) > 1 else 2.0
    axes.set_xlim(min(places) - margin, max(places) + margin)
    axes.set_xlabel(label)
