"""Results from several sources as groups of one model and task."""

from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.report.answer.run_groups import load_groups
from tiny import write_csv


def test_two_sources_with_the_same_model_and_task_are_refused(tmp_path: Path) -> None:
    rows = [{"k": "0", "seed": "0", "value": "0.5"}]
    for name in ("a", "b"):
        write_csv(tmp_path / f"{name}.csv", rows)
    assert [group.task for group in load_groups([tmp_path / "a.csv", tmp_path / "b.csv"])] == ["a", "b"]
    with pytest.raises(FrostlineError, match="is in two of the sources"):
        load_groups([tmp_path / "a.csv", tmp_path / "a.csv"])
    with pytest.raises(FrostlineError, match="contains no sweep"):
        load_groups([tmp_path])
