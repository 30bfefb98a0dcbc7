"""``frostline.work``: several processes on one folder, of which some are killed."""

import multiprocessing
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pandas as pd
import pytest

import frostline
from frostline import FrostlineError, work
from frostline.cli.program import main
from frostline.sweeps.execution.stopping import StopRequest
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder, register
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.training.train import run
from tiny import Frostline, Notes, TrainWith, assert_same_predictions, plan_of, sentences

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")
FORK = multiprocessing.get_context("fork")
DONE = {"done": 4, "failed": 0, "pending": 0}


@pytest.fixture
def planned(settings: dict[str, Any]) -> Path:
    """The folder of a sweep with four runs, of which none has been trained."""
    register(plan_of(progress=Progress(), **settings, stack=1, workers=1))
    return Path(settings["out"])


def started(do: Callable[[], Any]) -> Any:
    """A process that calls ``do`` and ends."""
    process = FORK.Process(target=do)
    with warnings.catch_warnings():  # Python warns of forks with threads; those of pytest-xdist are never used
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def main_of(*words: Any) -> None:
    """What the program does in a process of its own."""
    sys.argv = ["frostline", *map(str, words)]
    main()


def test_a_sweep_shares_its_runs_with_a_process_that_joins(
    settings: dict[str, Any], finished_small: Path, train_with: TrainWith
) -> None:
    own, out = list[str](), Path(settings["out"])

    def let_another_join(spec: Any, experiment: Any, **more: Any) -> Any:
        if os.getpid() == parent and not own:
            own.append(spec.digest)
            process = started(lambda: work(out, progress=Progress()))
            process.join(60)
            assert process.exitcode == 0
        else:
            assert os.getpid() != parent
        return run(spec, experiment, **more)

    parent, results = os.getpid(), list[Any]()

    class Shown(Progress):
        def result(self, facts: Any) -> None:
            results.append(facts.digest)
            super().result(facts)

    train_with(let_another_join)
    shown = Shown()
    answer = frostline.sweep(save_model=False, progress=shown, **{**settings, "stack": 1, "workers": 1}).answer
    assert answer.runs.done == 4 and len(own) == 1
    assert sorted(results) == sorted(Store(finished_small).results()) and shown.runs_done == shown.runs == 4
    assert shown.done == pytest.approx(shown.total)
    assert_same_predictions(Store(out), Store(finished_small))


