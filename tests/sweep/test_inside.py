"""A folder from others is data: links out of it are refused, and nothing is read without a limit."""

import os
import shutil
from pathlib import Path

import pytest

import frostline.sweep.results.result_files as files_module
from frostline import FrostlineError
from frostline.data.sealed import checksum, seal
from frostline.sweep.execution.best_weights import BestWeights
from frostline.sweep.merge import merge
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.inside import read_inside
from frostline.sweep.results.leases import Leases
from frostline.sweep.results.store import Store
from frostline.training.result import Result
from tiny import Frostline, contents


@pytest.fixture
def here(finished_small: Path, tmp_path: Path) -> Path:
    """A finished sweep whose files a test may replace by links to copies outside of it."""
    return Path(shutil.copytree(finished_small, tmp_path / "o"))


def linked(path: Path) -> Path:
    """Move a file or a folder out of the folder of the sweep, and put a link in its place."""
    target = Path(os.environ["HF_ASSETS_CACHE"]) / f"outside-{path.name}-{os.urandom(4).hex()}"
    shutil.move(path, target)
    path.symlink_to(target)
    return target


@pytest.mark.parametrize("name", ["runs", "runs/RUN", "runs/RUN/result.json", "runs/RUN/predictions.safetensors"])
def test_a_link_in_place_of_a_result_is_refused_and_stays(here: Path, frostline: Frostline, name: str) -> None:
    path = here / name.replace("RUN", Folder(here).runs[0].digest)
    target = linked(path)
    before = contents(target) if target.is_dir() else target.read_bytes()
    got = frostline("status", here)
    assert got.code == 2 and len(got.err.splitlines()) == 1
    assert f"{path} is a link to {target}, outside of" in got.err
    assert path.is_symlink() and (contents(target) if target.is_dir() else target.read_bytes()) == before


@pytest.mark.parametrize("name", ["sweep.toml", "validation.parquet", "data.json", "search.json"])
def test_a_link_in_place_of_a_file_of_all_runs_is_refused(here: Path, frostline: Frostline, name: str) -> None:
    if name == "search.json":
        (here / name).write_text("{}")
    linked(here / name)
    got = frostline("report", here)
    assert got.code == 2 and f"{name} is a link to " in got.err and len(got.err.splitlines()) == 1


def test_nothing_is_written_or_moved_through_a_link(here: Path, tmp_path: Path) -> None:
    outside, store, run = tmp_path / "outside", Store(here), Folder(here).runs[0].digest
    outside.mkdir()
    for name in ("leases", "damaged", "weights"):
        shutil.rmtree(here / name, ignore_errors=True)
        (here / name).symlink_to(outside)
    with pytest.raises(FrostlineError, match="leases is a link"), Leases(here):
        pass
    (here / "runs" / run / "result.json").write_bytes(b"{}")
    with pytest.raises(FrostlineError, match="damaged is a link"):
        store.result(run)
    with pytest.raises(FrostlineError, match="weights is a link"):
        BestWeights.in_folder(here).save_if_best(Folder(here).runs[0], 1.0, {})
    linked(here / "runs")
    for write in (
        lambda: store.publish("aa", Result({"digest": "aa"}, {})),
        lambda: store.fail("aa", {"digest": "aa"}),
    ):
        with pytest.raises(FrostlineError, match="runs is a link"):
            write()
    assert not list(outside.iterdir())


def test_a_merge_refuses_links(here: Path, tmp_path: Path) -> None:
    linked(here / "data.json")
    with pytest.raises(FrostlineError, match=r"data\.json is a link"):
        merge([here], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_folder_that_is_a_link_itself_and_links_within_it_are_read(here: Path, tmp_path: Path) -> None:
    run = Folder(here).runs[0].digest
    (here / "runs" / run).rename(here / "moved")
    (here / "runs" / run).symlink_to("../moved")
    (tmp_path / "link").symlink_to(here)
    assert Folder(tmp_path / "link").counts()["done"] == 4 and not list(Store(tmp_path / "link").check())


def test_large_and_special_files_are_damage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third, _ = (here / "runs" / run.digest for run in Folder(here).runs)
    with (first / "result.json").open("r+b") as file:
        file.truncate(2**40)  # sparse
    (second / "result.json").unlink()
    os.mkfifo(second / "result.json")  # reading it would wait forever
    monkeypatch.setattr(files_module, "ARRAY_BYTES", 100)
    (third / "predictions.safetensors").write_bytes(bytes(101))
    said = list(Store(here).check())
    assert "result.json has 1,099,511,627,776 bytes, more than the 67,108,864 that are read" in "".join(said)
    assert "result.json is no ordinary file" in "".join(said)
    assert "predictions.safetensors has 101 bytes, more than the 100" in "".join(said)


def test_a_forged_record_with_a_deep_structure_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", Result({"digest": "aa"}, {}))
    deep = b"[" * 100_000 + b"]" * 100_000
    body = seal({"deep": 0}).partition(b',\n "checksum"')[0].replace(b"0", deep)
    forged = body + f',\n "checksum": "{checksum(body)}"\n}}\n'.encode()
    (store.runs / "aa" / "result.json").write_bytes(forged)
    (sentence,) = store.check()
    assert "aa is damaged (maximum recursion depth exceeded" in sentence


def test_a_limit_is_exact(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1234")
    assert read_inside(tmp_path / "f", tmp_path, 4) == b"1234"
    with pytest.raises(ValueError, match="f has 4 bytes"):
        read_inside(tmp_path / "f", tmp_path, 3)
