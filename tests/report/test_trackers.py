"""Trackers: what they show of runs and answers, and that each is written once."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import frostline
from frostline import FrostlineError, sweep, track
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.store import Store
from tiny import Frostline, Notes


def read_tensorboard(folder: Path) -> tuple[dict[str, list[float]], list[str]]:
    """The values of each scalar of a run, and its texts."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    scalars = {name: [one.value for one in events.Scalars(name)] for name in events.Tags()["scalars"]}
    texts = [
        one.tensor_proto.string_val[0].decode() for name in events.Tags()["tensors"] for one in events.Tensors(name)
    ]
    return scalars, texts


def test_every_run_and_answer_is_in_tensorboard_once(settings: Mapping[str, Any]) -> None:
    pytest.importorskip("tensorboard")
    given = {**settings, "num_train_epochs": 2, "track": "tensorboard"}
    results = sweep(**given)
    shown, first = results.folder / "tensorboard", Folder(results.folder)
    assert len(list(shown.iterdir())) == 4 + 1
    for row in first.rows:
        [folder] = shown.glob(f"*{row.run[:8]}")
        scalars, _ = read_tensorboard(folder)
        wanted = [
            one["value"]
            for one in first.scores()
            if (one["run"], one["split"], one["metric"]) == (row.run, "validation", row.metric)
        ]
        assert scalars[f"validation/{row.metric}"] == pytest.approx(wanted) and scalars["epoch"] == [1, 2]
        assert scalars["summary/train_seconds"] == pytest.approx([row.train_seconds])
        assert scalars["summary/validation_best"] == pytest.approx([row.validation_best])
    [answer] = shown.glob("answer*")
    assert read_tensorboard(answer)[1] == [results.answer.sentence]
    files = {path: path.read_bytes() for path in shown.rglob("*") if path.is_file()}
    sweep(**given)  # nothing is new
    assert track(results.folder, "tensorboard") == {"tensorboard": 0}
    assert {path: path.read_bytes() for path in shown.rglob("*") if path.is_file()} == files
    sweep(**{**given, "seeds": 3})
    assert len(list(shown.iterdir())) == 6 + 2
    sweep(**{**given, "tune": "1", "seeds": 1, "num_train_epochs": "2,1"})  # the runs of before have other names
    assert len(list(shown.iterdir())) == 7 + 3
    assert files.items() <= {path: path.read_bytes() for path in shown.rglob("*") if path.is_file()}.items()


def test_a_run_is_not_written_before_its_test_score_is_known(finished_sweep: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished_sweep, tmp_path / "o"))
    shutil.rmtree(next((out / "runs").iterdir()))
    with pytest.raises(FrostlineError, match="has runs that have not ended"):
        track(out, "tensorboard")
    assert not (out / "tensorboard").exists()


def test_a_search_over_several_models_is_tracked_model_by_model(finished_small: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for model in ("one", "two"):
        store = Store(Path(shutil.copytree(finished_small, tmp_path / "o" / model)))
        store.write_spec({**(store.read_spec() or {}), "model": model})
    (tmp_path / "o" / "answer.json").write_text('{"models": []}')
    assert track(tmp_path / "o", "tensorboard") == {"tensorboard": 2 * (4 + 1)}
    assert {len(list((tmp_path / "o" / model / "tensorboard").iterdir())) for model in ("one", "two")} == {5}


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_other_trackers_get_each_run_once(
    name: str, finished_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name, reason=f"{name} is an extra that is not installed for tests")
    out = Path(shutil.copytree(finished_small, tmp_path / "o"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert track(out, name) == {name: 4 + 1}
    assert track(out, name) == {name: 0}
    if name == "wandb":
        assert len(list((out / "wandb").glob("offline-run-*"))) == 5
        return
    from mlflow import MlflowClient

    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("o").experiment_id])
    shown = {run.data.tags["frostline.digest"]: run.data for run in runs}
    for row in Folder(out).rows:
        assert shown[row.run].metrics["validation_best"] == row.validation_best
        assert shown[row.run].params["seed"] == str(row.seed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mlflow", r"The tracker mlflow needs its package: run `pip install 'frostline\[mlflow\]'`"),
        ("tensorbord", r"There is no tracker 'tensorbord' \(did you mean 'tensorboard'\?\)"),
    ],
)
def test_a_missing_tracker_is_refused_before_training(
    given: str, message: str, settings: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, frostline: Frostline
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(FrostlineError, match=message):
        sweep(**settings, track=given)
    assert not Path(settings["out"]).exists()
    words = [word for name in ("model", "train", "tune", "out") for word in (f"--{name}", settings[name])]
    refused = frostline("sweep", *words, "--track", given)
    assert refused.code == 2 and not Path(settings["out"]).exists()


def test_a_tracker_that_fails_loses_nothing(settings: Mapping[str, Any]) -> None:
    pytest.importorskip("tensorboard")
    results, shown = sweep(**settings), Notes()
    (results.folder / "tensorboard").write_text("")
    again = sweep(**settings, track="tensorboard", progress=shown)
    assert again.sentence == results.sentence
    assert any("`frostline track" in note and "results themselves are complete" in note for note in shown.notes)
    with pytest.raises(FrostlineError, match="tensorboard does not take the results of"):
        track(results.folder, "tensorboard")


def test_the_answer_that_is_written_is_that_of_now(finished_small: Path, tmp_path: Path) -> None:
    """One that cannot be read, or is of other runs or settings than the folder has, is written again."""
    pytest.importorskip("tensorboard")
    folder = Path(shutil.copytree(finished_small, tmp_path / "o"))
    store, before = Store(folder), frostline.open(folder).answer
    store.write_spec({**(store.read_spec() or {}), "target": 0.6})
    assert track(folder, "tensorboard") == {"tensorboard": 4 + 1}
    [shown] = (folder / "tensorboard").glob("answer*")
    now = frostline.open(folder).answer
    assert (before.target, now.target) == (0.95, 0.6) and read_tensorboard(shown)[1] == [now.sentence]
    (folder / "answer.json").write_text("[")
    assert track(folder, "tensorboard") == {"tensorboard": 0}
