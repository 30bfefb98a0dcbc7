"""The noun Table, and the tables of a curve."""

import csv
import io
from pathlib import Path

import pytest
from report.test_pages import make_folder

from frostline.api.sweep import rebuild
from frostline.report import formatting
from frostline.report.figures.curves import validation_curve
from frostline.report.figures.fronts import pareto_fronts
from frostline.report.pages.sweep import write_page
from frostline.report.tables import curve as curvetables
from frostline.report.tables import rules
from frostline.report.tables import sweep as sweeptables
from frostline.report.tables.table import Column, Row, Table, escaped, save_tables
from frostline.statistics.choices import Choices
from frostline.statistics.curve import compare, main_point
from frostline.statistics.evidence import Scores
from frostline.statistics.outcomes import done, judged
from frostline.sweep.results.folder import Folder

COLUMNS = (
    Column("name", "a\nname", number=False, wrote="value"),
    Column("score", "score", formatting.score, small=lambda row: [formatting.score_interval(row["low"], row["high"])]),
    *(Column("low"), Column("high")),
)
ROWS = (
    Row({"name": "=1+1", "score": 1 / 3, "low": 0.1, "high": 0.5}, tags=("recommended",), chosen=True),
    Row({"name": "50 % & _x_ [a] *", "score": None, "low": None, "high": None}),
)
TABLE = Table("some", "Some numbers", "What they are.", COLUMNS, ROWS)


def test_csv_has_raw_values_of_every_column() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv().decode())))
    assert rows[0] == ["name", "score", "low", "high"]
    assert rows[1] == ["'=1+1", repr(1 / 3), "0.1", "0.5"] and float(rows[1][1]) == 1 / 3
    assert rows[2] == ["50 % & _x_ [a] *", "", "", ""]


def test_latex_has_printed_values_escaped() -> None:
    lines = TABLE.latex().splitlines()
    assert "\\caption{Some numbers. What they are.}" in lines and "\\begin{tabular}{lr}" in lines
    assert "a name & score \\\\" in lines
    assert "=1+1 (recommended) & 0.333 (0.100 to 0.500) \\\\" in lines
    assert "50 \\% \\& \\_x\\_ {[}a{]} {*} & -- \\\\" in lines
    rules = [line for line in lines if line.endswith("rule")]
    assert rules == ["\\toprule", "\\midrule", "\\bottomrule"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\\input{x}", "\\textbackslash{}input\\{x\\}"),
        ("a~b^c", "a\\textasciitilde{}b\\textasciicircum{}c"),
        ("95\xa0% − 3×", "95~\\% $-$ 3$\\times$"),
        ("<b>|#$", "\\textless{}b\\textgreater{}\\textbar{}\\#\\$"),
        ("two\nlines\x00\t", "two lines "),
    ],
)
def test_latex_prints_what_was_written(text: str, said: str) -> None:
    assert escaped(text) == said


def test_entries_know_what_a_sort_goes_by() -> None:
    first, second = (TABLE.entries(row) for row in ROWS)
    assert [entry.rank for entry in first] == ["=1+1", repr(1 / 3)]
    assert second[1].rank == "" and second[1].text == "–" and second[1].small == ()
    values = {"yes": True, "three": 3, "endless": float("inf"), "none": float("nan"), "empty": ""}
    table = Table("t", "T", "", tuple(Column(key, key) for key in values), (Row(values),))
    assert [entry.rank for entry in table.entries(table.rows[0])] == ["1", "3", "", "", ""]
    assert TABLE.sorts and not Table("t", "T", "", COLUMNS, ROWS[:1]).sorts


def test_files_are_written_for_every_table_even_without_rows(tmp_path: Path) -> None:
    paths = save_tables(tmp_path, [TABLE, Table("none", "None", "", COLUMNS, ())])
    assert [path.name for path in paths] == ["some.csv", "some.tex", "none.csv", "none.tex"]
    assert paths[0].read_bytes() == TABLE.csv() and paths[2].read_text() == "name,score,low,high\n"


