"""Whichever operation of the disk fails, the old trained parameters of a k are stored or the new ones, never others."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

import frostline.sweeps.results.tensor_files as weights_module
from frostline.sweeps.results.tensor_files import BestWeights
from hostile import HOW, fail_at
from records import spec_of_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork")
RUNS = [spec_of_run(seed=seed) for seed in range(3)]


@pytest.fixture(autouse=True)
def through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors writes files by itself, where no fault can be injected. The same bytes are written here by Python."""

    def write(tensors: Any, path: Path, about: dict[str, str]) -> None:
        with path.open("wb") as file:
            file.write(save(tensors, about))

    monkeypatch.setattr(weights_module, "save_file", write)


def values(seed: int) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((3, 2), float(seed))}


def stored(weights: BestWeights) -> list[int]:
    """The seeds of the runs whose parameters are stored. What is stored is right."""
    found, damage = [], list[str]()
    for run in RUNS:
        if loaded := weights.load(run.digest, damage.append):
            assert torch.equal(loaded["a.weight"], values(run.seed)["a.weight"])
            found.append(run.seed)
    assert not damage
    return found


def save_the_next(weights: BestWeights, seed: int) -> None:
    weights.save_if_best(RUNS[seed], 0.5 + 0.1 * seed, values(seed))


def add_the_next(weights: BestWeights, seed: int, content: bytes) -> None:
    weights.add(RUNS[seed], 0.5 + 0.1 * seed, content)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", ["saved", "added"])
def test_the_old_parameters_or_the_new_ones(tmp_path: Path, how: str, way: str) -> None:
    other = BestWeights(tmp_path)
    save_the_next(other, 2)
    ((score, content),) = other.better_than({}).values()
    assert score == 0.7

    def folder(number: int, seeds: range) -> BestWeights:
        (tmp_path / f"{number}").mkdir()
        weights = BestWeights(tmp_path / f"{number}")
        for seed in seeds:
            save_the_next(weights, seed)
        return weights

    def operation(weights: BestWeights) -> None:
        save_the_next(weights, 2) if way == "saved" else add_the_next(weights, 2, content)

    number, seen = 0, set[tuple[int, ...]]()
    for before in (range(0), range(2)):  # nothing was stored; one file was replaced before
        count = fail_at(0, "", partial(operation, new := folder(number, before)))
        assert count >= 6 and stored(new) == [2]
        for fails in range(1, count + 1):
            number += 1
            weights = folder(number, before)
            fail_at(fails, how, partial(operation, weights))
            found = stored(weights)
            assert found in ([*before][-1:], [2], [1, 2]), fails  # before the older file is removed, both are there
            seen.add(tuple(found))
            operation(weights)  # the next attempt needs no repair
            assert stored(weights) in ([2], [1, 2])
            assert weights.ranks() == {"last-1": (10, 0.7, -2)}
        number += 1
    assert {(), (1,), (2,)} <= seen
