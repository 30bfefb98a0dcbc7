"""Every file ending and every kind of table in memory, and errors that all formats share."""

from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline import FrostlineError
from frostline.data.formats.reader import read_table


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(source: object, **options: object) -> str:
    with pytest.raises(FrostlineError) as caught:
        read_table(source, **options)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".CSV"])
def test_every_ending(tmp_path: Path, ending: str) -> None:
    frame = pd.DataFrame({"text": ["good", "bad"], "label": ["1", "0"]})
    path = tmp_path / f"a{ending}"
    if "json" in ending:
        frame.to_json(path, orient="records", lines=True)
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="," if ending.lower() == ".csv" else "\t", index=False)
    table = read_table(str(path))
    assert table.texts("text") == ("good", "bad") and table.texts("label") == ("1", "0")


def test_data_sets_keep_their_class_names(tmp_path: Path) -> None:

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    chosen = read_table(dataset.select([2, 0]))
    assert chosen.texts("text") == ("c", "a") and chosen.cells("label") == [-1, 1]
    dataset.to_parquet(str(tmp_path / "a.parquet"))
    for table in (chosen, read_table(tmp_path / "a.parquet")):
        assert table.class_names == {"label": ("neg", "pos")}


def test_pandas_and_arrow() -> None:
    frame = pd.DataFrame({"text": ["a", None], "label": pd.Categorical(["x", "y"]), "n": [1, 2]}, index=[7, 7])
    table = read_table(frame)
    assert table.cells("text") == ["a", None] and table.cells("label") == ["x", "y"] and table.cells("n") == [1, 2]
    arrow = pa.table({"text": pa.array(["a", "b"]).dictionary_encode()})
    assert read_table(arrow).texts("text") == ("a", "b")


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    written(tmp_path, "train.csv", "text,label\na,1\n")
    sentence = refusal(tmp_path / "trian.csv")
    assert "trian.csv: there is no such file (did you mean 'train.csv'?); check" in sentence
    assert "no folder" in refusal(tmp_path / "nowhere" / "train.csv")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "this is a folder" in refusal(tmp_path) and "--data" in refusal(tmp_path)


def test_an_unknown_file_ending_is_refused(tmp_path: Path) -> None:
    sentence = refusal(written(tmp_path, "a.xlsx", "?"))
    assert "'.xlsx' is not known" in sentence and ".csv, .tsv, .txt, .jsonl" in sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("content", ["", "\ufeff"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "is empty" in sentence and "give a file" in sentence


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text,label\n"), ("a.tsv", "text\tlabel"), ("a.json", "[]"), ("a.jsonl", "{}\n")]
)
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "the file has no rows" in sentence and "give a file" in sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
def test_the_error_for_another_encoding_has_the_position_and_a_command(tmp_path: Path, name: str) -> None:
    sentence = refusal(written(tmp_path, name, b"text,label\ngood,1\ncaf\xe9,0\n"))
    assert "line 3: byte 21 (0xe9) is not UTF-8" in sentence and "iconv -f latin1 -t utf-8" in sentence


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"PK\x03\x04\x14\0\x06\0\xe9"])
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    sentence = refusal(written(tmp_path, "a.csv", content))
    assert "this is not a UTF-8 text file; export the table as CSV" in sentence and "iconv" not in sentence


def test_invalid_and_empty_parquet_files_are_refused(tmp_path: Path) -> None:
    assert "not a Parquet file" in refusal(written(tmp_path, "a.parquet", "text,label\n"))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "b.parquet")
    assert "no rows" in refusal(tmp_path / "b.parquet")


def test_objects_that_are_not_tables_are_refused() -> None:

    dataset = datasets.Dataset.from_dict({"text": ["a"]})
    assert "one split of it" in refusal(datasets.DatasetDict(train=dataset))
    assert "a Series is not a table" in refusal(pd.Series(["a"]))
    assert "a list cannot be read as a table" in refusal([{"text": "a"}])
    assert "no rows" in refusal(pd.DataFrame({"text": []})) and "no rows" in refusal(dataset.select([]))
