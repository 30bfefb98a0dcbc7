"""`frostline sweep`."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from frostline.training.train import run
from tiny import FAST, Frostline, TrainWith, sentences, write_csv


def test_a_plan_shows_every_group_of_named_parts_and_writes_nothing(frostline: Frostline, here: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    words = "--model m --train t.csv --tune 1,named,all --tune-modules layer.1,pooler --learning-rate 1e-4,1e-3".split()  # noqa: SIM905
    got = frostline("sweep", *words, "--seeds", "2", "--plan")
    assert got.code == 0 and {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    assert "12 runs, 0 of them done" in got.out and "2 of 3 layers must run in each step although only 1" in got.out
    group, forecast = got.out[got.out.index("tune named: ") :].split("\n\n")
    assert group.startswith("tune named: 9,666 of 28,802 parameters are trained\n") and "tune last 1:" not in got.out
    assert forecast.startswith("Forecast from timed steps")
    rows = [" ".join(line.split()) for line in group.splitlines()[2:]]
    assert rows == [
        "trained layer 1 8,192 6 0.0001, 0.001 0.01 bert.encoder.layer.1",
        "trained layer 1 352 10 0.0001, 0.001 0 bert.encoder.layer.1",
        "trained pooler, head 1,088 2 0.001 0.01 bert.pooler, classifier",
        "trained pooler, head 34 2 0.001 0 bert.pooler, classifier",
        "frozen embeddings 2,048 5 bert.embeddings",
        "frozen layer 0, layer 2 17,088 32 bert.encoder.layer.0, bert.encoder.layer.2",
    ]


def test_from_the_file_to_predictions(frostline: Frostline, here: Path) -> None:
    """A sweep from TOML whose labels are HTML and a formula; then every command that reads its folder."""
    labels = {"negative": "=1+1", "positive": "<b>good</b>"}
    rows = [
        {"text": f"<script>alert({n})</script> {row['text']}", "label": labels[row["label"]]}
        for n, row in enumerate(sentences(120))
    ]
    write_csv(here / "html.csv", rows)
    (here / "s.toml").write_text('model = "m"\ntrain = "html.csv"\ntune = [0, 1]\nseeds = 2\nout = "o"\n')
    planned = frostline("sweep", "s.toml", "--plan", *FAST)
    assert planned.code == 0 and not (here / "o").exists()
    assert "4 runs, 0 of them done; 28,802 parameters in the model." in planned.out
    assert "states of all tokens, after layer 2; of the token that the head reads, after the last layer" in " ".join(
        planned.out.split()
    )
    assert "1,122" in planned.out and "0.0 % of train" in planned.out

    swept = frostline("sweep", "s.toml", *FAST)
    about = "html, 96 examples, accuracy on 12 validation examples (majority-class baseline 0.500)"
    assert swept.code == 0 and about in " ".join(swept.out.split())
    assert re.search(r"\nReport       o/report.html\nModel        o/model.*\nLoad |There is no answer", swept.out)
    assert len(swept.out.splitlines()) <= 25
    assert [line.split()[0] for line in swept.err.splitlines()[-4:]] == ["1/4", "2/4", "3/4", "4/4"]
    page = (here / "o" / "report.html").read_text()
    assert "<script>alert" not in page and "<b>good</b>" not in page and "&lt;script&gt;alert" in page

    status = frostline("status", "o")
    counted = "o: 4 done, 0 ended in an error, 0 pending\n"
    assert status.code == 0 and status.out.startswith(counted) and "0.001" in status.out
    report = frostline("report", "o")
    *lines, page = report.out.splitlines()
    assert report.code == 0 and page == "o/report.html" and all(len(line) <= 80 for line in lines)
    assert " ".join(lines) == json.loads((here / "o/answer.json").read_text())["sentence"]
    again = frostline("sweep", "o/sweep.toml")
    assert again.code == 0 and "1/" not in again.err.splitlines()[-1] and again.out == swept.out

    labelled = frostline("predict", "o/model", "html.csv")
    assert labelled.code == 0 and labelled.out == "html.predictions.csv: 120 texts\n"
    note, warning = labelled.err.splitlines()
    assert note == "html.csv: text is column 'text'." and "a spreadsheet would run 101 cells as formulas" in warning
    with (here / "html.predictions.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert predicted[0]["text"] == rows[0]["text"] and list(predicted[0])[-2:] == ["p(<b>good</b>)", "p(=1+1)"]
    assert {row["label"] for row in predicted} <= set(labels.values())
    for name in ("p.jsonl", "p.parquet"):
        assert frostline("predict", "o/model", "html.csv", "--out", name).code == 0
    lines = [json.loads(line) for line in (here / "p.jsonl").read_text().splitlines()]
    assert lines == pd.read_parquet(here / "p.parquet").to_dict("records") and len(lines) == 120
    assert {line["label"] for line in lines} <= set(labels.values())


def test_many_classes_pairs_numbers_class_weights_and_files_without_a_header(frostline: Frostline, here: Path) -> None:
    rows, other = sentences(360), sentences(360, seed=4)
    write_csv(here / "classes.csv", [{"text": row["text"], "label": f"{n % 60}"} for n, row in enumerate(rows)])
    pairs = [
        {"sentence1": a["text"], "sentence2": b["text"], "label": a["label"]}
        for a, b in zip(rows[:100], other, strict=False)
    ]
    write_csv(here / "pairs.csv", pairs)
    write_csv(here / "scores.csv", [{**row, "label": str(n / 20)} for n, row in enumerate(pairs)])
    (here / "bare.tsv").write_text(
        "".join(f"id{n}\t{row['text']}\t{row['label']}\n" for n, row in enumerate(rows[:100]))
    )
    common = ["--model", "m", "--tune", "0", "--seeds", "1", *FAST]
    for name, flags, outputs in (
        ("classes.csv", ["--task-type", "text-classification"], 60),
        ("scores.csv", [], 1),
        ("pairs.csv", ["--class-weights", "negative=1,positive=3"], 2),
        ("bare.tsv", ["--column-names", "id,text,label", "--labels", "positive,negative"], 2),
    ):
        got = frostline("sweep", "--train", name, "--out", f"o-{name}", *common, *flags)
        assert got.code == 0, got.err
        table = pd.read_csv(here / f"o-{name}" / "results.csv")
        assert set(table.status) == {"done"} and table.trainable_parameters[0] == 32 * 33 + 33 * outputs
    toml = (here / "o-pairs.csv" / "sweep.toml").read_text()
    assert "[class_weights]\nnegative = 1.0\npositive = 3.0" in toml
    assert 'labels = ["positive", "negative"]' in (here / "o-bare.tsv" / "sweep.toml").read_text()


def test_a_diverged_run_is_trained_again_on_request(frostline: Frostline, here: Path, train_with: TrainWith) -> None:
    def diverges(spec: Any, experiment: Any, **more: Any) -> Any:
        result = run(spec, experiment, **more)
        return replace(result, record=result.record.model_copy(update={"outcome": "diverged"}))

    words = ["sweep", "--model", "m", "--train", "t.csv", "--tune", "1", "--seeds", "1", "--out", "o", *FAST]
    train_with(diverges)
    frostline(*words)
    train_with(run)
    assert "diverged" in frostline(*words).out + frostline("status", "o").out
    assert frostline(*words, "--retry", "failed,diverged").code == 0
    assert "diverged" not in frostline("status", "o").out and len(list((here / "o" / "retried").iterdir())) == 1
    got = frostline(*words, "--retry", "all")
    assert got.code == 2 and "retry cannot be 'all': give failed, diverged, or failed,diverged." in got.err


def test_a_moved_folder_is_continued_there(frostline: Frostline, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--model", "m", "--train", "t.csv", "--tune", "0", "--seeds", "1", *FAST]
    assert frostline("sweep", *words, "--out", "o").code == 0
    (here / "o").rename(here / "moved")
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")  # the table is found from where the sweep was started
    got = frostline("sweep", "../moved/sweep.toml", "--seeds", "2")
    assert got.code == 0 and "1 of 2 runs were done before" in got.err
    assert frostline("status", "../moved").out.startswith("../moved: 2 done") and not (here / "o").exists()
    (here / "runs").mkdir()
    (here / "sweep.toml").write_text('model = "nowhere"\ntrain = "t.csv"\nout = "r"\n')
    got = frostline("sweep", "../sweep.toml")  # a file of one's own beside a folder of that name
    assert got.code == 2 and "checksum" not in got.err
