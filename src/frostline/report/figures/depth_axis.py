"""The axis of tuned layers: the position and the label of each k."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from frostline.report.names import depth
from frostline.statistics.cells import CellSummary
from frostline.statistics.tune import FULL, NAMED, is_way

APART = (FULL, NAMED)  # drawn to the right of the largest number of layers
MAX_LABELS = 9  # with more k, only some of them are labelled


def on_axis(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """The cells that have a place on the axis, which other ways to tune have not."""
    return [cell for cell in cells if not is_way(cell["trainable"])]


def positions(cells: Sequence[CellSummary]) -> list[float]:
    """The position of each k: its number of layers. Full fine-tuning and named parts have their own places at the right."""
    layers = [cell["tuned_layers"] for cell in cells if cell["trainable"] not in APART]
    last, step = max(layers, default=0), max(1.0, (max(layers, default=0) - min(layers, default=0)) / 6)
    apart = [cell["trainable"] for cell in cells if cell["trainable"] in APART]
    beyond = {name: last + 1.5 * step * (n + bool(layers)) for n, name in enumerate(apart)}
    return [float(beyond[cell["trainable"]] if cell["trainable"] in APART else cell["tuned_layers"]) for cell in cells]


def smallest_step(places: Sequence[float]) -> float:
    """The smallest distance between two positions."""
    return float(np.diff(sorted(places)).min()) if len(places) > 1 else 1.0


def draw_depth_axis(axes: Axes, cells: Sequence[CellSummary], places: Sequence[float], label: str) -> None:
    """Label the x axis with k. An empty ``label`` makes the tick labels empty too."""
    every = -(-len(cells) // MAX_LABELS)
    shown = [n for n, cell in enumerate(cells) if n % every == 0 or cell["trainable"] in APART]
    labels = [depth(cells[n]["trainable"]) for n in shown]
    axes.set_xticks([places[n] for n in shown], labels if label else [""] * len(labels))
    margin = 0.6 if len(places) > 1 else 2.0
    axes.set_xlim(min(places) - margin, max(places) + margin)
    axes.set_xlabel(label)