def test_tables_of_a_curve_are_its_answer(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, 2, 4, "all"), seeds=4, diverged=[("all", 1)], degenerate=[(4, 2)])
    answer = rebuild(out)
    curve = answer["sizes"][0]
    main = next(p for p in curve["operating_points"] if p["corrected"] and p["target"] == answer["target"])
    shares = curvetables.shares(curve, "accuracy")
    for cell, row in zip(curve["cells"], shares.rows, strict=True):
        assert row.values["tuned"] == cell["trainable"]
        if cell["trainable"] == curve["reference"]:
            assert row.values["p"] is None and row.values["share"] == 1.0 and "full" in row.tags
        else:
            names = {"estimate": "difference", "low": "difference_low", "high": "difference_high", "p_holm": "p_holm"}
            assert all(row.values[name] == cell["difference"][key] for key, name in names.items())
    assert [row.chosen for row in shares.rows].count(True) == 1
    failures = {row.values["tuned"]: row.values for row in curvetables.failures(curve).rows}
    assert failures["all"]["diverged"] == failures["last 4"]["degenerate"] == 1
    assert failures["last 4"]["mean_with_failures"] < failures["last 4"]["mean"]
    points = curvetables.points(curve, main)
    assert [row.values["of"] for row in points.rows] == ["gain"] * 3 + ["score"] * 3 + ["margin"]
    assert [row.values["target"] for row in points.rows if row.chosen] == [0.95]
    assert points.rows[-1].values["rule"] == "at most 0.01 below full"
    for table in (shares, points, curvetables.scores(curve, "accuracy"), curvetables.costs(curve)):
        assert table.caption.endswith("One learning rate, 5e-5, for every choice; for the head alone 0.001.")
    assert curvetables.scores(curve, "f1", suffix="_9").title == "F1 by tuned layers, 1,000 examples"


def test_failure_rates_by_k_and_learning_rate(tmp_path: Path) -> None:
    rates = (5e-5, 1e-3)
    out = make_folder(
        tmp_path / "out", tune=(0, 2, "all"), seeds=3, learning_rates=rates, diverged=[("all", 1)], test=False
    )
    answer = rebuild(out)
    table = sweeptables.failure_rates(
        done(judged(Folder(out).rows(), answer["chance"], answer["sizes"][0]["clear_distance"]))
    )
    keys = [(row.values["tuned"], row.values["learning_rate"], row.values["failed"]) for row in table.rows]
    assert keys == [("last 0", 1e-3, 0), *((k, rate, int(k == "all")) for k in ("last 2", "all") for rate in rates)]
    last = table.rows[-1].values
    assert last["failure_rate"] == pytest.approx(1 / 3) and last["failure_low"] < 0.01 and last["failure_high"] > 0.9
    assert "its own learning rate" in rules.rates(answer["sizes"][0])
    one = {**answer["sizes"][0], "rates": "one for all, the best of full"}
    assert rules.rates(one).endswith("the best of full; the head alone at its own best.")
    assert "Failure rates by tuned layers and learning rate" in write_page(out).read_text()


def test_the_page_says_that_a_run_failed_where_the_answer_does(tmp_path: Path) -> None:
    """Of 16 rows a run on the level of guessing is one among others; without its rows it would have failed."""
    out = make_folder(tmp_path / "out", rows=16)
    answer = rebuild(out)
    weaker = [run for run in judged(Folder(out).rows(), answer["chance"]) if run["outcome"] != "ok"]
    assert len(weaker) == 1 and not any(cell["failures"]["failed"] for cell in answer["sizes"][0]["cells"])
    page = write_page(out).read_text()
    assert "none failed" in page and "Less than 0.50 may be by the validation rows alone" in page


def test_one_rate_of_layers_and_another_of_the_head_alone_is_no_choice(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, 2, "all"), seeds=3)
    rebuild(out)
    page = write_page(out).read_text()
    assert "for the head alone" in page and "best of those tried" not in page
    assert "Failure rates by tuned layers and learning rate" not in page


