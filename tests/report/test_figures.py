"""Figures: what they draw, and their files."""

import html
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.report.figures.drawing import save_figures, svg
from frostline.report.figures.quality_against_cost import HEIGHT, LINE, WIDTH, limits, marks, quality_against_cost
from frostline.report.figures.score_figures import learning_curves, validation_curve
from frostline.statistics.answer import Answer
from frostline.statistics.recipe import FULL, Recipe
from pages import answer_of, page_of
from synthetic_sweep import make_folder

pytestmark = pytest.mark.usefixtures("real_figures")

MEASURED_HIGHER = 0.005  # how far measured means lie above the expected scores


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """The answer of a sweep with two failed runs of k = 2."""
    out = tmp_path_factory.mktemp("figures") / "out"
    return answer_of(make_folder(out, tune=(0, 2, "full"), seeds=4, diverged=[(2, 1)], degenerate=[(2, 2)]))


def test_svg_is_safe_to_inline(answer: Answer) -> None:
    size = answer.sizes[0]
    curve = validation_curve(size, metric="accuracy", chance=answer.chance)
    one, two = svg(curve), svg(learning_curves([size], metric="accuracy"))
    assert one == svg(validation_curve(size, metric="accuracy", chance=answer.chance))
    assert one.startswith("<svg role") and "<?xml" not in one and "dc:date" not in one
    assert not set(re.findall(r'\bid="([^"]+)"', one)) & set(re.findall(r'\bid="([^"]+)"', two))
    assert set(re.findall(r"url\(#([^)]+)\)", one)) <= set(re.findall(r'\bid="([^"]+)"', one))
    assert "var(--figure-failed, #d1495b)" in one and "Recommended" in html.unescape(one)
    curve.set_label('<script>"')
    assert 'aria-label="&lt;script&gt;&quot;"' in svg(curve)


def test_files_have_the_same_bytes_every_time(answer: Answer, tmp_path: Path) -> None:
    def saved() -> tuple[str, list[bytes]]:
        of_page = save_figures(tmp_path, {"curve": validation_curve(answer.sizes[0], metric="accuracy")})
        return of_page["curve"], [(tmp_path / f"figures/curve.{kind}").read_bytes() for kind in ("svg", "png", "pdf")]

    of_page, first = saved()
    assert first[0].decode() == of_page + "\n" and all(first) and (of_page, first) == saved()
    assert len(list((tmp_path / "figures").iterdir())) == 3
    assert b"/CIDFontType2" in first[2] and b"/Type3" not in first[2] and b"CreationDate" not in first[2]


def test_the_validation_curve_shows_every_run(answer: Answer) -> None:
    (axes,) = validation_curve(answer.sizes[0], metric="accuracy").axes
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks.count("x") == 2
    runs = {tuple(line.get_ydata()) for line in axes.lines if line.get_markersize() == 4 and line.get_marker() == "o"}
    good = [p for cell in answer.sizes[0].cells for p in cell.points if p.outcome == "ok"]
    assert runs == {(p.validation_best,) for p in good} and len(good) == 10


def test_a_run_without_a_defined_score_is_no_failed_run(answer: Answer) -> None:
    size, outcomes = answer.sizes[0], {"diverged": "undefined"}
    cells = [
        replace(cell, points=[replace(p, outcome=outcomes.get(p.outcome or "", p.outcome)) for p in cell.points])
        for cell in size.cells
    ]
    (axes,) = validation_curve(replace(size, cells=cells), metric="accuracy").axes
    assert [line.get_marker() for line in axes.lines].count("x") == 1  # the degenerate one


def test_learning_curves_join_means_and_show_every_run(answer: Answer) -> None:
    curve = answer.sizes[0]
    (axes,) = learning_curves([curve, replace(curve, train_size=100)], metric="accuracy", chance=0.5).axes
    lines = [line for line in axes.lines if line.get_linewidth() == 1.8]
    assert [len(line.get_xdata()) for line in lines] == [2, 2, 2] and axes.get_xscale() == "log"
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    scored = [p for cell in curve.cells for p in cell.points if p.validation_best is not None]
    assert len(marks) == 2 * len(scored) and marks.count("x") == 2 * sum(p.outcome != "ok" for p in scored)


