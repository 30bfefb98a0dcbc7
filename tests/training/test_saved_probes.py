"""Saved probes: damaged, on another model, on no texts."""

import json
from pathlib import Path

import pandas as pd
import pytest

import frostline
from frostline import FrostlineError
from frostline.data import read_unlabelled
from frostline.training.probes.saved import FACTS, WEIGHTS, saved_probe


@pytest.fixture
def folder(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> Path:
    frostline.probe(model=tiny_bert, train=tiny_table, out=tmp_path / "o", precision="float32")
    return tmp_path / "o" / "probe"


def test_a_model_that_has_changed(folder: Path, tiny_table: Path) -> None:
    texts, _ = read_unlabelled(tiny_table)
    about = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps({**about, "weights": "others"}))
    with pytest.raises(FrostlineError, match="was fitted on other weights"):
        frostline.predict(folder, texts)


@pytest.mark.parametrize("file", [FACTS, WEIGHTS])
def test_damage(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"\0" * 50)
    with pytest.raises(FrostlineError, match="is damaged"):
        saved_probe(folder)


def test_pairs_for_a_probe_of_single_texts(folder: Path) -> None:
    pairs, _ = read_unlabelled(pd.DataFrame({"sentence1": ["good"], "sentence2": ["bad"]}))
    with pytest.raises(FrostlineError, match="learned from single texts"):
        frostline.predict(folder, pairs)


def test_a_text_does_not_depend_on_its_company(folder: Path, tiny_table: Path) -> None:
    frame = pd.read_csv(tiny_table)
    many, one = (frostline.predict(folder, read_unlabelled(some)[0]).values for some in (frame, frame[7:8]))
    assert many[7].tolist() == one[0].tolist()


def test_a_folder_without_one(tmp_path: Path) -> None:
    assert saved_probe(tmp_path) is None
