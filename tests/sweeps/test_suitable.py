"""A way is left out where a train size is too large or too small for it, and the folder goes on and grows as any other."""

from pathlib import Path
from typing import Any

import pytest

import frostline
from frostline import FrostlineError
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.settings import comparison
from frostline.training import estimators
from tiny import Notes, plan_of


@pytest.fixture
def given(tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a comparison with two train sizes. SetFit is for at most six examples a class."""
    pytest.importorskip("setfit")
    monkeypatch.setattr(estimators, "MOST_OF_ONE_CLASS", 6)
    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "num_train_epochs": 1, "seeds": 1}
    return {**own, "learning_rate": 1e-3, "train_size": "8,32"}


def cells(runs: Any) -> set[tuple[str, int]]:
    return {(str(run.recipe), run.train_size) for run in runs}


def test_a_size_that_is_too_large_is_left_out_with_a_note(given: dict[str, Any]) -> None:
    progress = Notes()
    plan = plan_of(progress=progress, **comparison("last-1,setfit,full", given))
    others = {(name, size) for name in ("last 1", "full") for size in (8, 32)}
    assert cells(plan.runs) == {*others, ("setfit", 8)}
    assert "setfit is left out at train size 32: it is for at most 6 examples a class, not 16." in progress.notes


def test_a_size_that_has_too_few_steps_for_all_phases_is_left_out_with_a_note(given: dict[str, Any]) -> None:
    progress = Notes()
    few = {**given, "train_size": "8,40", "per_device_train_batch_size": 8}
    plan = plan_of(progress=progress, **comparison("gradual,full", few))
    assert cells(plan.runs) == {("gradual", 40), ("full", 8), ("full", 40)}
    assert "gradual is left out at train size 8: its 5 phases need as many steps, but a run has 1." in progress.notes
    with pytest.raises(
        FrostlineError, match=r"gradual cannot have 8 examples: .* a run has 1; give more --num-train-e"
    ):
        plan_of(progress=progress, **comparison("gradual,full", {**few, "train_size": 8}))


def test_the_same_command_goes_on_and_another_one_adds(given: dict[str, Any]) -> None:
    frostline.compare(save_model=False, ways="last-1,setfit,full", progress=Progress(), **given)
    again = plan_of(**comparison("last-1,setfit,full", given))
    assert not again.missing(again.runs) and cells(again.runs) == cells(Folder(given["out"]).runs)
    grown = plan_of(**comparison("setfit,full", {**given, "train_size": "4,32"}))
    assert cells(grown.runs) == {*cells(again.runs), ("setfit", 4), ("full", 4)}


def test_a_way_without_any_size_that_is_small_enough_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        FrostlineError, match="setfit cannot have 24 examples: it is for at most 6 examples a class, not 12"
    ):
        plan_of(**comparison("setfit,full", {**given, "train_size": "24,32"}))
    assert not given["out"].exists()


def test_parts_of_a_grid_keep_their_own_sizes(given: dict[str, Any]) -> None:
    own = {name: value for name, value in given.items() if name != "train_size"}
    grid = ({"train_size": (4, 32), "tune": ("setfit", "full")}, {"train_size": (8,), "seeds": (5,)})
    runs = plan_of(**comparison("last-1,full", {"grid": grid, **own})).runs
    rows = max(run.train_size for run in runs)
    assert cells(runs) == {
        ("setfit", 4),
        ("full", 4),
        ("full", 32),
        *((k, n) for k in ("last 1", "full") for n in (8, rows)),
    }
    assert {run.seed for run in runs if run.train_size == 8} == {5}
