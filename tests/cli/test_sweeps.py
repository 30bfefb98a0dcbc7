"""The command line: every verb, and what a hostile newcomer gives it. One sentence, exit code 2, nothing left behind."""

import csv
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from frostline.cli.program import MANY, leave_the_garbage, main
from frostline.sweep.results.tables import COST
from frostline.sweep.specification import SweepSpec
from tiny import Frostline, sentences, tiny_bert_folder, write_csv

FAST = "--num-train-epochs 1 --per-device-train-batch-size 8 --learning-rate 1e-3 --precision float32".split()  # noqa: SIM905


@pytest.fixture
def here(tmp_path: Path, tiny_bert: Path, tiny_table: Path) -> Path:
    """A folder with a model ``m`` and tables: ``t.csv``, and others that are wrong in one way each."""
    (tmp_path / "m").symlink_to(tiny_bert)
    rows = sentences(160)
    write_csv(tmp_path / "t.csv", rows)
    tables = {
        "one": [{**row, "label": "positive"} for row in rows],
        "case": [{**row, "label": row["label"].title() if n % 3 else row["label"]} for n, row in enumerate(rows)],
        "space": [{**row, "label": row["label"] + " " * (n % 3)} for n, row in enumerate(rows)],
        "unknown": [{**row, "label": "mixed" if n == 7 else row["label"]} for n, row in enumerate(rows)],
        "missing": [{**row, "label": "" if n == 7 else row["label"]} for n, row in enumerate(rows)],
        "numbers": [{**row, "label": "n/a?" if n == 50 else str(n / 7)} for n, row in enumerate(rows)],
        "stars": [{**row, "label": f"{n / 7:.2f}"} for n, row in enumerate(rows)],
        "long": [{**row, "text": (row["text"] + " ") * 9} for row in rows],
    }
    for name, table in tables.items():
        write_csv(tmp_path / f"{name}.csv", table)
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("text,label\n")
    (tmp_path / "ragged.csv").write_text(f"{text}a,b,c,d\n")
    (tmp_path / "latin.csv").write_bytes(text.encode() + "café noir,positive\n".encode("latin1"))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.tex").write_text("mine")
    models = {
        "no-config": "config.json",
        "no-tokenizer": "tokenizer.json",
        "no-weights": "model.safetensors",
    }
    for name, file in models.items():
        shutil.copytree(tiny_bert, tmp_path / name)
        (tmp_path / name / file).unlink()
    (tmp_path / "no-weights" / "pytorch_model.bin").write_bytes(b"pickle")
    shutil.copytree(tiny_bert, tmp_path / "torn")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"\0" * 64)
    (tmp_path / "unknown.toml").write_text(
        'model = "m"\ntrain = "t.csv"\ntune = [0]\nout = "o"\nlearning_rates = 1e-4\n'
    )
    (tmp_path / "nested.toml").write_text(
        'model = "m"\ntrain = "t.csv"\ntune = [0]\nout = "o"\n[training]\nseeds = 2\n'
    )
    (tmp_path / "typed.toml").write_text(
        'model = "m"\ntrain = "t.csv"\ntune = [0]\nout = "o"\nnum_train_epochs = "x"\n'
    )
    return tmp_path