def test_named_parts_have_their_own_place(tmp_path: Path) -> None:
    """Although they cost as much as some k, they have a separate row and point, and they cannot be recommended."""
    out = make_folder(tmp_path / "out", tune=(0, 3, "full", "named"), tune_modules=("layer.3", "layer.5"), seeds=2)
    page, size = page_of(out), answer_of(out).sizes[0]
    assert page.words.count("named") > 3 and "layers 4 and 6, head" in page.words
    assert [cell.tuned_layers for cell in size.cells] == [0, 3, 6, 3]
    (axes,) = validation_curve(size, metric="accuracy").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "full", "named"]
    ticks = list(axes.get_xticks())
    assert ticks == sorted(set(ticks)) and ticks[2] - ticks[1] == ticks[3] - ticks[2]
    lines = [list(line.get_xdata()) for line in axes.lines if (line.get_marker(), line.get_markersize()) == ("o", 6)]
    assert lines == [ticks[:2], ticks[2:3], ticks[3:]]


def test_each_training_length_has_a_line_of_its_own(answer: Answer) -> None:
    cells = [
        replace(cell, recipe=cell.recipe.for_epochs(epochs)) for cell in answer.sizes[0].cells for epochs in (3.0, 10.0)
    ]
    figure = validation_curve(replace(answer.sizes[0], cells=cells), metric="accuracy")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "full"]
    lines = [
        line for line in axes.lines if (line.get_marker(), line.get_markersize()) == ("o", 6) and len(line.get_xdata())
    ]
    assert [(line.get_linestyle(), len(line.get_xdata())) for line in lines] == [
        ("-", 2),
        ("-", 1),
        ("--", 2),
        ("--", 1),
    ]
    assert not {x for line in lines[:2] for x in line.get_xdata()} & {x for line in lines[2:] for x in line.get_xdata()}
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named[:2] == ["validation, mean, 3 epochs", "validation, mean, 10 epochs"]


def known(choice: str, score: float, cost: float, half: float = 1.0, dominated_by: str | None = None) -> Any:
    """A choice of an answer; full fine-tuning is expected to score 0.9. ``half`` of its interval is in points."""
    below = 100 * (0.9 - score)
    facts = {"low": below - half, "high": below + half, "cost_of_full": cost, "dominated_by": dominated_by}
    measured = {"comparable": score + MEASURED_HIGHER, "score": score + MEASURED_HIGHER, "expected": score}
    return SimpleNamespace(choice=Recipe(choice), **facts, **measured)


def curve_of(*choices: Any, choice: str = "last 1", **decision: Any) -> Any:
    full = known(FULL, 0.9, 1.0, half=0.0)
    decided = SimpleNamespace(**{"choice": choice, "reference": FULL, "above_baseline": True, **decision})
    return SimpleNamespace(choices=[*choices, full], decision=decided)


CURVE = curve_of(
    known("words", 0.5, 0.0, dominated_by="probe"),
    known("probe", 0.86, 0.0),
    known("head only", 0.85, 0.0),
    known("last 1", 0.89, 0.25, half=2.0),
)
NEAR = curve_of(known("head only", 0.85, 0.0), known("last 1", 0.89, 0.25))


def axes_of(curve: Any, metric: str = "accuracy") -> tuple[Any, str]:
    """The axes of quality against cost, and its text for screen readers."""
    figure = quality_against_cost(curve, metric=metric)
    assert figure is not None
    return figure.axes[0], str(figure.get_label())


def test_no_interval_ends_below_the_lowest_score() -> None:
    wide = curve_of(known("head only", 0.1, 0.0, half=30.0), known("last 1", 0.89, 0.25, half=30.0))
    assert [mark.low for mark in marks(wide, 0.0)] == [0.0, pytest.approx(0.59), None]
    for metric, bottom in ("accuracy", 0.0), ("matthews_correlation", -0.2):
        assert f"({bottom:.3f}".replace("-", "\N{MINUS SIGN}") in axes_of(wide, metric)[1]


@pytest.mark.parametrize(
    ("reference", "cost", "whole"),
    [
        (FULL, 1.0, "all layers"),
        ("last 4", 1.0, "the last 4"),
        ("full for 3 epochs", 0.3, "all layers for 10 epochs"),
        ("last 2 for 10 epochs", 1.0, "the last 2 for 10 epochs"),
        ("head only for 3 epochs", 0.0, "all layers"),
    ],
)
def test_costs_are_shares_of_the_reference(reference: str, cost: float, whole: str) -> None:
    curve = curve_of(known("last 1", 0.89, 0.25), reference=Recipe(reference))
    curve.choices[-1].choice, curve.choices[-1].cost_of_full = Recipe(reference), cost
    axes, text = axes_of(curve)
    assert f"at its share of {whole}:" in text
    share = (
        "what is tuned, and its layers times epochs as a" if "epochs" in reference else "tuned last layers, and their"
    )
    assert axes.get_xlabel() == f"{share} share\nof {whole} (the cost)"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.lists(st.sampled_from(["probe", "words"]), unique=True))
