"""A folder from others is data: links out of it are refused, and nothing is read without a limit."""

import json
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from frostline import FrostlineError
from frostline.data.files import (
    ARRAY_BYTES,
    checksum,
    move,
    remove,
    replace_file,
    seal,
    seal_toml,
    unseal,
    unseal_toml,
    write_sealed,
)
from frostline.studies.protocol import load_protocol
from frostline.studies.sweeps import study_sweeps
from frostline.sweeps.results.folder import CHECKSUM, Folder, _checksum
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import BestWeights
from records import failed, result
from tiny import Frostline, change_settings, contents


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


@pytest.mark.parametrize(
    "name",
    [
        *("runs", "runs/RUN", "runs/RUN/result.json", "runs/RUN/predictions.safetensors"),
        *("sweep.toml", "validation.parquet", "data.json", "search.json"),
    ],
)
def test_a_link_in_place_of_a_file_is_refused_and_stays(here: Path, frostline: Frostline, name: str) -> None:
    path = here / name.replace("RUN", Folder(here).runs[0].digest)
    if name == "search.json":
        path.write_text("{}")
    target = linked(path)
    before = contents(target) if target.is_dir() else target.read_bytes()
    got = frostline("status" if name.startswith("runs") else "report", here)
    assert got.code == 2 and len(got.err.splitlines()) == 1 and f"{path} is a link to {target}, outside of" in got.err
    assert path.is_symlink() and (contents(target) if target.is_dir() else target.read_bytes()) == before


def test_nothing_is_written_or_moved_through_a_link(here: Path, tmp_path: Path) -> None:
    outside, store, run = tmp_path / "outside", Store(here), Folder(here).runs[0].digest
    outside.mkdir()
    for name in ("leases", "damaged", "weights"):
        shutil.rmtree(here / name, ignore_errors=True)
        (here / name).symlink_to(outside)
    with pytest.raises(FrostlineError, match="leases is a link"), Leases(here):
        pass
    (here / "runs" / run / "result.json").write_bytes(b"{}")
    weights, spec = BestWeights(here), Folder(here).runs[0]
    for change in (lambda: store.result(run), lambda: weights.save_if_best(spec, 1.0, {}), weights.remove):
        with pytest.raises(FrostlineError, match="is a link to"):
            change()
    linked(here / "runs")
    for write in (lambda: store.publish(result("aa")), lambda: store.fail(failed("aa"))):
        with pytest.raises(FrostlineError, match="runs is a link"):
            write()
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *((name, ["work", "o"]) for name in ("runs", "checkpoints")),
        ("retried", ["work", "o", "--retry", "failed"]),
        *((name, ["sweep", "o/sweep.toml", "--out", "o"]) for name in (".finish.lock", "forecast.json", "model")),
        ("figures", ["report", "o"]),
    ],
)
def test_no_command_writes_or_removes_through_a_link(
    here: Path, tmp_path: Path, frostline: Frostline, name: str, args: list[str]
) -> None:
    outside, link, digest = tmp_path / "outside", here / name, Folder(here).runs[-1].digest
    shutil.rmtree(here / "runs" / digest)
    if args[0] == "report":
        assert frostline("work", "o").code == 0
    elif name == "retried":
        Store(here).fail(failed(digest))
    outside.mkdir()
    if link.is_dir():
        link.rename(outside / "full")
    (outside / "config.json").write_text("mine")
    before = contents(outside)
    link.unlink(missing_ok=True)
    link.symlink_to(outside / "full" if (outside / "full").is_dir() else outside)
    got = frostline(*args)
    # what a command does not touch, such as checkpoints and forecasts of runs that take a second, it need not refuse
    assert (got.code == 2 and f"{name} is a link" in got.err) or name in ("checkpoints", "forecast.json", "model"), got
    if name == "model":  # it is not what the sweep has saved, so the link itself is set aside
        link = here / "damaged" / "model"
    assert "Traceback" not in got.err and contents(outside) == before and link.is_symlink()


def test_probes_and_studies_do_not_write_through_a_link(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, frostline: Frostline
) -> None:
    args = ("probe", "--model", tiny_bert, "--train", tiny_table, "--out", "p")
    outside = tmp_path / "outside"
    for name in ("probe", "probes.json"):
        shutil.rmtree(outside, ignore_errors=True)
        shutil.rmtree("p", ignore_errors=True)
        for folder in (outside, Path("p")):
            folder.mkdir()
        Path("p", name).symlink_to(outside)
        got = frostline(*args)
        assert (got.code, list(outside.iterdir())) == (2, []) and f"{name} is a link" in got.err
    Path("s").mkdir()
    Path("s", tiny_bert.name).symlink_to(outside)
    with pytest.raises(FrostlineError, match="is a link"):
        study_sweeps(load_protocol("lee2019"), "s", models=[str(tiny_bert)])


