"""Columns that `frostline predict` copies beside its predictions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.cli.predict import beside, copied_columns
from frostline.data.table import Table
from tiny import Frostline, write_csv

TABLE = Table(name="new.csv", columns={"ticket": ["7", None], "text": ["a", "b"]}, rows=np.array([2, 3]))


def test_cells_stay_beside_their_row() -> None:
    rows, header = beside(
        copied_columns(TABLE, ["ticket"]), [{"row": 2, "label": "x"}, {"row": 3, "label": "y"}], ("row", "label")
    )
    assert header == ["row", "ticket", "label"]
    assert rows == [{"row": 2, "label": "x", "ticket": "7"}, {"row": 3, "label": "y", "ticket": None}]


def test_without_columns_nothing_changes() -> None:
    rows = [{"row": 2, "label": "x"}]
    assert beside(copied_columns(TABLE, []), rows, ("row", "label")) == (rows, ["row", "label"])


def test_wrong_names_are_refused() -> None:
    with pytest.raises(FrostlineError, match=r"no column 'tickets' \(did you mean 'ticket'\?\); pass some of"):
        copied_columns(TABLE, ["tickets"])
    with pytest.raises(FrostlineError, match="'text' is the name of a column of the predictions; rename"):
        copied_columns(TABLE, ["text"])
    with pytest.raises(FrostlineError, match=r"'a\.label' is the name of"):  # of a bundle
        beside({"a.label": ["x"]}, [{}], ("row", "a.label"))


def test_an_id_is_copied_into_the_output(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    write_csv(here / "new.csv", [{"id": "0012", "text": "a good film"}, {"id": "0013", "text": "a bad film"}])
    model = finished_sweep / "model"
    assert frostline("predict", model, "new.csv", "--copy-columns", "id").code == 0
    with (here / "new.predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["row", "id", "text"] and [row["id"] for row in rows] == ["0012", "0013"]
    assert frostline("predict", model, "new.csv", "--copy-columns", "id", "--out", "new.jsonl").code == 0
    assert [json.loads(line)["id"] for line in (here / "new.jsonl").read_text().splitlines()] == ["0012", "0013"]
    refused = frostline("predict", model, "new.csv", "--copy-columns", "ids", "--out", "other.csv")
    assert refused.code == 2 and "(did you mean 'id'?)" in refused.err and not (here / "other.csv").exists()
