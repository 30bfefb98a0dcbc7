"""The store of results: complete files, never overwritten, and messages about damage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.data.files import create_file
from frostline.sweep.results.store import Store
from frostline.training.result import Result


def result(digest: str, score: float = 0.5, *, test: bool = True) -> Result:
    logits = {name: np.full((3, 2), score, np.float32) for name in ("validation_best", "validation_last")}
    made = Result({"digest": digest, "status": "done", "validation_best": score}, logits)
    if test:
        made.test_facts, made.test_logits = {"digest": digest, "scores": {"accuracy": score}}, logits["validation_best"]
    return made


def test_a_published_result_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa", 0.25))
    assert store.has("aa") and not store.has("bb")
    assert store.results() == {"aa": {"digest": "aa", "status": "done", "validation_best": 0.25}}
    assert np.array_equal(store.predictions("aa")["validation_last"], np.full((3, 2), 0.25))
    facts, logits = store.test("aa") or ({}, None)
    assert facts["scores"] == {"accuracy": 0.25} and logits.shape == (3, 2)  # type: ignore[union-attr]


def test_a_run_without_test(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa", test=False))
    assert store.test("aa") is None and list(store.results()) == ["aa"]


def test_publishing_never_overwrites(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa", 0.25))
    before = {path.name: path.read_bytes() for path in store.runs.iterdir()}
    store.publish("aa", result("aa", 0.75))
    assert {path.name: path.read_bytes() for path in store.runs.iterdir()} == before


def test_the_file_that_marks_a_run_as_done_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def stop_at_the_last(path: Path, content: bytes) -> None:
        if path.name == "aa.json":
            raise KeyboardInterrupt
        create_file(path, content)

    monkeypatch.setattr("frostline.sweep.results.store.create_file", stop_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        store.publish("aa", result("aa"))
    assert len(list(store.runs.iterdir())) == 3 and not store.has("aa") and store.results() == {}
    monkeypatch.undo()
    store.publish("aa", result("aa"))
    assert store.has("aa")


def test_files_left_by_a_killed_process_are_not_results(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa"))
    (store.runs / ".bb.json.12345678.part").write_bytes(b'{"digest": "bb"')
    assert list(store.results()) == ["aa"] and store.failures() == {}


def test_a_result_replaces_a_failure(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fail("aa", {"digest": "aa", "reason": "RuntimeError: first"})
    store.fail("aa", {"digest": "aa", "reason": "RuntimeError: second"})
    assert store.failures() == {"aa": {"digest": "aa", "reason": "RuntimeError: second"}}
    assert store.results() == {} and not store.has("aa")
    store.publish("aa", result("aa"))
    assert store.failures() == {} and list(store.results()) == ["aa"]


@pytest.mark.parametrize("content", [b"", b'{"digest": "aa"', b"{}", b"[]", b'"aa"', b'{"digest": "bb"}', b"\xff"])
def test_the_message_for_a_damaged_result_names_the_file_and_what_to_do(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa"))
    (store.runs / "aa.json").write_bytes(content)
    with pytest.raises(FrostlineError, match=r"aa\.json is damaged .*delete .*aa\.\* and run the sweep's command"):
        store.results()


def test_deleting_the_files_that_the_message_names_repairs_the_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("aa", result("aa", 0.25))
    for name in ("aa.predictions.safetensors", "aa.test.safetensors", "aa.test.json"):
        (store.runs / name).write_bytes(b"{broken")
    with pytest.raises(FrostlineError, match=r"aa\.predictions\.safetensors is damaged"):
        store.predictions("aa")
    with pytest.raises(FrostlineError, match=r"aa\.test\.json is damaged"):
        store.test("aa")
    for path in store.runs.glob("aa.*"):
        path.unlink()
    store.publish("aa", result("aa", 0.75))
    assert store.predictions("aa")["validation_best"][0, 0] == 0.75 and store.test("aa") is not None


def test_missing_predictions_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="is damaged"):
        Store(tmp_path).predictions("aa")


def test_the_specification_is_written_and_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.read_spec() is None
    store.write_spec({"model": "m", "tune": [0, "all"], "revision": None, "identity": {"layers": 6}})
    assert store.read_spec() == {"model": "m", "tune": [0, "all"], "identity": {"layers": 6}}
    (tmp_path / "new" / "sweep.toml").write_text("model = [")
    with pytest.raises(FrostlineError, match=r"sweep\.toml is damaged"):
        store.read_spec()
    (tmp_path / "file").write_text("")
    with pytest.raises(FrostlineError, match="cannot be read"):
        Store(tmp_path / "file").read_spec()


def test_two_writers_of_one_run(tmp_path: Path) -> None:
    """Several writers publish one run; the folder contains one complete result and no other file."""
    from concurrent.futures import ThreadPoolExecutor

    store = Store(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.publish("aa", result("aa", n / 8)), range(8)))
    assert len(list(store.runs.iterdir())) == 4
    facts: dict[str, Any] = store.results()["aa"]
    assert facts["validation_best"] in [n / 8 for n in range(8)]


def test_a_run_with_a_result_is_no_failure(tmp_path: Path) -> None:
    """Another process may have failed after the result was published."""
    store = Store(tmp_path)
    store.publish("aa", result("aa"))
    store.fail("aa", {"digest": "aa", "reason": "out of memory"})
    store.fail("bb", {"digest": "bb", "reason": "out of memory"})
    assert list(store.failures()) == ["bb"]
