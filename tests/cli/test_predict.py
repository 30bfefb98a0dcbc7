"""`frostline predict`."""

import csv
from pathlib import Path

from tiny import Frostline, write_csv


def test_predictions_use_the_columns_of_the_training_data_and_overwrite_no_file(
    frostline: Frostline, here: Path, finished_sweep: Path
) -> None:
    (here / "model").symlink_to(finished_sweep / "model")
    rows = [{"text": "a good film", "comment": "not this", "review": "nor this"}]
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


def test_predictions_of_a_file_without_a_header(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    (here / "bare.csv").write_text("a good film,7\na bad film,8\n")
    model = str(finished_sweep / "model")
    done = frostline("predict", model, "bare.csv", "--column-names", "text,number")
    assert (done.code, done.err) == (0, "bare.csv: text is column 'text'.\n")
    assert done.out == "bare.predictions.csv: 2 texts\n"
    assert (
        "contains no model (no config.json)" in frostline("predict", ".", "nothing.csv").err
    )  # the model is checked before the texts


def test_a_threshold_is_applied_and_printed(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    write_csv(here / "new.csv", [{"text": "a good film"}, {"text": "a bad film"}])
    done = frostline("predict", finished_sweep / "model", "new.csv", "--threshold", "0.0001")
    assert done.code == 0 and "The label 'positive' is predicted from probability 0.0001 on." in done.err
    with (here / "new.predictions.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["positive", "positive"]
