"""Bad input to every command: one message, exit code 2, no files written."""

import json
import os
import shutil
from pathlib import Path

import pytest

from frostline.cli.flags import as_words
from small_models import edit_config
from tiny import SMALL, Frostline, plan_of, run_sweep, sentences, write_csv

BAD = [
    ("--train t.csv --validation missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train latin.csv", "latin.csv, line 162: byte"),
    ("--train t.csv --train-size 5000", "train_size = 5,000 is more than the 128 training rows"),
    ("--train t.csv --train-size 1", "train_size = 1 is too small for one example of each of the 2 classes"),
    ("--train t.csv --tune 0,7", "7 tuned layers were requested, but m has 3"),
    ("--train t.csv --tune named --tune-modules layer.3", "the nearest are layer.2, layer.1, layer.0"),
    ("--train t.csv --metric pearson", "There is no metric 'pearson' for this task"),
    ("--train stars.csv --calibrate", "--calibrate is for probabilities, but this is a regression"),
    ("--train stars.csv --threshold 0.3", "--threshold is for two classes, but there are numbers to predict"),
    ("--train t.csv --class-weights positive=1", "Class weights do not include 'negative'"),
    (
        "--train t.csv --class-weights positive=1,negative=x",
        "class_weights cannot be {'positive': '1', 'negative': 'x'}",
    ),
    ("--train t.csv --class-weights positive=1,negative=2,positive=3", "names a label twice"),
    ("--train t.csv --tune 0 --tune 1", "--tune is there twice: give it once, and several values separated by commas"),
    ("--train t.csv --train latin.csv", "--train is there twice"),
    ("--train t.csv --refit --no-refit", "--refit and --no-refit are both there: leave one of them out."),
    ("--train t.csv --model torn", "The model torn cannot be used"),
    ("--train t.csv --model org/none", "is neither a folder nor available from the hub"),
    ("--train t.csv --max-length 4", "Raise --max-length, or allow truncation with --max-truncated"),
    ("--train t.csv --max-length 600", "give a number from 3 to 32"),
    ("--train t.csv --out kept", "kept exists and holds no sweep"),
    *(
        (f"--train t.csv --out old/{one}/x", f"old/{one}, whose files frostline replaces or moves")
        for one in ("runs", "model")
    ),
    ("--train t.csv --out t.csv", "t.csv is a file, or in a file: give a folder instead"),
    ("--train t.csv --out /proc/none", "/proc/none cannot be written into"),
    ("--train t.csv --validation none", "k is chosen on validation"),
    ("--train t.csv --revision main", "m is a folder, and a folder has no revision 'main'"),
    ("t.csv", "t.csv is not valid TOML"),
    ("", "Give the data with either --train FILE or --data NAME"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags or "nothing" for flags, _ in BAD])
