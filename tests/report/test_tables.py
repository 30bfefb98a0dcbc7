"""Tables of reports: as CSV, LaTeX and sortable entries; of a curve, of a whole sweep, and of an analysis."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import synthetic_answer
from frostline.report import formatting
from frostline.report.answer.analysis import analyze
from frostline.report.figures.quality_against_cost import marks
from frostline.report.figures.score_figures import on_axis, validation_curve
from frostline.report.tables.analysis_tables import recommendations_table
from frostline.report.tables.curve_tables import (
    choices_table,
    costs_table,
    learning_rates,
    operating_points_table,
    renamed,
    scores_table,
    shares_table,
    ways_table,
)
from frostline.report.tables.sweep_tables import CHECKS, audit_table
from frostline.report.tables.table import Column, ReportTable, Row, save_tables
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import PROBE, RunResult
from frostline.training.result import AuditRecord
from pages import answer_of, page_of, raw
from synthetic_results import noisy, synthetic_group
from synthetic_sweep import make_folder

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


def test_latex_is_escaped() -> None:
    texts = {
        "\\input{x}": "\\textbackslash input\\{x\\}",
        "a~b^c|#$": "a\\textasciitilde b\\textasciicircum c|\\#\\$",
        "95\xa0% − 3×": "95 \\% − 3×",
        "two\nlines\x00\t": "two lines",
        "[a] of *": "{}[a] of *",  # or it would be an option of the line break before
        "* of [a]": "{}* of [a]",
        "": "–",
    }
    for text, latex in texts.items():
        table = ReportTable("t", "T", "", COLUMNS[:1] * 2, (Row(SimpleNamespace(name=text)),))  # two may look the same
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


SCORES = {1: 0.7, 2: 0.8, "lora-2": 0.85, "llrd": 0.9, "full": 0.9}
WAYS = {"lora-2": "tune 2, low_rank 8", "llrd": "layer_decay 0.9"}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """The answer of a sweep with a diverged and a degenerate run."""
    out = tmp_path_factory.mktemp("tables") / "out"
    return answer_of(make_folder(out, tune=(0, 2, 4, "full"), seeds=4, diverged=[("full", 1)], degenerate=[(4, 2)]))


def test_shares_are_those_of_the_answer(answer: Answer) -> None:
    curve = answer.sizes[0]
    shares = shares_table(curve, "accuracy")
    for cell, row, values in zip(curve.cells, shares.rows, shares.records(), strict=True):
        assert values["tuned"] == cell.recipe
        if cell.recipe == curve.reference:
            assert values["p"] is None and values["share"] == 1.0 and row.tags == ("reference",)
        else:
            names = {"estimate": "difference", "low": "difference_low", "high": "difference_high", "p_holm": "p_holm"}
            assert all(values[name] == getattr(cell.difference, key) for key, name in names.items())
    assert [row.chosen for row in shares.rows].count(True) == 1
    assert "less that of the majority-class baseline" in shares.caption


def test_a_recommended_probe_is_said_to_be_in_the_table_of_choices(answer: Answer) -> None:
    curve = answer.sizes[0]
    of_probe = replace(curve, decision=replace(curve.decision, choice=PROBE))
    text = "The recommended linear probe trains no layer"
    for one, there in ((curve, False), (of_probe, True)):
        tables = scores_table(one, "accuracy"), costs_table(one), operating_points_table(one)
        assert [text in table.caption for table in tables] == [there] * 3


def test_operating_points_and_the_target(answer: Answer) -> None:
    curve = answer.sizes[0]
    points = operating_points_table(curve)
    records = points.records()
    assert [row["of"] for row in records] == ["gain"] * 3 + ["score"] * 3 + ["margin"]
    assert [(row["target"], one.tags) for one, row in zip(points.rows, records, strict=True) if one.chosen] == [
        (0.95, ("the target",))
    ]
    assert records[-1]["rule"] == "at most 0.01 below full"
    of_same_seeds = "compare runs of the same seeds"
    first, *others = curve.cells
    more = replace(curve, cells=[replace(first, validation=replace(first.validation, n=99)), *others])
    equal = replace(curve, cells=[replace(one, validation=replace(one.validation, n=99)) for one in curve.cells])
    for made in (operating_points_table, lambda curve: shares_table(curve, "accuracy")):
        assert [of_same_seeds in made(one).caption for one in (more, equal)] == [True, False]


def test_the_scores_are_of_failed_runs_too_where_most_failed(answer: Answer) -> None:
    curve, text = answer.sizes[0], "(of all runs of a k if fewer than half did)"
    first, *others = curve.cells
    assert text not in scores_table(curve, "f1").caption
    failed = replace(first, failures=replace(first.failures, failed=first.runs))
    assert text in scores_table(replace(curve, cells=[failed, *others]), "f1").caption


def test_captions_give_the_learning_rates(answer: Answer) -> None:
    curve = answer.sizes[0]
    for table in (shares_table(curve, "f1"), scores_table(curve, "f1"), costs_table(curve)):
        assert table.caption.endswith("Learning rate 5e-5; 0.001 for k = 0.")
    other = renamed(scores_table(curve, "f1"), "_9", "9 examples")
    assert (other.name, other.title) == ("scores_9", "F1 by tuned layers, 9 examples")


def test_a_curve_with_scores_only() -> None:
    """Like a table of a paper, it has no costs, no learning rates and no baseline."""
    runs = [
        RunResult(
            **{"train_size": 100, "recipe": Recipe(k), "tuned_layers": layers, "tune_embeddings": k == "full"},
            **{"seed": seed, "run": f"{k} {seed}", "validation_best": 0.6 + 0.05 * layers + 0.01 * seed},
        )
        for k, layers in {0: 0, 2: 2, "full": 4}.items()
        for seed in range(3)
    ]
    curve = compare(runs, Scores("accuracy", None), AnalysisSettings(corrected=False))
    scores, shares = scores_table(curve, "accuracy"), shares_table(curve, "accuracy")
    assert shares.records()[-1]["share"] == 1.0 and {row["share_corrected"] for row in shares.records()} == {None}
    assert scores.caption.endswith("The learning rates are unknown.")
    for table in (scores, shares, costs_table(curve), operating_points_table(curve)):
        assert len(table.latex()) > 100 and table.csv()
    assert "Mean accuracy" in validation_curve(curve, metric="accuracy").get_label()


def test_the_choices_with_their_probabilities() -> None:
    answer = synthetic_answer.answer_of(synthetic_answer.make_runs(synthetic_answer.clear))
    table = choices_table(answer.sizes[0], price=answer.price)
    rows = {row["choice"]: row for row in table.records()}
    assert list(rows) == ["head only", "last 1", "last 2", "full"]
    assert [row.chosen for row in table.rows] == [False, False, True, False]
    assert rows["full"]["gain_95"] == 1.0 and rows["head only"]["gain_95"] == rows["head only"]["cost_of_full"] == 0.0
    assert "less 0.02 times its cost" in table.caption and "The margin is 0.01" in table.caption


def test_the_largest_k_costs_1_also_beside_a_way_that_tunes_more_layers() -> None:
    runs, logits = synthetic_answer.make_runs(lambda k, *_: SCORES[k], ks=(1, 2, "lora-2"))
    runs = [replace(run, tuned_layers=4, tuned_share=1.0) if run.recipe == "lora-2" else run for run in runs]
    (size,) = synthetic_answer.answer_of((runs, logits)).sizes
    assert {one.choice: one.cost_of_full for one in size.choices} == {"last 1": 0.5, "last 2": 1.0, "lora-2": 1.0}


def test_each_way_has_a_row_beside_the_k_of_the_same_cost() -> None:
    made = synthetic_answer.make_runs(lambda k, *_: SCORES[k], ks=tuple(SCORES))
    size = synthetic_answer.answer_of(made).sizes[0]
    table = ways_table(size, WAYS)
    rows: dict[Any, Any] = {row["way"]: row for row in table.records()}
    assert list(rows) == ["llrd", "lora-2"] and "add head" not in table.caption
    assert {name: row["fields"] for name, row in rows.items()} == WAYS
    assert rows["lora-2"]["k"] == "last 2" and rows["lora-2"]["probability"] > 0.9
    assert 3 < rows["lora-2"]["above"] < 7
    assert rows["lora-2"]["above_low"] < rows["lora-2"]["above"] < rows["lora-2"]["above_high"]
    assert [row.chosen for row in table.rows] == [size.recommended.recipe == way for way in rows]
    failed = ways_table(replace(size, choices=[one for one in size.choices if one.choice != "llrd"]), WAYS)
    assert failed.caption.endswith("A way that has no usable run is beside nothing.")
    assert "add head" not in failed.caption and [bool(row["k"]) for row in failed.records()] == [False, True]
    alone = ways_table(replace(size, choices=[replace(one, beside_k=None) for one in size.choices]), WAYS)
    assert alone.caption.endswith("no k costs as little: add head, or fewer last layers, to --tune.")
    # they are drawn over their cost but not over layers
    assert [cell.recipe for cell in on_axis(size.cells)] == ["last 1", "last 2", "full"]
    assert {mark.name for mark in marks(size)} == {"last 1", "last 2", "lora-2", "llrd", "full"}


TRAINED = {"embeddings": 0, "layer 0": 0, "layer 1": 4, "layer 2": 4, "head": 2}


def audit(*, failed: Sequence[str] = (), **more: Any) -> AuditRecord:
    """The audit of a run that trains two layers."""
    places = {place: {"trained": count, "frozen": 4 - count} for place, count in TRAINED.items()}
    numbers = {"parameters": 20, "trainable_parameters": 10, "clipped_parameters": 3, "tuned_share": 0.5}
    checks = {name: name not in failed for name in CHECKS}
    return AuditRecord.model_validate({"by_place": places, **numbers, "checks": checks, **more})


def test_merged_matrices_and_phases_are_told() -> None:
    phases = [{"steps": 4, "moved": ["head"]}, {"steps": 2, "moved": ["layer 2", "head"]}]
    names = ["layer.1.query.weight", "layer.2.query.weight"]
    table = audit_table({"last 2": audit(merged=[]), "lora-2": audit(merged=names), "gradual-1": audit(phases=phases)})
    cells = [entries[1] for _, entries in table.entries()]
    assert {cell.text for cell in cells} == {"layers 2 to 3, head"}
    assert [cell.small for cell in cells] == [
        (),
        ("2 matrices merged",),
        ("phase 1, 4 steps: head", "phase 2, 2 steps: layer 3, head"),
    ]
    assert "low-rank updates" in table.caption and "Of each phase" in table.caption and b'last 2,"' in table.csv()
    plain = audit_table({"last 2": audit(failed=["frozen_bytes_unchanged"])})
    assert "low-rank" not in plain.caption and "phase" not in plain.caption
    assert [entry.text for entry in plain.entries()[0][1] if entry.bad] == ["no"]


def test_failures_by_k_and_learning_rate(tmp_path: Path) -> None:
    rates = (5e-5, 1e-3)
    out = make_folder(
        tmp_path / "out", tune=(0, 2, "full"), seeds=3, learning_rates=rates, diverged=[("full", 1)], test=False
    )
    assert "Failures by tuned layers" in page_of(out).words
    curve = answer_of(out).sizes[0]
    assert "its own best learning rate" in learning_rates(curve)
    of_full = replace(curve, learning_rate_rule="best_of_full")
    assert learning_rates(of_full).endswith("best for full fine-tuning; k = 0 at its own best.")
    rows = raw(out, "failures")
    keys = [(row["tuned"], float(row["learning_rate"]), row["failed"]) for row in rows]
    of_k = [(k, rate, str(int(k == "full"))) for k in ("last 2", "full") for rate in rates]
    assert keys == [("head only", 1e-3, "0"), *of_k]
    assert [row["diverged"] for row in rows] == [row["failed"] for row in rows] and {
        row["degenerate"] for row in rows
    } == {"0"}
    assert float(rows[-1]["failure_rate"]) == pytest.approx(1 / 3)
    assert float(rows[-1]["failure_rate_low"]) < 0.01 and float(rows[-1]["failure_rate_high"]) > 0.9


EARLY = {0: 0.6, 1: 0.75, 2: 0.9, 4: 0.9, "full": 0.9}  # two layers are enough
FLAT = {0: 0.9, 1: 0.9, 2: 0.9, 4: 0.9, "full": 0.9}


def groups() -> list[Any]:
    """Two models on three tasks, without one of the six pairs. Nothing is learned on the third task."""
    made = [("early", EARLY), ("flat", FLAT), ("nothing", dict.fromkeys(EARLY, 0.45))]
    return [
        synthetic_group(noisy(level, 0.004, seed), model=model, task=task)
        for seed, model in enumerate(("one", "two"))
        for task, level in made
        if (model, task) != ("two", "flat")
    ]


def entries(table: ReportTable) -> dict[str, list[str]]:
    """The printed cells of each task."""
    return {
        first.text: [" ".join([entry.text, *entry.small]).replace("\xa0", " ") for entry in others]
        for _, (first, *others) in table.entries()
    }


def test_tasks_are_down_and_models_across() -> None:
    """The CSV has the numbers of the answer, and cells are sorted by the number of layers."""
    analysis = analyze(groups(), AnalysisSettings())
    table = recommendations_table(analysis)
    assert [column.title for column in table.shown] == ["task", "one", "two"]
    shown = entries(table)
    assert list(shown) == ["early", "flat", "nothing"]
    assert all(text.startswith("last 2 of 4 0.") and text.endswith(" >99 % sure") for text in shown["early"])
    assert shown["flat"][0].startswith("head only 0.") and shown["flat"][1] == "–"
    assert shown["nothing"] == ["undecided", "undecided"]
    assert "reach 95 % of full fine-tuning’s gain" in table.caption.replace("\xa0", " ")
    first, choices = table.records()[0], analysis.groups[0].sizes[0].choices
    choice = next(choice for choice in choices if choice.choice == first["one choice"])
    assert (first["one below_full"], first["one probability"]) == (choice.below_full, choice.probability)
    assert [row[1].rank for _, row in table.entries()] == ["2", "0", ""]


@pytest.mark.parametrize(("scores", "shown", "rank"), [({2: 0.95}, " above, ", "2"), ({"full": 0.99}, "full", "10000")])
def test_a_choice_above_full_and_full_itself(scores: dict[Any, float], shown: str, rank: str) -> None:
    of_both = [synthetic_group(noisy({**EARLY, **scores}, 0.004), task=task) for task in "ab"]
    table = recommendations_table(analyze(of_both, AnalysisSettings()))
    assert [row[1].rank for _, row in table.entries()] == [rank] * 2 and shown in entries(table)["a"][0]


def test_the_caption_says_where_full_was_not_run() -> None:
    without = [replace(group, runs=[run for run in group.runs if not run.recipe.is_full]) for group in groups()]
    captions = [recommendations_table(analyze(some, AnalysisSettings())).caption for some in (without, groups())]
    assert [caption.endswith("the largest k that has one takes its place.") for caption in captions] == [True, False]


def test_by_mean_it_has_measured_differences_and_no_probability() -> None:
    analysis = analyze(groups(), AnalysisSettings(by_mean=True))
    table = recommendations_table(analysis)
    shown = entries(table)["early"][0]
    assert shown.startswith("last 2 of 4 ") and "sure" not in shown and "mean reaches" in table.caption
    cell = next(one for one in analysis.groups[0].sizes[0].cells if one.recipe == "last 2")
    assert table.records()[0]["one below_full"] == -100 * cell.difference.estimate != 0


def test_a_model_that_trains_no_layer_is_named_and_sorted_first() -> None:
    analysis = analyze(groups()[:2], AnalysisSettings())
    size = analysis.groups[0].sizes[0]
    probe = replace(size.choices[0], choice=PROBE, below_full=0.3, probability=0.8)
    size.recommended, size.decision, size.choices = None, probe, [probe, *size.choices]
    table = recommendations_table(analysis)
    assert entries(table)["early"] == ["linear probe 0.3 below, 80 % sure"]
    ranks = [row[1].rank for _, row in table.entries()]
    assert ranks == ["-1", "0"]
    size.decision = replace(probe, choice=Recipe("last 2 for 10 epochs"))
    assert entries(recommendations_table(analysis))["early"] == ["last 2 of 4 for 10 epochs"]
    size.decision = None
    assert entries(recommendations_table(analysis))["early"] == ["no answer"]
