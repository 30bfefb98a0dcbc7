"""Folders of one sweep become one; what does not belong together is refused."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline import FrostlineError, merge
from frostline.data.files import seal, unseal
from frostline.report.rebuild import write_report
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import write_search
from frostline.sweeps.results.store import Store
from frostline.training.result import Result
from records import failure, record_of
from tiny import Frostline, change_settings, contents, run_sweep

Part = Callable[..., Path]


@pytest.fixture
def part(finished_small: Path, tmp_path: Path) -> Part:
    """A function that copies the folder of a finished sweep with two seeds, and keeps the runs of some seeds."""

    def copied(name: str, seeds: Sequence[int], *, grid: Sequence[int] = (0, 1)) -> Path:
        out = Path(shutil.copytree(finished_small, tmp_path / name))
        for run in Folder(out).runs:
            if run.seed not in seeds:
                shutil.rmtree(out / "runs" / run.digest)
        change_settings(out, "seeds = [0, 1]", f"seeds = {list(grid)}")
        return out

    return copied


def change(out: Path, change_logits: Callable[[Any], Any]) -> str:
    """Replace the predictions of the first run in a folder, and return its digest."""
    store = Store(out)
    digest, facts = next(iter(store.results().items()))
    logits = store.predictions(digest)
    shutil.rmtree(out / "runs" / digest)
    store.publish(Result(facts, {name: change_logits(array) for name, array in logits.items()}))
    return digest


@pytest.mark.parametrize("grids", [[(0, 1), (0, 1)], [(0,), (1,)]])
def test_the_merged_folder_has_all_runs_and_can_be_continued(
    part: Part, finished_small: Path, settings: dict[str, Any], tmp_path: Path, grids: list[tuple[int, ...]]
) -> None:
    folders = [part("a", [0], grid=grids[0]), part("b", [1], grid=grids[1])]
    before = [contents(folder) for folder in folders]
    assert merge(folders, tmp_path / "c") == {"done": 4, "failed": 0, "pending": 0}
    assert contents(tmp_path / "c" / "runs") == contents(finished_small / "runs")
    assert [contents(folder) for folder in folders] == before
    assert Folder(tmp_path / "c").spec.out == str(tmp_path / "c") and not list(tmp_path.glob(".*"))
    whole = write_report(shutil.copytree(finished_small, tmp_path / "d")).sentence
    assert write_report(tmp_path / "c").sentence == whole.replace(str(tmp_path / "d"), str(tmp_path / "c"))
    again = run_sweep(settings, out=tmp_path / "c")
    assert again.table().status.eq("done").all()
    assert contents(tmp_path / "c" / "runs") == contents(finished_small / "runs")


def test_relative_paths_start_where_the_first_sweep_was_started(part: Part, tmp_path: Path) -> None:
    a, c = part("a", [0]), tmp_path / "deeper" / "than" / "c"
    merge([a], c)
    starts = {Folder(out).written.origin.folder_for(out) for out in (a, c)}
    assert len(starts) == 1


def test_a_run_in_both_must_agree(part: Part, tmp_path: Path) -> None:
    a, b = part("a", [0, 1]), part("b", [0, 1])
    digest = change(b, lambda logits: logits * np.float32(1 + 1e-6))
    assert merge([a, b], tmp_path / "c")["done"] == 4
    assert contents(tmp_path / "c" / "runs") == contents(a / "runs")  # the first one stands
    change(b, lambda logits: logits * np.float32(1.001))
    with pytest.raises(FrostlineError) as caught:
        merge([a, b], tmp_path / "d")
    assert re.fullmatch(
        rf"last [01], seed [01] has different results in {a} \(.+ torch .+\) and {b} \(.+\); its predictions differ by 0.001 of "
        rf"the largest value, where 1e-05 is allowed: remove runs/{digest} from one of the folders\.",
        str(caught.value),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_failures_are_merged_unless_there_is_a_result(part: Part, tmp_path: Path) -> None:
    a, b = part("a", [0]), part("b", [])
    for run in Folder(b).runs:
        if run.recipe.k == 1:
            Store(b).fail(failure(run))
    assert merge([a, b], tmp_path / "c") == {"done": 2, "failed": 1, "pending": 1}


def test_a_damaged_result_is_not_merged(part: Part, tmp_path: Path, frostline: Frostline) -> None:
    a, b = part("a", [0]), part("b", [1])
    file = next((a / "runs").rglob("predictions.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    got = frostline("merge", a, b, "--out", "c")
    assert got.code == 0 and got.out.startswith("c: 3 done, 0 ended in an error, 1 pending\n`frostline report c`")
    assert f"{file.parent} is damaged" in got.err and (a / "damaged").is_dir()


def test_a_record_that_names_files_elsewhere_is_damaged(part: Part, tmp_path: Path) -> None:
    a = part("a", [0])
    record = next((a / "runs").rglob("result.json"))
    facts = unseal(record.read_bytes())
    facts["files"]["../../../secret"] = "0"
    record.write_bytes(seal(facts))
    with pytest.raises(FrostlineError, match="names files that no result has"):
        merge([a, part("b", [1])], tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "old, new, named",
    [
        ("data_seed = 0", "data_seed = 1", r"value of data_seed is different \(0 and 1\)"),
        ('data = "', 'data = "0', r"data is different\."),
        ("price = 2.0", "price = 0.0", "price is 2.0 and 0.0"),
    ],
)
def test_different_sweeps_are_refused(part: Part, tmp_path: Path, old: str, new: str, named: str) -> None:
    a, b = part("a", [0]), part("b", [1])
    change_settings(b, old, new)
    with pytest.raises(
        FrostlineError, match=f"/a and .*/b (hold different sweeps|would be answered differently): their {named}"
    ):
        merge([a, b], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_folders_that_cannot_be_merged_are_refused(part: Part, tmp_path: Path) -> None:
    a = part("a", [0])
    with pytest.raises(FrostlineError, match="/a exists: choose another --out"):
        merge([a], a)
    with pytest.raises(FrostlineError, match="holds no sweep"):
        merge([a, tmp_path], tmp_path / "c")
    write_search(b := part("b", [1]), record_of())
    with pytest.raises(FrostlineError, match="/b is the folder of a search"):
        merge([a, b], tmp_path / "c")


def test_files_of_a_user_beside_the_new_folder_stay(part: Part, tmp_path: Path) -> None:
    a, names = part("a", [0]), (".c.part", ".c.old", ".c.0123abcd.old", ".c.0123abcd.part", "c.part")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text(name)
    assert merge([a], tmp_path / "c")["done"] == 2
    assert all((tmp_path / name / "thesis.txt").read_text() == name for name in names)


def test_a_folder_that_appears_while_runs_are_merged_stays(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_appear(store: Store, values: Mapping[str, Any]) -> None:
        real(store, values)
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "thesis.txt").write_text("of a user")

    a, real = part("a", [0]), Store.write_spec
    monkeypatch.setattr(Store, "write_spec", write_and_appear)
    with pytest.raises(FrostlineError, match="c exists, which another process has created meanwhile"):
        merge([a], tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]
    assert contents(tmp_path / "c") == {"thesis.txt": b"of a user"}
