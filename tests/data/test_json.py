"""JSON files: texts stay as they are, and invalid lines are refused."""

import json
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.data.reader import read_table

UNUSUAL = [
    '"half a quote',
    "a, b",
    "line\u2028separator",
    "next\x85line",
    "",
    "NA",
    "null",
    "None",
    "nan",
    "가나다",
    "\0",
    "\r",
]


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


def test_json_lines_keep_every_text(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "label": i}, ensure_ascii=False) for i, text in enumerate(UNUSUAL))
    table = read_table(written(tmp_path, "a.jsonl", lines))
    assert table.texts("text") == tuple(UNUSUAL)
    assert table.rows.tolist() == list(range(1, len(UNUSUAL) + 1))


@pytest.mark.parametrize("content", ['[{"text": "a"}, {"text": "b"}]', '{"text": "a"}\n{"text": "b"}\n'])
def test_a_json_file_is_a_list_or_has_one_object_per_line(tmp_path: Path, content: str) -> None:
    assert read_table(written(tmp_path, "a.json", content)).texts("text") == ("a", "b")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_an_invalid_line_is_refused(tmp_path: Path, name: str) -> None:
    sentence = refusal(written(tmp_path, name, '{"text": "a"}\n{"text": "b"\n'))
    assert f"{name}, line 2: this is not JSON" in sentence and "correct that line" in sentence
    assert "row 2: this is a list; write an object" in refusal(written(tmp_path, name, '{"text": "a"}\n["b"]\n'))
    assert "line 2: this is not JSON" in refusal(written(tmp_path, "b.json", '[{"text": "a"},\n{]'))
    assert "nested too deep" in refusal(written(tmp_path, name, '{"a": ' * 100_000))


ROWS = [{"text": f"t{n}", "label": "ab"[n % 2]} for n in range(3)]
COLUMNS = {"text": ["t0", "t1"], "label": ["a", "b"]}
SEVERAL = "the objects do not each stand on one line; write each on a line of its own, or one list of objects."
LAYOUTS = {
    "a list under a key": ({"data": ROWS}, "save the list under its key 'data' alone."),
    "beside other facts": ({"version": "1.0", "license": {"name": "x"}, "data": ROWS}, "under its key 'data' alone."),
    "a list under two keys": ({"dataset": {"train": ROWS}}, "under its key 'dataset.train' alone."),
    "a list for each split": (
        {"train": ROWS, "test": ROWS},
        "save each list of the keys 'train', 'test' as a file of its own.",
    ),
    "as the data set viewer": (
        {"features": [{"name": "text", "type": {"dtype": "string"}}], "rows": [{"row_idx": 0, "row": ROWS[0]}]},
        "save the list under its key 'rows' alone, and of its objects only what is under 'row'.",
    ),
    "a dict of columns": (
        COLUMNS,
        "instead of a list for each of the keys 'text', 'label' (in pandas orient='records').",
    ),
    "columns of words": (
        {"tokens": [["a"], ["b"]], "tags": [["O"], ["O"]]},
        "a list for each of the keys 'tokens', 'tags'",
    ),
    "as pandas by default": (
        {"text": {"0": "t0", "1": "t1"}, "label": {"0": "a", "1": "b"}},
        "instead of an object for each of the keys 'text', 'label' (in pandas orient='records').",
    ),
    "keyed by id": ({"a7": ROWS[0], "b8": ROWS[1]}, "instead of an object for each of the keys 'a7', 'b8'"),
    "as pandas' split": ({"columns": ["text"], "index": [0], "data": [["t0"]]}, "write it with orient='records'"),
    "nothing under the key": ({"data": []}, "instead of a list for each of the keys 'data'"),
    "questions in paragraphs": (
        {"data": [{"title": "x", "paragraphs": [{"context": "c"}]}]},
        "under its key 'data' alone.",
    ),
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("case", LAYOUTS)
def test_one_object_with_all_examples_names_its_keys(tmp_path: Path, case: str, indent: int | None) -> None:
    content, remedy = LAYOUTS[case]
    for name in ("a.json", "a.jsonl"):
        sentence = refusal(written(tmp_path, name, json.dumps(content, indent=indent)))
        assert f"{name}: the file has one object instead of one for each example; " in sentence and remedy in sentence
        assert "--column-names" not in sentence


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ("\n".join(json.dumps(row, indent=1) for row in ROWS), SEVERAL),
        ('["t0", "a"]\n["t1", "b"]\n', "row 1: this is a list; write an object"),
        ('[["t0", "a"], ["t1", "b"]]', "row 1: this is a list; write an object"),
        ('"[{}]"', "row 1: this is a str; write an object"),
        (json.dumps(ROWS[0]) * 2, SEVERAL),
        (json.dumps(ROWS)[:-9], "line 1: this is not JSON"),
        ('{"text": "a", " text": "b"}', "row 1: several columns are named 'text'"),
    ],
)
def test_other_json_is_refused_with_the_reason(tmp_path: Path, content: str, remedy: str) -> None:
    assert remedy in refusal(written(tmp_path, "a.json", content))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "row",
    [{"text": "a", "labels": ["x"]}, {"tokens": ["a", "b"], "tags": ["O", "O"]}, {"text": "a", "meta": {"id": [1]}}],
)
def test_one_object_is_a_row(tmp_path: Path, row: dict[str, object], indent: int | None) -> None:
    table = read_table(written(tmp_path, "a.json", json.dumps(row, indent=indent)))
    assert len(table) == 1 and {name: table.cells(name)[0] for name in table.columns} == row
