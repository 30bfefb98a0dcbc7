"""results.csv, results.parquet and scores.csv."""

import csv
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from frostline.report.rebuild import write_report
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.tables import COLUMNS, COST, SCORE_COLUMNS, csv_bytes, frame, write_tables
from records import failure
from tiny import run_sweep


def test_the_columns_are_the_documented_ones(finished_sweep: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text()
    table = page.partition("## Columns of results.csv")[2].partition("\n## ")[0]
    documented = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(documented) == sorted(COLUMNS)
    header = (finished_sweep / "results.csv").read_text().splitlines()[0].split(",")
    assert tuple(header) == COLUMNS == tuple(pd.read_parquet(finished_sweep / "results.parquet").columns)
    assert (finished_sweep / "scores.csv").read_text().splitlines()[0] == "run,split,epoch,metric,value"
    assert set(COST) < set(COLUMNS)


def test_there_is_one_row_per_run_in_the_order_of_the_grid(finished_sweep: Path) -> None:
    table = pd.read_csv(finished_sweep / "results.csv")
    assert table[["seed", "recipe"]].to_numpy().tolist() == [
        [seed, name] for seed in (0, 1) for name in ("head only", "last 1", "full")
    ]
    assert table.tuned_layers.tolist() == [0, 1, 3] * 2
    assert table.tune_embeddings.tolist() == [False, False, True] * 2
    assert set(table.status) == {"done"} and set(table.metric) == {"accuracy"}
    assert ((table.outcome == "ok") == table.reason.isna()).all()
    assert table.trainable_parameters[:3].is_monotonic_increasing and table.trainable_parameters[0] == 32 * 33 + 66
    assert (table[["train_seconds", "peak_memory_bytes"]] > 0).all().all()


def test_the_forward_pass_is_split_over_all_runs_that_start_from_the_cache(finished_sweep: Path) -> None:
    folder = Folder(finished_sweep)
    used = [one for one in folder.results.values() if one.provenance.from_cache]
    assert len(used) == 4 and all(one.cost.forward_pass_seconds > 0 for one in used)
    for seconds, one in zip((8.0, 8.0, 2.0, 2.0), used, strict=True):  # two are of a later call, with fewer rows
        cost = one.cost.model_copy(update={"forward_pass_seconds": seconds})
        folder.results[one.digest] = one.model_copy(update={"cost": cost})
    assert [row.cache_seconds for row in folder.rows] == [2.0, 2.0, 0.0] * 2
    del folder.results[used[-1].digest], folder.rows
    shares = [row.cache_seconds for row in folder.rows if row.status == "done"]
    assert sum(shares) == pytest.approx(8.0) and shares.count(0.0) == 2


def test_csv_and_parquet_have_the_same_contents(finished_sweep: Path) -> None:
    parquet = pd.read_parquet(finished_sweep / "results.parquet")
    text = pd.read_csv(finished_sweep / "results.csv", dtype=dict(parquet.dtypes), keep_default_na=False)
    pd.testing.assert_frame_equal(parquet, text)
    assert {str(parquet.dtypes[name]) for name in ("test", "best_epoch", "train_seconds")} == {"Float64"}
    assert frame([]).dtypes.to_list() == parquet.dtypes.to_list()


def test_scores_contain_every_split_and_epoch(finished_sweep: Path) -> None:
    scores, table = pd.read_csv(finished_sweep / "scores.csv"), pd.read_csv(finished_sweep / "results.csv")
    assert set(scores.split) == {"validation", "train_running", "train", "test"} and set(scores.run) == set(table.run)
    for _, run in table.iterrows():
        mine = scores[(scores.run == run.run) & (scores.metric == "accuracy")]
        validation = mine[mine.split == "validation"].set_index("epoch").value
        assert validation.index.tolist() == [1, 2, 3, 4]
        assert validation.max() == validation[run.best_epoch] == run.validation_best
        assert validation[4] == run.validation_last
        test = mine[mine.split == "test"]
        assert test.value.item() == run.test and test.epoch.item() == run.best_epoch


def test_rebuilt_tables_are_identical_files(finished_sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "films"
    shutil.copytree(finished_sweep, out)
    names = ("results.csv", "scores.csv", "answer.json")
    before = {name: (out / name).read_bytes().replace(bytes(finished_sweep), bytes(out)) for name in names}
    for name in (*names, "results.parquet", "report.html"):
        (out / name).unlink()
    write_report(out)
    assert {name: (out / name).read_bytes() for name in names} == before
    assert (out / "results.parquet").exists() and (out / "report.html").exists()


def test_a_missing_run_is_pending_and_a_failed_run_has_a_reason(finished_sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "films"
    shutil.copytree(finished_sweep, out)
    folder = Folder(out)
    first, second = folder.runs[:2]
    for spec in (first, second):
        shutil.rmtree(folder.store.runs / spec.digest)
    folder.store.fail(failure(second, "RuntimeError: out of memory"))
    rows = folder.rows
    assert [row.status for row in rows] == ["pending", "failed", *["done"] * 4]
    assert [row.reason for row in rows[:2]] == ["", "RuntimeError: out of memory"]
    assert rows[0].validation_best is None and rows[0].test is None and rows[0].trainable_parameters is None
    write_tables(out, rows, [])
    assert pd.read_csv(out / "results.csv").status.tolist() == [row.status for row in rows]


@pytest.mark.parametrize(
    ("modules", "layers", "embeddings"), [("layer.1,pooler", 2, False), ("word_embeddings", 3, True)]
)
def test_the_depth_of_named_parts_is_that_of_the_lowest_one(
    settings: dict[str, Any], modules: str, layers: int, embeddings: bool
) -> None:
    sweep = run_sweep(settings, tune="named", tune_modules=modules, seeds=1)
    (row,) = Folder(settings["out"]).rows
    assert (row.recipe, row.tuned_layers, row.tune_embeddings) == ("named", layers, embeddings)
    shutil.rmtree(Path(settings["out"]) / "runs")
    (row,) = sweep.table().to_dict("records")
    assert row["status"] == "pending" and pd.isna(row["tuned_layers"]) and pd.isna(row["tune_embeddings"])


def test_a_formula_stays_text() -> None:
    spaces = ("", " ", "\n", "\r\n", " \t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00")
    texts = [f"{space}=1+1" for space in spaces] + ["\u202e+x", "\x0b@x", "\u3000＝1", "\tx", "\rx", "\nx"]
    texts += [f"{sign}a1" for sign in "+-@＝＋－＠﹦﹢﹣﹫⁼₊−"]
    for text in texts:
        written = csv_bytes([{"label": text, text: 1.5}], ["label", text]).decode()
        header, row = csv.reader(io.StringIO(written, newline=""))
        assert header == ["label", f"'{text}"] and row == [f"'{text}", "1.5"]


def test_negative_numbers_are_not_formulas_and_text_keeps_its_commas() -> None:
    texts = ['x, "y"\nz', "old\rMac", "dos\r\n", "'quoted'", " x", "a=b", "`=`", "\u200bx", " "]
    for text in (*texts, "-1", "+2.5e3", " -1", "－１"):  # a label may be a number
        written = csv_bytes([{"a": -0.5, "b": text, "c": None}], "abc").decode()
        assert list(csv.reader(io.StringIO(written, newline=""))) == [["a", "b", "c"], ["-0.5", text, ""]]
    assert csv_bytes([], SCORE_COLUMNS).decode() == "run,split,epoch,metric,value\n"
    assert tuple(frame([]).columns) == COLUMNS
