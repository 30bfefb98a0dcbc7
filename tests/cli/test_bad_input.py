"""Bad input to every command: one message, exit code 2, no files written."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from frostline.cli.flags import as_words
from small_models import edit_config
from tiny import SMALL, Frostline, plan_of, run_sweep, sentences, write_csv

BAD = [
    ("--train none.csv", "none.csv: there is no such file"),
    ("--train empty.csv", "empty.csv: the file is empty"),
    ("--train t.csv --validation missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train latin.csv", "latin.csv, line 162: byte"),
    ("--train ragged.csv", "ragged.csv, row 162: the row has 4 cells and the header has 2"),
    ("--train t.csv --train-size 5000", "train_size = 5,000 is more than the 128 training rows"),
    ("--train t.csv --train-size 1", "train_size = 1 is too small for one example of each of the 2 classes"),
    ("--train t.csv --tune 0,7", "7 tuned layers were requested, but the model has 3"),
    ("--train t.csv --tune named --tune-modules layer.3", "the nearest are layer.2, layer.1, layer.0"),
    ("--train t.csv --metric pearson", "There is no metric 'pearson' for this task"),
    ("--train stars.csv --metric f1", "There is no metric 'f1' for this task"),
    ("--train stars.csv --class-weights balanced", "class_weights are for classes"),
    ("--train stars.csv --calibrate", "--calibrate is for probabilities, but this is a regression"),
    ("--train stars.csv --threshold 0.3", "--threshold is for two classes, but there are numbers to predict"),
    ("--train t.csv --class-weights positive=1", "Class weights do not include 'negative'"),
    ("--train t.csv --seeds 0", "seeds cannot be '0': give a number of seeds"),
    (
        "--train t.csv --class-weights positive=1,negative=x",
        "class_weights cannot be {'positive': '1', 'negative': 'x'}",
    ),
    ("--train t.csv --model no-config", "no-config is not a model"),
    ("--train t.csv --model no-tokenizer", "has no tokenizer"),
    (
        "--train t.csv --model no-weights",
        "Its weights are only in pytorch_model.bin; convert them: python -c",
    ),
    ("--train t.csv --model torn", "The model torn cannot be used"),
    ("--train t.csv --model ./none", "There is no model folder ./none"),
    ("--train t.csv --model org/none", "is neither a folder nor available from the hub"),
    ("--train long.csv", "The model takes no more tokens: allow truncation with --max-truncated"),
    ("--train t.csv --max-length 4", "Raise --max-length, or allow truncation with --max-truncated"),
    ("--train t.csv --max-length 600", "give a number from 3 to 32"),
    ("--train t.csv --out kept", "kept exists and holds no sweep"),
    ("--train t.csv --out t.csv", "t.csv is a file, or in a file: give a folder instead"),
    ("--train t.csv --out t.csv/o", "t.csv/o is a file, or in a file: give a folder instead"),
    ("--train t.csv --out /proc/none", "/proc/none cannot be written into"),
    ("--train t.csv --data kept", "either --train FILE or --data NAME"),
    ("--train t.csv --validation none", "k is chosen on validation"),
    ("--train t.csv --revision main", "m is a folder, and a folder has no revision 'main'"),
    ("none.toml", "There is no file none.toml"),
    ("t.csv", "t.csv is not valid TOML"),
    ("m", "m cannot be read (Is a directory)"),
    ("", "Give the data with either --train FILE or --data NAME"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags or "nothing" for flags, _ in BAD])
def test_bad_input_is_one_message_and_writes_nothing(
    frostline: Frostline, here: Path, flags: str, message: str
) -> None:
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
    assert sentence.startswith("frostline: ") and message in sentence and sentence.endswith((".", "?"))
    assert not notes or "/proc" in flags
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


@pytest.mark.parametrize("name", ["model", "tune", "out"])
def test_missing_required_settings(frostline: Frostline, here: Path, name: str) -> None:
    given = {"model": "m", "train": "t.csv", "tune": "0", "out": "o"}
    got = frostline("sweep", *[word for key, value in given.items() if key != name for word in (f"--{key}", value)])
    assert got.code == 2 and f"{name} is missing: give --{name}" in got.err and got.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--frobnicate"], ["--tune"], ["a.toml", "b.toml"]])
def test_unknown_and_incomplete_flags(frostline: Frostline, here: Path, words: list[str]) -> None:
    got = frostline("sweep", *words)
    assert got.code == 2 and "Traceback" not in got.err and "Error: " in got.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check m --revision main", "m is a folder, and a folder has no revision 'main'"),
        ("predict model none.csv", "none.csv: there is no such file"),
        ("predict model none.csv --out t.csv", "none.csv: there is no such file"),
        ("predict model t.csv --out t.xlsx", "t.xlsx has an unknown ending"),
        ("predict model t.csv --out t.csv", "t.csv is the input file and would be overwritten"),
        ("predict model t.csv --text-column txt", "there is no column 'txt'"),
        ("predict model nohead.tsv", "seems to have no header, because '1' stands where the name of a column belongs"),
        ("predict m t.csv", "is not a trained classifier"),
        ("predict kept t.csv", "kept contains no model"),
        ("status kept", "kept holds no sweep"),
        ("report none", "none holds no sweep"),
        ("status t.csv", "t.csv is a file, or in a file: give a folder instead"),
        ("report t.csv", "t.csv is a file, or in a file: give a folder instead"),
        ("plan --model m --train t.csv --tune 9", "9 tuned layers were requested"),
        ("check none/of/this", "There is no model folder"),
        ("check no-tokenizer", "has no tokenizer"),
        ("cache rm", "Say what to remove"),
        ("cache rm --all abc", "Say what to remove"),
        ("cache rm zzz", "No cached hidden states have the key 'zzz'"),
        ("cache rm --all", "there is no terminal to ask: add --yes"),
        ("plan --study lee2019 --model adapter", "an adapter of org/base"),
        ("check adapter", "an adapter of org/base"),
        ("check own", "--trust-remote-code"),
        ("probe --model own --train t.csv", "--trust-remote-code"),
        ("predict own t.csv", "--trust-remote-code"),
        ("bundle own own --out b", "runs Python code of its own, which a bundle cannot hold"),
        ("predict model m", "this is a folder; name a file in it"),
        ("predict model t.csv --text-column text --text-pair-column text", "is chosen for two purposes"),
        ("analyze nohead.csv --out a", "write a header above it"),
        ("study lee2019 --task SST-2 --data SST-2=t.csv", "t.csv: this is a file, not a folder with splits"),
    ],
)
def test_bad_input_to_other_commands(
    frostline: Frostline,
    here: Path,
    finished_sweep: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    message: str,
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
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    before = sorted(here.rglob("*")), (here / "t.csv").read_bytes()
    got = frostline(*command.split())
    assert got.code == 2 and not got.out
    assert got.err.startswith("frostline: ") and message in got.err and got.err.count("\n") == 1
    assert (sorted(here.rglob("*")), (here / "t.csv").read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sweep.toml", "", "sweep.toml is damaged or was edited"),
        ("sweep.toml", "[identity", "sweep.toml is damaged"),
        ("data.json", "{", "data.json is missing or damaged"),
        ("data.json", "[]", "data.json is missing or damaged"),
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("frostline.json", "{", "frostline.json is damaged (its checksum is wrong): copy it"),
        ("frostline.json", "[]", "or remove it and name the columns with --text-column"),
        ("config.json", "{", "is not what frostline saved (the checksum of config.json is wrong): copy it again"),
        ("config.json", "[]", "is not what frostline saved"),
        (
            "model.safetensors",
            "version https://git-lfs.github.com/spec/v1",
            "model.safetensors is a pointer of Git LFS",
        ),
    ],
)
def test_a_damaged_model(
    frostline: Frostline, here: Path, finished_sweep: Path, name: str, content: str, message: str
) -> None:
    model = Path(shutil.copytree(finished_sweep / "model", here / "model"))
    (model / name).write_text(content)
    got = frostline("predict", "model", "t.csv")
    assert got.code == 2 and not got.out and got.err.count("\n") == 1
    assert got.err.startswith("frostline: ") and message in got.err


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "head.json", "modules.json"])
def test_a_model_with_json_that_is_nested_too_deep(
    frostline: Frostline, here: Path, finished_sweep: Path, name: str
) -> None:
    model = Path(shutil.copytree(finished_sweep / "model", here / "model"))
    (model / "frostline.json").unlink()
    (model / name).write_text("[" * 100_000)
    got = frostline("predict", "model", "t.csv")
    assert got.code == (0 if name == "modules.json" else 2) and "Traceback" not in got.err


def test_a_pipe_in_place_of_a_file_of_a_model_is_refused(
    frostline: Frostline, here: Path, finished_sweep: Path
) -> None:
    model = Path(shutil.copytree(finished_sweep / "model", here / "model"))
    (model / "tokenizer.json").unlink()
    os.mkfifo(model / "tokenizer.json")
    got = frostline("predict", "model", "t.csv")
    assert got.code == 2 and "tokenizer.json is no ordinary file" in got.err


def test_a_saved_model_is_used_from_the_cache_of_the_hub(
    frostline: Frostline, here: Path, finished_sweep: Path
) -> None:
    """There, each file is a link to another folder."""
    (here / "snapshot").mkdir()
    for file in (finished_sweep / "model").iterdir():
        (here / "snapshot" / file.name).symlink_to(file)
    assert [frostline(*words.split()).code for words in ("predict snapshot t.csv", "check snapshot")] == [0, 0]


@pytest.mark.parametrize("words", ["sweep --tune 0 --model {} --train t.csv", "predict {} t.csv", "status {}"])
def test_a_name_that_is_too_long(frostline: Frostline, here: Path, words: str) -> None:
    got = frostline(*words.format("x" * 5000).split())
    assert got.code == 2 and "Traceback" not in got.err


@pytest.mark.parametrize(
    ("tagged", "message"),
    [
        ("a\tO\nb\n", "t.conll, line 2"),
        ("a\tB-x\nb\tI-y\n", "t.conll, line 2, column 'tags': the word 'b' has the tag 'I-y'"),
        ("a\tB-x\nb\tI_x\n", "'I_x' is not in it"),
        ("\n\n", "t.conll"),
        ("a\t0\nb\t1\n", "--labels"),
        ("a\tB-x\nb\tO\n", "t.conll: the file has one sentence of 2 words, because it has no blank line"),
        ("a\nb\n", "t.conll: its lines have a word and no tag; write the tag after each word"),
    ],
)
def test_bad_tags_of_words(frostline: Frostline, here: Path, tagged: str, message: str) -> None:
    (here / "t.conll").write_text(tagged)
    got = frostline("sweep", "--model", "m", "--train", "t.conll", "--tune", "0", "--out", "o")
    assert got.code == 2 and not got.out and not (here / "o").exists()
    assert got.err.startswith("frostline: ") and message in got.err and got.err.count("\n") == 1


LABELS = {
    "a comma": ["rock, pop", "jazz"],
    "two commas": ["a,b", "b,a"],
    "quotes": ['the "best"', "worst"],
    "quotes around it": ['"a"', "b"],
    "a comma and quotes": ['so "good", so bad', "b"],
    "a space at its end": ["b ", "a"],
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_with_commas_and_quotes(frostline: Frostline, here: Path, case: str) -> None:
    labels = LABELS[case]
    rows = [{**row, "label": labels[row["label"] == "positive"]} for row in sentences(160)]
    write_csv(here / "t.csv", rows)
    flags = as_words({"labels": labels, "class_weights": dict(zip(labels, (2, 1), strict=True))})
    words = ["--model", "m", "--train", "t.csv", "--tune", "0", "--seeds", "1", "--out", "o"]
    shown = frostline("sweep", *words, *flags, "--executor", "slurm", "--print")
    assert shown.code == 0
    plan = plan_of(model="m", train="t.csv", tune=0, seeds=1, out="o", labels=labels)
    assert f"Classification into 2 classes in this order: {labels[0]!r}, {labels[1]!r}." in plan.notes
    got = frostline("sweep", *words, *flags, "--dry-run")
    assert got.code == 0 and f"{labels[0]!r}, {labels[1]!r}" in got.out
    if "," in labels[0]:
        got = frostline("sweep", *words, "--labels", ",".join(labels), "--dry-run")
        quoted = labels[0].replace('"', '""')
        assert got.code == 2
        assert (
            f'(as CSV, which quotes it: "{quoted}")' in got.err
            or "put a label with a comma in double quotes" in got.err
        )


def test_rows_without_a_label_are_skipped_in_every_command(frostline: Frostline, here: Path) -> None:
    words = ["--model", "m", "--tune", "0", "--seeds", "1", "--out", "o", "--train", "missing.csv"]
    note = "missing.csv: 1 of 160 rows has no label (row 9) and is skipped."
    for command in (["plan"], ["sweep", "--dry-run"]):
        assert "--skip-unlabelled" in frostline(*command, *words).err
        got = frostline(*command, *words, "--skip-unlabelled", "--validation", "missing.csv")
        assert got.code == 0 and " ".join(got.out.split()).count(note) == 1
    (here / "s.toml").write_text('model = "m"\ntrain = "missing.csv"\ntune = 0\nout = "o"\nskip_unlabelled = true\n')
    got = frostline("plan", "s.toml")
    assert got.code == 0 and note in " ".join(got.out.split())
    assert frostline("plan", "s.toml", "--no-skip-unlabelled").code == 2
    notes = plan_of(model="m", train="missing.csv", tune=0, out="o", skip_unlabelled=True).notes
    assert note in notes
    got = frostline("probe", "--model", "m", "--train", "missing.csv", "--skip-unlabelled", "--out", "p")
    assert got.code == 0 and note in " ".join(got.out.split())


READ_ONLY = {
    "report": ["report", "o"],
    "work": ["work", "o", "--retry", "failed,diverged"],
    "merge": ["merge", "o", "o", "--out", "merged"],
    "sweep": ["sweep", "--model", "m", "--train", "t.csv", "--tune", "0", "--out", "new"],
    "predict": ["predict", "o/model", "t.csv"],
    "bundle": ["bundle", "o/model", "o/model", "--names", "a,b", "--out", "both"],
    "probe": ["probe", "--model", "m", "--train", "t.csv", "--out", "p"],
}


@pytest.mark.parametrize("command", READ_ONLY)
def test_a_read_only_disk_is_one_message_without_flags_of_others(
    frostline: Frostline, here: Path, finished_sweep: Path, command: str
) -> None:
    shutil.copytree(finished_sweep, here / "o")
    opened = Path.open

    def refused(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        if {*mode} & {*"wax+"}:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, mode, *more, **options)

    def unwritable(*where: Any, **options: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "folder")

    with (
        patch.object(Path, "open", refused),
        patch("frostline.data.files.TemporaryFile", unwritable),
        patch.object(Path, "mkdir", unwritable),
    ):
        got = frostline(*READ_ONLY[command])
    if command == "work":  # nothing is left to train
        assert got.code == 0 or "Read-only file system" in got.err
        return
    assert got.code == 2 and "Read-only file system" in got.err and got.err.splitlines()[-1].startswith("frostline: ")


def test_work_says_which_command_has_a_flag(frostline: Frostline, here: Path) -> None:
    run_sweep({"model": "m", "train": "t.csv", "tune": "0", "seeds": 1, "out": "o", **SMALL})
    shutil.rmtree(next((here / "o" / "runs").iterdir()))
    (here / "t.csv").write_text("one,two\na,b\n")
    got = frostline("work", "o")
    assert got.code == 2 and "name one with --text-column" in got.err and "--wait" not in got.err
    assert got.err.endswith(" The command that made o takes --text-column, --column-names.\n")
