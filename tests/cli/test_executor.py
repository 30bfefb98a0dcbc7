"""`--executor` of the commands that train, with programs in place of those of SLURM, and a stand-in for Ray."""

import os
import shlex
import sys
from pathlib import Path

import pytest

import frostline as package
from frostline import FrostlineError
from frostline.api.sweep import submit
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.store import Store
from ray_here import RayHere
from tiny import FAST, Frostline, assert_same_predictions, sentences

WORDS = ("sweep", "--model", "m", "--train", "t.csv", "--tune", "0,1", "--seeds", "2", "--out", "o", *FAST)
SEARCH = ("find", *WORDS[1:5], "--tune", "0,1", "--seeds", "1", "--head-learning-rate", "1e-3", *FAST)
SLURM = ("--executor", "slurm", "--tasks", "2", "--sbatch", "--partition=gpu")
FIRST = "bash $2 > $(dirname $2)/slurm-7_1.log 2>&1 || exit; echo 7"
TOGETHER = (
    "for task in 1 2; do SLURM_ARRAY_TASK_ID=$task bash $2 > $(dirname $2)/slurm-7_$task.log 2>&1 & done; wait; echo 7"
)


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that runs the first task before it returns. The others wait for a machine."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "sbatch"
    path.write_text(f"#!/bin/bash\n{FIRST}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(package.__file__).parents[1]))
    return path


@pytest.mark.usefixtures("sbatch")
def test_the_tasks_train_the_runs_and_the_same_command_makes_the_answer(frostline: Frostline, here: Path) -> None:
    got = frostline(*WORDS, *SLURM)
    assert got.code == 0, got.err
    assert got.out.startswith(
        "Job 7 trains the runs: 2 tasks of o/slurm.sh. `frostline status o --watch` shows them.\n"
    )
    assert Folder(here / "o").counts() == {"done": 4, "failed": 0, "pending": 0}
    log = (here / "o" / "slurm-7_1.log").read_text()
    assert "o: 4 done, 0 ended in an error, 0 pending\n" in log and "4/4" in log
    assert not (here / "o" / "answer.json").exists() and not list((here / "o" / "leases").iterdir())
    after = frostline(*WORDS)
    assert after.code == 0 and "1/" not in after.err and (here / "o" / "model" / "frostline.json").exists()


def test_print_shows_the_script_and_writes_nothing(frostline: Frostline, here: Path, sbatch: Path) -> None:
    got = frostline(*WORDS, *SLURM, "--print")
    assert got.code == 0 and not (here / "o").exists()
    sbatch.write_text("#!/bin/bash\necho 7\n")
    assert frostline(*WORDS, *SLURM).code == 0
    assert (here / "o" / "slurm.sh").read_text() == got.out
    assert "#SBATCH --array=1-2\n" in got.out and "#SBATCH --partition=gpu\n" in got.out
    assert f"work {shlex.quote(str(here / 'o'))} &\n" in got.out


@pytest.mark.slow
@pytest.mark.usefixtures("sbatch")
def test_tasks_that_search_together_find_what_one_process_finds(frostline: Frostline, here: Path, sbatch: Path) -> None:
    """The first task decides. The other one gets the runs of its first step from the command, and waits for the next."""
    sbatch.write_text(f"#!/bin/bash\n{TOGETHER}\n")
    got = frostline(*SEARCH, "--out", "o", *SLURM)
    assert got.code == 0, got.err
    assert got.out == (
        "Job 7 searches with 2 tasks of o/slurm.sh. `frostline status o --watch` shows its runs.\n"
        "When they have ended, the answer is in o/slurm-7_1.log and in o/report.html.\n"
    )
    logs = [(here / "o" / f"slurm-7_{task}.log").read_text() for task in (1, 2)]
    alone = frostline(*SEARCH, "--out", "alone", "--processes", "2")
    assert alone.code == 0, alone.err
    _, table = alone.out.replace("alone", "o").split("\n\n", 1)  # sentences before it may doubt the times
    assert logs[0].endswith(table) and "0 ended in an error, 0 pending\n" in logs[1]
    assert_same_predictions(Store(here / "o"), Store(here / "alone"))


def test_the_script_of_a_search_has_its_flags(frostline: Frostline, here: Path) -> None:
    more = ("--budget", "10min", "--class-weights", "negative=2,positive=1", "--no-tune-pooler", "--exhaustive")
    got = frostline(*SEARCH, "--out", "o", *more, *SLURM, "--print")
    assert got.code == 0 and not (here / "o").exists()
    (line,) = (line for line in got.out.splitlines() if " -m frostline find " in line)
    words = shlex.split(line)[3:-1]
    assert {"--budget=10min", "--class-weights=negative=2,positive=1", "--no-tune-pooler", "--exhaustive"} < set(words)
    assert "--processes=2" in words and "--executor" not in line
    assert frostline(*words, "--executor", "slurm", "--print").code == 0  # all of them are flags


@pytest.mark.usefixtures("here")
def test_candidates_may_be_added_to_every_k(frostline: Frostline) -> None:
    got = frostline("find", *WORDS[1:5], "--tune", "auto,lora-1", "--executor", "slurm", "--print")
    assert got.code == 0 and "--tune=auto,lora-1" in got.out


@pytest.mark.parametrize(
    ("command", "executor", "flags"),
    [
        ("sweep", "slurm", ("--print",)),
        ("sweep", "slurm", ("--tasks", "2", "--executor", "ray")),
        ("find", "slurm", ("--sbatch", "--partition=gpu")),
        ("find", "ray", ("--address", "auto", "--executor", "slurm")),
        ("sweep", "ray", ("--cpus", "2")),
        ("find", "ray", ("--gpus", "0")),
    ],
)
def test_flags_of_a_cluster_need_that_cluster(
    frostline: Frostline, tmp_path: Path, command: str, executor: str, flags: tuple[str, ...]
) -> None:
    got = frostline(command, "--model", "m", "--train", "t.csv", "--out", "o", *flags)
    assert got.code == 2 and f"are for --executor {executor}: add it, or" in got.err and not (tmp_path / "o").exists()


@pytest.mark.parametrize("words", [WORDS, (*SEARCH, "--out", "o")], ids=["sweep", "find"])
def test_tasks_of_ray_train_the_runs(
    frostline: Frostline, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", stand_in := RayHere())  # type: ignore[arg-type]
    got = frostline(*words, "--executor", "ray", "--cpus", "1")
    assert got.code == 0, got.err
    assert {run["num_cpus"] for run in stand_in.options} == {1} and "report.html" in got.out
    assert Folder(here / "o").counts() == {"done": len(Folder(here / "o").runs), "failed": 0, "pending": 0}


def test_tables_that_are_in_no_file_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    import pandas as pd

    sweep = {"model": tiny_bert, "train": pd.DataFrame(sentences(60)), "tune": 0, "seeds": 1, "out": tmp_path / "o"}
    with pytest.raises(FrostlineError, match="The train table was given in Python: write it into a file"):
        submit(**sweep)
    assert not (tmp_path / "o").exists()