def test_places_ascend_and_never_overlap(costs: list[float], free: list[str]) -> None:
    choices = [known(name, 0.8, 0.0) for name in free]
    choices += [known(f"last {n}", 0.8, cost) for n, cost in enumerate(sorted(costs))]
    drawn = marks(curve_of(*choices))
    assert all(after.x - before.x > 0.99 for before, after in pairwise(drawn))
    assert [mark.choice.cost_of_full for mark in drawn] == sorted(mark.choice.cost_of_full for mark in drawn)
    in_proportion = marks(curve_of(*(known(f"last {k}", 0.8, k / 4) for k in (0, 1, 2))))
    assert [mark.x for mark in in_proportion] == pytest.approx([0, 1, 2, 4])


def test_every_one_of_many_lengths_is_labelled_and_the_figure_is_taller() -> None:
    """Each share of layers takes two costs, so the smallest difference is a small part of the axis."""
    names = ["head only", "last 1", "last 2", "last 3", "last 4", "last 6"]
    several = [
        known(f"{name} for {epochs} epochs", 0.8, share * epochs / 10)
        for name, share in zip(names, (0.0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 1.0), strict=True)
        for epochs in (3, 10)
    ]
    figure = quality_against_cost(curve_of(*several, choice="last 2 for 3 epochs"), metric="accuracy")
    assert figure is not None and figure.get_figheight() * 72 > HEIGHT + 100
    axes = figure.axes[0]
    assert len(axes.get_xticklabels()) == len(several) + 1
    unit = 0.9 * WIDTH / np.ptp(axes.get_xlim())
    assert min(np.diff(axes.get_xticks())) * unit >= LINE - 0.5
    short = quality_against_cost(NEAR, metric="accuracy")
    assert short is not None and short.get_figheight() * 72 < HEIGHT + 40


def test_a_free_choice_far_below_does_not_hide_the_differences() -> None:
    low, high = limits(marks(CURVE))
    assert 0.5 < low < 0.84 and high > 0.91
    assert limits(marks(NEAR))[0] < 0.84  # a difference of usual size is drawn


@pytest.mark.parametrize(("above", "word"), [(True, "recommended"), (False, "best so far")])
def test_every_choice_is_drawn_labelled_and_read_aloud(above: bool, word: str) -> None:
    axes, read = axes_of(curve_of(*CURVE.choices[:-1], above_baseline=above))
    points = [line for line in axes.lines if line.get_marker() in ("o", "v")]
    assert len(points) == len(CURVE.choices)
    assert max(points, key=lambda line: line.get_markersize()).get_ydata() == [0.89]
    means = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "_"]
    assert means == pytest.approx([0.865, 0.855, 0.895, 0.905])  # one is below the figure
    assert {text.get_text() for text in axes.texts} == {"0.500, below", word}
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["TF-IDF\n0 %", "probe\n0 %", "0\n0 %", "1\n25 %", "full\n100 %"]
    assert f"last 1 0.890 (0.870 to 0.910), measured 0.895, at 25 %, {word}" in read
    assert "TF-IDF model 0.500 (0.490 to 0.510), measured 0.505, at 0 %, dominated" in read
    assert "full fine-tuning 0.900, measured 0.905, at 100 %" in read


def test_many_layers_have_upright_labels_and_the_recommended_one_is_labelled() -> None:
    many = curve_of(*(known(f"last {k}", 0.8 + k / 1000, k / 96) for k in range(97)), choice="last 17")
    labels = axes_of(many)[0].get_xticklabels()
    assert all(label.get_rotation() == 90 for label in labels) and len(labels) < 60
    assert "last 17, 18 %" in [label.get_text() for label in labels]


def test_a_real_answer_and_one_without_a_decision(answer: Answer) -> None:
    curve = answer.sizes[0]
    drawn = {mark.name: mark for mark in marks(curve)}
    assert [name for name, mark in drawn.items() if mark.kind == "chosen"] == [curve.decision.choice]
    for one in curve.choices[:-1]:
        full, mark = drawn["full"].choice.expected, drawn[one.choice]
        assert (mark.low, mark.high) == (full - one.high / 100, full - one.low / 100)
        assert mark.low < mark.choice.expected < mark.high
    assert quality_against_cost(replace(curve, decision=None, choices=[]), metric="accuracy") is None
