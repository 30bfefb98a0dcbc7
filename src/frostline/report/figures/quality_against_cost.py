"""The figure of quality against cost: every choice with the 95 % interval of its score, the recommended one marked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from frostline.report import formatting, names
from frostline.report.figures.drawing import DASHED, QUIET, STYLE, VALIDATION, draw_frame, figure_of
from frostline.statistics.answer import Choice, Decision, SizeAnswer
from frostline.statistics.metrics import METRICS
from frostline.statistics.recipe import FULL, Recipe
from frostline.statistics.run_result import ALTERNATIVES

WIDTH, HEIGHT = 470, 420  # pixels, with short labels; on a phone the text is still readable
LINE, LETTER = 14, 6.1  # height of a line of labels and width of a letter, in pixels
LEGEND_LINE = 17  # height of a line of the legend, in pixels
SHADE = 22  # half of the width of the shade behind the recommended choice, in pixels
SMALLEST = 0.01  # difference of two costs that is drawn in proportion
MEASURED: dict[str, Any] = {"marker": "_", "markersize": 13, "markeredgewidth": 1.6, "linewidth": 0}
FAR = 1.2  # a free choice this many spreads below the others is drawn at the lower edge


@dataclass(frozen=True)
class Mark:
    """A choice as it is drawn.

    Attributes:
        choice: What it is a mark of.
        x: The position.
        low, high: The 95 % interval of the expected score, compared with full fine-tuning; None for full fine-tuning itself.
        kind: ``chosen``, ``dominated`` or ``other``.
    """

    choice: Choice
    x: float
    low: float | None
    high: float | None
    kind: str

    @property
    def name(self) -> Recipe:
        """``last 2``, ``full``, ``probe``."""
        return self.choice.choice


def quality_against_cost(curve: SizeAnswer, *, metric: str) -> Figure | None:
    """The score of every choice of one train size over its cost; None if nothing is recommended, or if no k has a score.

    A dot is an expected score, a bar is the 95 % interval of the difference from full fine-tuning's expected score, added to it.
    A short line across is a measured mean.

    Args:
        curve: One train size of an answer.
        metric: The name of the metric in results.
    """
    if not curve.choices or curve.decision is None or curve.decision.reference is None:
        return None
    found = METRICS.get(metric)
    drawn = marks(curve, found.lowest if found and found.bounded else -math.inf)
    reference = next(mark for mark in drawn if mark.name == curve.decision.reference)
    whole, word = names.whole(curve), names.mark_of_choice(curve.decision)
    expected = f"{_named(reference.name)}: {formatting.score(reference.choice.expected)}"
    differ = any(choice.comparable != choice.score for choice in curve.choices)
    handles = _legend(drawn, word, expected, f"measured mean{', without the effects of folds' if differ else ''}")
    columns = 1 if differ or reference.name.epochs else 2
    labels, upright = _labels(drawn)
    height = HEIGHT + LEGEND_LINE * (len(handles) / columns - 3)
    height += LETTER * max(map(len, labels)) - 2 * LINE if upright else 0
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(WIDTH, round(height))
        low, high = limits(drawn)
        axes.set_ylim(low, high)
        axes.axhline(reference.choice.expected, **DASHED, zorder=1)
        for mark in drawn:
            _draw(axes, mark, low, high)
        _draw_costs(axes, drawn, labels, whole, upright=upright)
        half = min(0.45, SHADE / _unit(drawn))
        for mark in (mark for mark in drawn if mark.kind == "chosen"):
            axes.axvspan(mark.x - half, mark.x + half, color=VALIDATION, alpha=0.12, linewidth=0)
            if mark.choice.expected >= low:
                place: dict[str, Any] = {"xytext": (0, -2), "textcoords": "offset points", "ha": "center", "va": "top"}
                axes.annotate(word, (mark.x, high), **place, weight="bold")
        draw_frame(axes, names.metric(metric))
        figure.legend(handles=handles, loc="outside lower left", ncols=columns)
        figure.set_label(_alt_text(drawn, metric, whole, word))
    return figure


def marks(curve: SizeAnswer, lowest: float = -math.inf) -> list[Mark]:
    """Every choice in ascending order of its cost. Choices of equal cost stand side by side. No score is below ``lowest``."""
    decision, choices = curve.decision, sorted(curve.choices, key=lambda choice: choice.cost_of_full)
    assert decision is not None
    full = next(choice.expected for choice in choices if choice.choice == decision.reference)
    return [
        Mark(choice, x, *_interval(choice, full, lowest), _kind(choice, decision))
        for choice, x in zip(choices, _places(choices), strict=True)
    ]


def _places(choices: Sequence[Choice]) -> list[float]:
    """Positions in proportion to the costs, which ascend, in units of the smallest difference of at least 1 %.

    Choices of equal cost are one unit apart. Names that are no number need more space. If a line of text does not fit into a
    unit, the distances are nearer to equal ones.
    """
    costs = [choice.cost_of_full for choice in choices]
    gaps = [after - before for before, after in pairwise(costs)]
    unit, widest = min((gap for gap in gaps if gap >= SMALLEST), default=1.0), max(gaps, default=0.0)
    while True:
        places = [0.0]
        for before, gap in zip(choices, gaps, strict=False):
            places.append(places[-1] + max(1.6 if before.choice in ALTERNATIVES else 1.0, gap / unit))
        if unit >= widest or _pixels(places[-1]) >= LINE:
            return places
        unit *= 1.1


def _interval(choice: Choice, full: float, lowest: float) -> tuple[float | None, float | None]:
    """The ends of the interval in the metric; the choice has the points that it is below full fine-tuning."""
    least, most = choice.low, choice.high
    if least == most:
        return None, None
    return max(lowest, full - most / 100), min(1.0, full - least / 100)  # no metric exceeds 1


def _kind(choice: Choice, decision: Decision) -> str:
    if choice.choice == decision.choice:
        return "chosen"
    return "dominated" if choice.dominated_by else "other"


def limits(drawn: Sequence[Mark]) -> tuple[float, float]:
    """Limits of the score. A free choice far below all others does not count, so that differences remain visible."""
    counted = [mark for mark in drawn if mark.choice.cost_of_full > 0 or mark.kind == "chosen"] or list(drawn)
    low, high = _ends(counted)
    spread = max(high - low, 0.05)
    low, high = _ends([mark for mark in drawn if mark in counted or mark.choice.expected > low - FAR * spread])
    spread = max(high - low, 0.02)
    return low - 0.08 * spread, high + 0.16 * spread  # room for the word above the chosen one


def _ends(drawn: Sequence[Mark]) -> tuple[float, float]:
    ends = [
        end
        for mark in drawn
        for end in (mark.choice.comparable, mark.choice.expected, mark.low, mark.high)
        if end is not None
    ]
    return min(ends), max(ends)


def _draw(axes: Axes, mark: Mark, low: float, high: float) -> None:
    """Draw a choice, with its expected score beside it if that is below the lower limit of the figure."""
    colour = QUIET if mark.kind == "dominated" else VALIDATION
    chosen = mark.kind == "chosen"
    if mark.low is not None and mark.high is not None:
        ends = [max(low, mark.low), max(low, mark.high)]
        axes.plot([mark.x, mark.x], ends, color=colour, linewidth=7, alpha=0.3, solid_capstyle="butt")
    if mark.choice.expected < low:
        axes.plot(mark.x, low, "v", color=colour, markersize=6, clip_on=False, zorder=3)
        text = f"{formatting.score(mark.choice.expected)}, below"
        place: dict[str, Any] = {"xytext": (6, 4), "textcoords": "offset points", "ha": "left", "va": "bottom"}
        axes.annotate(text, (mark.x, low), **place, fontsize=10, rotation=90)
        return
    axes.plot(mark.x, mark.choice.expected, "o", color=colour, markersize=10 if chosen else 5.5, zorder=3)
    axes.plot(mark.x, mark.choice.comparable, **MEASURED, color=colour, zorder=4)


def _labels(drawn: Sequence[Mark]) -> tuple[list[str], bool]:
    """The name and the cost of each choice; and whether they stand upright, because they are too many side by side."""
    labels, pixels = [f"{names.depth(mark.name)}\n{_cost(mark.choice.cost_of_full)}" for mark in drawn], _unit(drawn)
    widths = [max(map(len, label.split("\n"))) for label in labels]
    needed = [LETTER * (one + two) / 2 + 1 for one, two in pairwise(widths)]
    if all(need < pixels * (after.x - before.x) for need, (before, after) in zip(needed, pairwise(drawn), strict=True)):
        return labels, False
    return [f"{_named(mark.name)}, {_cost(mark.choice.cost_of_full)}" for mark in drawn], True


def _draw_costs(axes: Axes, drawn: Sequence[Mark], labels: Sequence[str], whole: str, *, upright: bool) -> None:
    """Label the x axis. The cost is a share of ``whole``: all layers, or those that the reference tunes."""
    places = [mark.x for mark in drawn]
    axes.set_xlim(places[0] - 0.7, places[-1] + 0.7)
    every = max(1, round(LINE / _unit(drawn))) if upright else 1
    shown = [n for n, mark in enumerate(drawn) if n % every == 0 or mark.kind == "chosen"]
    axes.set_xticks([places[n] for n in shown], [labels[n] for n in shown], rotation=90 if upright else 0, fontsize=10)
    ways = any(mark.name.is_way and mark.name not in ALTERNATIVES for mark in drawn)
    subject = "what is tuned, and its share" if ways else "tuned last layers, and their share"
    if any(mark.name.epochs for mark in drawn):
        subject = "what is tuned, and its layers times epochs as a share"
    axes.set_xlabel(f"{subject}\nof {whole} (the cost)")


def _unit(drawn: Sequence[Mark]) -> float:
    """The pixels of one unit of the x axis."""
    return _pixels(drawn[-1].x - drawn[0].x)


def _pixels(units: float) -> float:
    """The pixels of one unit of an x axis with so many between the first and the last choice."""
    return 0.9 * WIDTH / (units + 1.4)


def _cost(share: float) -> str:
    return f"{100 * share:.0f} %"


def _named(name: str) -> str:
    return "full fine-tuning" if name == FULL else names.printed(name)


def _legend(drawn: Sequence[Mark], chosen: str, reference: str, measured: str) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=VALIDATION, marker="o", markersize=9, linewidth=0, label=f"{chosen}: expected score")
    ]
    if any(mark.kind == "other" for mark in drawn):
        handles.append(Line2D([], [], color=VALIDATION, marker="o", markersize=5.5, linewidth=0, label="other choice"))
    if any(mark.kind == "dominated" for mark in drawn):
        label = "dominated: another is as good for less"
        handles.append(Line2D([], [], color=QUIET, marker="o", markersize=5.5, linewidth=0, label=label))
    handles.append(Patch(color=VALIDATION, alpha=0.3, linewidth=0, label="95 % interval"))
    handles.append(Line2D([], [], color=VALIDATION, label=measured, **MEASURED))
    handles.append(Line2D([], [], **DASHED, label=reference))
    return handles


def _alt_text(drawn: Sequence[Mark], metric: str, whole: str, word: str) -> str:
    """Every choice in words, for screen readers."""
    parts = []
    for mark in drawn:
        interval = "" if mark.low is None else f" ({formatting.interval(mark.low, mark.high)})"
        kind = {"other": "", "chosen": f", {word}"}.get(mark.kind, f", {mark.kind}")
        expected, measured = map(formatting.score, (mark.choice.expected, mark.choice.comparable))
        scores = f"{expected}{interval}, measured {measured}"
        parts.append(f"{_named(mark.name)} {scores}, at {_cost(mark.choice.cost_of_full)}{kind}")
    return (
        f"Expected {names.metric(metric)} of every choice (95 % interval) at its share of {whole}: {'; '.join(parts)}."
    )
