"""The object that ``sweep``, ``find`` and ``open`` give."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import frostline
from frostline.statistics.answer import Answer
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.tables import COLUMNS
from tiny import SMALL, contents, run_sweep, sentences


def test_a_folder_is_opened_with_all_that_is_in_it(finished_sweep: Path) -> None:
    before = contents(finished_sweep)
    found = frostline.open(str(finished_sweep))
    assert found.answer == Answer.read(finished_sweep / "answer.json") and found.sentence in found.answer.sentence
    assert tuple(found.table().columns) == COLUMNS and len(found.table()) == 6
    assert isinstance(found.plot(), Figure) and found.report.is_file()
    predictions = found.predict(["good film", "bad film"], threshold=0.4)
    assert len(predictions.values) == 2 and list(predictions.thresholds.values()) == [0.4]
    text, page = repr(found), found._repr_html_()
    assert text.startswith(f"<Results in {finished_sweep}: 6 runs. ") and text.count("\n") == 0
    assert page.count("<svg") == 1 and page.count("<table") == 1 and "head only" in page
    assert contents(finished_sweep) == before  # nothing is written
    with pytest.raises(frostline.FrostlineError, match="holds no sweep"):
        frostline.open(finished_sweep / "model")


def test_results_are_those_of_now(settings: dict[str, Any]) -> None:
    """The answer is written anew if runs have ended since, or if the settings that decide it have changed."""
    found = run_sweep(settings, tune="0", seeds=1)
    assert not found.report.exists()
    assert found.answer.runs.done == 1 and found.report.is_file()
    run_sweep(settings, tune="0", seeds=1, price=30)
    assert found.answer.price == 0.3
    run_sweep(settings, tune="0,1", seeds=1)
    assert found.answer.runs.done == 2 and "2 runs" in repr(found)
    with pytest.raises(frostline.FrostlineError, match="has no model yet"):
        found.predict(["good film"])
    shutil.rmtree(found.folder)
    assert "holds no sweep" in repr(found)


def test_more_adds_to_every_part_of_the_grid(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_bert, tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    grid = [{"tune": 2, "learning_rate": 1e-4}]
    own = {"model": "m", "train": tiny_table, "tune": "0,1", "seeds": 1, "out": tmp_path / "o", "grid": grid, **SMALL}
    found = frostline.sweep(**own, save_model=False, progress=Progress())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")  # the model is found from the folder where the sweep was started
    more = found.more(seeds=2, save_model=False, progress=Progress())
    runs = more.table().groupby("recipe").seed.apply(sorted).to_dict()
    assert more.folder == found.folder and runs == {"head only": [0, 1], "last 1": [0, 1], "last 2": [0, 1]}
    assert set(more.table().query("recipe == 'last 2'").learning_rate) == {1e-4}


def test_more_says_where_it_looked_for_a_table_if_the_folder_was_moved(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny_table, "t.csv")
    run_sweep({"model": tiny_bert, "train": "t.csv", "tune": "0", "seeds": 1, "out": "o", **SMALL})
    Path("a/b").mkdir(parents=True)
    shutil.move("o", "a/b/o")
    monkeypatch.chdir(tmp_path / "a")
    refused = pytest.raises(
        frostline.FrostlineError, match=r"train table of b/o, t\.csv, is found neither .* as train=\."
    )
    with refused:
        frostline.open("b/o").more(seeds=2)
    again = frostline.open("b/o").more(seeds=2, train="../t.csv", save_model=False, progress=Progress())
    assert again.answer.runs.done == 2


def test_more_with_a_table_in_memory_needs_it_again_only_after_it_is_lost(tiny_bert: Path, tmp_path: Path) -> None:
    rows = pd.DataFrame(sentences(60))
    quick = {**SMALL, "save_model": False, "progress": Progress()}
    found = frostline.sweep(model=tiny_bert, train=rows, tune="0", seeds=1, out=tmp_path / "o", **quick)
    assert found.more(seeds=2, save_model=False, progress=Progress()).answer.runs.done == 2
    opened = frostline.open(tmp_path / "o")
    with pytest.raises(frostline.FrostlineError, match="give it again, as train="):
        opened.more(seeds=3)
    assert opened.more(seeds=3, train=rows, save_model=False, progress=Progress()).answer.runs.done == 3
