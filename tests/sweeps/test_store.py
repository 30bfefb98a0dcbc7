"""The store of results: complete folders, never overwritten; damaged ones are recognized and set aside."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import frostline.sweeps.results.store as store_module
from frostline import FrostlineError
from frostline.data.files import json_bytes, seal, unseal
from frostline.sweeps.results.store import DamagedError, Store, disagreement, set_aside
from records import failed, result
from tiny import contents


def test_a_published_result_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(result("aa", 0.25))
    store.publish(result("cc", test=False))
    assert store.has("aa") and not store.has("bb") and list(store.results()) == ["aa", "cc"]
    found = store.results()["aa"]
    assert found.files.keys() == {"predictions.safetensors", "test.json", "test.safetensors"}
    assert found.model_copy(update={"files": {}}) == result("aa", 0.25).record
    assert np.array_equal(store.predictions("aa")["validation_last"], np.full((3, 2), 0.25))
    on_test, logits = store.test("aa")  # type: ignore[misc]
    assert on_test.scores == {"accuracy": 0.25} and logits.shape == (3, 2) and store.test("cc") is None


def test_the_files_of_a_result_are_published_elsewhere(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    here.publish(result("aa", 0.25))
    there.fail(failed("aa", "no"))
    assert there.add("aa", here.files("aa")) and not there.add("aa", here.files("aa"))
    assert contents(there.runs) == contents(here.runs) and list((tmp_path / "there" / "retried").iterdir())


def test_of_several_writers_the_first_publishes_a_result_that_is_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        published = list(pool.map(lambda n: store.publish(result("aa", n / 8)), range(8)))
    before = contents(store.runs)
    assert sum(published) == 1 and not list(store.check()) and not store.publish(result("aa", 0.9))
    assert contents(store.runs) == before and [path.name for path in store.runs.iterdir()] == ["aa"]
    assert store.results()["aa"].validation_best in [n / 8 for n in range(8)]


def test_a_result_replaces_a_failure_and_a_later_one_does_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for reason in ("first", "second"):
        store.fail(failed("aa", reason))
    assert store.failures() == {"aa": failed("aa", "second")} and store.results() == {} and not store.has("aa")
    store.publish(result("aa"))
    assert store.failures() == {} and list(store.results()) == ["aa"]
    store.fail(failed("aa", "of another process"))
    store.fail(failed("bb", "out of memory"))
    assert list(store.failures()) == ["bb"]


def test_a_file_that_is_no_record_of_this_run_is_recognized(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for content in (b"", b"[]", b"\xff", json_bytes({"digest": "aa"}), seal({"digest": "bb"})):
        store.publish(result("aa"))
        (store.runs / "aa" / "result.json").write_bytes(content)
        with pytest.raises(FrostlineError, match=r"runs/aa is damaged .*: it is now in .*damaged/aa"):
            store.results()
        assert store.results() == {}


def test_a_damaged_result_is_never_used_and_every_copy_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, read in (
        ("predictions.safetensors", store.predictions),
        ("test.json", store.test),
        ("test.safetensors", store.test),
        ("result.json", store.result),
    ):
        store.publish(result("aa", 0.25))
        (store.runs / "aa" / name).unlink()
        with pytest.raises(FrostlineError, match=rf"is damaged \(.*{name} is missing\)"):
            read("aa")
        assert not store.has("aa")
    assert sorted(path.name for path in (tmp_path / "damaged").iterdir()) == ["aa", "aa.1", "aa.2", "aa.3"]
    store.publish(result("aa", 0.75))
    assert store.predictions("aa")["validation_best"][0, 0] == 0.75 and store.test("aa") is not None


def test_another_process_sets_a_listed_record_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.publish(result("aa"))
    store.fail(failed("bb", "out of memory"))
    assert store.record("aa") == store.result("aa") and store.record("bb") == store.failures()["bb"]

    def gone(path: Path, *more: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    for name in ("_read_all", "_read_record", "_read_failure", "set_aside"):
        monkeypatch.setattr(store_module, name, gone)
    assert list(store.check()) == [] and store.failures() == {}
    assert store.record("aa") is None and store.record("bb") is None and store.record("cc") is None


@pytest.mark.parametrize("kinds", [(), ("failed",), ("failed", "diverged")])
def test_retried_runs_are_set_aside(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    store = Store(tmp_path)
    for digest, outcome in (("aa", "ok"), ("bb", "diverged"), ("cc", "diverged")):
        store.publish(result(digest, outcome=outcome))
    for digest in ("dd", "ee"):
        store.fail(failed(digest, "out of memory"))
    before = contents(store.runs)
    store.retry(["aa", "bb", "dd", "ff"], kinds)
    there = {"aa", "bb", "cc", "dd.failed.json", "ee.failed.json"}
    gone = {{"diverged": "bb", "failed": "dd.failed.json"}[kind] for kind in kinds}
    assert {path.name for path in store.runs.iterdir()} == there - gone
    assert contents(store.runs) | (contents(tmp_path / "retried") if gone else {}) == before


def test_a_file_that_cannot_be_read_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    store = Store(tmp_path)
    store.publish(result("aa"))
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(FrostlineError, match=r"result\.json cannot be read \(Permission denied\)"):
        store.results()
    assert store.has("aa")


def test_the_specification_is_written_and_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.read_spec() is None
    store.write_spec({"model": "m", "tune": [0, "full"], "revision": None, "identity": {"layers": 6}})
    assert store.read_spec() == {"model": "m", "tune": [0, "full"], "identity": {"layers": 6}}
    (tmp_path / "new" / "sweep.toml").write_text("model = [")
    with pytest.raises(FrostlineError, match=r"sweep\.toml is damaged"):
        store.read_spec()
    (tmp_path / "file").write_text("")
    with pytest.raises(FrostlineError, match="is a file, or in a file: give a folder"):
        Store(tmp_path / "file").read_spec()


def test_a_result_of_another_form_is_damage(tmp_path: Path) -> None:
    """A checksum shows damage, but somebody else may have written something else from the start."""
    audit = {"parameters": 1, "trainable_parameters": True, "by_place": {}}
    changes: dict[str, dict[str, Any]] = {
        "cost.train_seconds: field required": {"cost": {}},
        "scores: input should be a valid array": {"scores": "none"},
        "validation_best: input should be a valid number": {"validation_best": "0.5"},
        "audit.trainable_parameters: ": {"audit": audit},
    }
    store, path = Store(tmp_path), tmp_path / "runs" / "aa" / "result.json"
    for where, change in changes.items():
        store.publish(result("aa"))
        path.write_bytes(seal({**unseal(path.read_bytes()), **change}))
        with pytest.raises(DamagedError, match=f"aa is damaged \\({re.escape(where)}"):
            store.results()
        assert not store.has("aa") and (tmp_path / "damaged" / "aa").exists()
    store.publish(result("aa"))
    path.write_bytes(seal({**unseal(path.read_bytes()), "schema_version": 99}))
    with pytest.raises(FrostlineError, match="aa has version 99 of the format"):
        store.results()
    assert store.has("aa")  # it stays where it is


def test_results_of_one_run_agree_up_to_rounding() -> None:
    gap = "by {} of the largest value, where 1e-05 is allowed"
    for one, other, said in (
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], ""),
        ([1.0, 2.0], [1.0, 2.1], gap.format(0.05)),
        ([1.0, np.nan], [1.0, np.nan], ""),
        ([1.0, np.nan], [1.0, 2.0], gap.format("inf")),
        ([1.0, np.inf], [1.0, -np.inf], gap.format("inf")),
        ([1.0], [1.0, 2.0], "they are not for the same examples"),
        ([], [], ""),
    ):
        assert disagreement({"best": np.array(one)}, {"best": np.array(other)}) == said


def test_what_does_not_exist_is_not_set_aside_and_has_no_predictions(tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match=r"There is no .*aa: run the sweep's command again"):
        Store(tmp_path).predictions("aa")
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "a.json", tmp_path / "damaged")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_of_processes_that_set_files_of_one_name_aside_none_loses_its_own(tmp_path: Path, kind: str) -> None:
    start, inside = Barrier(6), "a" if kind == "folder" else ""
    for n in range(6):
        made = tmp_path / str(n) / "a.json" / inside
        made.parent.mkdir(parents=True)
        made.write_text(str(n))

    def move(n: int) -> Path:
        start.wait()
        return set_aside(tmp_path / str(n) / "a.json", tmp_path / "damaged")

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(move, range(6)))
    assert [(path / inside).read_text() for path in found] == list("012345") and len({*found}) == 6
