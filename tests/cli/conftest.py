"""Folders for tests of the command line."""

import shutil
from pathlib import Path

import pytest

from tiny import sentences, write_csv, write_sst2


@pytest.fixture
def here(tmp_path: Path, tiny_bert: Path, tiny_table: Path) -> Path:
    """A folder with a model ``m``, a table ``t.csv``, and tables and models with one error each."""
    (tmp_path / "m").symlink_to(tiny_bert)
    rows = sentences(160)
    write_csv(tmp_path / "t.csv", rows)
    tables = {
        "missing": [{**row, "label": "" if n == 7 else row["label"]} for n, row in enumerate(rows)],
        "stars": [{**row, "label": f"{n / 7:.2f}"} for n, row in enumerate(rows)],
    }
    for name, table in tables.items():
        write_csv(tmp_path / f"{name}.csv", table)
    latin = "café noir,positive\n".encode("latin1")
    (tmp_path / "latin.csv").write_bytes((tmp_path / "t.csv").read_bytes() + latin)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.tex").write_text("not a sweep")
    for name in ("sweep.toml", "model/frostline.json"):
        (tmp_path / "old" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "old" / name).touch()
    shutil.copytree(tiny_bert, tmp_path / "torn")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"\0" * 64)
    return tmp_path


TABLE = "task,k,seed,acc\n" + "".join(
    f"t,{k},{seed},{0.6 + 0.1 * min(k, 2) + 0.01 * seed:.3f}\n" for k in (0, 1, 2, 4) for seed in range(4)
)


@pytest.fixture
def desk(tmp_path: Path, tiny_bert: Path) -> Path:
    """A folder with a table of results, SST-2 in its original layout, and a model."""
    (tmp_path / "runs.csv").write_text(TABLE)
    (tmp_path / "two.csv").write_text("k,seed,acc,f1\n0,0,0.5,0.5\n")
    write_sst2(tmp_path / "sst2", train=60, dev=40)
    (tmp_path / "m").symlink_to(tiny_bert)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "sweep.toml").touch()
    return tmp_path
