"""Random bytes of every file that an answer rests on are changed: each is found when the file is read, and none is used."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.report.rebuild import write_report
from frostline.sweeps.results.folder import read_alternatives, read_rows, write_alternatives
from frostline.sweeps.results.forecast_record import Forecast, record, recorded
from frostline.sweeps.results.store import Store
from hostile import with_another_byte

FLIPS = 300
READERS = {
    "result.json": Store.result,
    "predictions.safetensors": Store.predictions,
    "test.json": Store.test,
    "test.safetensors": Store.test,
}


def test_every_changed_byte_is_found_and_no_such_file_is_used(finished_sweep: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_sweep / "runs", tmp_path / "runs")
    store, rng, found = Store(tmp_path), random.Random(0), Counter[str]()
    whole = {path: path.read_bytes() for path in store.runs.glob("*/*")}
    sizes = [len(content) for content in whole.values()]
    for path in rng.choices(list(whole), sizes, k=FLIPS):  # every byte has the same chance
        path.write_bytes(content := with_another_byte(whole[path], rng))
        run = path.parent.name
        with pytest.raises(FrostlineError, match=f"{run} is damaged"):
            READERS[path.name](store, run)
        assert not store.has(run) and run not in store.results()
        aside = tmp_path / "damaged" / run
        assert (aside / path.name).read_bytes() == content
        aside.rename(store.runs / run)
        path.write_bytes(whole[path])
        found[path.name] += 1
    assert set(found) == set(READERS) and found.total() == FLIPS
    assert not list(store.check())


def test_scored_examples_with_a_changed_byte_are_never_used(finished_sweep: Path, tmp_path: Path) -> None:
    """A changed byte may lie in a part of the file that has no meaning. Then the examples are the same."""
    path, rng, damaged = tmp_path / "validation.parquet", random.Random(0), 0
    content = (finished_sweep / path.name).read_bytes()
    path.write_bytes(content)
    whole = read_rows(tmp_path, "validation")
    assert whole is not None
    for _ in range(FLIPS):
        path.write_bytes(with_another_byte(content, rng))
        try:
            same = read_rows(tmp_path, "validation")
        except FrostlineError as error:
            assert "validation.parquet is damaged: run the sweep" in str(error)
            damaged += 1
        else:
            assert same is not None and same.texts == whole.texts and (same.targets == whole.targets).all()
    assert damaged > FLIPS / 2


def write_predictions(out: Path) -> None:
    write_alternatives(out, {"probe": np.arange(40).reshape(20, 2), "words": np.full((20, 2), np.nan)}, {})


@pytest.mark.parametrize(
    ("name", "write", "read", "message"),
    [
        ("alternatives.safetensors", write_predictions, read_alternatives, "run the command of the search again"),
        ("sweep.toml", None, lambda out: Store(out).read_spec(), "restore it, or start again in another folder"),
        ("data.json", None, write_report, "run the sweep's command again to write it"),
    ],
)
def test_a_file_of_all_runs_with_a_changed_byte_is_refused_in_one_sentence_and_stays(
    finished_small: Path,
    tmp_path: Path,
    name: str,
    write: Callable[[Path], object] | None,
    read: Callable[[Path], object],
    message: str,
) -> None:
    out, rng = Path(shutil.copytree(finished_small, tmp_path / "o")), random.Random(0)
    if write:
        write(out)
    whole = (out / name).read_bytes()
    read(out)
    for _ in range(FLIPS // 50 if read is write_report else FLIPS):
        (out / name).write_bytes(damage := with_another_byte(whole, rng))
        with pytest.raises(FrostlineError, match=rf"{name} is (missing or )?damaged.*: {message}[^\n]*$"):
            read(out)
        assert (out / name).read_bytes() == damage
    (out / name).write_bytes(whole)
    read(out)


def test_a_forecast_with_a_changed_byte_is_not_shown(tmp_path: Path) -> None:
    record(tmp_path, Forecast((), 1.0))
    whole, rng = (tmp_path / "forecast.json").read_bytes(), random.Random(0)
    assert recorded(tmp_path)
    for _ in range(FLIPS):
        (tmp_path / "forecast.json").write_bytes(with_another_byte(whole, rng))
        assert recorded(tmp_path) == []
