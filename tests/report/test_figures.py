"""Figures: what they draw, and their files."""

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.report.figures.drawing import save_figures, svg
from frostline.report.figures.model_figures import predictions_over_targets
from frostline.report.figures.score_figures import learning_curves, validation_curve
from pages import answer_of, page_of
from synthetic_sweep import make_folder

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer of a sweep with two failed runs of k = 2."""
    out = tmp_path_factory.mktemp("figures") / "out"
    return answer_of(make_folder(out, tune=(0, 2, "full"), seeds=4, diverged=[(2, 1)], degenerate=[(2, 2)]))


def test_svg_is_safe_to_inline(answer: dict[str, Any]) -> None:
    size = answer["sizes"][0]
    curve = validation_curve(size, metric="accuracy", chance=answer["chance"])
    one, two = svg(curve), svg(learning_curves([size], metric="accuracy"))
    assert one == svg(validation_curve(size, metric="accuracy", chance=answer["chance"]))
    assert one.startswith("<svg role") and "<?xml" not in one and "dc:date" not in one
    assert not set(re.findall(r'\bid="([^"]+)"', one)) & set(re.findall(r'\bid="([^"]+)"', two))
    assert set(re.findall(r"url\(#([^)]+)\)", one)) <= set(re.findall(r'\bid="([^"]+)"', one))
    assert "var(--figure-failed, #d1495b)" in one and "Recommended" in html.unescape(one)
    curve.set_label('<script>"')
    assert 'aria-label="&lt;script&gt;&quot;"' in svg(curve)


def test_files_have_the_same_bytes_every_time(answer: dict[str, Any], tmp_path: Path) -> None:
    def saved() -> tuple[str, list[bytes]]:
        of_page = save_figures(tmp_path, {"curve": validation_curve(answer["sizes"][0], metric="accuracy")})
        return of_page["curve"], [(tmp_path / f"figures/curve.{kind}").read_bytes() for kind in ("svg", "png", "pdf")]

    of_page, first = saved()
    assert first[0].decode() == of_page + "\n" and all(first) and (of_page, first) == saved()
    assert len(list((tmp_path / "figures").iterdir())) == 3
    assert b"/CIDFontType2" in first[2] and b"/Type3" not in first[2] and b"CreationDate" not in first[2]


def test_the_validation_curve_shows_every_run(answer: dict[str, Any]) -> None:
    (axes,) = validation_curve(answer["sizes"][0], metric="accuracy").axes
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks.count("x") == 2
    runs = {tuple(line.get_ydata()) for line in axes.lines if line.get_markersize() == 4 and line.get_marker() == "o"}
    good = [p for cell in answer["sizes"][0]["cells"] for p in cell["points"] if p["outcome"] == "ok"]
    assert runs == {(p["validation_best"],) for p in good} and len(good) == 10


def test_learning_curves_join_means_and_show_every_run(answer: dict[str, Any]) -> None:
    curve = answer["sizes"][0]
    (axes,) = learning_curves([curve, {**curve, "train_size": 100}], metric="accuracy", chance=0.5).axes
    lines = [line for line in axes.lines if line.get_linewidth() == 1.8]
    assert [len(line.get_xdata()) for line in lines] == [2, 2, 2] and axes.get_xscale() == "log"
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    scored = [p for cell in curve["cells"] for p in cell["points"] if p["validation_best"] is not None]
    assert len(marks) == 2 * len(scored) and marks.count("x") == 2 * sum(not p["in_mean"] for p in scored)


def test_predictions_over_targets() -> None:
    (axes,) = predictions_over_targets(np.array([1.0, 2.0]), np.array([1.5, 1.5])).axes
    assert axes.lines[1].get_xdata().tolist() == [1.0, 2.0]


def test_named_parts_have_their_own_place(tmp_path: Path) -> None:
    """Although they cost as much as some k, they have a separate row and point, and they cannot be recommended."""
    out = make_folder(tmp_path / "out", tune=(0, 3, "full", "named"), tune_modules=("layer.3", "layer.5"), seeds=2)
    page, size = page_of(out), answer_of(out)["sizes"][0]
    assert page.words.count("named") > 3 and "layers 4 and 6, head" in page.words
    assert [cell["tuned_layers"] for cell in size["cells"]] == [0, 3, 6, 3]
    (axes,) = validation_curve(size, metric="accuracy").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "full", "named"]
    ticks = list(axes.get_xticks())
    assert ticks == sorted(set(ticks)) and ticks[2] - ticks[1] == ticks[3] - ticks[2]
    lines = [list(line.get_xdata()) for line in axes.lines if (line.get_marker(), line.get_markersize()) == ("o", 6)]
    assert lines == [ticks[:2], ticks[2:3], ticks[3:]]
