"""Files of tensors: a state comes back bit for bit or not at all, the latest checkpoint counts, and of each k the best run."""

import errno
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from frostline.sweeps.results import tensor_files
from frostline.sweeps.results.tensor_files import BestWeights, TensorFiles
from frostline.training.run import Run
from hostile import without_locks
from records import spec_of_run
from tiny import contents

ABOUT = {"runs": ["aa"], "micro_batch": 8}
STATE = {"step": 3, "values": [torch.arange(3.0), np.arange(4)]}
# Without surrogates, as by default. For the default, hypothesis first makes a table of UTF-8, which takes seconds.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    TEXTS,
    st.sampled_from([torch.int64, torch.float32, torch.bfloat16, torch.uint8]).map(
        lambda kind: torch.tensor([[1, 250, 3]]).to(kind)
    ),
    st.sampled_from([np.int64, np.uint64, np.float64]).map(lambda kind: np.array([2**40, 3], kind)),
)
STATES = st.dictionaries(
    TEXTS,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)),
    max_size=4,
)


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def kept(files: TensorFiles, **about: object) -> Any:
    """The last state of the run aa, none of whose files are damaged."""
    return files.load("aa", {**ABOUT, **about}, pytest.fail)


@settings(deadline=None, max_examples=40)
@given(state=STATES)
def test_a_state_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    files = TensorFiles(tmp_path_factory.mktemp("sweep"), "checkpoints")
    whole = torch.arange(6.0)
    state |= {"views": [whole[:2], whole[1:4], whole.view(2, 3).T]}  # they share memory
    files.save("aa.3", (3,), ABOUT, state)
    assert equal(kept(files), state)


def test_the_last_state_of_the_same_counts_and_is_removed_with_its_folder(tmp_path: Path) -> None:
    files = TensorFiles(tmp_path, "checkpoints")
    assert kept(files) is None
    for steps in (9, 10, 6):  # the last one is of a process that was replaced by another one
        files.save(f"aa.{steps}", (steps,), ABOUT, {"step": steps})
    files.save("bb.2", (2,), ABOUT, {"step": 2})
    assert kept(files) == {"step": 10} and len(list(files.folder.iterdir())) == 2
    assert kept(files, micro_batch=4) is None and files.load("a", ABOUT, pytest.fail) is None
    files.save("aa.3", (3,), {**ABOUT, "micro_batch": 4}, {"step": 3})
    assert kept(files, micro_batch=4) == {"step": 3} and kept(files) is None
    files.remove(files.of("aa"))
    assert kept(files, micro_batch=4) is None and files.load("bb", ABOUT, pytest.fail) == {"step": 2}
    files.remove(files.of("bb"))
    files.remove(files.of("bb"))
    assert not files.folder.exists()


@pytest.mark.parametrize("error", [FileNotFoundError(), OSError(errno.EIO, "Input/output error")])
def test_a_state_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    files, notes = TensorFiles(tmp_path, "checkpoints"), list[str]()
    files.save("aa.9", (9,), ABOUT, {"step": 9})
    with monkeypatch.context() as failing_now:
        failing_now.setattr(tensor_files, "file_checksum", Mock(side_effect=error))
        assert files.load("aa", ABOUT, notes.append) is None
    assert [note.partition("cannot be read")[2] for note in notes] == (
        [" (Input/output error), so it is not used."] if error.errno else []
    )
    assert kept(files) == {"step": 9}


def test_another_process_removes_the_folder_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, remove = TensorFiles(tmp_path, "checkpoints"), Path.rmdir

    def after_another_process(folder: Path) -> None:
        remove(folder)
        remove(folder)

    files.save("aa.1", (1,), ABOUT, {"step": 1})
    monkeypatch.setattr(Path, "rmdir", after_another_process)
    files.remove(files.of("aa"))
    assert not files.folder.exists()


def test_every_damaged_byte_is_found_and_an_older_state_is_used(tmp_path: Path) -> None:
    files = TensorFiles(tmp_path, "checkpoints")
    files.save("aa.9", (9,), ABOUT, {**STATE, "step": 9})
    (older,) = files.folder.iterdir()
    content = older.read_bytes()
    files.save("aa.10", (10,), ABOUT, {**STATE, "step": 10})
    (newer,) = files.folder.iterdir()
    older.write_bytes(content)
    whole, notes = newer.read_bytes(), list[str]()
    for place in range(0, len(whole), 7):
        newer.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = files.load("aa", ABOUT, notes.append)
        assert found is not None and found["step"] == 9 and not newer.exists()
    damaged = sorted((tmp_path / "damaged").iterdir())
    assert len(notes) == len(damaged) and notes[0] == f"{newer} is damaged: it is now in {damaged[0]}."


def values(number: float) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((2, 2), number), "a.bias": torch.full((2,), number)}


def stored(weights: BestWeights, *runs: Run) -> list[Run]:
    """Those of the runs whose parameters are stored. No file is damaged."""
    return [run for run in runs if weights.load(run.digest, pytest.fail)]


