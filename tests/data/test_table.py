"""The text cells of a table. A cell that is not a text is refused with its row and column."""

import json
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.data.reader import read_table


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (["a"], "['a'] is not a text; write a text, or name another column"),
        ({"a": 1}, "{'a': 1} is not a text; write one of its values ('a'), or name another column"),
        ("\ud800", "a lone surrogate"),
    ],
)
def test_a_cell_that_is_not_a_text_is_refused(tmp_path: Path, cell: object, what: str) -> None:
    lines = "\n".join(json.dumps({"text": one}) for one in ("fine", cell))
    (tmp_path / "a.jsonl").write_text(lines)
    table = read_table(tmp_path / "a.jsonl")
    with pytest.raises(FrostlineError, match=r"a\.jsonl, row 2, column 'text': ") as caught:
        table.texts("text")
    assert what in str(caught.value)


def test_the_first_rows_keep_their_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\nb\nc\n")
    table = read_table(tmp_path / "a.csv").first(2)
    assert (
        len(table) == 2
        and table.texts("text") == ("a", "b")
        and table.location(1, "text").endswith("row 3, column 'text'")
    )
