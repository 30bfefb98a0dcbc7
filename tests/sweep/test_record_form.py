"""The form of a result's record: results of others that have another form are named."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.data.files import seal, unseal
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.record_form import well_formed
from frostline.sweep.results.store import Store
from tiny import Frostline


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"cost": {}}, "cost.train_seconds: field required"),
        ({"scores": "none"}, "scores: input should be a valid list"),
        ({"validation_best": "0.5"}, "validation_best: input should be a valid number"),
        ({"audit": {"parameters": 1, "trainable_parameters": True, "by_place": {}}}, "audit.trainable_parameters: "),
    ],
)
def test_a_result_of_another_form_is_named(
    finished_small: Path, tmp_path: Path, frostline: Frostline, change: dict[str, Any], where: str
) -> None:
    store = Store(Path(shutil.copytree(finished_small, tmp_path / "o")))
    assert well_formed(store) == store.results()
    digest = Folder(tmp_path / "o").runs[0].digest
    record = store.runs / digest / "result.json"
    record.write_bytes(seal({**unseal(record.read_bytes()), **change}))
    with pytest.raises(
        FrostlineError, match=f"{digest} does not have the form of a result \\({where}.*: remove it, and"
    ):
        well_formed(store)
    got = frostline("report", "o")
    assert got.code == 2 and f"({where}" in got.err
