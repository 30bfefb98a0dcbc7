"""The trained parameters of the best run of each k: which run is stored, how it is loaded and removed."""

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from threading import Barrier

import pytest
import torch
from safetensors.torch import save_file

from frostline.sweep.results import tensor_files
from frostline.sweep.results.tensor_files import BestWeights
from frostline.training.run import Run
from hostile import without_locks
from tiny import contents


def spec_of(**values: object) -> Run:
    usual = {"weights": "w", "vocabulary": "v", "data": "d", "metric": "accuracy", "precision": "float32"}
    return Run.model_validate({**usual, "recipe": 1, "seed": 0, "train_size": 10, "learning_rate": 1e-4, **values})


def values(number: float) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((2, 2), number), "a.bias": torch.full((2,), number)}


def load(weights: BestWeights, run: Run) -> dict[str, torch.Tensor] | None:
    """The stored parameters of a run, none of whose files are damaged."""
    return weights.load(run.digest, pytest.fail)


def test_only_the_best_run_of_each_k_is_stored(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path)
    runs = [spec_of(seed=seed) for seed in range(4)]
    for run, score in zip(runs, (0.6, 0.8, 0.7, 0.8), strict=True):
        weights.save_if_best(run, score, values(score))
    other = spec_of(recipe="full")
    weights.save_if_best(other, 0.1, values(0.1))
    stored = {run.digest: load(weights, run) for run in (*runs, other)}
    assert [run.digest for run in (*runs, other) if stored[run.digest]] == [runs[1].digest, other.digest]
    assert torch.equal(stored[runs[1].digest]["a.weight"], torch.full((2, 2), 0.8))
    assert sorted(path.name.split(".")[0] for path in weights.folder.glob("*.safetensors")) == ["full", "last-1"]


@pytest.mark.parametrize("count", [2, 5])
def test_of_runs_that_end_at_the_same_time_the_best_is_stored_without_locks(tmp_path: Path, count: int) -> None:
    weights, runs = BestWeights(tmp_path), [spec_of(seed=seed) for seed in range(count)]
    start = Barrier(count)

    def end(seed: int) -> None:
        start.wait()
        weights.save_if_best(runs[seed], 0.1 * seed, values(seed))

    with without_locks(), ThreadPoolExecutor(count) as pool:
        list(pool.map(end, range(count)))
    assert load(weights, runs[-1]) and len(list(weights.folder.iterdir())) == 1  # also no lock


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_among_equal_scores_the_first_seed_is_stored_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    weights, runs = BestWeights(tmp_path), [spec_of(seed=seed) for seed in range(3)]
    for n in order:
        weights.save_if_best(runs[n], 0.8 if n else 0.7, values(n))
    assert [n for n in range(3) if load(weights, runs[n])] == [1]


def test_more_examples_count_before_a_higher_score(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path)
    small, large = spec_of(train_size=10), spec_of(train_size=100)
    weights.save_if_best(large, 0.5, values(1))
    weights.save_if_best(small, 0.9, values(2))
    assert load(weights, large) and not load(weights, small)


def test_what_is_better_elsewhere_is_added_by_the_same_rule(tmp_path: Path) -> None:
    here, there = BestWeights(tmp_path / "here"), BestWeights(tmp_path / "there")
    runs = {name: spec_of(recipe=k, seed=seed) for name, k, seed in (("a", 1, 0), ("b", 1, 1), ("c", "full", 0))}
    for folder in (here, there):
        folder.folder.parent.mkdir()
    here.save_if_best(runs["a"], 0.7, values(1))
    there.save_if_best(runs["b"], 0.8, values(2))
    there.save_if_best(runs["c"], 0.5, values(3))
    better = there.better_than(here.ranks())
    assert better.keys() == {runs["b"].digest, runs["c"].digest} and not here.better_than(there.ranks())
    for run in (runs["b"], runs["c"]):
        here.add(run, *better[run.digest])
    assert here.ranks() == there.ranks() == {"full": (10, 0.5, 0), "last-1": (10, 0.8, -1)}
    assert contents(here.folder) == contents(there.folder)


@pytest.mark.parametrize("place", [0, 20, -5, None], ids=["size", "header", "value", "truncated"])
def test_a_damaged_file_is_set_aside_and_replaced(tmp_path: Path, place: int | None) -> None:
    weights, run, notes = BestWeights(tmp_path), spec_of(), list[str]()
    weights.save_if_best(run, 0.5, values(1))
    (file,) = weights.folder.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    if place is not None:
        content[place] ^= 1
    damaged = bytes(content if place is not None else content[:-9])
    file.write_bytes(damaged)
    assert weights.load(run.digest, notes.append) is None
    assert notes == [f"{file} is damaged: it is now in {tmp_path / 'damaged' / file.name}."]
    assert (tmp_path / "damaged" / file.name).read_bytes() == damaged
    weights.save_if_best(run, 0.1, values(2))
    assert torch.equal(load(weights, run)["a.bias"], torch.full((2,), 2.0))


def test_a_file_with_incomplete_metadata_is_set_aside_by_the_next_run(tmp_path: Path) -> None:
    weights, run = BestWeights(tmp_path), spec_of()
    weights.folder.mkdir()
    save_file(values(1), weights.folder / "last-1.0.safetensors", {"run": "r", "train_size": "99", "score": "0.9"})
    weights.save_if_best(run, 0.1, values(2))
    assert torch.equal(load(weights, run)["a.bias"], torch.full((2,), 2.0))
    assert [path.name for path in (tmp_path / "damaged").iterdir()] == ["last-1.0.safetensors"]


def test_remove_removes_the_folder_and_can_be_repeated(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path)
    weights.save_if_best(spec_of(), 0.5, values(1))
    (weights.folder / "notes.txt").write_text("of a user")
    weights.remove()
    assert [path.name for path in weights.folder.iterdir()] == ["notes.txt"]
    (weights.folder / "notes.txt").unlink()
    weights.remove()
    weights.remove()
    assert not weights.folder.exists() and load(weights, spec_of()) is None


def test_a_file_that_another_process_removes_while_it_is_opened_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors then raises a RuntimeError, which ended searches with two workers."""
    weights, runs = BestWeights(tmp_path), [spec_of(seed=seed) for seed in range(2)]
    weights.save_if_best(runs[0], 0.9, values(0))
    (older,) = weights.folder.glob("*.safetensors")
    real = tensor_files.safe_open

    def removed(file: Path, framework: str) -> object:
        if file != older:
            return real(file, framework)
        file.unlink(missing_ok=True)
        raise RuntimeError(f"unable to open file <{file}> in read-only mode: No such file or directory (2)")

    monkeypatch.setattr(tensor_files, "safe_open", removed)
    weights.save_if_best(runs[1], 0.5, values(1))
    assert load(weights, runs[1]) is not None
