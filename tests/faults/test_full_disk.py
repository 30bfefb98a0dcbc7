"""A disk that is really full: a small file system in memory, filled up to its last pages."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from frostline import FrostlineError
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import is_damaged
from frostline.model.anatomy import find_layers
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import UNUSABLE, BestWeights
from frostline.training.result import Result
from frostline.training.run import Run
from frozen.passes import Cache, ragged_tokens, state_bytes
from records import record
from small_models import small_model
from tiny import Frostline, assert_same_predictions

PAGE, SIZE = 4096, 2**20
RUN = {
    "weights": "w",
    "vocabulary": "v",
    "data": "d",
    "metric": "accuracy",
    "precision": "float32",
    "recipe": 1,
    "seed": 0,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        said = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if said.returncode:
        pytest.skip(f"needs the right to mount a file system ({said.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, pages: int) -> None:
    """Leave this many pages free."""
    ballast = disk / "ballast"
    with suppress(FileNotFoundError):
        ballast.unlink()
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (os.statvfs(disk).f_bavail - pages) * PAGE)


def result(score: float) -> Result:
    logits = np.full((1500, 2), score, np.float32)  # three pages
    return Result(record(digest="aa"), {"validation_best": logits})


def test_a_result_is_published_whole_or_not_at_all(disk: Path) -> None:
    store, seen = Store(disk / "o"), set[bool]()
    (disk / "o" / "runs").mkdir(parents=True)
    for pages in range(9):
        fill(disk, pages)
        try:
            store.publish(result(0.5))
        except FrostlineError as error:
            assert "The disk is full" in str(error) and not store.has("aa")
        else:
            assert (store.predictions("aa")["validation_best"] == 0.5).all()
        seen.add(store.has("aa"))
        assert not list(store.check()) and not list(store.runs.glob(".*"))
        if store.has("aa"):
            store.retry(["aa"], ["diverged"])
            break
    assert seen == {True, False}


def test_trained_parameters_are_stored_whole_or_not_at_all(disk: Path) -> None:
    weights, run, damage = BestWeights(disk), Run(**RUN, train_size=10, learning_rate=1e-4), list[str]()
    values, stored = {"a.weight": torch.ones(5000)}, None  # five pages
    for pages in range(9):
        fill(disk, pages)
        try:
            weights.save_if_best(run, 0.5, values)
        except UNUSABLE:
            assert weights.load(run.digest, damage.append) is None and not list(weights.folder.glob(".*.part"))
        else:
            stored = weights.load(run.digest, damage.append)
            break
    assert pages >= 4 and not damage and stored is not None and torch.equal(stored["a.weight"], values["a.weight"])


def test_hidden_states_are_cached_whole_or_not_at_all(disk: Path, tmp_path: Path) -> None:
    model: Any = small_model("bert")
    tokens, rows, selection = ragged_tokens(12), range(12), StateSelection((1,), head=True)
    cache = Cache(disk / "cache", model, find_layers(model))
    expected = state_bytes(Cache(tmp_path / "expected", model, cache.anatomy).load(tokens, rows, selection), rows)
    for pages in (0, 1, 2, 3, 6, 12, 25, 100):
        fill(disk, pages)
        try:
            states = cache.load(tokens, rows, selection)
        except FrostlineError as error:
            assert "(No space left on device): free disk space" in str(error)
            assert not cache.shards and not list(cache.folder.glob("*/*.part"))
        else:
            assert state_bytes(states, rows) == expected and not is_damaged(*cache.shards)
            break
    assert 3 < pages < 100


def test_a_command_ends_with_one_sentence_and_the_same_command_goes_on(
    disk: Path, settings: dict[str, Any], finished_small: Path, frostline: Frostline
) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    words += [f"--out={disk / 'o'}", "--stack=1", "--workers=1"]
    codes = list[int]()
    for pages in (3, 25, 50, 0):
        fill(disk, pages) if pages else (disk / "ballast").unlink()
        got = frostline("sweep", *words)
        codes.append(got.code)
        if got.code:
            assert got.code == 2, (
                got,
                Store(disk / "o").failures(),
            )  # a failed run: what was missing besides the disk?
            assert len(got.err.strip().splitlines()[-1]) < 400
            assert "The disk is full" in got.err or "No space left on device" in got.err
            assert not list((disk / "o").glob("runs/.*")) and not list(Store(disk / "o").check())
            assert not Leases(disk / "o").current()
    assert codes[0] == 2 and codes[-1] == 0
    assert_same_predictions(Store(disk / "o"), Store(finished_small))
