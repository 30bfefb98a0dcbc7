"""The program as a process: interruptions, exit codes, garbage collection."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
import torch

from frostline import FrostlineError
from frostline.cli.program import signals_heeded
from frostline.data.wording import first_line
from frostline.sweeps.execution.stopping import STOP
from frostline.sweeps.results.tables import COST
from hostile import nobody_reads
from tiny import FAST, Frostline

CONTINUES = "Finished runs are saved; the same command continues from there."
STARTS_AGAIN = "The same command starts again from the beginning."


@pytest.fixture
def program(here: Path) -> tuple[list[str], dict[str, str]]:
    """The command of a sweep with nine runs in its own process, and its environment."""
    command = [sys.executable, "-m", "frostline", "sweep", "--model", "m", "--train", "t.csv", "--tune", "0,1,all"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return [*command, "--seeds", "3", "--out", "o", *FAST[2:], "--num-train-epochs", "3"], environment


def wait_for_runs(process: "subprocess.Popen[str]", folder: Path, more: int) -> None:
    """Wait until so many more runs are done."""

    def done() -> int:
        return len(list(folder.glob("[!.]*/result.json")))

    target = done() + more
    while process.poll() is None and done() < target:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def test_a_killed_and_continued_sweep_equals_an_uninterrupted_one(
    here: Path, program: tuple[list[str], dict[str, str]], frostline: Frostline
) -> None:
    command, environment = program
    options: dict[str, Any] = {
        "env": environment,
        "cwd": here,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        # A shell lets background processes ignore SIGINT, and their children inherit that. The program must not.
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    }
    runs = here / "o" / "runs"
    first = subprocess.Popen(command, **options)
    wait_for_runs(first, runs, 1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    second = subprocess.Popen(command, **options)
    wait_for_runs(second, runs, 2)
    second.send_signal(signal.SIGINT)
    _, err = second.communicate()
    assert second.returncode == 130 and "Traceback" not in err, err
    assert err.endswith("frostline: stopped. Finished runs are saved; the same command continues from there.\n")
    third = frostline(*command[3:])
    assert third.code == 0 and "1/9" not in third.err
    whole = [("p" if word == "o" else word) for word in command[3:]]
    assert frostline(*whole).code == 0
    tables = [pd.read_csv(here / out / "results.csv").drop(columns=list(COST)) for out in ("o", "p")]
    pd.testing.assert_frame_equal(*tables)
    assert (here / "o" / "scores.csv").read_bytes() == (here / "p" / "scores.csv").read_bytes()
    ours, theirs = (json.loads((here / out / "model" / "frostline.json").read_text()) for out in ("o", "p"))
    assert ours["run"] == theirs["run"] and ours["logit_gap"] == theirs["logit_gap"] == 0
    weights = [(here / out / "model" / "model.safetensors").read_bytes() for out in ("o", "p")]
    assert weights[0] == weights[1]


@pytest.mark.usefixtures("heeds_ctrl_c", "here")
@pytest.mark.parametrize(
    ("command", "what", "sentence", "number"),
    [
        ("find --plan", "frostline.api.find.plan", STARTS_AGAIN, signal.SIGTERM),
        ("sweep --plan --tune 0", "frostline.api.sweep.plan", STARTS_AGAIN, signal.SIGTERM),
        ("find", "frostline.api.find.find", CONTINUES, signal.SIGTERM),
        ("sweep --tune 0", "frostline.api.sweep.sweep", CONTINUES, signal.SIGINT),
    ],
)
def test_only_a_command_that_trains_says_that_runs_are_saved(
    frostline: Frostline,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    what: str,
    sentence: str,
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(what, lambda *_, **__: signal.raise_signal(number))
    got = frostline(*command.split(), "--model", "m", "--train", "t.csv", "--out", "o")
    assert got.code == 128 + number and got.err.strip() == f"frostline: stopped. {sentence}"


@pytest.mark.usefixtures("heeds_ctrl_c", "here")
@pytest.mark.parametrize(
    ("made_of_it", "number"),
    [
        (RuntimeError("The cluster is gone."), signal.SIGINT),
        (SystemExit(1), signal.SIGTERM),
        (FrostlineError("No."), signal.SIGINT),
    ],
)
def test_a_signal_decides_the_exit_code_whatever_a_library_makes_of_it(
    frostline: Frostline, monkeypatch: pytest.MonkeyPatch, made_of_it: BaseException, number: signal.Signals
) -> None:
    signals = [number]

    def stopped(*_: object, **__: object) -> None:
        try:
            if signals:
                signal.raise_signal(signals.pop())
        finally:
            raise made_of_it

    monkeypatch.setattr("frostline.api.sweep.sweep", stopped)
    words = ("sweep", "--tune", 0, "--model", "m", "--train", "t.csv", "--out", "o")
    got = frostline(*words)
    assert got.code == 128 + number and got.err.strip() == f"frostline: stopped. {CONTINUES}"
    assert frostline(*words).code not in (130, 143)  # the next command was not stopped


@pytest.mark.parametrize(
    "unread, words, code, unbuffered", [("stdout", "--version", 141, "1"), ("stderr", "work nowhere", 2, "")]
)
def test_quiet_if_nobody_reads_its_output(tmp_path: Path, unread: str, words: str, code: int, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, unread: writer}
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "frostline", *words.split()]
    done = subprocess.run(command, **streams, cwd=tmp_path, env=environment)
    os.close(writer)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (code, b"", b"")


SHORT = torch.OutOfMemoryError("CUDA out of memory. And more")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ZeroDivisionError("by nothing"), 70, "ZeroDivisionError: by nothing\n"),
        (OSError(errno.EIO, "of the disk"), 70, "OSError: [Errno 5] of the disk\n"),
        (SHORT, 2, f"Memory ran out ({first_line(SHORT)}): end other programs that use it, or use a device with more,"),
        (OSError(errno.ENOSPC, "No space left on device", "f"), 2, "f cannot be written or read (No space left"),
    ],
)
def test_an_error_that_is_not_expected_has_a_traceback_and_its_own_exit_code(
    frostline: Frostline, here: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    """A lack of memory or disk is one sentence, also outside of a run, such as while hidden states are computed."""
    monkeypatch.setattr("frostline.sweeps.results.folder.Folder", Mock(side_effect=error))
    got = frostline("work", "o")
    assert got.code == code and said in got.err and ("Traceback (most recent call last):\n" in got.err) == (code == 70)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_step_ends_at_ctrl_c_although_the_reader_of_the_log_has_ended() -> None:
    """A terminal sends Ctrl-C to the whole pipeline."""
    steps = []
    with nobody_reads() as log, redirect_stderr(log), pytest.raises(KeyboardInterrupt), signals_heeded(), STOP.heeded():
        STOP.since = -1000.0  # it has trained for a while
        signal.raise_signal(signal.SIGINT)
        steps.append("ended")
        STOP.stop_if_made()
    assert steps == ["ended"]
