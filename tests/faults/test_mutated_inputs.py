"""Mutated settings, results and tables: the answer is a value or one clear sentence, and no file outside is touched.

A few hundred are tried with every change of the code, 3,600 with ``make test-all``.
"""

import io
import json
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline import FrostlineError
from frostline.data.files import seal, unseal
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import make_settings
from frostline.sweeps.toml import read_toml
from hostile import changes_nothing_outside, mutated, with_other_value
from loaded import loaded
from tagged import conll, tagged
from tiny import sentences

Input = Callable[[random.Random], object]


def check(folder: Path, use: Input) -> None:
    """Use 100 mutated inputs. Each one is used, or refused in a sentence."""
    refused = 0
    for number in range(100):
        rng = random.Random(number)
        try:
            with changes_nothing_outside(folder):
                use(rng)
        except FrostlineError as error:
            refused += 1
            assert str(error).strip() and "\n" not in str(error).strip(), (number, str(error))
        except Exception as error:
            error.add_note(f"input number {number}")
            raise
    assert refused  # the changes matter


def tables() -> dict[str, bytes]:
    rows = sentences(30)
    parquet = io.BytesIO()
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in ("text", "label")}), parquet)
    labels = pa.array([("negative", "positive").index(row["label"]) for row in rows])
    kinds = {
        "info": {
            "features": {
                "text": {"dtype": "string", "_type": "Value"},
                "label": {"names": ["negative", "positive"], "_type": "ClassLabel"},
            }
        }
    }
    of_datasets, table = io.BytesIO(), pa.table({"text": [row["text"] for row in rows], "label": labels})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(kinds), "note": "é"}), of_datasets)
    lines = [",".join(rows[0]), *(f'"{row["text"]}",{row["label"]}' for row in rows)]
    return {
        "t.csv": "\n".join(lines).encode(),
        "t.tsv": "\n".join(line.replace(",", "\t") for line in lines).encode(),
        "t.jsonl": "\n".join(json.dumps(row) for row in rows).encode(),
        "t.parquet": parquet.getvalue(),
        "datasets.parquet": of_datasets.getvalue(),
        "t.conll": conll(*tagged(20)).encode(),
    }


@pytest.mark.parametrize("name", tables())
def test_mutated_tables(tmp_path: Path, name: str) -> None:
    content = tables()[name]

    def use(rng: random.Random) -> None:
        (tmp_path / name).write_bytes(mutated(content, rng))
        data = loaded(train=str(tmp_path / name))
        assert len(data.train) > 0

    check(tmp_path, use)
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_mutated_settings(tmp_path: Path, finished_small: Path) -> None:
    """As text in a TOML file, and as values. What is accepted has a canonical form: it gives the same settings again."""
    text = (finished_small / "sweep.toml").read_bytes()
    values = {name: value for name, value in tomllib.loads(text.decode()).items() if name not in ("identity", "origin")}

    def use(rng: random.Random) -> None:
        if rng.random() < 0.5:
            (tmp_path / "s.toml").write_bytes(mutated(text, rng))
            given = {
                name: one for name, one in read_toml(tmp_path / "s.toml").items() if name not in ("identity", "origin")
            }
        else:
            given = with_other_value(values, rng)
        if isinstance(given, dict):
            spec = make_settings(given)
            assert make_settings(spec.model_dump(mode="json")) == spec
            assert make_settings(dict(reversed(given.items()))) == spec

    check(tmp_path, use)


def use_all(out: Path) -> None:
    """All that is read from the folder of a sweep without its model or data."""
    folder = Folder(out)
    folder.rows, folder.scores(), folder.counts(), folder.store.failures()
    for name in folder.scored_splits:
        folder.split(name)
    for run in folder.runs:
        if folder.store.has(run.digest):
            folder.store.test(run.digest), folder.predictions(run.digest)


def test_results_with_right_checksums_and_wrong_values(tmp_path: Path, finished_small: Path) -> None:
    """As somebody could make them who wants to do harm."""
    out = tmp_path / "o"
    runs = sorted(Store(finished_small).done())

    def use(rng: random.Random) -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(finished_small, out)
        record = out / "runs" / rng.choice(runs) / "result.json"
        facts: Any = with_other_value(unseal(record.read_bytes()), rng)
        try:
            record.write_bytes(seal(facts if isinstance(facts, dict) else {"facts": facts}))
        except (ValueError, UnicodeEncodeError):  # no JSON
            return
        use_all(out)

    check(tmp_path, use)
