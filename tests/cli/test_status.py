"""`frostline status`: who trains what."""

import json
import os
import platform
import shutil
from pathlib import Path

import pytest

import frostline.cli.folders as status_module
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from records import failed
from tiny import Frostline


def test_it_shows_who_trains_what_since_when_and_who_is_dead(
    frostline: Frostline, finished_small: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(finished_small, tmp_path / "s"))
    run = Folder(out).runs[-1]
    shutil.rmtree(out / "runs" / run.digest)
    before = frostline("status", out).out
    assert before.startswith(f"{out}: 3 done, 0 ended in an error, 1 pending\n") and "sign_of_life" not in before
    with Leases(out) as leases:
        leases.take([[run.digest, "ofanothersweep"]])
        (lease, _) = leases.current()
        *table, header, row, _, _ = frostline("status", out).out.splitlines()
        shutil.copytree(out / "leases", tmp_path / "left")
    assert table == before.splitlines()[:-1] and header.split()[-3:] == ["process", "since", "sign_of_life"]
    assert row.startswith("last 1") and row.endswith(
        f"{os.getpid()} on {platform.node()}  {lease.since[:10]} {lease.since[11:]}  lives"
    )
    path = Path(shutil.copy(tmp_path / "left" / f"{run.digest}.1.json", out / "leases"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": 2**31}))  # no process has this number
    *_, row, _, left = frostline("status", out).out.splitlines()
    assert row.endswith("dead") and left.endswith("with one process, while none trains (1 run by measured times).")
    path.write_text(path.read_text().replace('"kernel": "', '"kernel": "another '))
    *_, row, _, left = frostline("status", out).out.splitlines()
    assert row.endswith("lives") and left.endswith("with 1 process (1 run by measured times).")


def test_watching_shows_each_change_until_all_runs_have_ended(
    frostline: Frostline, finished_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(finished_small, tmp_path / "s"))
    runs, changes = Folder(out).runs, list[str]()
    for run in runs[2:]:
        shutil.move(out / "runs" / run.digest, tmp_path / run.digest)

    def time_passes(seconds: float) -> None:
        assert seconds > 0 and len(changes) < 4
        changes.append("nothing" if len(changes) % 2 else runs[2 + len(changes) // 2].digest)
        if changes[-1] != "nothing":
            shutil.move(tmp_path / changes[-1], out / "runs" / changes[-1])

    monkeypatch.setattr(status_module, "sleep", time_passes)
    got = frostline("status", out, "--watch")
    first, left, second, _, third = got.out.split("\n\n")
    assert (got.code, len(changes)) == (0, 3) and left.startswith("Time left: about ")
    assert [text.splitlines()[0].partition(": ")[2] for text in (first, second, third)] == [
        "2 done, 0 ended in an error, 2 pending",
        "3 done, 0 ended in an error, 1 pending",
        "4 done, 0 ended in an error, 0 pending",
    ]
    assert third == frostline("status", out).out


def test_of_many_runs_it_shows_numbers_and_reads_no_result(
    frostline: Frostline, finished_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(finished_small, tmp_path / "s"))
    first, *_, last = (run.digest for run in Folder(out).runs)
    shutil.rmtree(out / "runs" / first)
    Store(out).fail(failed(first))
    (out / "runs" / last / "result.json").write_bytes(b"{")
    monkeypatch.setattr(status_module, "LISTED", 3)
    header, *rows = frostline("status", out).out.splitlines()[1:]
    assert header.split() == ["recipe", "train_size", "done", "failed", "pending"]
    assert [row.split()[-4:] for row in rows] == [["20", "1", "1", "0"], ["20", "2", "0", "0"]]
    got = frostline("status", out, "--all")
    assert len(got.out.splitlines()) == 8 and "is damaged" in got.err and "out of memory" in got.out


@pytest.mark.parametrize("command", ["status", "work"])
def test_the_folder_of_a_study_gets_a_message_that_names_a_sweep(
    frostline: Frostline, finished_small: Path, tmp_path: Path, command: str
) -> None:
    study = tmp_path / "study"
    for task in ("sst2", "rte"):
        shutil.copytree(finished_small, study / "bert" / task)
    got = frostline(command, study)
    assert got.code == 2 and f"study: give the folder of one, such as {study / 'bert' / 'rte'}." in got.err
    assert "start the study's command again" in got.err
    assert "no sweep (no sweep.toml)" in frostline(command, tmp_path).err


@pytest.mark.parametrize("name", ["", "film"])
def test_a_search_without_runs_yet_is_no_other_folder(frostline: Frostline, tmp_path: Path, name: str) -> None:
    (tmp_path / "o" / name).mkdir(parents=True)
    (tmp_path / "o" / name / ".finish.lock").touch()
    got = frostline("status", tmp_path / "o")
    assert got.code == 0 and "has no runs yet: a search first caches hidden states" in " ".join(got.out.split())
    report = frostline("report", tmp_path / "o")
    assert report.code == 2 and "has no runs yet" in report.err


def test_unrelated_sweeps_are_refused(frostline: Frostline, finished_small: Path, tmp_path: Path) -> None:
    """Two sweeps with one model are not those of several models, even on the same data."""
    for name in ("monday", "tuesday"):
        shutil.copytree(finished_small, tmp_path / "mine" / name)
    for command in (("status",), ("report",), ("track", "--to", "tensorboard"), ("work",)):
        got = frostline(command[0], tmp_path / "mine", *command[1:])
        assert got.code == 2, got
        assert "mine holds sweeps that do not belong together ('monday', 'tuesday'): give the folder" in got.err, got
    assert not [*tmp_path.glob("mine/*/report.html")]
