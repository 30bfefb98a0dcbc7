"""Benchmarks that run at a tiny size."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_streaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in an error unless both sides, here in one process, predict the same bits and the saved model opens."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import streaming

    size = ["--layers", "5", "--width", "128", "--vocabulary", "300", "--train", "16", "--validation", "8"]
    more = ["--dtype", "bfloat16", "--limit", "1000", "--json", str(tmp_path / "found.json")]
    monkeypatch.setattr(sys, "argv", ["streaming.py", *size, *more])

    def run_side(side: str, work: Path, tune: int) -> dict[str, object]:
        monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(work / side / "cache"))
        return streaming.measure(side, work, tune)

    monkeypatch.setattr(streaming, "run_side", run_side)
    streaming.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["raw"]["equal"] and found["raw"]["opens"] and len(found["tables"][0]["rows"]) == 5
    assert str(tmp_path) not in json.dumps(found["raw"])