def test_a_path_goes_neither_up_nor_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "o" / "a").mkdir(parents=True)
    (tmp_path / "o" / "up").symlink_to("..")
    (tmp_path / "o" / "loop").symlink_to("loop")
    (tmp_path / "o" / "here").symlink_to("a")
    (tmp_path / "o" / "chain").symlink_to("up")
    (tmp_path / "link").symlink_to("o")
    allowed = {"a/f": True, "here/f": True, "new/f": True, "up/f": False, "a/../../f": False, "chain": False}
    for out in (tmp_path / "o", tmp_path / "link"):
        for name, right in allowed.items():
            with nullcontext() if right else pytest.raises(FrostlineError, match=r"link to|leads out"):
                replace_file(out / name, b"", inside=out)
    assert not (tmp_path / "f").exists()


def test_a_link_is_removed_or_moved_itself(tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "f").write_text("")
    for name in ("removed", "moved"):
        (tmp_path / "o" / name).symlink_to(tmp_path / "mine")
    remove(tmp_path / "o" / "removed", inside=tmp_path / "o")
    move(tmp_path / "o" / "moved", tmp_path / "o" / "aside", inside=tmp_path / "o")
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["aside"] and (tmp_path / "mine" / "f").exists()


def test_a_folder_that_is_a_link_itself_and_links_within_it_are_read(here: Path, tmp_path: Path) -> None:
    run = Folder(here).runs[0].digest
    (here / "runs" / run).rename(here / "moved")
    (here / "runs" / run).symlink_to("../moved")
    (tmp_path / "link").symlink_to(here)
    assert Folder(tmp_path / "link").counts()["done"] == 4 and not list(Store(tmp_path / "link").check())


def test_large_and_special_files_are_damage(here: Path) -> None:
    first, second, third, _ = (here / "runs" / run.digest for run in Folder(here).runs)
    os.truncate(first / "result.json", 2**40)  # sparse
    (second / "result.json").unlink()
    os.mkfifo(second / "result.json")  # reading it would wait forever
    os.truncate(third / "predictions.safetensors", ARRAY_BYTES + 1)
    said = list(Store(here).check())
    assert "result.json has 1,099,511,627,776 bytes, more than the 67,108,864 that are read" in "".join(said)
    assert "result.json is no ordinary file" in "".join(said)
    too_large = f"predictions.safetensors has {ARRAY_BYTES + 1:,} bytes, more than the {ARRAY_BYTES:,}"
    assert too_large in "".join(said)


def test_a_forged_record_with_a_deep_structure_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish(result("aa"))
    deep = b"[" * 100_000 + b"]" * 100_000
    body = seal({"deep": 0}).partition(b',\n "checksum"')[0].replace(b"0", deep)
    forged = body + f',\n "checksum": "{checksum(body)}"\n}}\n'.encode()
    (store.runs / "aa" / "result.json").write_bytes(forged)
    (sentence,) = store.check()
    assert "aa is damaged (it is nested too deep" in sentence


def forge(path: Path, **change: Any) -> None:
    """Change facts of a file, whose checksum is then right."""
    path.write_bytes(seal({**unseal(path.read_bytes()), **change}))


LISTS = f"seeds = {[*range(3000)]}\nlearning_rate = {[(n + 1) * 1e-6 for n in range(1000)]}"
HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "seeds = 1000000000000", "100,000 seeds or fewer"),
        ("seeds = [0, 1]", LISTS, "runs, more than 1,000,000"),
        ("layers = 3", f"layers = {HUGE}", "layers: "),
        ("layers = 3", "layers = 0", "layers: input should be greater than or equal to 1"),
        ("train_rows = ", "train_rows = 1000000000000", "train_rows: input should be less than"),
        ("layers = 3", "layers = true", "layers: input should be a valid integer"),
        ("max_length = ", "max_length = 0 # ", "max_length: input should be greater"),
        ("seeds = [0, 1]", f"seeds = [{2**63}]", "give a number below"),
        ('metric = "', "metric = 3 # ", "metric: input should be a valid string"),
        ("layers = 3", f"layers = {'[' * 100_000}", "sweep.toml is damaged"),
    ],
)
def test_a_forged_sweep_toml_is_refused(here: Path, frostline: Frostline, old: str, new: str, message: str) -> None:
    if new == LISTS:
        text = unseal_toml((here / "sweep.toml").read_bytes())
        rate = next(line for line in text.splitlines() if line.startswith("learning_rate = "))
        change_settings(here, f"{rate}\n", "")
    change_settings(here, old, new)
    got = frostline("status", here)
    assert got.code == 2 and message in got.err and len(got.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("part", "change"),
    [
        *(("cost", {"train_seconds": seconds}) for seconds in (-1.0, 1e13)),
        *((None, {"validation_best": score}) for score in (10**30, 1e200)),
        ("audit", {"parameters": -1}),
    ],
)
def test_a_forged_number_is_bounded(here: Path, frostline: Frostline, part: str | None, change: dict[str, Any]) -> None:
    path = here / "runs" / Folder(here).runs[0].digest / "result.json"
    forge(path, **({part: {**unseal(path.read_bytes())[part], **change}} if part else change))
    got = frostline("report", here)
    assert "is damaged (" in got.err and "Traceback" not in got.err


