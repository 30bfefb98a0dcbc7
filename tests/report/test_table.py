"""A table as CSV, LaTeX and sortable entries."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from frostline.report import formatting
from frostline.report.tables.table import Column, ReportTable, Row, save_tables

COLUMNS = (
    Column("name", "a\nname", number=False, user_text="value"),
    Column("score", "score", formatting.score, ends=lambda row: (row.low, row.high)),
)
ROWS = (
    Row(SimpleNamespace(name="=1+1", score=1 / 3, low=0.1, high=0.5), tags=("recommended",), chosen=True),
    Row(SimpleNamespace(name="50 % & _x_ [a] *", score=None, low=None, high=None)),
)
TABLE = ReportTable("some", "Some numbers", "What they are.", COLUMNS, ROWS)


def test_csv_has_raw_values_of_every_column() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv().decode())))
    assert rows[0] == ["name", "score", "score_low", "score_high"]
    assert rows[1] == ["'=1+1", repr(1 / 3), "0.1", "0.5"] and float(rows[1][1]) == 1 / 3
    assert rows[2] == ["50 % & _x_ [a] *", "", "", ""]


def test_latex_has_printed_values_escaped() -> None:
    lines = TABLE.latex().splitlines()
    assert lines[0] == "\\begin{tabular}{lr}" and "a name & score \\\\" in lines
    assert "=1+1 (recommended) & 0.333 (0.100 to 0.500) \\\\" in lines
    assert "50 \\% \\& \\_x\\_ [a] * & – \\\\" in lines
    assert [line for line in lines if line.endswith("rule")] == ["\\toprule", "\\midrule", "\\bottomrule"]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("\\input{x}", "\\textbackslash input\\{x\\}"),
        ("a~b^c|#$", "a\\textasciitilde b\\textasciicircum c|\\#\\$"),
        ("95\xa0% − 3×", "95 \\% − 3×"),
        ("two\nlines\x00\t", "two lines"),
        ("[a] of *", "{}[a] of *"),  # or it would be an option of the line break before
        ("* of [a]", "{}* of [a]"),
        ("", "–"),
    ],
)
def test_latex_is_escaped(text: str, latex: str) -> None:
    table = ReportTable(
        "t", "T", "", COLUMNS[:1] * 2, (Row(SimpleNamespace(name=text)),)
    )  # two columns may look the same
    assert f"{latex} & {latex.removeprefix('{}')} \\\\" in table.latex().splitlines()


def test_entries_have_a_sort_key() -> None:
    first, second = (entries for _, entries in TABLE.entries())
    assert [entry.rank for entry in first] == ["=1+1", repr(1 / 3)]
    assert second[1].rank == "" and second[1].text == "–" and second[1].small == ()
    values = {"yes": True, "three": 3, "endless": float("inf"), "none": float("nan"), "empty": ""}
    table = ReportTable("t", "T", "", tuple(Column(key, key) for key in values), (Row(SimpleNamespace(**values)),))
    assert [entry.rank for entry in table.entries()[0][1]] == ["1", "3", "", "", ""]
    assert TABLE.sorts and not ReportTable("t", "T", "", COLUMNS, ROWS[:1]).sorts


def test_files_are_written_for_every_table_even_without_rows(tmp_path: Path) -> None:
    save_tables(tmp_path, [TABLE, ReportTable("none", "None", "", COLUMNS, ())])
    found = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert sorted(found) == ["none.csv", "none.tex", "some.csv", "some.tex"]
    assert found["some.csv"] == TABLE.csv() and found["none.csv"] == b"name,score,score_low,score_high\n"