BAD = [
    ("--train none.csv", "none.csv: there is no such file"),
    ("--train t.csv --text-column txt", "there is no column 'txt'"),
    ("--train empty.csv", "empty.csv: the file is empty"),
    ("--train header.csv", "header.csv: there are no rows in it"),
    ("--train one.csv", "every row has the label 'positive'"),
    ("--train missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train t.csv --validation missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train t.csv --validation unknown.csv", "unknown.csv, row 9, column 'label': the label 'mixed' is none of"),
    ("--train case.csv", "look the same; write them alike"),
    ("--train space.csv", "look the same; write them alike"),
    ("--train numbers.csv", "numbers.csv, row 52, column 'label': 'n/a?' stands among"),
    ("--train t.csv --problem-type regression", "'negative' is not a number"),
    ("--train latin.csv", "latin.csv, line 162: byte"),
    ("--train ragged.csv", "ragged.csv, row 162: 4 cells where the header has 2"),
    ("--train t.csv --train-size 5000", "train_size = 5,000 is more than the 128 training rows"),
    ("--train t.csv --train-size 1", "train_size = 1 cannot show all 2 classes"),
    ("--train t.csv --tune 0,7", "7 tuned layers were asked for, but the model has 3"),
    ("--train t.csv --tune last", "tune cannot be 'last': give numbers of layers"),
    ("--train t.csv --tune 0,named", "tune has `named`, but no parts are named: give --tune-modules"),
    ("--train t.csv --tune 0 --tune-modules pooler", "add `named` to --tune, or leave --tune-modules out"),
    ("--train t.csv --tune named --tune-modules layer.3", "the nearest are layer.2, layer.1, layer.0"),
    ("--train t.csv --tune=", "tune cannot be '': give at least one value"),
    ("--train t.csv --tune 1,1", "a value stands there twice"),
    ("--train t.csv --tune -1", "tune cannot be '-1': give numbers of layers"),
    ("--train t.csv --seeds 0", "seeds cannot be '0': give a number of seeds"),
    ("--train t.csv --seeds=", "seeds cannot be '': give a number of seeds"),
    ("--train t.csv --learning-rate nan", "learning_rate cannot be 'nan': give a finite number"),
    ("--train t.csv --max-grad-norm inf", "max_grad_norm cannot be 'inf': give a finite number"),
    ("--train t.csv --lr-scheduler-type foo", "lr_scheduler_type cannot be 'foo': give 'linear'"),
    ("--train t.csv --metric pearson", "There is no metric 'pearson' for this task"),
    ("--train stars.csv --metric f1", "There is no metric 'f1' for this task"),
    ("--train stars.csv --class-weights balanced", "class_weights are for classes"),
    ("--train t.csv --class-weights positive=1", "Class weights leave out 'negative'"),
    (
        "--train t.csv --class-weights positive=1,negative=x",
        "class_weights cannot be {'positive': '1', 'negative': 'x'}",
    ),
    ("--train t.csv --model no-config", "no-config is no model"),
    ("--train t.csv --model no-tokenizer", "has no tokenizer"),
    ("--train t.csv --model no-weights", "has no weights in safetensors (only pytorch_model.bin)"),
    ("--train t.csv --model torn", "The model torn cannot be used"),
    ("--train t.csv --model ./none", "There is no model folder ./none"),
    ("--train t.csv --model org/none", "is neither a folder here nor to be had from the hub"),
    ("--train long.csv", "this model takes no more; consent with --max-truncated"),
    ("--train t.csv --max-length 4", "raise --max-length, or consent with --max-truncated"),
    ("--train t.csv --max-length 600", "give a number from 3 to 32"),
    ("--train t.csv --out kept", "kept exists and holds no sweep"),
    ("--train t.csv --out t.csv", "t.csv/sweep.toml cannot be read"),
    ("--train t.csv --out t.csv/o", "cannot be read"),
    ("--train t.csv --out /proc/none", "/proc/none cannot be written into"),
    ("--train t.csv --data kept", "one of the two"),
    ("--train t.csv --validation none", "k is chosen on validation"),
    ("--train t.csv --device cuda:7", "device cannot be 'cuda:7'"),
    ("--train t.csv --revision main", "m is a folder, and a folder has no revision 'main'"),
    ("unknown.toml", "There is no setting 'learning_rates': did you mean 'learning_rate'?"),
    ("nested.toml", "There is no table [training]"),
    ("typed.toml", "num_train_epochs cannot be 'x': give a number"),
    ("none.toml", "There is no file none.toml"),
    ("t.csv", "t.csv is no TOML"),
    ("m", "m cannot be read (Is a directory)"),
    ("", "Give the data either with --train FILE or with --data NAME"),
]


