"""JSON files: texts stay as they are, and invalid lines are refused."""

import json
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.data.formats.reader import read_table

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
