"""The figure of predicted over true values of a regression."""

from typing import Any

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import NDArray

from frostline.report.figures.style import QUIET, STYLE, VALIDATION, figure_of


def predictions_over_targets(targets: NDArray[Any], predictions: NDArray[Any]) -> Figure:
    """Predicted over true values ``[examples]``, with the line where both are equal."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(420, 400)
        ends = [float(min(targets.min(), predictions.min())), float(max(targets.max(), predictions.max()))]
        axes.plot(ends, ends, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        axes.plot(targets, predictions, "o", color=VALIDATION, markersize=4, alpha=0.4, markeredgewidth=0)
        axes.set_xlabel("true")
        axes.set_title("predicted", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.set_label(f"Predicted over true values of {len(targets):,} validation examples.")
    return figure
