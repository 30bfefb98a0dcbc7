"""Bad input to every command: one message, exit code 2, no files written."""

import shutil
from pathlib import Path

import pytest

from tiny import Frostline

BAD = [
    ("--train none.csv", "none.csv: there is no such file"),
    ("--train t.csv --text-column txt", "there is no column 'txt'"),
    ("--train empty.csv", "empty.csv: the file is empty"),
    ("--train header.csv", "header.csv: the file has no rows"),
    ("--train one.csv", "every row has the label 'positive'"),
    ("--train missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train t.csv --validation missing.csv", "missing.csv, row 9, column 'label': the label is missing"),
    ("--train t.csv --validation unknown.csv", "unknown.csv, row 9, column 'label': the label 'mixed' is none of"),
    ("--train case.csv", "look the same; write them alike"),
    ("--train lists.csv", "labels such as 'bad;film' look like lists; choose with --label-separator ';'"),
    ("--train tags.txt", "tags.txt: its lines look like words with their tags; pass --task-type token-classification."),
    ("--train space.csv", "look the same; write them alike"),
    (
        "--train numbers.csv",
        "numbers.csv, row 52, column 'label': the column mixes 159 distinct numbers with 1 distinct texts; correct 'n/a?'",
    ),
    ("--train t.csv --task-type regression", "'negative' is not a number"),
    ("--train latin.csv", "latin.csv, line 162: byte"),
    ("--train ragged.csv", "ragged.csv, row 162: the row has 4 cells and the header has 2"),
    ("--train t.csv --train-size 5000", "train_size = 5,000 is more than the 128 training rows"),
    ("--train t.csv --train-size 1", "train_size = 1 is too small for one example of each of the 2 classes"),
    ("--train t.csv --tune 0,7", "7 tuned layers were requested, but the model has 3"),
    ("--train t.csv --tune last", "There is no way to tune called 'last' (did you mean 'last-2'?)"),
    ("--train t.csv --tune 0,named", "tune has `named`, but no parts are named: give --tune-modules"),
    ("--train t.csv --tune 0 --tune-modules pooler", "add `named` to --tune, or leave --tune-modules out"),
    ("--train t.csv --tune named --tune-modules layer.3", "the nearest are layer.2, layer.1, layer.0"),
    ("--train t.csv --tune=", "tune cannot be '': give at least one value"),
    ("--train t.csv --tune 1,1", "a value appears twice"),
    ("--train t.csv --tune -1", "tune cannot be '-1': give numbers of layers"),
    ("--train t.csv --seeds 0", "seeds cannot be '0': give a number of seeds"),
    ("--train t.csv --seeds=", "seeds cannot be '': give a number of seeds"),
    ("--train t.csv --learning-rate nan", "learning_rate cannot be 'nan': give a finite number"),
    ("--train t.csv --max-grad-norm inf", "max_grad_norm cannot be 'inf': give a finite number"),
    ("--train t.csv --lr-scheduler-type foo", "lr_scheduler_type cannot be 'foo': give 'linear'"),
    ("--train t.csv --metric pearson", "There is no metric 'pearson' for this task"),
    ("--train stars.csv --metric f1", "There is no metric 'f1' for this task"),
    ("--train stars.csv --class-weights balanced", "class_weights are for classes"),
    ("--train stars.csv --calibrate", "--calibrate is for probabilities, but this is a regression"),
    ("--train stars.csv --threshold 0.3", "--threshold is for two classes, but there are numbers to predict"),
    ("--train t.csv --threshold auc", "threshold cannot be 'auc': give a number between 0 and 1, recall=0.9"),
    ("--train t.csv --class-weights positive=1", "Class weights do not include 'negative'"),
    (
        "--train t.csv --class-weights positive=1,negative=x",
        "class_weights cannot be {'positive': '1', 'negative': 'x'}",
    ),
    ("--train t.csv --model no-config", "no-config is not a model"),
    ("--train t.csv --model no-tokenizer", "has no tokenizer"),
    ("--train t.csv --model no-weights", "has no weights in safetensors (only pytorch_model.bin)"),
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
    ("--train t.csv --device cuda:7", "device cannot be 'cuda:7'"),
    ("--train t.csv --revision main", "m is a folder, and a folder has no revision 'main'"),
    ("unknown.toml", "There is no setting 'learning_rates' (did you mean 'learning_rate'?)."),
    ("nested.toml", "There is no table [training]"),
    ("typed.toml", "num_train_epochs cannot be 'x': give a number"),
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
    ("words", "message"),
    [
        ("check m --revision main", "m is a folder, and a folder has no revision 'main'"),
        ("predict model none.csv", "none.csv: there is no such file"),
        ("predict model none.csv --out t.csv", "none.csv: there is no such file"),
        ("predict model t.csv --out t.xlsx", "t.xlsx has an unknown ending"),
        ("predict model t.csv --out t.csv", "t.csv is the input file and would be overwritten"),
        ("predict model t.csv --text-column txt", "there is no column 'txt'"),
        ("predict model nohead.tsv", "or --column-names for a file without a header"),
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
        ("demo --task chess", "chess"),
    ],
)
def test_bad_input_to_other_commands(
    frostline: Frostline, here: Path, finished_sweep: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    (here / "model").symlink_to(finished_sweep / "model")
    (here / "nohead.tsv").write_text("1\ta film\tgood\n2\ta plot\tbad\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    before = sorted(here.rglob("*")), (here / "t.csv").read_bytes()
    got = frostline(*words.split())
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


@pytest.mark.parametrize(
    ("tagged", "message"),
    [
        ("a\tO\nb\n", "t.conll, line 2"),
        ("a\tB-x\nb\tI-y\n", "t.conll, line 2, column 'tags': the word 'b' has the tag 'I-y'"),
        ("a\tB-x\nb\tI_x\n", "write it as"),
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