def test_only_the_best_run_of_each_k_is_stored(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path)
    runs, other = [spec_of_run(seed=seed) for seed in range(4)], spec_of_run(recipe="full")
    for run, score in zip((*runs, other), (0.6, 0.8, 0.7, 0.8, 0.1), strict=True):
        weights.save_if_best(run, score, values(score))
    assert stored(weights, *runs, other) == [runs[1], other]
    assert equal(weights.load(runs[1].digest, pytest.fail), values(0.8))
    assert sorted(path.name.split(".")[0] for path in weights.folder.iterdir()) == ["full", "last-1"]
    weights.save_if_best(spec_of_run(train_size=5), 0.9, values(0))  # more examples count before a higher score
    weights.save_if_best(larger := spec_of_run(train_size=100), 0.5, values(1))
    assert stored(weights, *runs, other, larger) == [other, larger]


def test_of_runs_that_end_at_the_same_time_the_best_is_stored_without_locks(tmp_path: Path) -> None:
    weights, runs, start = BestWeights(tmp_path), [spec_of_run(seed=seed) for seed in range(5)], Barrier(5)

    def end(seed: int) -> None:
        start.wait()
        weights.save_if_best(runs[seed], 0.1 * seed, values(seed))

    with without_locks(), ThreadPoolExecutor(5) as pool:
        list(pool.map(end, range(5)))
    assert stored(weights, *runs) == [runs[-1]] and len(list(weights.folder.iterdir())) == 1  # also no lock


def test_among_equal_scores_the_first_seed_is_stored_in_any_order(tmp_path: Path) -> None:
    runs = [spec_of_run(seed=seed) for seed in range(3)]
    for order in permutations(range(3)):
        weights = BestWeights(tmp_path / str(order))
        for n in order:
            weights.save_if_best(runs[n], 0.8 if n else 0.7, values(n))
        assert stored(weights, *runs) == [runs[1]]


def test_what_is_better_elsewhere_is_added_by_the_same_rule(tmp_path: Path) -> None:
    here, there = BestWeights(tmp_path / "here"), BestWeights(tmp_path / "there")
    runs = {name: spec_of_run(recipe=k, seed=seed) for name, k, seed in (("a", 1, 0), ("b", 1, 1), ("c", "full", 0))}
    here.save_if_best(runs["a"], 0.7, values(1))
    there.save_if_best(runs["b"], 0.8, values(2))
    there.save_if_best(runs["c"], 0.5, values(3))
    better = there.better_than(here.ranks())
    assert better.keys() == {runs["b"].digest, runs["c"].digest} and not here.better_than(there.ranks())
    for run in (runs["b"], runs["c"]):
        here.add(run, *better[run.digest])
    assert here.ranks() == there.ranks() == {"full": (10, 0.5, 0), "last-1": (10, 0.8, -1)}
    assert contents(here.folder) == contents(there.folder)


def test_a_damaged_file_is_set_aside_and_replaced(tmp_path: Path) -> None:
    weights, run, notes = BestWeights(tmp_path), spec_of_run(), list[str]()
    weights.save_if_best(run, 0.5, values(1))
    (file,) = weights.folder.iterdir()
    file.write_bytes(damaged := file.read_bytes()[:-9])
    assert weights.load(run.digest, notes.append) is None
    assert notes == [f"{file} is damaged: it is now in {tmp_path / 'damaged' / file.name}."]
    assert (tmp_path / "damaged" / file.name).read_bytes() == damaged
    save_file(values(1), weights.folder / "last-1.r.0.safetensors", {"rank": "[99, 0.9, NaN]", "about": "{}"})
    weights.save_if_best(run, 0.1, values(2))
    assert equal(weights.load(run.digest, pytest.fail), values(2))
    assert {path.name for path in (tmp_path / "damaged").iterdir()} == {file.name, "last-1.r.0.safetensors"}


def test_remove_removes_the_folder_and_can_be_repeated(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path)
    weights.save_if_best(spec_of_run(), 0.5, values(1))
    (weights.folder / "notes.txt").write_text("of a user")
    weights.remove()
    assert [path.name for path in weights.folder.iterdir()] == ["notes.txt"]
    (weights.folder / "notes.txt").unlink()
    weights.remove()
    weights.remove()
    assert not weights.folder.exists() and not stored(weights, spec_of_run())


def test_a_file_that_is_removed_while_it_is_opened_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors then raises a RuntimeError, which ended searches with two workers."""
    weights, runs = BestWeights(tmp_path), [spec_of_run(seed=seed) for seed in range(2)]
    weights.save_if_best(runs[0], 0.9, values(0))
    (older,) = weights.folder.iterdir()
    real = tensor_files.safe_open

    def removed(file: Path, framework: str) -> object:
        if file != older:
            return real(file, framework)
        file.unlink(missing_ok=True)
        raise RuntimeError(f"unable to open file <{file}> in read-only mode: No such file or directory (2)")

    monkeypatch.setattr(tensor_files, "safe_open", removed)
    weights.save_if_best(runs[1], 0.5, values(1))
    assert stored(weights, runs[1])
