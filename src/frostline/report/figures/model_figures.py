"""Figures of the recommended model: whether its probabilities are right, and its predictions of numbers."""

from typing import Any

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import NDArray

from frostline.report.figures.drawing import DASHED, QUIET, STYLE, TRAIN, VALIDATION, figure_of
from frostline.report.formatting import score
from frostline.statistics.answer import Calibration
from frostline.statistics.inference import failure_interval


def reliability(calibration: Calibration) -> Figure:
    """Accuracy over mean confidence in each bin, before and after temperature scaling, with the line where both are equal.

    The bars are Clopper-Pearson intervals (95 %) of the accuracy. ``calibration`` is that of answer.json.
    """
    before, after = calibration.before, calibration.after
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(420, 420)
        lowest = min(min(*part.confidence, *part.accuracy) for part in (before, after))
        axes.plot([lowest, 1], [lowest, 1], **DASHED)
        for part, name, colour, marker in (
            (before, "as trained", VALIDATION, "o"),
            (after, "with temperature (cross-fitted)", TRAIN, "s"),
        ):
            label = f"{name}: error {score(part.error)}"
            axes.plot(part.confidence, part.accuracy, marker, color=colour, markersize=6, label=label)
            for confidence, accuracy, count in zip(part.confidence, part.accuracy, part.texts, strict=True):
                ends = failure_interval(round(accuracy * count), count)
                axes.plot([confidence] * 2, ends, color=colour, alpha=0.3, linewidth=1)
        axes.set_xlabel("mean probability of the predicted class")
        axes.set_title("accuracy", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.legend(loc="outside lower left")
        figure.set_label(
            f"Accuracy over mean probability of the predicted class. Expected calibration error {score(before.error)} as "
            f"trained, {score(after.error)} with a cross-fitted temperature."
        )
    return figure


def predictions_over_targets(targets: NDArray[Any], predictions: NDArray[Any]) -> Figure:
    """Predicted over true values ``[examples]``, with the line where both are equal."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(420, 400)
        ends = [float(min(targets.min(), predictions.min())), float(max(targets.max(), predictions.max()))]
        axes.plot(ends, ends, **DASHED)
        axes.plot(targets, predictions, "o", color=VALIDATION, markersize=4, alpha=0.4, markeredgewidth=0)
        axes.set_xlabel("true")
        axes.set_title("predicted", pad=10)
        axes.grid(color=QUIET, alpha=0.18, linewidth=0.8)
        figure.set_label(f"Predicted over true values of {len(targets):,} validation examples.")
    return figure
