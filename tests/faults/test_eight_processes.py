"""Eight processes share the runs of one folder: each run is published once, and no process waits for ever."""

import multiprocessing
import os
import random
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.sweeps.execution.queue import Queue, shared_out
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.training.result import Result
from frostline.training.run import Run
from records import record, spec_of_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")
FORK = multiprocessing.get_context("fork")
PROCESSES, RUNS = 8, 200


def stacks() -> list[list[Run]]:
    """The runs in stacks of one to four, the same for all processes."""
    rng, made = random.Random(0), list[list[Run]]()
    runs = [spec_of_run(seed=seed) for seed in range(RUNS)]
    while runs:
        size = rng.randint(1, 4)
        made.append(runs[:size])
        runs = runs[size:]
    return made


def stand_in(run: Run) -> Result:
    """A result that depends on nothing but the run."""
    return Result(record(run), {"validation_best": np.full((4, 2), run.seed, np.float32)})


def train(out: Path, start: Any, published: Any, number: int) -> None:
    """What a process does. Some wait for the others at the end."""
    store, rng = Store(out), random.Random(number)
    start.wait(60)
    for stack in shared_out(Queue(stacks()), store, Leases(out), wait=bool(number % 2)):
        for run in stack or ():
            time.sleep(rng.uniform(0, 0.01))
            published.put((number, run.digest, store.publish(stand_in(run))))
        if stack is None:
            time.sleep(0.02)


def test_each_run_is_published_once_and_every_process_ends(tmp_path: Path) -> None:
    start, published = FORK.Barrier(PROCESSES), FORK.Queue()
    team = [FORK.Process(target=train, args=(tmp_path, start, published, n)) for n in range(PROCESSES)]
    with warnings.catch_warnings():  # Python warns of forks with threads; those of pytest-xdist are never used
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in team:
            process.start()
    found = [published.get(timeout=60) for _ in range(RUNS)]
    for process in team:
        process.join(60)
        assert process.exitcode == 0
    runs = [run for stack in stacks() for run in stack]
    assert published.empty() and all(new for _, _, new in found)
    assert sorted(digest for _, digest, _ in found) == sorted(run.digest for run in runs)
    assert len(Counter(number for number, _, _ in found)) == PROCESSES
    store = Store(tmp_path)
    assert not list(store.check()) and not list((tmp_path / "leases").iterdir())
    assert all((store.predictions(run.digest)["validation_best"] == run.seed).all() for run in runs)
