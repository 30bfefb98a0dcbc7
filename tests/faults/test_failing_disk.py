"""Whichever operation of the disk fails, a reader finds the old state of a sweep's folder or the new one, never another."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import frostline.sweeps.results.tensor_files as tensor_files
from frostline import FrostlineError
from frostline.sweeps.results.folder import read_alternatives, write_alternatives
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.search_record import read_search, write_search
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import BestWeights
from hostile import HOW, fail_at
from records import failed, record_of, result, spec_of_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork")
Operation = Callable[[Store], object]
RUNS = [spec_of_run(seed=seed) for seed in range(3)]


@pytest.fixture(autouse=True)
def through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors writes files by itself, where no fault can be injected. The same bytes are written here by Python."""

    def write(tensors: Any, path: Path, about: dict[str, str]) -> None:
        with path.open("wb") as file:
            file.write(save(tensors, about))

    monkeypatch.setattr(tensor_files, "save_file", write)


def save_weights(out: Path, seed: int) -> None:
    """Store trained parameters that are better than those of smaller seeds."""
    BestWeights(out).save_if_best(RUNS[seed], 0.5 + 0.1 * seed, {"a.weight": torch.full((3, 2), float(seed))})


def add_weights(store: Store) -> None:
    """Those that another folder has stored."""
    save_weights(store.out / "other", 2)
    ((score, content),) = BestWeights(store.out / "other").better_than({}).values()
    BestWeights(store.out).add(RUNS[2], score, content)


def best_weights(out: Path) -> Any:
    """The best trained parameters that are stored, with their rank. Until an older file is removed, both are there."""
    found = [loaded for run in RUNS if (loaded := BestWeights(out).load(run.digest, pytest.fail))]
    return BestWeights(out).ranks(), found[-1]["a.weight"].tolist()


def prepare(store: Store) -> None:
    """The state before each operation: results, a failure, the record of a search, and parameters that were replaced once."""
    store.publish(result("aa"))
    store.publish(result("bb", outcome="diverged"))
    store.fail(failed("cc", "out of memory"))
    store.write_spec({"seeds": [0]})
    write_search(store.out, record_of(why="old"))
    write_alternatives(store.out, {"old": np.ones((2, 2))}, {})
    for seed in (0, 1):
        save_weights(store.out, seed)


def copy_from_another_folder(store: Store) -> None:
    other = Store(store.out / "other")
    other.publish(result("dd"))
    store.add("dd", other.files("dd"))


def set_damage_aside(store: Store) -> None:
    """A read of a result that was damaged by :func:`damage`."""
    try:
        store.result("aa")
    except FrostlineError:
        if (store.runs / "aa").exists():
            raise


OPERATIONS: dict[str, Operation] = {
    "publish a result": lambda store: store.publish(result("dd")),
    "publish the result of a failed run": lambda store: store.publish(result("cc")),
    "publish what is there": lambda store: store.publish(result("aa", 0.25)),
    "record a failure": lambda store: store.fail(failed("dd", "no")),
    "replace a failure": lambda store: store.fail(failed("cc", "no")),
    "retry a failure": lambda store: store.retry(["cc"], ["failed"]),
    "retry a diverged run": lambda store: store.retry(["bb"], ["diverged"]),
    "copy a result": copy_from_another_folder,
    "set damage aside": set_damage_aside,
    "write the settings": lambda store: store.write_spec({"seeds": [0, 1]}),
    "write the record of a search": lambda store: write_search(store.out, record_of(why="new")),
    "write the predictions of a probe": lambda store: write_alternatives(store.out, {"new": np.zeros((1, 2))}, {}),
    "store trained parameters": lambda store: save_weights(store.out, 2),
    "copy trained parameters": add_weights,
}


def damage(store: Store) -> None:
    (store.runs / "aa" / "result.json").write_bytes(b"{}")


def state(out: Path, *, damaged: bool) -> object:
    """All that readers find. A damaged result is not read, because that sets it aside."""
    store = Store(out)
    runs = sorted(store.done() - ({"aa"} if damaged else set()))
    arrays = {name: array.tolist() for name, array in read_alternatives(out).items()}
    records, tests = [store.result(run) for run in runs], [store.test(run)[0] for run in runs]  # type: ignore[index]
    logits = [{name: array.tolist() for name, array in store.predictions(run).items()} for run in runs]
    told = read_search(out)
    others = store.read_spec(), told and told.why, arrays, best_weights(out)
    return store.states(), records, tests, logits, store.failures(), *others


@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for n, name in enumerate(OPERATIONS) for how in ("kill", HOW[n % 2])]
)
def test_the_old_state_or_the_new_one(name: str, how: str, tmp_path: Path) -> None:
    damaged, operation = "damage" in name, OPERATIONS[name]

    def folder(number: int) -> Store:
        store = Store(tmp_path / str(number))
        prepare(store)
        if damaged:
            damage(store)
        return store

    new = folder(0)
    old_state = state(new.out, damaged=damaged)
    count = fail_at(0, "", partial(operation, new))
    new_state, seen = state(new.out, damaged=damaged), set()
    assert count >= 4
    for number in range(1, count + 1):
        store = folder(number)
        fail_at(number, how, partial(operation, store), (OSError,) if "parameters" in name else (FrostlineError,))
        found = state(store.out, damaged=damaged)
        assert found in (old_state, new_state), number
        seen.add(found == old_state)
        operation(store)  # the next attempt needs no repair
        assert state(store.out, damaged=damaged) == new_state
    assert seen == ({True} if old_state == new_state else {True, False})


@pytest.mark.parametrize("how", HOW)
def test_a_run_can_be_taken_whatever_failed_when_another_process_took_it(tmp_path: Path, how: str) -> None:
    def take(store: Store) -> None:
        with Leases(store.out) as leases:
            leases.take([["aa"]])

    count = fail_at(0, "", partial(take, Store(tmp_path / "0")))
    assert count >= 8
    for number in range(1, count + 1):
        out = tmp_path / str(number)
        fail_at(number, how, partial(take, Store(out)))
        with Leases(out, silent_after=0.0) as leases:  # a lease that could not be removed is no longer renewed
            assert leases.take([["aa"]]) == ["aa"], number
