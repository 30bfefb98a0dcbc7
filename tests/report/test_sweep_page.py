"""The page of a sweep, from synthetic results."""

from pathlib import Path
from typing import Any

import pytest

from frostline.report import formatting
from frostline.report.pages.sweep_page import write_page
from frostline.report.pages.templates import with_flags
from frostline.sweeps.results.folder import Folder
from pages import Page, answer_of, drawn, page_of
from synthetic_sweep import HOSTILE, REASONS, make_folder


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    """A sweep with failed, missing and erroneous runs, and its page."""
    failed: dict[str, Any] = {
        "diverged": [("full", 3)],
        "degenerate": [(6, 2)],
        "missing": [(3, 4)],
        "errors": [(1, 1)],
    }
    notes = ["These texts are generated.", "text is column 'text'."]
    out = make_folder(tmp_path_factory.mktemp("troubled") / "out", seeds=5, notes=notes, **failed)
    with drawn():
        return out, page_of(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    """A small sweep whose runs are all done, and its page."""
    out = make_folder(tmp_path_factory.mktemp("whole") / "out", tune=(0, "full"), seeds=2)
    with drawn():
        return out, page_of(out)


def test_it_shows_the_answer_and_every_score(troubled: tuple[Path, Page]) -> None:
    out, page = troubled
    answer = answer_of(out)
    for sentence in answer.sentence.split(". "):
        assert formatting.unbroken(sentence.rstrip(".")) in page.text
    for cell in answer.sizes[0].cells:
        for name in ("mean", "median", "std", "min", "max"):
            assert formatting.score(getattr(cell.validation, name)) in page.text
        assert formatting.percent(cell.share_corrected.estimate).removesuffix(".0\xa0%") in page.text


def test_it_shows_failures_and_a_note_on_generated_texts(troubled: tuple[Path, Page]) -> None:
    words, answer = troubled[1].words, answer_of(troubled[0])
    assert answer.notes[0] == "These texts are generated." and not {"notes", "columns"} & answer.data.keys()
    assert words.index("These texts are generated.") < words.index("The choices compared") < words.index("The data")
    failed = "2 of 33 finished runs failed (diverged, collapsed, or predict the same for all examples)"
    trouble = f"{failed}; 1 run ended in an error; 1 run not trained yet."
    assert words.index(trouble) < words.index("Load the model") < words.index("The choices compared")
    assert failed in words and all(reason in words for reason in REASONS.values())
    assert "RuntimeError: <b>no</b> memory" in words


def test_test_scores_appear_after_the_whole_grid(troubled: tuple[Path, Page], whole: tuple[Path, Page]) -> None:
    waiting = "The test set is evaluated when every run of the grid is done"
    assert waiting in troubled[1].words and "on test (mean of" not in troubled[1].words
    assert "on test (mean of 2 seeds" in whole[1].words and "use the same data" not in whole[1].words


def test_it_opens_with_the_answer_and_the_rest_is_folded(troubled: tuple[Path, Page], whole: tuple[Path, Page]) -> None:
    for out, page in (troubled, whole):
        begin = page.words[: page.words.index("The choices compared")]
        figure = "Expected accuracy of every choice"
        assert f'"text-classification", "{out}/model"' in begin and begin.count(figure) == 1
        assert ("open", "") not in page.attributes
        assert any(name == "aria-label" and value.startswith(figure) for name, value in page.attributes)
    assert "finished runs failed (" not in whole[1].words


@pytest.mark.parametrize("folder", [{"tune": (0, 4, "full"), "seeds": 1}, {"tune": (0, 2, 4, "full"), "rows": 60}])
def test_the_next_step_is_shown_once_and_can_be_copied_if_it_is_a_command(
    tmp_path: Path, folder: dict[str, Any]
) -> None:
    out = make_folder(tmp_path / "out", **folder)
    step, page = answer_of(out).next_command, page_of(out)
    assert step is not None and step.startswith(("frostline sweep ", "the same command with --folds 5"))
    assert page.words.lower().count(step.lower()) == 1 and f"To be surer {step}".lower() in page.words.lower()
    loading = 1
    assert page.attributes.count(("class", "copy")) == loading + step.startswith("frostline")


def test_text_from_users_is_escaped(tmp_path: Path) -> None:
    texts = ("<img src=x onerror=alert(2)>", "مرحبا", "😀 {% raw %} & 'quoted' \"too\"", "x" * 5000)
    notes = ["<style>*{display:none}</style>"]
    out = make_folder(
        tmp_path / "out", labels=HOSTILE, texts=texts, tune=(0, 2), seeds=2, test=False, task="<i>task</i>", notes=notes
    )
    with drawn():
        page = page_of(out)
    assert page.tags.count("script") == 1 and "img" not in page.tags and "i" not in page.tags
    assert page.tags.count("style") == 1 + page.tags.count("svg")
    for label in HOSTILE:
        assert label in page.text
    assert "<img src=x onerror=alert(2)>" in page.text and "(5,000 characters)" in page.text
    assert notes[0] in page.text and "<i>task</i>" in page.text
    assert "use the same data" in page.words


TWO: dict[str, Any] = {"tune": (0, "full"), "seeds": 2}
HEAD, FULL = [(0, 0), (0, 1)], [("full", 0), ("full", 1)]  # their runs
NAMED = {"tune": ("named",), "tune_modules": ("layer.3", "layer.5"), "seeds": 3, "diverged": [("named", 2)]}
MISTAKES = "of 300 validation examples are misclassified (tuning the named parts, seed"


@pytest.mark.parametrize(
    ("folder", "there", "not_there"),
    [
        ({**TWO, "labels": [f"class {n}" for n in range(60)]}, ["50 others", "Examples of 60 classes"], []),
        ({**TWO, "labels": ()}, ["Largest residuals", "mean baseline"], ["Confusion", "Examples by class"]),
        (NAMED, ["Nothing was compared", MISTAKES, "Tune the named parts", "layers 4 and 6, head"], ["full fine-tuning"]),
        ({"tune": (2,), "seeds": 1}, ["Tune the last 2 of 6 layers", "Nothing was compared", "90 % of the gain of la"], []),
        (
            {**TWO, "diverged": [*HEAD, *FULL]},
            ["There is no answer", "4 of 4 finished runs failed", "No run has a usable score"],
            [],
        ),
        ({"tune": ("full",), "seeds": 2, "lengths": (3, 10)}, ["layers 1 to 6, headtuned"], []),  # no "frozen"
        ({"tune": (0,), "seeds": 2, "missing": HEAD}, ["No run has finished yet.", "2 runs not trained yet"], []),
        ({**TWO, "missing": FULL}, ["No answer yet", "2 runs not trained yet."], ["Expected accuracy of every choice"]),
    ],
)  # fmt: skip
def test_what_pages_say(folder: dict[str, Any], there: list[str], not_there: list[str], tmp_path: Path) -> None:
    words = page_of(make_folder(tmp_path / "out", **folder)).words.replace("\xa0", " ")
    assert [text for text in there if text not in words] == [text for text in not_there if text in words] == []


def test_several_train_sizes(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "full"), seeds=2, sizes=(100, 1000))
    page = page_of(out)
    assert "Other train sizes" in page.words and "100 examples:" in page.words
    names = {path.name for path in (out / "figures").iterdir()}
    curves = {"validation_curve", "validation_curve_100", "learning_curves"}
    curves |= {"reliability", "quality_against_cost", "quality_against_cost_100"}
    assert names == {f"{name}.{kind}" for name in curves for kind in ("svg", "png", "pdf")}


