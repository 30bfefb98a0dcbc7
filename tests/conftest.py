"""What all tests share: no network, a cache of their own, and a tiny model in the hub's layout."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_ASSETS_CACHE"] = tempfile.mkdtemp(prefix="frostline-test-assets-")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["COLUMNS"] = "120"

import pytest
import torch
from hypothesis import settings as of_properties

from figures import draw_nothing, drawn
from tiny import QUICK, SMALL, Frostline, Said, go, sentences, tiny_bert_folder, write_csv

DATA = Path(__file__).parents[2] / "shared" / "data"

of_properties.register_profile("any machine", deadline=None, max_examples=60)  # how long an example takes says nothing
of_properties.load_profile("any machine")
draw_nothing()


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of three small layers with random weights and a tokenizer, as save_pretrained writes it."""
    return tiny_bert_folder(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def tiny_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 sentences of two labels, as CSV."""
    return write_csv(tmp_path_factory.mktemp("tiny-table") / "films.csv", sentences(160))


@pytest.fixture(scope="session")
def finished_sweep(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that has run: k = 0, 1 and all, two seeds. Not to be written into: copy it."""
    from frostline import Sweep
    from frostline.sweep.execution.progress import Progress

    out = tmp_path_factory.mktemp("finished") / "films"
    torch.set_num_threads(1)
    with drawn():
        Sweep(model=tiny_bert, train=tiny_table, tune="0,1,all", seeds=2, out=out, progress=Progress(), **QUICK).run()
    return out


@pytest.fixture
def search_settings(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> dict[str, Any]:
    """The settings of a small search."""
    from frostline.sweep.execution.progress import Progress

    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "budget": 1000.0, "progress": Progress()}
    return {**own, **SMALL}


@pytest.fixture
def settings(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> dict[str, Any]:
    """Of a sweep of four short runs."""
    return {"model": tiny_bert, "train": tiny_table, "tune": "0,1", "seeds": 2, "out": tmp_path / "o", **SMALL}


@pytest.fixture(scope="session")
def finished_small(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a sweep that has run, without report and model. Not to be written into: copy it."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("small") / "o"
    go({"model": tiny_bert, "train": tiny_table, "tune": "0,1", "seeds": 2, "out": out, **SMALL})
    return out


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The packaged all-MiniLM-L6-v2."""
    from frostline.api.demo import packaged_model

    return packaged_model()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Public corpora beside the project; what needs them is skipped where they are absent."""
    if not DATA.is_dir():
        pytest.skip("needs ../shared/data, which is not here")
    return DATA


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models run fastest, and always the same, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def frostline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Frostline:
    """The program, in this process, in a folder of its own."""
    from frostline.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*words: Any) -> Said:
        monkeypatch.setattr(sys, "argv", ["frostline", *map(str, words)])
        threshold = gc.get_threshold()
        try:
            main()
            code: Any = 0
        except SystemExit as leaving:
            code = leaving.code or 0
        finally:
            gc.set_threshold(*threshold)
        return Said(code, *capsys.readouterr())

    return call
