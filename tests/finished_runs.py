"""The runs and the settings of a finished sweep."""

from pathlib import Path

import pandas as pd

from frostline.api.sweep import Sweep
from frostline.data.files import seal_toml, unseal_toml
from frostline.sweep.results.store import Store
from frostline.sweep.results.tables import COST


def table(sweep: Sweep) -> pd.DataFrame:
    """The results of a sweep without times and memory, which differ between two runs of the same sweep."""
    return sweep.table().drop(columns=list(COST))


def assert_same_predictions(ours: Store, theirs: Store) -> None:
    """The same runs have results, with the same predictions; none is damaged, and no lease is left."""
    assert ours.done() == theirs.done() and not list(ours.check())
    for digest in theirs.done():
        assert ours.files(digest)["predictions.safetensors"] == theirs.files(digest)["predictions.safetensors"]
    assert not list((ours.out / "leases").iterdir())


def change_settings(out: Path, old: str, new: str) -> None:
    """Replace a text in the sweep.toml of a folder, as if frostline had written the new one."""
    text = unseal_toml((out / "sweep.toml").read_bytes())
    assert old in text
    (out / "sweep.toml").write_bytes(seal_toml(text.replace(old, new)))
