"""A folder from others is data: links out of it are refused, and nothing is read without a limit."""

import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import frostline.sweep.results.result_files as files_module
from frostline import FrostlineError
from frostline.data.sealed import checksum, seal, seal_toml, unseal, unseal_toml, write_sealed
from frostline.sweep.execution.best_weights import BestWeights
from frostline.sweep.merge import merge
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.inside import read_inside
from frostline.sweep.results.leases import Leases
from frostline.sweep.results.search_record import SearchRecord, read_search
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
    assert "aa is damaged (it is nested too deep" in sentence


def forge(path: Path, **change: Any) -> None:
    """Change facts of a file, whose checksum is then right."""
    path.write_bytes(seal({**unseal(path.read_bytes()), **change}))


def forge_toml(path: Path, old: str, new: str) -> None:
    text = unseal_toml(path.read_bytes())
    assert old in text
    path.write_bytes(seal_toml(text.replace(old, new)))


LISTS = f"seeds = {[*range(3000)]}\nlearning_rate = {[(n + 1) * 1e-6 for n in range(1000)]}"
HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "seeds = 1000000000000", "100,000 seeds or fewer"),
        ("seeds = [0, 1]", LISTS, "runs, more than 1,000,000"),
        ("layers = 3", f"layers = {HUGE}", "negative or too large"),
        ("layers = 3", "layers = -1", "negative or too large"),
        ("train_rows = ", "train_rows = 1000000000000", "negative or too large"),
        ("layers = 3", "layers = true", "a number is expected"),
        ('metric = "', "metric = 3 # ", "a number is expected"),
        ("layers = 3", f"layers = {'[' * 100_000}", "sweep.toml is damaged"),
    ],
)
def test_a_forged_sweep_toml_is_refused_at_once(
    here: Path, frostline: Frostline, old: str, new: str, message: str
) -> None:
    if new == LISTS:
        text = unseal_toml((here / "sweep.toml").read_bytes())
        rate = next(line for line in text.splitlines() if line.startswith("learning_rate = "))
        forge_toml(here / "sweep.toml", f"{rate}\n", "")
    forge_toml(here / "sweep.toml", old, new)
    got = frostline("status", here)
    assert got.code == 2 and message in got.err and len(got.err.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"cost": {"train_seconds": 1e300}},
        {
            "cost": {
                "train_seconds": -1.0,
                "evaluation_seconds": 0.0,
                "forward_pass_seconds": 0.0,
                "peak_memory_bytes": 0.0,
            }
        },
        {
            "cost": {
                "train_seconds": 1e13,
                "evaluation_seconds": 0.0,
                "forward_pass_seconds": 0.0,
                "peak_memory_bytes": 0.0,
            }
        },
        {"validation_best": 10**30},
        {"validation_best": 1e200},
        {"audit": {"parameters": -1, "trainable_parameters": 1, "by_place": {}}},
    ],
)
def test_a_number_of_a_forged_result_is_bounded(here: Path, frostline: Frostline, change: dict[str, Any]) -> None:
    forge(here / "runs" / Folder(here).runs[0].digest / "result.json", **change)
    got = frostline("report", here)
    said = got.err.splitlines()
    assert (
        got.code == 2 and "does not have the form of a result" in said[-1]
    ) or "is damaged (it has the number" in got.err
    assert "Traceback" not in got.err


@pytest.mark.parametrize("reason", [7, ["a"], {"a": 1}, None, "x" * 2**21])
def test_a_forged_reason_of_a_failure_is_damage(here: Path, reason: object) -> None:
    store, run = Store(here), Folder(here).runs[0].digest
    shutil.rmtree(here / "runs" / run)
    store.fail(run, {"digest": run, "reason": reason})
    (sentence,) = store.check()
    assert f"{run}.failed.json is damaged" in sentence and not store.failures()


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 7},
        {"spent_seconds": "long"},
        {"over": "maybe"},
        {"operations": [1]},
        {"requested": 3},
        {"train_size": 1.5},
    ],
)
def test_a_forged_record_of_a_search_is_read_as_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    facts: dict[str, Any] = dict.fromkeys(field.name for field in fields(SearchRecord))
    kinds = {"train_size": 1, "over": False, "interim_analyses": 1, "spent_seconds": 1.0}
    for field in fields(SearchRecord):
        if str(field.type).startswith("collections.abc.Sequence"):
            facts[field.name] = []
        if str(field.type).startswith("collections.abc.Mapping"):
            facts[field.name] = {}
    facts |= kinds
    write_sealed(tmp_path / "search.json", facts)
    assert read_search(tmp_path) is not None
    write_sealed(tmp_path / "search.json", {**facts, **change})
    assert read_search(tmp_path) is None


def test_a_limit_is_exact(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1234")
    assert read_inside(tmp_path / "f", tmp_path, 4) == b"1234"
    with pytest.raises(ValueError, match="f has 4 bytes"):
        read_inside(tmp_path / "f", tmp_path, 3)
