"""`frostline predict`."""

import csv
import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline.data.reader import read_table
from frostline.frozen import logits
from frostline.model.device import DeviceMemory
from frostline.sweeps import streaming
from frostline.training.saved_estimators import write_estimator
from small_models import sharded_classifier
from tiny import Frostline, sentences, write_csv
from training.test_saved_estimators import KINDS


def test_predictions_use_the_columns_of_the_training_data_and_overwrite_no_file(
    frostline: Frostline, here: Path, finished_sweep: Path
) -> None:
    (here / "model").symlink_to(finished_sweep / "model")
    rows = [{"text": "a good film", "comment": "not this", "review": "nor this", "label": "negative"}]
    write_csv(here / "new.csv", rows)  # the model was trained on the column 'text'
    (here / "new.predictions.csv").write_text("precious")
    refused = frostline("predict", "model", "new.csv")
    assert refused.code == 2 and refused.err == (
        "frostline: new.predictions.csv exists: give another --out, or --overwrite.\n"
    )
    assert (here / "new.predictions.csv").read_text() == "precious"
    done = frostline("predict", "model", "new.csv", "--overwrite")
    assert (done.code, done.err) == (0, "new.csv: text is column 'text'.\n")
    assert done.out == "new.predictions.csv: 1 text\n"
    with (here / "new.predictions.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["text"] == "a good film"


def test_labels_in_the_table_are_scored(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    """A row without a label is left out. A label that the model does not know is named; predictions need none."""
    rows = sentences(40, seed=5)
    write_csv(here / "new.csv", [*rows, {"text": "a film", "label": ""}])
    model = finished_sweep / "model"
    done, alone = frostline("predict", model, "new.csv"), frostline("evaluate", model, "new.csv")
    assert done.code == alone.code == 0 and "1 of 41 rows has no label (row 42)" in alone.err
    assert "accuracy" in alone.out and "negative" in alone.out and "expected calibration error" in alone.out
    assert "If texts are among those that this model was trained on, scores are too high." in alone.err
    with (here / "new.predictions.csv").open(newline="") as file:
        right = [row["label"] == own["label"] for row, own in zip(csv.DictReader(file), rows, strict=False)]
    assert f"{np.mean(right):.3f}" in alone.out
    write_csv(here / "other.csv", [{"text": "a film", "label": "fine"}])
    unknown = "other.csv, row 2, column 'label': the label 'fine' is none of the 2 training labels"
    assert frostline("predict", model, "other.csv").code == 0
    assert unknown in (refused := frostline("evaluate", model, "other.csv")).err and refused.code == 2
    assert "correct it, or leave the row out." in refused.err  # the model is trained, and evaluate has no --labels
    write_csv(here / "odd.csv", [rows[0], rows[1], rows[0], {"text": " ", "label": "negative"}])
    for command in ("predict", "evaluate"):
        noted = frostline(command, model, "odd.csv").err
        assert "1 of 4 new rows has an empty text (row 5)." in noted
        assert ("1 text reads like an earlier one;" in noted) == (command == "evaluate")
    write_csv(here / "bare.csv", [{"text": "a film"}])
    assert "pass one of 'text' with --label-column" in frostline("evaluate", model, "bare.csv").err


def test_formulas_of_a_spreadsheet_are_named_or_quoted(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    write_csv(here / "new.csv", [{"text": "=1+1"}, {"text": "a good film"}, {"text": "@film"}])
    model, shown = finished_sweep / "model", list[str]()
    done = frostline("predict", model, "new.csv")
    assert "a spreadsheet would run 2 cells as formulas, such as '=1+1' (row 2, column 'text'); --safe-csv" in done.err
    quoted = frostline("predict", model, "new.csv", "--overwrite", "--safe-csv", "--out", "safe.csv")
    assert "spreadsheet" not in quoted.err
    for name in ("new.predictions.csv", "safe.csv"):
        with (here / name).open(newline="") as file:
            shown += [row["text"] for row in csv.DictReader(file)]
    assert shown == ["=1+1", "a good film", "@film", "'=1+1", "a good film", "'@film"]
    assert "is for CSV files" in frostline("predict", model, "new.csv", "--safe-csv", "--out", "new.jsonl").err


def test_predictions_of_a_file_in_another_encoding(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    (here / "euro.csv").write_bytes("text\na good film for 5 €\n".encode("cp1252"))
    model = str(finished_sweep / "model")
    refused = frostline("predict", model, "euro.csv")
    assert refused.code == 2 and "in cp1252 it reads '€'" in refused.err and "pass --encoding cp1252" in refused.err
    done = frostline("predict", model, "euro.csv", "--encoding", "cp1252")
    assert (done.code, done.err) == (0, "euro.csv: text is column 'text'.\n")
    assert "a good film for 5 €" in (here / "euro.predictions.csv").read_text()
    wrong = frostline("predict", model, "euro.csv", "--encoding", "latin1", "--out", "latin1.csv")
    assert "Warning: 1 of 1 new row has a text with control characters or wrongly decoded letters" in wrong.err
    assert "'\\x80' (row 2)" in wrong.err


def test_tags_of_a_file_whose_first_column_numbers_the_words(frostline: Frostline, here: Path, tmp_path: Path) -> None:
    model = sharded_classifier(tmp_path / "model", "bert", of_words=True)
    (here / "new.conllu").write_text("# text = a\n1-2\ta_good\t_\n1\ta\t_\n2\tgood\t_\n3\tfilm\t_\n")
    refused = frostline("predict", model, "new.conllu")
    assert refused.code == 2 and "pass --word-column 2" in refused.err
    done = frostline("predict", model, "new.conllu", "--word-column", "2", "--out", "new.jsonl")
    assert done.code == 0 and "ranges and empty nodes of CoNLL-U are no words and are skipped (1: '1-2')." in done.err
    assert '"tokens": ["a", "good", "film"]' in (here / "new.jsonl").read_text()


def test_a_threshold_is_applied_and_printed(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    write_csv(here / "new.csv", [{"text": "a good film"}, {"text": "a bad film"}])
    done = frostline("predict", finished_sweep / "model", "new.csv", "--threshold", "0.0001")
    assert done.code == 0 and "The label 'positive' is predicted from probability 0.0001 on." in done.err
    with (here / "new.predictions.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["positive", "positive"]


@pytest.fixture
def layers_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each group of texts that passes through the layers one at a time."""
    groups: list[str] = []
    plain = logits.layer_by_layer
    monkeypatch.setattr(logits, "layer_by_layer", lambda *args, **options: groups.append("") or plain(*args, **options))
    return groups


@pytest.mark.parametrize("of_words", [False, True])
def test_streamed_predictions_are_the_same_files(
    frostline: Frostline, here: Path, tmp_path: Path, layers_run: list[str], *, of_words: bool
) -> None:
    model = sharded_classifier(tmp_path / "model", "bert", of_words=of_words)
    texts = [row["text"] for row in sentences(5, seed=3)]
    write_csv(here / "new.csv", [{"text": text, "id": str(n)} for n, text in enumerate(texts)])
    (here / "new.conll").write_text("\n\n".join("\n".join(text.split()) for text in texts) + "\n")
    for ending in (".conll", ".jsonl") if of_words else (".csv", ".jsonl"):
        own = ("predict", model, "new.conll" if of_words else "new.csv")
        for name, flag in (("loaded", "--no-stream"), ("streamed", "--stream")):
            assert frostline(*own, "--out", f"{name}{ending}", flag).code == 0
        assert (here / f"loaded{ending}").read_bytes() == (here / f"streamed{ending}").read_bytes()
    assert len(layers_run) == 2


def test_layers_are_streamed_by_themselves_if_the_weights_do_not_fit(
    frostline: Frostline, here: Path, tmp_path: Path, layers_run: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sharded_classifier(tmp_path / "model", "bert")
    write_csv(here / "new.csv", sentences(5, seed=3))
    for name, free in (("loaded", 1 << 30), ("streamed", 1000)):
        monkeypatch.setattr(streaming, "device_memory", lambda device, free=free: DeviceMemory(free, free, 0))
        assert frostline("predict", model, "new.csv", "--out", f"{name}.csv").code == 0
        assert len(layers_run) == (name == "streamed")
    assert (here / "loaded.csv").read_bytes() == (here / "streamed.csv").read_bytes()


def test_a_model_that_is_not_streamed_says_so(frostline: Frostline, here: Path) -> None:
    write_csv(here / "new.csv", sentences(5, seed=3))
    (here / "bundle").mkdir()
    (here / "bundle/bundle.json").write_text("{}")
    (here / "words").mkdir()
    write_estimator(here / "words", *KINDS["words"])
    assert frostline("predict", "words", "new.csv", "--stream").err == (
        "frostline: The model in words has no layers that can be streamed: leave --stream out.\n"
    )
    refused = frostline("predict", "bundle", "new.csv", "--stream", "--threshold", "0.3")
    assert refused.code == 2 and "bundle is a bundle: leave --threshold and --stream out" in refused.err


def test_an_id_is_copied_into_the_output(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    write_csv(here / "new.csv", [{"id": "0012", "text": "a good film"}, {"id": "", "text": "a bad film"}])
    model = finished_sweep / "model"
    assert frostline("predict", model, "new.csv", "--copy-columns", "id").code == 0
    with (here / "new.predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["row", "id", "text"] and [row["id"] for row in rows] == ["0012", ""]
    assert frostline("predict", model, "new.csv", "--copy-columns", "id", "--out", "new.jsonl").code == 0
    assert [json.loads(line)["id"] for line in (here / "new.jsonl").read_text().splitlines()] == ["0012", ""]
    unread = Path(shutil.copytree(model, here / "unread"))
    (unread / "model.safetensors").unlink()  # names are checked before the weights are read
    for name, message in (
        ("ids", "no column 'ids' (did you mean 'id'?); pass some of"),
        ("text", "'text' is the name of a column of the predictions; rename"),
    ):
        refused = frostline("predict", unread, "new.csv", "--copy-columns", name, "--out", "other.csv")
        assert refused.code == 2 and message in refused.err and not (here / "other.csv").exists()


@pytest.mark.parametrize(
    ("ending", "ids", "days", "objects"),
    [
        (".csv", [str(2**53 + 1), ""], ["2024-05-01", ""], ['{"a": [1]}', ""]),
        (".jsonl", [2**53 + 1, None], ["2024-05-01", None], [{"a": [1]}, None]),
        (".parquet", [2**53 + 1, None], [date(2024, 5, 1), None], [{"a": [1]}, None]),
    ],
)
def test_copied_cells_stay_what_they_are(
    frostline: Frostline,
    here: Path,
    finished_sweep: Path,
    ending: str,
    ids: list[Any],
    days: list[Any],
    objects: list[Any],
) -> None:
    columns = {
        "text": ["good", "bad"],
        "id": [2**53 + 1, None],
        "day": [date(2024, 5, 1), None],
        "o": [{"a": [1]}, None],
    }
    pq.write_table(pa.table(columns), here / "new.parquet")
    done = frostline(
        *("predict", finished_sweep / "model", "new.parquet", "--copy-columns", "id,day,o", "--out", f"out{ending}")
    )
    assert done.code == 0
    table = read_table(here / f"out{ending}")
    assert [table.cells(name) for name in ("id", "day", "o")] == [ids, days, objects]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_cells_that_no_file_can_hold_are_refused_before_the_model_is_read(
    frostline: Frostline, here: Path, finished_sweep: Path, ending: str
) -> None:
    (here / "new.jsonl").write_text(json.dumps({"text": "good", "from": "\ud83d"}))
    unread = Path(shutil.copytree(finished_sweep / "model", here / "unread"))
    (unread / "model.safetensors").unlink()
    refused = frostline("predict", unread, "new.jsonl", "--copy-columns", "from", "--out", f"out{ending}")
    assert refused.code == 2 and f"column 'from': a {ending} file cannot hold its cells" in refused.err