@pytest.mark.parametrize(("flags", "said"), BAD, ids=[flags or "nothing" for flags, _ in BAD])
def test_bad_input_is_one_sentence_and_leaves_nothing(frostline: Frostline, here: Path, flags: str, said: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    words = flags.split(" ") if flags else []
    for flag, value in (("--model", "m"), ("--tune", "0,1"), ("--seeds", "1"), ("--out", "o")):
        if not any(
            word.split("=")[0] == flag or (word == words[0] and word.endswith((".toml", "t.csv", "m")))
            for word in words
        ):
            words += [flag, value]
    got = frostline("sweep", *words)
    assert got.code == 2 and not got.out
    *notes, sentence = got.err.splitlines()
    assert sentence.startswith("frostline: ") and said in sentence and sentence.endswith((".", "?"))
    assert not notes or "/proc" in flags
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


@pytest.mark.parametrize("name", ["model", "tune", "out"])
def test_what_a_sweep_needs(frostline: Frostline, here: Path, name: str) -> None:
    given = {"model": "m", "train": "t.csv", "tune": "0", "out": "o"}
    got = frostline("sweep", *[word for key, value in given.items() if key != name for word in (f"--{key}", value)])
    assert got.code == 2 and f"{name} is missing: give --{name}" in got.err and got.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--frobnicate"], ["--tune"], ["a.toml", "b.toml"]])
def test_flags_that_do_not_exist(frostline: Frostline, here: Path, words: list[str]) -> None:
    got = frostline("sweep", *words)
    assert got.code == 2 and "Traceback" not in got.err and "Error: " in got.err


def test_every_setting_is_a_flag_with_a_description(frostline: Frostline) -> None:
    for verb in ("sweep", "plan"):
        got = frostline(verb, "--help")
        assert got.code == 0
        for name in SweepSpec.model_fields.keys() - {"grid"}:
            assert f"--{name.replace('_', '-')}" in got.out
        places = [got.out.index(f"  --{name} ") for name in ("model", "tune", "seeds", "out", "weight-decay")]
        assert places == sorted(places)  # the grid first


@pytest.mark.parametrize(
    "verb",
    [
        *("demo", "sweep", "find", "plan", "status", "report", "probe", "predict", "check", "analyze", "study"),
        *("cache", "cache ls", "cache rm", "cache verify"),
    ],
)
def test_every_verb_has_help(frostline: Frostline, verb: str) -> None:
    got = frostline(*verb.split(), "--help")
    assert got.code == 0 and got.out.startswith("Usage: frostline " + verb) and "--help" in got.out


def test_the_verbs_are_told_in_a_line_each(frostline: Frostline) -> None:
    got = frostline("--help")
    assert got.code == 0 and "..." not in got.out.partition("Commands:")[2]


def test_a_dry_run_shows_every_group_and_leaves_nothing(frostline: Frostline, here: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    words = "--model m --train t.csv --tune 1,named,all --tune-modules layer.1,pooler --learning-rate 1e-4,1e-3".split()  # noqa: SIM905
    got = frostline("sweep", *words, "--seeds", "2", "--dry-run")
    assert got.code == 0 and {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    planned = frostline("plan", *words, "--seeds", "2")
    assert "12 runs, 0 of them done" in planned.out and "Predicted, from steps timed here" in planned.out
    assert "12 runs, 0 of them done" in got.out and "Predicted" not in got.out  # of which nothing is timed
    assert "2 of 3 layers must run in each step although only 1 of them is trained" in planned.out
    first, *groups = got.out[got.out.index("tune last 1: ") :].strip().split("\n\n")
    assert [part.splitlines()[0] for part in (first, *groups)] == [
        "tune last 1: 9,666 of 28,802 parameters are trained",
        "tune all: 28,802 of 28,802 parameters are trained",
        "tune named: 9,666 of 28,802 parameters are trained",
    ]
    rows = [" ".join(line.split()) for line in groups[-1].splitlines()[2:]]
    assert rows == [
        "trained layer 1 8,192 6 0.0001, 0.001 0.01 bert.encoder.layer.1",
        "trained layer 1 352 10 0.0001, 0.001 0 bert.encoder.layer.1",
        "trained pooler, head 1,088 2 0.001 0.01 bert.pooler, classifier",
        "trained pooler, head 34 2 0.001 0 bert.pooler, classifier",
        "frozen embeddings 2,048 5 bert.embeddings",
        "frozen layer 0, layer 2 17,088 32 bert.encoder.layer.0, bert.encoder.layer.2",
    ]
    assert "bert.encoder.layer.0 .. 1" in first


def test_from_the_file_to_predictions(frostline: Frostline, here: Path) -> None:
    """A sweep from TOML with HTML and a formula as labels; then every verb that reads its folder."""
    labels = {"negative": "=1+1", "positive": "<b>good</b>"}
    rows = [
        {"text": f"<script>alert({n})</script> {row['text']}", "label": labels[row["label"]]}
        for n, row in enumerate(sentences(120))
    ]
    write_csv(here / "html.csv", rows)
    (here / "s.toml").write_text('model = "m"\ntrain = "html.csv"\ntune = [0, 1]\nseeds = 2\nout = "o"\n')
    planned = frostline("plan", "s.toml", *FAST)
    assert planned.code == 0 and not (here / "o").exists()
    assert "4 runs, 0 of them done; 28,802 parameters in the model." in planned.out
    assert "states of all tokens after layer 2, of the token that the head reads" in planned.out
    assert "1,122" in planned.out and "0.0 % of train" in planned.out

    swept = frostline("sweep", "s.toml", *FAST)
    assert swept.code == 0 and "html, 96 examples, accuracy on 12 validation rows (guessing 0.500)" in swept.out
    assert swept.out.splitlines()[-2:] == ["o/report.html", "o/model"] or "There is no answer" in swept.out
    assert [line.split()[0] for line in swept.err.splitlines()[-4:]] == ["1/4", "2/4", "3/4", "4/4"]
    page = (here / "o" / "report.html").read_text()
    assert "<script>alert" not in page and "<b>good</b>" not in page and "&lt;script&gt;alert" in page

    status = frostline("status", "o")
    assert status.code == 0 and status.out.startswith("o: 4 done, 0 failed, 0 pending\n") and "0.001" in status.out
    report = frostline("report", "o")
    assert report.code == 0 and report.out.splitlines() == [
        json.loads((here / "o/answer.json").read_text())["sentence"],
        "o/report.html",
    ]
    again = frostline("sweep", "o/sweep.toml")
    assert again.code == 0 and "1/" not in again.err.splitlines()[-1] and again.out == swept.out

    said = frostline("predict", "o/model", "html.csv")
    assert (said.code, said.out) == (0, "html.predictions.csv: 120 texts\n")
    assert said.err == "html.csv: text is column 'text', label is column 'label'.\n"
    with (here / "html.predictions.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert predicted[0]["text"] == rows[0]["text"] and list(predicted[0])[-2:] == ["p(<b>good</b>)", "p(=1+1)"]
    assert {row["label"] for row in predicted} <= {"'=1+1", "<b>good</b>"}
    for name in ("p.jsonl", "p.parquet"):
        assert frostline("predict", "o/model", "html.csv", "--out", name).code == 0
    lines = [json.loads(line) for line in (here / "p.jsonl").read_text().splitlines()]
    assert lines == pd.read_parquet(here / "p.parquet").to_dict("records") and len(lines) == 120
    assert {line["label"] for line in lines} <= set(labels.values())


def test_predictions_take_the_columns_of_training_and_overwrite_nothing_unasked(
    frostline: Frostline, here: Path, finished_sweep: Path
) -> None:
    (here / "model").symlink_to(finished_sweep / "model")
    rows = [{"text": "a good film", "comment": "not this", "review": "nor this"}]
    write_csv(here / "new.csv", rows)  # 'text' is what the model was trained on
    (here / "new.predictions.csv").write_text("precious")
    refused = frostline("predict", "model", "new.csv")
    assert refused.code == 2 and refused.err == (
        "frostline: new.predictions.csv is there already: give another --out, or --overwrite.\n"
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
        "holds no model (no config.json)" in frostline("predict", ".", "nothing.csv").err
    )  # before it looks at the texts


def test_the_version_is_told(frostline: Frostline) -> None:
    got = frostline("--version")
    assert (got.code, got.out) == (0, f"frostline {version('frostline')}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check m --revision main", "m is a folder, and a folder has no revision 'main'"),
        ("predict model none.csv", "none.csv: there is no such file"),
        ("predict model none.csv --out t.csv", "none.csv: there is no such file"),
        ("predict model t.csv --out t.xlsx", "t.xlsx has no known ending"),
        ("predict model t.csv --out t.csv", "t.csv holds the texts themselves and would be overwritten"),
        ("predict model t.csv --text-column txt", "there is no column 'txt'"),
        ("predict model nohead.tsv", "name it with --text-column"),
        ("predict m t.csv", "is no trained classifier"),
        ("predict kept t.csv", "kept holds no model"),
        ("status kept", "kept holds no sweep"),
        ("report none", "none holds no sweep"),
        ("plan --model m --train t.csv --tune 9", "9 tuned layers were asked for"),
        ("check none/of/this", "There is no model folder"),
        ("check no-tokenizer", "has no tokenizer"),
        ("cache rm", "Say what to remove"),
        ("cache rm --all abc", "Say what to remove"),
        ("cache rm zzz", "No kept hidden states have the key 'zzz'"),
        ("cache rm --all", "nobody is there to answer: add --yes"),
        ("demo --task chess", "chess"),
    ],
)
def test_verbs_say_what_is_wrong(
    frostline: Frostline, here: Path, finished_sweep: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    (here / "model").symlink_to(finished_sweep / "model")
    (here / "nohead.tsv").write_text("1\ta film\tgood\n2\ta plot\tbad\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    before = sorted(here.rglob("*")), (here / "t.csv").read_bytes()
    got = frostline(*words.split())
    assert got.code == 2 and not got.out
    assert got.err.startswith("frostline: ") and said in got.err and got.err.count("\n") == 1
    assert (sorted(here.rglob("*")), (here / "t.csv").read_bytes()) == before


def test_check_and_cache(frostline: Frostline, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.frozen.hidden_states.cache_folder", lambda: here / "cache")
    monkeypatch.setattr("frostline.frozen.cache.cache_folder", lambda: here / "cache")
    assert frostline("cache", "ls").out == f"{here / 'cache'}: 0 B\n"
    checked = frostline("check", "m")
    assert checked.code == 0 and "\nEqual: every difference is below 1e-05 of the largest value." in checked.out
    assert "refused" not in checked.out
    assert [line.split()[:2] for line in checked.out.splitlines()[1:-1]] == [
        [k, "packed"] for k in ("0", "1", "2", "3", "all")
    ]
    assert (
        frostline("sweep", "--model", "m", "--train", "t.csv", "--tune", "1", "--seeds", "1", "--out", "o", *FAST).code
        == 0
    )
    listed = frostline("cache", "ls").out.splitlines()
    assert len(listed) == 3 and listed[1].split()[:3] == ["key", "model", "precision"] and " 160 " in listed[2]
    assert frostline("cache", "verify").out.endswith("as it was written\n")
    file = next((here / "cache").rglob("tokens-2.npy"))
    file.write_bytes(file.read_bytes()[:-4])
    bad = frostline("cache", "verify")
    assert bad.code == 2 and "1 damaged: remove them with" in bad.err and "is not what was written" in bad.out
    next((here / "cache").glob("*/recipe.json")).write_text("{")
    assert "(its record is damaged)" in frostline("cache", "ls").out
    worse = frostline("cache", "verify")
    assert worse.code == 2 and "(its record is damaged)" in worse.out and "recipe.json is not what" in worse.out
    assert frostline("cache", "rm", listed[2].split()[0]).out.startswith("Removed 1, ")
    assert frostline("cache", "rm", "--all", "--yes").out == "Removed 0, 0 B.\n"


def test_the_same_text_in_train_and_test_is_counted_and_said(frostline: Frostline, here: Path) -> None:
    got = frostline("plan", "--model", "m", "--train", "t.csv", "--test", "t.csv", "--tune", "0")
    assert got.code == 0 and "144 of 160 test rows have a text that train has too." in got.out


def test_texts_that_look_like_nothing_are_texts(frostline: Frostline, here: Path) -> None:
    rows = [
        *sentences(100),
        {"text": "", "label": "positive"},
        {"text": "NA", "label": "negative"},
        {"text": "null", "label": "positive"},
    ]
    write_csv(here / "na.csv", rows)
    got = frostline("plan", "--model", "m", "--train", "na.csv", "--tune", "0")
    assert got.code == 0 and "empty text (row 102)" in got.out


def test_sixty_classes_pairs_numbers_weights_and_files_without_a_header(frostline: Frostline, here: Path) -> None:
    rows, other = sentences(360), sentences(360, seed=4)
    write_csv(here / "sixty.csv", [{"text": row["text"], "label": f"{n % 60}"} for n, row in enumerate(rows)])
    pairs = [
        {"sentence1": a["text"], "sentence2": b["text"], "label": a["label"]}
        for a, b in zip(rows[:100], other, strict=False)
    ]
    write_csv(here / "pairs.csv", pairs)
    write_csv(here / "sts.csv", [{**row, "label": str(n / 20)} for n, row in enumerate(pairs)])
    (here / "bare.tsv").write_text(
        "".join(f"id{n}\t{row['text']}\t{row['label']}\n" for n, row in enumerate(rows[:100]))
    )
    common = ["--model", "m", "--tune", "0,all", "--seeds", "1", *FAST]
    for name, flags, outputs in (
        ("sixty.csv", ["--problem-type", "single_label_classification"], 60),
        ("sts.csv", [], 1),
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


@pytest.fixture
def program(here: Path) -> tuple[list[str], dict[str, str]]:
    """A sweep of fifteen runs as a command of its own, and its environment."""
    command = [sys.executable, "-m", "frostline", "sweep", "--model", "m", "--train", "t.csv", "--tune", "0,1,all"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return [*command, "--seeds", "5", "--out", "o", *FAST, "--num-train-epochs", "3"], environment


def until_more_are_done(process: "subprocess.Popen[str]", folder: Path, more: int) -> None:
    def done() -> int:
        return len([p for p in folder.glob("*.json") if p.name.count(".") == 1])

    enough = done() + more
    while process.poll() is None and done() < enough:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def test_killed_interrupted_and_gone_on_is_the_undisturbed_sweep(
    here: Path, program: tuple[list[str], dict[str, str]], frostline: Frostline
) -> None:
    command, environment = program
    options: dict[str, Any] = {
        "env": environment,
        "cwd": here,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        # A shell starts what it puts into the background deaf to SIGINT, and so would be the program.
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    }
    runs = here / "o" / "runs"
    first = subprocess.Popen(command, **options)
    until_more_are_done(first, runs, 1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    second = subprocess.Popen(command, **options)
    until_more_are_done(second, runs, 2)
    second.send_signal(signal.SIGINT)
    _, err = second.communicate()
    assert second.returncode == 130 and "Traceback" not in err, err
    assert err.endswith("frostline: stopped. What is finished is kept; the same command goes on from there.\n")
    third = frostline(*command[3:])
    assert third.code == 0 and "1/15" not in third.err
    whole = [("p" if word == "o" else word) for word in command[3:]]
    assert frostline(*whole).code == 0
    tables = [pd.read_csv(here / out / "results.csv").drop(columns=list(COST)) for out in ("o", "p")]
    pd.testing.assert_frame_equal(*tables)
    assert (here / "o" / "scores.csv").read_bytes() == (here / "p" / "scores.csv").read_bytes()
    ours, theirs = (json.loads((here / out / "model" / "frostline.json").read_text()) for out in ("o", "p"))
    assert ours["run"] == theirs["run"] and ours["logit_gap"] == theirs["logit_gap"] == 0
    weights = [(here / out / "model" / "model.safetensors").read_bytes() for out in ("o", "p")]
    assert weights[0] == weights[1]


def test_a_failed_run_is_said_after_the_table(
    frostline: Frostline, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import frostline.sweep.execution.execute as execute_module

    real = execute_module.run

    def fails(spec: Any, bench: Any, **more: Any) -> Any:
        if spec.tune == 1:
            raise RuntimeError("out of memory")
        return real(spec, bench, **more)

    monkeypatch.setattr(execute_module, "run", fails)
    words = ["sweep", "--model", "m", "--train", "t.csv", "--tune", "0,1", "--seeds", "1", "--out", "o", *FAST]
    got = frostline(*words)
    assert got.code == 1 and "failed: RuntimeError: out of memory" in got.err
    assert "1 run ended in an error; `frostline status o` says why" in got.out
    assert "failed" in frostline("status", "o").out
    monkeypatch.undo()
    monkeypatch.chdir(here)
    again = frostline(*words)
    assert (
        again.code == 0
        and "ended in an error" not in again.out
        and again.err.splitlines()[-1].startswith("1/1  last 1")
    )


def test_other_weights_under_the_same_name_are_another_sweep(frostline: Frostline, here: Path) -> None:
    words = ["sweep", "--train", "t.csv", "--tune", "0", "--seeds", "1", "--out", "o", *FAST]
    assert frostline(*words, "--model", "m").code == 0
    before = {path: path.read_bytes() for path in (here / "o").rglob("*") if path.is_file()}
    tiny_bert_folder(here / "m2", seed=5)
    got = frostline(*words, "--model", "m2")
    assert got.code == 2 and "o holds another sweep: its model is different." in got.err
    assert {path: path.read_bytes() for path in (here / "o").rglob("*") if path.is_file()} == before
    assert np.isfinite(pd.read_csv(here / "o" / "results.csv").validation_best).all()


def test_the_program_looks_for_garbage_seldom_since_its_imports_make_so_many_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, seen = gc.get_threshold(), list[int]()
    gc.set_threshold(700, 10, 10)
    monkeypatch.setattr("frostline.cli.program.app", lambda prog_name: seen.append(gc.get_threshold()[0]))
    try:
        main()
        assert seen == [MANY]
    finally:
        gc.set_threshold(*before)


def test_at_the_end_the_garbage_is_left_to_the_system_except_beside_triton_which_prints_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
        leave_the_garbage()
        assert gc.get_freeze_count() == 0
        monkeypatch.delitem(sys.modules, "triton")
        leave_the_garbage()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