def test_bad_input_is_one_message_and_no_file(frostline: Frostline, here: Path, flags: str, message: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    words = flags.split(" ") if flags else []
    for flag, value in (("--model", "m"), ("--tune", "0,1"), ("--seeds", "1"), ("--out", "o")):
        if flag not in words and flags != "t.csv":
            words += [flag, value]
    got = frostline("sweep", *words)
    assert got.code == 2 and not got.out
    *notes, sentence = got.err.splitlines()
    assert sentence.startswith("frostline: ") and message in sentence and sentence.endswith((".", "?"))
    assert not notes or "/proc" in flags
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check m --revision main", "m is a folder, and a folder has no revision 'main'"),
        (
            "find --model m --train t.csv --depth 1,2 --tune 2,full",
            "but m with --depth 1 has 1: give numbers from 0 to 1",
        ),
        ("predict model none.csv", "none.csv: there is no such file"),
        ("predict model t.csv --out t.xlsx", "t.xlsx has an unknown ending"),
        ("predict model t.csv --out t.csv", "t.csv is the input file and would be overwritten"),
        ("predict model nohead.tsv", "seems to have no header, because '1' stands where the name of a column belongs"),
        ("predict kept t.csv", "kept contains no model"),
        ("status kept", "kept holds no sweep"),
        ("report none", "none holds no sweep"),
        ("report t.csv", "t.csv is a file, or in a file: give a folder instead"),
        ("cache rm", "Say what to remove"),
        (("cache", "rm", ""), "Say what to remove"),
        (("cache", "rm", "zzz", ""), "Say what to remove"),
        (("study", "lee2019", "--plan", "--task", ""), "--task has no value: give at least one, or leave it out"),
        (("study", "lee2019", "--plan", "--model", ","), "--model has no value"),
        (("analyze", "nohead.csv", "--out", "a", "--metric", ""), "--metric has no value"),
        ("cache rm zzz", "No cached hidden states have the key 'zzz'"),
        ("cache rm --all", "there is no terminal to ask: add --yes"),
        ("study lee2019 --model adapter --plan", "an adapter of org/base"),
        ("probe --model own --train t.csv", "--trust-remote-code"),
        ("bundle own own --out b", "runs Python code of its own, which a bundle cannot hold"),
        ("predict model m", "this is a folder; name a file in it"),
        ("predict model t.csv --text-column text --text-pair-column text", "is chosen for two purposes"),
        ("analyze nohead.csv --out a", "write a header above it"),
        ("analyze nohead.csv --out a --metric acc,f1", "--metric has acc and f1 for all tasks: give one"),
        ("analyze kept --out a --metric f1", "--metric is for tables of results, and the sweep in kept has its own"),
        ("analyze nohead.csv --out a --set seed=0 --set seed=1", "--set has 'seed' twice: give one value for it"),
        ("sweep --model m --train t.csv --tune 0,1 --out --plan", "--out has no value: --plan follows it"),
        ("sweep --model m --train t.csv --tune 0,1 --out --help", "--out has no value: --help follows it"),
        ("predict model t.csv --copy-columns text --copy-columns label", "--copy-columns is there twice"),
        ("study lee2019 --task SST-2 --data SST-2=t.csv", "t.csv: this is a file, not a folder with splits"),
    ],
)
def test_bad_input_to_other_commands(
    frostline: Frostline, here: Path, finished_sweep: Path, command: str | tuple[str, ...], message: str
) -> None:
    """The fixture ``frostline`` refuses flags of other commands in every message of every test."""
    (here / "model").symlink_to(finished_sweep / "model")
    (here / "nohead.tsv").write_text("1\ta film\tgood\n2\ta plot\tbad\n")
    (here / "nohead.csv").write_text("0,0,0.5\n1,0,0.6\n1,0,0.7,9\n")
    (here / "adapter").mkdir()
    facts = {"peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (here / "adapter" / "adapter_config.json").write_text(json.dumps(facts))
    shutil.copytree(finished_sweep / "model", here / "own")
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.Own"}
    edit_config(here / "own", model_type="own", auto_map=classes)
    before = sorted(here.rglob("*")), (here / "t.csv").read_bytes()
    got = frostline(*(command.split() if isinstance(command, str) else command))
    assert got.code == 2 and not got.out
    assert got.err.startswith("frostline: ") and message in got.err and got.err.count("\n") == 1
    assert (sorted(here.rglob("*")), (here / "t.csv").read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sweep.toml", "", "sweep.toml is damaged or was edited (its checksum is wrong): restore it"),
        ("data.json", "{}", "data.json is missing or damaged"),
        ("runs", "", "runs is not a folder: move it away"),
    ],
)
def test_a_damaged_folder_of_a_sweep(
    frostline: Frostline, finished_small: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    damaged = Path(shutil.copytree(finished_small, tmp_path / "o")) / name
    if damaged.is_dir():
        shutil.rmtree(damaged)
    damaged.write_text(content)
    for command in ("report",) if name == "data.json" else ("report", "status"):
        got = frostline(command, "o")
        assert got.code == 2 and not got.out and got.err.count("\n") == 1
        assert got.err.startswith("frostline: ") and message in got.err


def test_a_model_with_files_that_others_have_made(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    """JSON that is nested too deep, and a named pipe."""
    model = Path(shutil.copytree(finished_sweep / "model", here / "model"))
    (model / "frostline.json").unlink()
    for name in ("config.json", "tokenizer_config.json", "head.json"):
        before = (model / name).read_bytes() if (model / name).exists() else None
        (model / name).write_text("[" * 100_000)
        got = frostline("predict", "model", "t.csv")
        assert got.code == 2 and "Traceback" not in got.err, name
        (model / name).unlink() if before is None else (model / name).write_bytes(before)
    (model / "tokenizer.json").unlink()
    os.mkfifo(model / "tokenizer.json")
    got = frostline("predict", "model", "t.csv")
    assert got.code == 2 and "tokenizer.json is no ordinary file" in got.err


def test_a_saved_model_in_the_cache_of_the_hub(frostline: Frostline, here: Path, finished_sweep: Path) -> None:
    """There, each file is a link to another folder."""
    (here / "snapshot").mkdir()
    for file in (finished_sweep / "model").iterdir():
        (here / "snapshot" / file.name).symlink_to(file)
    assert [frostline(*words.split()).code for words in ("predict snapshot t.csv", "check snapshot")] == [0, 0]


@pytest.mark.parametrize("words", ["predict {} t.csv", "status {}"])
def test_a_name_that_is_too_long(frostline: Frostline, here: Path, words: str) -> None:
    got = frostline(*words.format("x" * 5000).split())
    assert got.code == 2 and "Traceback" not in got.err


@pytest.mark.parametrize("labels", [["rock, pop", "jazz"], ['"a"', "b"], ['so "good", so bad', "b"]])
def test_labels_with_commas_and_quotes(frostline: Frostline, here: Path, labels: list[str]) -> None:
    rows = [{**row, "label": labels[row["label"] == "positive"]} for row in sentences(160)]
    write_csv(here / "t.csv", rows)
    flags = as_words({"labels": labels, "class_weights": dict(zip(labels, (2, 1), strict=True))})
    words = ["--model", "m", "--train", "t.csv", "--tune", "0", "--seeds", "1", "--out", "o"]
    assert as_words({"seeds": [3], "tune": [1]}) == ["--seeds=3,", "--tune=1"]  # 3 alone would be three seeds
    shown = frostline("sweep", *words, *flags, "--executor", "slurm", "--print")
    assert shown.code == 0
    plan = plan_of(model="m", train="t.csv", tune=0, seeds=1, out="o", labels=labels)
    assert f"Classification into 2 classes in this order: {labels[0]!r}, {labels[1]!r}." in plan.notes
    got = frostline("sweep", *words, *flags, "--plan")
    assert got.code == 0 and f"{labels[0]!r}, {labels[1]!r}" in got.out
    if "," in labels[0]:
        got = frostline("sweep", *words, "--labels", ",".join(labels), "--plan")
        quoted = labels[0].replace('"', '""')
        assert got.code == 2
        assert f'(as CSV, which quotes it: "{quoted}")' in got.err or "put a label with a comma in double q" in got.err


def test_rows_without_a_label_are_skipped_in_every_command(frostline: Frostline, here: Path) -> None:
    words = ["--model", "m", "--tune", "0", "--seeds", "1", "--out", "o", "--train", "missing.csv"]
    note = "missing.csv: 1 of 160 rows has no label (row 9) and is skipped."
    assert "--skip-unlabelled" in frostline("sweep", "--plan", *words).err
    got = frostline("sweep", "--plan", *words, "--skip-unlabelled")
    assert got.code == 0 and " ".join(got.out.split()).count(note) == 1
    (here / "s.toml").write_text('model = "m"\ntrain = "missing.csv"\ntune = 0\nout = "o"\nskip_unlabelled = true\n')
    got = frostline("sweep", "s.toml", "--plan")
    assert got.code == 0 and note in " ".join(got.out.split())
    assert frostline("sweep", "s.toml", "--plan", "--no-skip-unlabelled").code == 2
    notes = plan_of(model="m", train="missing.csv", tune=0, out="o", skip_unlabelled=True).notes
    assert note in notes
    got = frostline("probe", "--model", "m", "--train", "missing.csv", "--skip-unlabelled", "--out", "p")
    assert got.code == 0 and note in " ".join(got.out.split())


def test_work_says_which_command_has_a_flag(frostline: Frostline, here: Path) -> None:
    run_sweep({"model": "m", "train": "t.csv", "tune": "0", "seeds": 1, "out": "o", **SMALL})
    shutil.rmtree(next((here / "o" / "runs").iterdir()))
    (here / "t.csv").write_text("one,two\na,b\n")
    got = frostline("work", "o")
    assert got.code == 2 and "name one with --text-column" in got.err and "--wait" not in got.err
    assert got.err.endswith(" The command that made o takes --text-column, --column-names.\n")