def test_rules_in_words(tmp_path: Path) -> None:
    answer = rebuild(make_folder(tmp_path / "out", tune=(0, 1, 2, 4, "all"), seeds=3))
    curve = answer["sizes"][0]
    main = {"target": 0.95, "margin": None, "verdict": "cannot tell"}
    said = {name: value for name, value, _ in rules.others({**curve, "seeds_to_tell": 12}, main)}
    assert said["Seeds to tell"] == "about 12, or more" and said["The knee"] == formatting.trainable(curve["knee"])
    unknown = {**curve, "seeds_to_tell": None, "one_standard_error": None, "knee": None}
    said = {name: value for name, value, _ in rules.others(unknown, main)}
    assert list(said.values()) == [
        "not known from one seed",
        "no clear bend",
        "seeds alone will likely not tell; more validation rows may",
    ]
    assert rules.others(curve, {**main, "verdict": "holds"})[-1][1] == "none more: it is settled"


def test_of_a_smaller_choice_without_results_nothing_is_said() -> None:
    cells: list[dict[str, object]] = [
        {"trainable": k, "difference": {"estimate": 0.0}, "validation": {"n": 3}}
        for k in ("last 0", "last 1", "last 2", "all")
    ]
    curve = {"cells": cells, "reference": "all", "reference_is_full": True}
    holds = {"verdict": "holds", "estimate": "last 2", "sure": "last 2", "possible": "last 2"}
    assert rules.point(holds, curve).endswith("lies above, that of every smaller choice below.")
    cells[1]["difference"] = None
    assert rules.point(holds, curve).endswith("lies above; of some smaller choice nothing is known.")


def test_fronts_join_what_no_other_beats(tmp_path: Path) -> None:
    curve = rebuild(make_folder(tmp_path / "out", tune=(0, 1, 2, 4, 6, "all"), seeds=3))["sizes"][0]
    for narrow in (False, True):
        figure = pareto_fronts(curve, metric="accuracy", narrow=narrow)
        for axes, (cost, front) in zip(figure.axes, curve["pareto"].items(), strict=True):
            line, *marks = axes.lines
            assert len(line.get_xdata()) == len(front) and len(marks) == len(curve["cells"]), cost
            assert sum(mark.get_markerfacecolor() != "none" for mark in marks) == len(front)
            assert list(line.get_ydata()) == sorted(line.get_ydata())
    assert "head only" in figure.get_label()


def test_a_curve_of_which_only_scores_are_known() -> None:
    """As of a paper's table: no costs, no learning rates, no chance."""
    names = {"last 0": 0, "last 2": 2, "all": 4}
    unknown = dict.fromkeys(
        ("learning_rate", "trainable_parameters", "train_seconds", "cache_seconds", "peak_memory_bytes")
    )
    runs = [
        {
            **{"train_size": 100, "trainable": name, "tuned_layers": k, "tune_embeddings": name == "all", "seed": seed},
            **{"status": "done", "run": f"{name} {seed}", "validation_best": 0.6 + 0.05 * k + 0.01 * seed, **unknown},
        }
        for name, k in names.items()
        for seed in range(3)
    ]
    choices = Choices(corrected=False)
    curve = compare(runs, Scores("accuracy", None), choices)
    main = main_point(curve)
    scores, shares = curvetables.scores(curve, "accuracy"), curvetables.shares(curve, "accuracy")
    costs, points = curvetables.costs(curve), curvetables.points(curve, main)
    assert [row.values["share"] for row in shares.rows][-1] == 1.0
    assert {row.values["share_corrected"] for row in shares.rows} == {None}
    assert scores.caption.endswith("Which learning rates were tried is not known.")
    assert all(len(table.latex()) > 100 and table.csv() for table in (scores, shares, costs, points))
    assert [row.tags for row in points.rows if row.chosen] == [("decides",)]
    assert "Mean accuracy" in validation_curve(curve, metric="accuracy").get_label()
    assert len(pareto_fronts(curve, metric="accuracy").axes) == 1 and rules.others(curve, main)
