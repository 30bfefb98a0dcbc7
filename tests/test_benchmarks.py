"""Benchmarks that run at a tiny size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import frostline
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from tiny import TrainWith

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_streaming(tmp_path: Path) -> None:
    """It ends in an error unless both sides predict the same bits and the saved model opens."""
    size = ["--layers", "5", "--width", "128", "--vocabulary", "300", "--train", "16", "--validation", "8"]
    command = [
        sys.executable,
        BENCHMARKS / "streaming.py",
        *size,
        "--dtype",
        "bfloat16",
        "--json",
        tmp_path / "found.json",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ, cwd=tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["raw"]["equal"] and found["raw"]["opens"] and len(found["tables"][0]["rows"]) == 5
    assert str(tmp_path) not in json.dumps(found["raw"])


def test_a_stand_in_for_training_publishes_the_same_results_each_time(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_with: TrainWith
) -> None:
    """executors.py and killed.py train with it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from stand_in import stand_in

    train_with(stand_in(0.0))
    given = {"model": tiny_bert, "train": tiny_table, "tune": "1,all", "seeds": 2, "stack": 1, "workers": 1}
    for name in ("one", "other"):
        frostline.sweep(save_model=False, **given, out=tmp_path / name, progress=Progress())
    one, other = (Store(tmp_path / name).results() for name in ("one", "other"))
    assert len(one) == 4
    assert {digest: facts.scores for digest, facts in one.items()} == {d: facts.scores for d, facts in other.items()}
