"""Random bytes of results, predictions and scored examples are changed: each is found when the file is read, and none is used."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.sweep.results.rows import read_rows
from frostline.sweep.results.store import Store

FLIPS = 1000
READERS = {
    "result.json": Store.result,
    "predictions.safetensors": Store.predictions,
    "test.json": Store.test,
    "test.safetensors": Store.test,
}


def test_every_changed_byte_is_found_and_no_such_file_is_used(
    finished_sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    shutil.copytree(finished_sweep / "runs", tmp_path / "runs")
    store, rng, found = Store(tmp_path), random.Random(0), Counter[str]()
    whole = {path: path.read_bytes() for path in store.runs.glob("*/*")}
    sizes = [len(content) for content in whole.values()]
    for path in rng.choices(list(whole), sizes, k=FLIPS):  # every byte has the same chance
        content, place = bytearray(whole[path]), rng.randrange(len(whole[path]))
        content[place] ^= rng.randrange(1, 256)
        path.write_bytes(content)
        run = path.parent.name
        with pytest.raises(FrostlineError, match=f"{run} is damaged"):
            READERS[path.name](store, run)
        assert not store.has(run) and run not in store.results()
        aside = tmp_path / "damaged" / run
        assert (aside / path.name).read_bytes() == content
        aside.rename(store.runs / run)
        path.write_bytes(whole[path])
        found[path.name] += 1
    assert set(found) == set(READERS) and found.total() == FLIPS
    assert not list(store.check())


def test_scored_examples_with_a_changed_byte_are_never_used(finished_sweep: Path, tmp_path: Path) -> None:
    """A changed byte may lie in a part of the file that has no meaning. Then the examples are the same."""
    path, rng, damaged = tmp_path / "validation.parquet", random.Random(0), 0
    content = (finished_sweep / path.name).read_bytes()
    path.write_bytes(content)
    whole = read_rows(tmp_path, "validation")
    assert whole is not None
    for _ in range(FLIPS):
        changed, place = bytearray(content), rng.randrange(len(content))
        changed[place] ^= rng.randrange(1, 256)
        path.write_bytes(changed)
        try:
            same = read_rows(tmp_path, "validation")
        except FrostlineError as error:
            assert "validation.parquet is damaged: run the sweep" in str(error)
            damaged += 1
        else:
            assert same is not None and same.texts == whole.texts and (same.targets == whole.targets).all()
    assert damaged > FLIPS / 2