def test_tables_and_figures_of_an_older_page_are_removed(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "full"), seeds=2, sizes=(100, 1000))
    page_of(out)
    for path in (out / "tables" / "mine.csv", out / "figures" / "mine.svg"):
        path.write_text("of the user")
    answer = answer_of(out)
    answer.sizes, answer.classes, answer.calibration = answer.sizes[:1], None, None
    with drawn():
        write_page(Folder(out), answer)
    names = {path.stem for folder in ("tables", "figures") for path in (out / folder).iterdir()}
    assert not {"choices_100", "class_scores", "validation_curve_100", "reliability"} & names
    assert {"choices", "validation_curve", "mine"} <= names


def test_the_page_and_the_answer_count_the_same_failures(tmp_path: Path) -> None:
    """With 16 examples, a run at the level of the baseline has not failed. Without its predictions it would have."""
    out = make_folder(tmp_path / "out", rows=16)
    words = page_of(out).words
    assert not any(cell.failures.failed for cell in answer_of(out).sizes[0].cells)
    assert "finished runs failed (" not in words
    assert "A score within 0.50 of the other runs is never far below them" in words


def test_no_line_ends_within_a_flag() -> None:
    assert with_flags("<b>: with --folds 5, --tune 0,1,2 or --calibrate so, not a--b or -- or --, by `pipeline`") == (
        '&lt;b&gt;: with <code class="flag">--folds 5</code>, <code class="flag">--tune 0,1,2</code> or '
        '<code class="flag">--calibrate</code> so, not a--b or -- or --, by <code>pipeline</code>'
    )
