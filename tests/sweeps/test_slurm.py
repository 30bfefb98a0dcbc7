"""The script of a SLURM job array: what it says, and what it does at each signal."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.sweeps.slurm import script, submit

pytestmark = pytest.mark.skipif(os.name == "nt", reason="SLURM runs on Linux")


def program(folder: Path, name: str, text: str) -> Path:
    """An executable shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that are found first. One is the worker, in place of Python."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "worker"))
    return tmp_path / "bin"


def test_the_script_has_what_sbatch_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a 50% 'b'").mkdir()
    monkeypatch.chdir(tmp_path / "a 50% 'b'")
    lines = script(Path("o"), tasks=3, options="--partition=gpu --comment='two words'").splitlines()
    own = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    out = tmp_path / "a 50% 'b'" / "o"
    assert [shlex.split(line) for line in own] == [
        ["--job-name=frostline"],
        ["--array=1-3"],
        [f"--output={str(out).replace('%', '%%')}/slurm-%A_%a.log"],
        ["--open-mode=append"],
        ["--requeue"],
        ["--signal=B:USR1@60"],
        ["--partition=gpu", "--comment=two words"],
    ]
    words = [shlex.split(line, comments=True) for line in lines]
    assert ["cd", str(out.parent), "||", "exit"] in words
    assert [sys.executable, "-m", "frostline", "work", str(out), "&"] in words
    assert subprocess.run(["bash", "-n"], input="\n".join(lines), text=True).returncode == 0


@pytest.mark.parametrize("options", ["gpu", "--comment='open", "--comment='a\n#SBATCH --array=1-9'"])
def test_impossible_options_are_refused(options: str) -> None:
    with pytest.raises(FrostlineError, match=r"--sbatch cannot be .*: give options of sbatch"):
        script(Path("o"), options=options)
    with pytest.raises(FrostlineError, match="--tasks cannot be 0: give 1 or more"):
        script(Path("o"), tasks=0)


@pytest.mark.parametrize(
    ("number", "code", "ends_with", "requeued"),
    [
        (signal.SIGTERM, 143, "TERM", False),  # cancelled: it must not come back
        (signal.SIGUSR1, 143, "TERM", True),
        (signal.SIGUSR1, 0, "TERM", False),  # it was done when the signal came
        (None, 1, "", False),
    ],
)
def test_what_a_task_does_at_a_signal(
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    code: int,
    ends_with: str,
    requeued: bool,
) -> None:
    said, wait = tmp_path / "said", "echo begun >> said; while true; do sleep 0.02; done" if number else ""
    program(programs, "worker", f"trap 'echo TERM >> said; sleep 0.1; exit {code}' TERM; {wait}\nexit {code}")
    program(programs, "scontrol", "echo $@ >> said")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    task = subprocess.Popen(["bash", "-c", script(tmp_path / "o")])
    while number and not said.exists():
        time.sleep(0.01)
    if number:
        task.send_signal(number)
    assert task.wait(20) == code
    lines = said.read_text().split("\n") if said.exists() else []
    assert lines == [line for line in ("begun" * bool(number), ends_with, "requeue 17" * requeued) if line] + [
        ""
    ] * bool(number)


@pytest.mark.parametrize(
    ("task", "code", "does"),
    [
        (1, 0, "-m frostline find --budget=1s"),
        (1, 2, "-m frostline find --budget=1s\nscancel 17"),  # the others would wait forever
        (1, 143, "-m frostline find --budget=1s"),  # preempted: it comes back
        (2, 0, "-m frostline work {out} --wait"),
        (2, 2, "-m frostline work {out} --wait"),
    ],
)
def test_one_task_of_a_search_decides_and_without_it_all_end(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: int, code: int, does: str
) -> None:
    program(programs, "worker", f"echo $@ >> said; exit {code}")
    program(programs, "scancel", "echo scancel $@ >> said")
    monkeypatch.chdir(tmp_path)
    text = script(tmp_path / "o", search=["find", "--budget=1s"])
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "17"}
    assert subprocess.run(["bash", "-c", text], env=env).returncode == code
    assert (tmp_path / "said").read_text() == does.format(out=tmp_path / "o") + "\n"


def test_the_number_of_the_job_is_returned(programs: Path, tmp_path: Path) -> None:
    program(programs, "sbatch", 'echo "41;cluster"; echo "$@" > ' + shlex.quote(str(tmp_path / "said")))
    assert submit(tmp_path, "the script") == "41"
    assert (tmp_path / "said").read_text() == f"--parsable {tmp_path}/slurm.sh\n"
    assert (tmp_path / "slurm.sh").read_text() == "the script"


def test_no_sbatch_and_a_refusal_are_named(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(
        FrostlineError, match=r"sbatch refuses .*slurm\.sh \(invalid partition specified: gpu\): correct"
    ):
        submit(tmp_path, "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FrostlineError, match=r"There is no sbatch here: submit .*slurm\.sh"):
        submit(tmp_path, "")
