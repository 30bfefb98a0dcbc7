"""Execution of sweeps: resuming, failed runs, refused models, and results that do not depend on other runs."""

import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline
from frostline import FrostlineError
from frostline.report.rebuild import write_report
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder, register
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.training.forward import train_rows, validation_rows
from frostline.training.train import run
from small_models import write_base
from tiny import Notes, SetsAside, TrainWith, contents, plan_of, run_sweep


def test_trained_parameters_that_cannot_be_stored_do_not_fail_the_run(settings: dict[str, Any], tmp_path: Path) -> None:
    notes: list[str] = []
    plan, progress = plan_of(**settings), Progress()
    progress.note = notes.append  # type: ignore[method-assign]
    register(plan)
    (tmp_path / "file").touch()
    execute(plan, plan.requested, progress, weights=BestWeights(tmp_path / "file"))
    assert set(frostline.open(settings["out"]).table().status) == {"done"}
    assert any(re.search(r"The trained parameters of last \d, seed \d could not be stored", note) for note in notes)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_run_is_recorded_and_repeated(settings: dict[str, Any], train_with: TrainWith, workers: int) -> None:
    def fails(spec: Any, experiment: Any, **more: Any) -> Any:
        if (spec.recipe.k, spec.seed) == (1, 0):
            raise RuntimeError("out of <memory>\nmore of it")
        return run(spec, experiment, **more)

    settings = {**settings, "workers": workers, "stack": 1}
    train_with(fails)
    rows = run_sweep(settings).table().set_index(["recipe", "seed"])
    assert rows.status.to_dict() == {
        ("head only", 0): "done",
        ("last 1", 0): "failed",
        ("head only", 1): "done",
        ("last 1", 1): "done",
    }
    assert rows.reason["last 1", 0] == "RuntimeError: out of <memory>"
    answer = write_report(settings["out"])
    assert answer.runs.failed == 1 and answer.sizes[0].cell("last 1").errors == 1
    train_with(run)
    again = run_sweep(settings)
    assert set(again.table().status) == {"done"} and not list(settings["out"].glob("runs/*.failed.json"))


def test_a_damaged_result_is_trained_again(finished_small: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    out, name = Path(shutil.copytree(finished_small, tmp_path / "o")), "predictions.safetensors"
    before, digest = contents(out / "runs"), min(Store(out).results())
    file = out / "runs" / digest / name
    file.write_bytes(file.read_bytes()[:-1])
    progress = Notes()
    frostline.sweep(save_model=False, progress=progress, **settings)
    (damage,) = (note for note in progress.notes if f"{out / 'runs' / digest} is damaged" in note)
    assert str(out / "damaged" / digest) in damage
    assert contents(out / "damaged")[f"{digest}/{name}"] == before[f"{digest}/{name}"][:-1]
    after = contents(out / "runs")
    for path, content in before.items():
        assert after[path] == content or path == f"{digest}/result.json"  # which has the time that the run took


@pytest.mark.parametrize("workers", [1, 2])
def test_a_result_that_another_process_sets_aside_is_trained_again(settings: dict[str, Any], workers: int) -> None:
    shown, plan = SetsAside(Path(settings["out"])), plan_of(**{**settings, "stack": 1, "workers": workers})
    register(plan)
    signal.alarm(100)  # a process that waits for itself is killed
    execute(plan, plan.runs, shown)
    signal.alarm(0)
    assert len(plan.store.done()) == 4 and shown.runs_done == 5
    assert [path.name for path in (plan.store.out / "damaged").iterdir()] == shown.aside
    assert not list((plan.store.out / "leases").iterdir())


def test_unfinished_files_of_a_killed_process_do_not_block_the_folder(settings: dict[str, Any]) -> None:
    settings["out"].mkdir()
    (settings["out"] / ".sweep.toml.12345678.part").write_text("model = ")
    assert set(run_sweep(settings, tune="0", seeds=1).table().status) == {"done"}


def test_with_folds_every_row_is_scored_by_a_run_that_did_not_train_on_it(settings: dict[str, Any]) -> None:
    settings = {**settings, "tune": "0,1", "seeds": 3, "folds": 3, "train_size": None}
    run_sweep(settings)
    plan, folder = plan_of(**settings), Folder(settings["out"])
    experiment, answer = plan.experiment, write_report(settings["out"])
    texts = plan.data.train.texts
    for spec in folder.runs:
        trained = {texts[row - experiment.splits["train"][0]] for row in train_rows(experiment, spec)}
        scored = {texts[row - experiment.splits["validation"][0]] for row in validation_rows(experiment, spec)}
        assert not trained & scored and len(trained) == spec.train_size  # one row less where folds differ in size
        assert len(trained | scored) >= len(texts) - 1
    for k in (0, 1):
        scored_by = sum(~np.isnan(folder.predictions(run.digest)).any(1) for run in folder.runs if run.recipe.k == k)
        assert (scored_by == 1).all()
    assert answer.validation_rows == len(texts)
    assert answer.sizes[0].train_size == plan.data.train_rows < len(texts)
    again = run_sweep({**settings, "seeds": 4})
    assert len(again.table()) == 8 and again.table().status.eq("done").all()
    frostline.sweep(progress=Progress(), **settings)
    assert (folder.out / "report.html").exists() and (folder.out / "model" / "config.json").exists()


def test_a_model_that_cannot_be_cut_exactly_leaves_no_folder(settings: dict[str, Any], tmp_path: Path) -> None:
    lilt = write_base(tmp_path / "lilt", "lilt")  # its layers pass on a second stream
    with pytest.raises(FrostlineError, match="cannot be cut exactly with last 1: Layers above the cut need more"):
        frostline.sweep(progress=Progress(), **{**settings, "model": lilt})
    assert not settings["out"].exists()


def test_hidden_states_that_are_in_memory_are_no_work_of_the_next_step(settings: dict[str, Any]) -> None:
    """A search trains step by step. The time left of a later step does not contain the forward pass again."""
    plan = plan_of(**{**settings, "tune": "0,1", "seeds": 2})
    register(plan)
    for some in (plan.requested[:2], plan.requested[2:]):
        progress = Progress()
        execute(plan, some, progress)
        assert progress.done == pytest.approx(progress.total) and progress.eta == ""
