"""Figures over several tasks and train sizes: relative change over frozen layers, learning curves with every run."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from frostline.report import formatting
from frostline.report.figures.drawing import FAILED, QUIET, STYLE, TRAIN, VALIDATION

MODELS = (VALIDATION, TRAIN, FAILED, "#4a8f5b", "#8b6fb0", "#7d7d7d")  # a colour each
MARKS = ("o", "s", "^", "D", "v", "P")
Group = Mapping[str, Any]  # a model on a task, as an analysis has it


def relative_change(groups: Sequence[Group], *, columns: int = 3) -> Figure | None:
    """Mean of each k less full's mean, in points, over the number of frozen first layers; a panel a task, a line a model.

    A bar is the 95 % interval of the difference. Full stands at -1, by itself: nothing frozen, not even the embeddings.
    After Lee, Tang and Lin 2019, Figure 1. None where no task has full and another k.
    """
    shown = [group for group in groups if _changes(group)]
    tasks = list(dict.fromkeys(group["task"] for group in shown))
    models = list(dict.fromkeys(group["model"] for group in shown))
    if not tasks:
        return None
    columns = min(columns, len(tasks))
    rows = -(-len(tasks) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(300 * columns / 72, (210 * rows + 50) / 72), dpi=72)
        figure.patch.set_alpha(0)
        for n, task in enumerate(tasks):
            axes = figure.add_subplot(rows, columns, n + 1)
            for group in (group for group in shown if group["task"] == task):
                _line(axes, group, models.index(group["model"]))
            axes.axhline(0, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
            axes.set_title(f"{task}, {formatting.metric(next(g['metric'] for g in shown if g['task'] == task))}", pad=8)
            axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
            axes.spines["left"].set_visible(False)
            if n >= len(tasks) - columns:
                axes.set_xlabel("frozen first layers")
        handles, labels = _every(figure)
        figure.legend(handles, labels, loc="outside lower left", ncols=min(4, len(models)))
        figure.set_label(_in_words(shown))
    return figure


def _changes(group: Group) -> list[tuple[int, Mapping[str, Any]]]:
    """Frozen layers, and what k lacks to full, of the largest train size; head only is all layers frozen."""
    size = group["sizes"][0]
    if not size["reference_is_full"] or not group["layers"]:
        return []
    return [
        (group["layers"] - cell["tuned_layers"], cell["difference"])
        for cell in size["cells"]
        if cell["trainable"].startswith("last") and cell["difference"]
    ]


def _line(axes: Axes, group: Group, number: int) -> None:
    colour, mark = MODELS[number % len(MODELS)], MARKS[number % len(MARKS)]
    points = sorted(_changes(group), key=lambda point: point[0])
    axes.plot([-1], [0.0], color=colour, marker=mark, markersize=4)  # full, not joined to the rest
    axes.plot(
        [x for x, _ in points],
        [100 * difference["estimate"] for _, difference in points],
        **{"color": colour, "marker": mark, "markersize": 4, "linewidth": 1.4, "label": group["model"]},
    )
    for x, difference in points:
        if difference["low"] is not None:
            ends = [100 * difference["low"], 100 * difference["high"]]
            axes.plot([x, x], ends, color=colour, linewidth=3, alpha=0.25, solid_capstyle="butt")


def _every(figure: Figure) -> tuple[list[Any], list[str]]:
    """The lines of all panels for one legend, a model once."""
    found = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    return list(found.values()), list(found)


def _in_words(groups: Sequence[Group]) -> str:
    parts = []
    for group in groups:
        lowest = min(_changes(group), key=lambda change: change[1]["estimate"])
        parts.append(f"{group['model']} on {group['task']} {100 * lowest[1]['estimate']:.1f} with {lowest[0]} frozen")
    return f"Relative change in points over frozen layers; the lowest of each line: {'; '.join(parts)}."


def learning_curves(group: Group) -> Figure:
    """Validation score over train size: a point for every run, a line through the means of each k, a cross for a failed
    run."""
    sizes = sorted(group["sizes"], key=lambda size: size["train_size"])
    names = list(dict.fromkeys(cell["trainable"] for size in reversed(sizes) for cell in size["cells"]))
    ramp = LinearSegmentedColormap.from_list("k", [VALIDATION, "#8b7d9b", TRAIN])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(600 / 72, 430 / 72), dpi=72)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        for n, name in enumerate(names):
            colour = ramp(n / max(1, len(names) - 1))
            aside = 1.035 ** (n - (len(names) - 1) / 2)  # so that runs of two k do not hide each other
            known = [(size["train_size"], cell) for size in sizes if (cell := formatting.cell_of(size, name))]
            for x, cell in known:
                for point in cell["points"]:
                    if point["validation_best"] is not None:
                        failed = not point["in_mean"]
                        look: dict[str, Any] = {"color": FAILED if failed else colour, "marker": "x" if failed else "o"}
                        axes.plot([x * aside], [point["validation_best"]], markersize=4, alpha=0.45, **look)
            means = [
                (x * aside, cell["validation"]["mean"]) for x, cell in known if cell["validation"]["mean"] is not None
            ]
            axes.plot(
                [x for x, _ in means],
                [y for _, y in means],
                color=colour,
                linewidth=1.8,
                label=formatting.trainable(name),
            )
        if group["chance"] is not None:
            axes.axhline(group["chance"], color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        axes.set_xscale("log")
        ticks = [size["train_size"] for size in sizes]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("training examples")
        axes.set_title(f"{group['task']}, {formatting.metric(group['metric'])}", pad=10)
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=4)
        figure.set_label(
            f"{formatting.metric(group['metric'])} of every run on {group['task']} over {len(sizes)} train sizes, a line through "
            "the means of each k."
        )
    return figure


def train_beside_validation(group: Group) -> Figure | None:
    """Score on training rows beside validation over k: where training goes on rising and validation does not, it
    overfits. None where train scores are not known."""
    size = group["sizes"][0]
    known = [cell for cell in size["cells"] if cell["train_last"]["mean"] is not None]
    if len(known) < 2:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(420 / 72, 340 / 72), dpi=72)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        places = range(len(known))
        for name, colour, mark, label in (
            ("train_last", TRAIN, "s", "training rows, at the end"),
            ("validation_last", VALIDATION, "o", "validation, at the end"),
        ):
            axes.plot(places, [cell[name]["mean"] for cell in known], color=colour, marker=mark, label=label)
        axes.set_xticks(list(places), [formatting.depth(cell["trainable"]) for cell in known])
        axes.set_xlabel("tuned last layers")
        axes.set_title(f"{group['task']}, {formatting.metric(group['metric'])}", pad=10)
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=2)
        figure.set_label(f"{group['metric']} on training and validation rows over tuned layers, {group['task']}.")
    return figure
