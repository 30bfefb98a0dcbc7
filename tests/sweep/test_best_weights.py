"""What the best run of each k has learned: kept, found, given up; and a saved model that is the run's own."""

from itertools import permutations
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from frostline.sweep.execution.best_weights import BestWeights
from frostline.training.specification import RunSpec


def spec_of(**values: object) -> RunSpec:
    usual = {"weights": "w", "vocabulary": "v", "data": "d", "metric": "accuracy", "precision": "float32"}
    return RunSpec.model_validate({**usual, "tune": 1, "seed": 0, "train_size": 10, "learning_rate": 1e-4, **values})


def values(number: float) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((2, 2), number), "a.bias": torch.full((2,), number)}


def test_the_best_of_each_k_is_there_and_no_other(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path / "weights")
    runs = [spec_of(seed=seed) for seed in range(4)]
    for run, score in zip(runs, (0.6, 0.8, 0.7, 0.8), strict=True):
        weights.offer(run, score, values(score))
    other = spec_of(tune="all")
    weights.offer(other, 0.1, values(0.1))
    held = {run.digest: weights.of(run.digest) for run in (*runs, other)}
    assert [run.digest for run in (*runs, other) if held[run.digest]] == [runs[1].digest, other.digest]
    assert torch.equal(held[runs[1].digest]["a.weight"], torch.full((2, 2), 0.8))
    assert sorted(path.name for path in weights.folder.glob("*.safetensors")) == [
        "all.safetensors",
        "last-1.safetensors",
    ]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_equal_ones_the_first_seed_is_there_whichever_ends_first(tmp_path: Path, order: tuple[int, ...]) -> None:
    weights, runs = BestWeights(tmp_path / "weights"), [spec_of(seed=seed) for seed in range(3)]
    for n in order:
        weights.offer(runs[n], 0.8 if n else 0.7, values(n))
    assert [n for n in range(3) if weights.of(runs[n].digest)] == [1]


def test_more_examples_count_before_a_higher_score(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path / "weights")
    small, large = spec_of(train_size=10), spec_of(train_size=100)
    weights.offer(large, 0.5, values(1))
    weights.offer(small, 0.9, values(2))
    assert weights.of(large.digest) and not weights.of(small.digest)


def test_a_damaged_file_counts_for_nothing(tmp_path: Path) -> None:
    weights, run = BestWeights(tmp_path / "weights"), spec_of()
    weights.offer(run, 0.5, values(1))
    (file,) = weights.folder.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-9])
    assert weights.of(run.digest) is None
    weights.offer(run, 0.1, values(2))
    assert torch.equal(weights.of(run.digest)["a.bias"], torch.full((2,), 2.0))


def test_a_file_that_says_less_counts_for_nothing(tmp_path: Path) -> None:
    weights, run = BestWeights(tmp_path / "weights"), spec_of()
    weights.folder.mkdir()
    save_file(values(1), weights.folder / "last-1.safetensors", {"run": "r", "train_size": "99", "score": "0.9"})
    weights.offer(run, 0.1, values(2))
    assert torch.equal(weights.of(run.digest)["a.bias"], torch.full((2,), 2.0))


def test_dropped_is_gone(tmp_path: Path) -> None:
    weights = BestWeights(tmp_path / "weights")
    weights.offer(spec_of(), 0.5, values(1))
    weights.drop()
    weights.drop()
    assert not weights.folder.exists() and weights.of(spec_of().digest) is None
