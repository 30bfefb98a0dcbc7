"""The settings and fixtures of all tests: no network, no GPU, a separate cache, a tiny model with its data."""

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_ASSETS_CACHE"] = tempfile.mkdtemp(prefix="frostline-test-assets-")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # many tests expect the same bits again, which a GPU does not give
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["COLUMNS"] = "120"
# Each sweep would collect garbage once. In a process that has loaded all tests, that takes half a second.
os.environ["FROSTLINE_WITHOUT"] = "garbage_collection"

import pytest
import torch
from hypothesis import settings as of_properties

from frostline.data import wording
from frostline.model import device
from frostline.sweeps import plan as plans
from pages import draw_nothing, drawn
from tiny import QUICK, SMALL, CommandResult, Frostline, remembered, run_sweep, sentences, tiny_bert_folder, write_csv

atexit.register(shutil.rmtree, os.environ["HF_ASSETS_CACHE"], ignore_errors=True)

DATA = Path(__file__).parents[2] / "shared" / "data"

# The time of an example depends on the machine. The examples of a test do not change, so that only a change of the code can
# break it; --hypothesis-profile "new examples" draws others.
of_properties.register_profile("same examples", deadline=None, max_examples=60, derandomize=True)
of_properties.register_profile("new examples", deadline=None, max_examples=300)
of_properties.load_profile("same examples")
draw_nothing()
# Each result names the versions of packages, and reading one takes milliseconds.
setattr(device, "version", cache(device.version))  # noqa: B010
# Sweeps check the cuts of the same models again and again. The tests in tests/frozen check the check.
plans.check = remembered(plans.check)
wording._for_shell[0] = True  # tests read messages as they are written, with flags
# Flushing a file to the disk takes milliseconds and changes nothing that a reader finds. Tests of faults still count it.
setattr(os, "fsync", lambda descriptor: None)  # noqa: B010
# For each kind of device that is not there, torch.manual_seed would record where it was called: half a millisecond inside pytest.
for kind in (torch.cuda, torch.xpu, torch.mtia):
    if not kind.is_available():
        kind.manual_seed_all = lambda seed: None  # type: ignore[assignment]


@pytest.fixture(autouse=True, scope="module")
def earlier_objects_frozen() -> None:
    """Collections ignore what earlier files have loaded or unfrozen. Each run of a sweep collects once."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def real_figures() -> Iterator[None]:
    """Save real figures in this module."""
    with drawn():
        yield


@pytest.fixture
def every_speed_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As for users: objects are frozen while a sweep runs, and only then."""
    monkeypatch.delenv("FROSTLINE_WITHOUT")
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a BERT with three small layers, random weights and a tokenizer, as save_pretrained writes it."""
    return tiny_bert_folder(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def tiny_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file with 160 sentences and two labels."""
    return write_csv(tmp_path_factory.mktemp("tiny-table") / "films.csv", sentences(160))


@pytest.fixture(scope="session")
def probe_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A training and a validation file. ``label`` is the sentiment, ``words`` the number of words."""
    folder = tmp_path_factory.mktemp("probe-tables")
    rows = {"train": sentences(120), "validation": sentences(60, seed=1)}
    counted = {split: [{**row, "words": str(len(row["text"].split()))} for row in own] for split, own in rows.items()}
    return {split: write_csv(folder / f"{split}.csv", own) for split, own in counted.items()}


@pytest.fixture(scope="session")
def finished_sweep(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep: k = 0, 1 and all, two seeds. All tests share it, so copy it before changing it."""
    from frostline import sweep
    from frostline.sweeps.progress import Progress

    out = tmp_path_factory.mktemp("finished") / "films"
    torch.set_num_threads(1)
    sweep(model=tiny_bert, train=tiny_table, tune="0,1,all", seeds=2, out=out, progress=Progress(), **QUICK)
    return out


@pytest.fixture
def search_settings(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> dict[str, Any]:
    """The settings of a small search."""
    from frostline.sweeps.progress import Progress

    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "budget": 1000.0, "progress": Progress()}
    return {**own, **SMALL}


@pytest.fixture
def settings(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> dict[str, Any]:
    """The settings of a sweep with four short runs."""
    return {"model": tiny_bert, "train": tiny_table, "tune": "0,1", "seeds": 2, "out": tmp_path / "o", **SMALL}


@pytest.fixture(scope="session")
def finished_small(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep with ``settings``, without report and model. Copy it before changing it."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("small") / "o"
    run_sweep({"model": tiny_bert, "train": tiny_table, "tune": "0,1", "seeds": 2, "out": out, **SMALL})
    return out


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the packaged model all-MiniLM-L6-v2."""
    from frostline.api.demo import packaged_model

    return packaged_model()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public corpora next to the project. Tests that need it are skipped if it is missing."""
    if not DATA.is_dir():
        pytest.skip("needs ../shared/data, which is not here")
    return DATA


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """A shell ignores it in background processes."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a cache of hidden states in which nothing is yet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def train_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """A function that replaces the training of a single run. It gets what :func:`frostline.training.train.run` gets."""
    from frostline.sweeps.execution import stacks

    return lambda function: monkeypatch.setattr(stacks, "run", function)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run each test on one thread: small models are fastest that way, and their results are reproducible."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def frostline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Frostline:
    """A function that runs a command in this process, in an empty working folder."""
    from frostline.cli.program import main

    monkeypatch.chdir(tmp_path)

    def call(*words: Any) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["frostline", *map(str, words)])
        threshold = gc.get_threshold()
        try:
            main()
            code: Any = 0
        except SystemExit as leaving:
            code = leaving.code or 0
        finally:
            gc.set_threshold(*threshold)
        result = CommandResult(code, *capsys.readouterr())
        assert not (strangers := flags_of_others(words, result)), f"{strangers} are no flags of {words}: {result.err}"
        return result

    return call


def flags_of_others(words: Sequence[Any], result: CommandResult) -> set[str]:
    """The flags that a refusal names and its command lacks. A message may name another command with its flags, in backticks."""
    from typer.main import get_command

    from frostline.cli.program import app

    command: Any = get_command(app)
    for word in map(str, words):
        command = getattr(command, "commands", {}).get(word, command)
    own = {flag for one in getattr(command, "params", ()) for flag in (*one.opts, *one.secondary_opts)}
    said = re.sub(r"`frostline [^`]*`", "", result.err) if result.code == 2 and "Usage:" not in result.err else ""
    if owner := re.search(r" The command that made \S+ takes (.*)\.$", said.strip()):
        own |= {*owner[1].split(", ")}
    return {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", said)} - own - {word.split("=")[0] for word in map(str, words)}