def test_relative_paths_are_found_from_another_folder(
    tiny_bert: Path, tiny_table: Path, frostline: Frostline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_bert, tmp_path / "m")
    shutil.copy(tiny_table, tmp_path / "t.csv")
    register(plan_of(model="m", train="t.csv", tune=0, seeds=1, train_size=20, test="none", out="o"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    got = frostline("work", "../o", "--workers", "1")
    assert got.code == 0 and got.out.startswith("../o: 1 done, 0 ended in an error, 0 pending\n`frostline report ../o`")
    assert Folder(tmp_path / "o").spec.model == "m"
    assert str(tmp_path) not in (tmp_path / "o" / "sweep.toml").read_text()
    (tmp_path / "t.csv").unlink()
    assert frostline("work", "../o").code == 0  # with nothing to train, the data are not read
    shutil.rmtree(tmp_path / "o" / "runs")
    got = frostline("work", "../o")
    assert got.code == 2 and "t.csv" in got.err


def test_tables_that_are_in_no_file_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    sweep = {"model": tiny_bert, "train": pd.DataFrame(sentences(60)), "tune": 0, "seeds": 1, "out": tmp_path / "o"}
    register(plan_of(**sweep))
    with pytest.raises(FrostlineError, match=r"The train table of .* was given in Python .*: start the program"):
        work(tmp_path / "o", progress=Progress())


def test_a_failed_run_is_not_repeated_by_another_process(planned: Path, train_with: TrainWith) -> None:
    def fails(spec: Any, experiment: Any, **more: Any) -> Any:
        raise RuntimeError("out of memory")

    train_with(fails)
    assert work(planned, progress=Progress()) == {"done": 0, "failed": 4, "pending": 0}
    train_with(run)
    assert work(planned, progress=Progress()) == {"done": 0, "failed": 4, "pending": 0}
    assert work(planned, retry=("diverged",), progress=Progress()) == {"done": 0, "failed": 4, "pending": 0}
    assert work(planned, retry=("failed",), progress=Progress()) == DONE
    assert len(list((planned / "retried").iterdir())) == 4


def test_runs_that_are_added_meanwhile_are_trained_too(
    settings: dict[str, Any], planned: Path, train_with: TrainWith
) -> None:
    def add_more(spec: Any, experiment: Any, **more: Any) -> Any:
        register(plan_of(progress=Progress(), **{**settings, "seeds": 3}))
        train_with(run)
        return run(spec, experiment, **more)

    train_with(add_more)
    assert work(planned, progress=Progress()) == {"done": 6, "failed": 0, "pending": 0}


def test_another_result_of_a_run_is_reported_and_the_first_one_stands(
    settings: dict[str, Any], train_with: TrainWith
) -> None:
    progress, store = Notes(), Store(Path(settings["out"]))

    def another_is_first(spec: Any, experiment: Any, **more: Any) -> Any:
        result = run(spec, experiment, **more)
        store.publish(result)
        if spec.seed == 1:
            result.logits = {name: logits + 1 for name, logits in result.logits.items()}
        return result

    train_with(another_is_first)
    frostline.sweep(save_model=False, progress=progress, **{**settings, "tune": 1, "stack": 1, "workers": 1})
    (said,) = (note for note in progress.notes if "Another process has also trained" in note)
    assert "last 1, seed 1, with other predictions (by " in said and said.endswith("stands.")


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_gives_the_runs_back_before_it_ends(
    planned: Path, train_with: TrainWith, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = FORK.Queue()

    def hang(spec: Any, experiment: Any, **more: Any) -> Any:
        begun.put(os.getpid())
        while True:
            sleep(0.01)

    train_with(hang)
    process = started(lambda: main_of("work", planned, "--workers", workers))
    pids = {begun.get(timeout=60) for _ in range(workers)}
    assert len(Leases(planned).current()) == workers
    for pid in {process.pid, *pids}:  # SLURM sends it to all processes of a task
        os.kill(pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 143 and not list((planned / "leases").iterdir())
    assert "frostline: stopped. Finished runs are saved; the same command continues" in capfd.readouterr().err
    for pid in pids - {process.pid}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_long_run_continues_from_the_step_at_which_sigterm_came(
    planned: Path, finished_small: Path, monkeypatch: pytest.MonkeyPatch, train_with: TrainWith, workers: int
) -> None:
    begun = FORK.Queue()

    def slow_run(spec: Any, experiment: Any, *, on_step: Callable[[int, int], None], **more: Any) -> Any:
        def slow_step(step: int, total: int) -> None:
            on_step(step, total)
            if step == 2:
                begun.put(spec.digest)
            sleep(0.05)

        return run(spec, experiment, on_step=slow_step, **more)

    train_with(slow_run)
    monkeypatch.setattr(StopRequest, "WORTH_KEEPING", 0.0)
    process = started(lambda: main_of("work", planned, "--workers", workers))
    under_way = {begun.get(timeout=60) for _ in range(workers)}
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    train_with(run)
    assert process.exitcode == 143 and not list((planned / "leases").iterdir())
    assert {file.name.partition(".")[0] for file in (planned / "checkpoints").iterdir()} >= under_way
    assert work(planned, progress=Progress()) == DONE
    assert_same_predictions(Store(planned), Store(finished_small))
    continued = {digest: facts.provenance.continued_after for digest, facts in Store(planned).results().items()}
    assert under_way == {digest for digest, steps in continued.items() if steps and steps[0] >= 2}
    assert not (planned / "checkpoints").exists()
