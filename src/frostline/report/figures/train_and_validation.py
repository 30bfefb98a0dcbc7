"""The figure of training scores beside validation scores over k, which shows overfitting."""

import matplotlib
from matplotlib.figure import Figure

from frostline.report import names
from frostline.report.answer.across_groups import GroupAnalysis
from frostline.report.figures.style import STYLE, TRAIN, VALIDATION, draw_frame, figure_of


def train_and_validation(group: GroupAnalysis) -> Figure | None:
    """Mean scores on train and validation over k after the last epoch, for one model and task of an analysis.

    The model overfits where the training score rises with k but the validation score does not. None if fewer than two k have
    training scores.
    """
    cells = [cell for cell in group["sizes"][0]["cells"] if cell["train_last"]["mean"] is not None]
    if len(cells) < 2:
        return None
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = figure_of(420, 340)
        places = range(len(cells))
        for name, colour, mark, label in (
            ("train_last", TRAIN, "s", "train, last epoch"),
            ("validation_last", VALIDATION, "o", "validation, last epoch"),
        ):
            axes.plot(places, [cell[name]["mean"] for cell in cells], color=colour, marker=mark, label=label)
        axes.set_xticks(list(places), [names.depth(cell["trainable"]) for cell in cells])
        axes.set_xlabel("tuned last layers")
        draw_frame(axes, f"{group['task']}, {names.metric(group['metric'])}")
        figure.legend(loc="outside lower left", ncols=2)
        figure.set_label(f"{names.metric(group['metric'])} on train and validation over tuned layers, {group['task']}.")
    return figure