def of_report(key: str, value: Any) -> Any:
    """Forges a value in the report of the data."""

    def change(here: Path) -> None:
        report = unseal((here / "data.json").read_bytes())["report"]
        forge(here / "data.json", report={**report, key: value})

    return change


def of_arrays(array: Any) -> Any:
    """Forges the predictions of a run."""

    def change(here: Path) -> None:
        folder = here / "runs" / Folder(here).runs[0].digest
        arrays = {} if array is None else dict.fromkeys(("validation_best", "validation_last"), array)
        (folder / "predictions.safetensors").write_bytes(save(arrays))
        files = {"predictions.safetensors": checksum(save(arrays))}
        forge(folder / "result.json", files=files)

    return change


def of_rows(name: str, values: Any) -> Any:
    """Forges a column of the validation examples."""

    def change(here: Path) -> None:
        table = pq.read_table(here / "validation.parquet")
        table = (
            table.drop([name])
            if values is None
            else table.set_column(table.column_names.index(name), name, [values * len(table)])
        )
        pq.write_table(table.replace_schema_metadata({CHECKSUM: _checksum(table)}), here / "validation.parquet")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_report("splits", {"train": 1}), "data.json is missing or damaged"),
        (of_report("shared", {"train/test": "a"}), "data.json is missing or damaged"),
        (lambda here: forge(here / "data.json", truncated=None), "data.json is missing or damaged"),
        (of_arrays(None), "has predictions of the shape (0,)"),
        (of_arrays(np.zeros((3, 2), np.float32)), "has predictions of the shape (3, 2)"),
        *(
            (of_rows(*given), "validation.parquet is damaged")
            for given in (("target", None), ("row", ["x"]), ("row", [1.5]))
        ),
    ],
)
def test_a_forged_file_of_a_report_is_refused(here: Path, frostline: Frostline, change: Any, message: str) -> None:
    change(here)
    got = frostline("report", here)
    assert got.code == 2 and message in got.err and len(got.err.splitlines()) == 1


def test_a_forged_reason_of_a_failure_is_damage(here: Path) -> None:
    store, run = Store(here), Folder(here).runs[0].digest
    shutil.rmtree(here / "runs" / run)
    for reason in (7, ["a"], None, "x" * 2**21):
        facts = {**failed(run).model_dump(mode="json"), "reason": reason}
        write_sealed(store.runs / f"{run}.failed.json", facts, inside=here)
        (sentence,) = store.check()
        assert f"{run}.failed.json is damaged" in sentence and not store.failures()


HOSTILE = (
    "a\x1b[31m\x1b]8;;http://x\x07b\x9b2J\r\x08\u202ec\u2066d\u200be\u2028f\ufeffg\U000e0041h\x7f[red]:smile:"
    "\nfrostline: done"
)
SHOWN = HOSTILE.encode("unicode_escape").decode()


def forge_lease(here: Path, host: str) -> None:
    with Leases(here) as leases:
        run = Folder(here).runs[-1].digest
        assert leases.take([[run]]) == [run]
        path = here / "leases" / f"{run}.1.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": host, "since": host}))
        leases.held.clear()  # it stays, as that of a killed process
        shutil.copytree(here / "leases", here / "left")
    shutil.rmtree(here / "leases")
    (here / "left").rename(here / "leases")


@pytest.mark.parametrize("command", ["status o --all", "report o", "analyze o --out a", "merge o --out m", "work o"])
def test_text_of_a_stranger_cannot_control_the_terminal(here: Path, frostline: Frostline, command: str) -> None:
    """A lease's host, the reason of a failure, the names of task and model, a note, and a label."""
    ended, free = (run.digest for run in Folder(here).runs[-2:])
    for run in (ended, free):
        shutil.rmtree(here / "runs" / run)
    Store(here).fail(failed(ended, HOSTILE))
    if command != "work o":
        forge_lease(here, HOSTILE)
    data = unseal((here / "data.json").read_bytes())
    write_sealed(here / "data.json", {**data, "notes": [HOSTILE]}, inside=here)
    text = unseal_toml((here / "sweep.toml").read_bytes())
    hostile = json.dumps(HOSTILE, ensure_ascii=True).replace("\\udb40\\udc41", "\\U000e0041")
    text = re.sub(r"(?m)^(task|model) = .*$", rf"\1 = {hostile}".replace("\\", "\\\\").replace("\\\\1", "\\1"), text)
    (here / "sweep.toml").write_bytes(seal_toml(text.replace('"positive"', hostile)))
    assert HOSTILE in Folder(here).spec.model and HOSTILE in Folder(here).identity.labels
    got = frostline(*command.split())
    printed = got.out + got.err
    assert not [one for one in printed if one != "\n" and not one.isprintable() and one != "\u00a0"], printed
    assert "\nfrostline: done" not in printed
    if command.startswith(("status", "work")):
        assert SHOWN in printed
