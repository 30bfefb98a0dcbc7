"""The tables of one curve: scores, shares, costs, failures, choices, ways and operating points."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import synthetic_answer
from frostline.report.figures.quality_against_cost import marks
from frostline.report.figures.score_figures import on_axis, validation_curve
from frostline.report.tables.curve_tables import (
    choices_table,
    costs_table,
    failures_table,
    learning_rates,
    operating_points_table,
    renamed,
    scores_table,
    shares_table,
    ways_table,
)
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer, SizeAnswer
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from pages import answer_of
from synthetic_sweep import make_folder

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
            assert values["p"] is None and values["share"] == 1.0 and "full" in row.tags
        else:
            names = {"estimate": "difference", "low": "difference_low", "high": "difference_high", "p_holm": "p_holm"}
            assert all(values[name] == getattr(cell.difference, key) for key, name in names.items())
    assert [row.chosen for row in shares.rows].count(True) == 1
    assert "less that of the majority-class baseline" in shares.caption


def test_a_recommended_probe_is_said_to_be_in_the_table_of_choices(answer: Answer) -> None:
    curve = answer.sizes[0]
    of_probe = replace(curve, decision=replace(curve.decision, choice="probe"))
    text = "The recommended linear probe trains no layer"
    for one, there in ((curve, False), (of_probe, True)):
        tables = scores_table(one, "accuracy"), costs_table(one), operating_points_table(one)
        assert [text in table.caption for table in tables] == [there] * 3


def test_failures_are_counted_by_kind(answer: Answer) -> None:
    failures = {row["tuned"]: row for row in failures_table(answer.rates).records()}
    assert failures["full"]["diverged"] == failures["last 4"]["degenerate"] == 1
    assert failures["last 4"]["mean_with_failures"] < failures["last 4"]["mean"]  # type: ignore[operator]


def test_operating_points_and_the_target(answer: Answer) -> None:
    curve = answer.sizes[0]
    points = operating_points_table(curve)
    records = points.records()
    assert [row["of"] for row in records] == ["gain"] * 3 + ["score"] * 3 + ["margin"]
    assert [(row["target"], one.tags) for one, row in zip(points.rows, records, strict=True) if one.chosen] == [
        (0.95, ("the target",))
    ]
    assert records[-1]["rule"] == "at most 0.01 below full"
    of_same_seeds = "Shares compare runs of the same seeds"
    first, *others = curve.cells
    more = replace(curve, cells=[replace(first, validation=replace(first.validation, n=99)), *others])
    equal = replace(curve, cells=[replace(one, validation=replace(one.validation, n=99)) for one in curve.cells])
    assert of_same_seeds in operating_points_table(more).caption
    assert of_same_seeds not in operating_points_table(equal).caption


def test_captions_give_the_learning_rates(answer: Answer) -> None:
    curve = answer.sizes[0]
    for table in (shares_table(curve, "f1"), scores_table(curve, "f1"), costs_table(curve)):
        assert table.caption.endswith("Learning rate 5e-5; 0.001 for k = 0.")
    other = renamed(scores_table(curve, "f1"), "_9", "9 examples")
    assert (other.name, other.title) == ("scores_9", "F1 by tuned layers, 9 examples")


def test_several_learning_rates(tmp_path: Path) -> None:
    curve = answer_of(make_folder(tmp_path / "out", tune=(0, 2, "full"), learning_rates=(5e-5, 1e-3))).sizes[0]
    assert "its own best learning rate" in learning_rates(curve)
    one = replace(curve, learning_rate_rule="best_of_full")
    assert learning_rates(one).endswith("best for full fine-tuning; k = 0 at its own best.")


def test_a_curve_with_scores_only() -> None:
    """Like a table of a paper, it has no costs, no learning rates and no baseline."""
    names = {"head only": 0, "last 2": 2, "full": 4}
    runs = [
        RunResult(
            **{
                "train_size": 100,
                "recipe": Recipe(name),
                "tuned_layers": k,
                "tune_embeddings": name == "full",
                "seed": seed,
            },
            **{"run": f"{name} {seed}", "validation_best": 0.6 + 0.05 * k + 0.01 * seed},
        )
        for name, k in names.items()
        for seed in range(3)
    ]
    curve = compare(runs, Scores("accuracy", None), AnalysisSettings(corrected=False))
    scores, shares = scores_table(curve, "accuracy"), shares_table(curve, "accuracy")
    costs, points = costs_table(curve), operating_points_table(curve)
    assert shares.records()[-1]["share"] == 1.0
    assert {row["share_corrected"] for row in shares.records()} == {None}
    assert scores.caption.endswith("The learning rates are unknown.")
    assert all(len(table.latex()) > 100 and table.csv() for table in (scores, shares, costs, points))
    assert "Mean accuracy" in validation_curve(curve, metric="accuracy").get_label()


def test_the_choices_with_their_probabilities() -> None:
    answer = synthetic_answer.answer_of(synthetic_answer.make_runs(synthetic_answer.clear))
    table = choices_table(answer.sizes[0], price=answer.price)
    rows = {row["choice"]: row for row in table.records()}
    assert list(rows) == ["head only", "last 1", "last 2", "full"]
    assert [row.chosen for row in table.rows] == [False, False, True, False]
    assert rows["full"]["gain_95"] == 1.0 and rows["head only"]["gain_95"] == rows["head only"]["cost_of_full"] == 0.0
    assert "less 0.02 times its cost" in table.caption and "The margin is 0.01" in table.caption


def of_ways() -> SizeAnswer:
    """The curve of two ways, two k and full fine-tuning."""
    answer = synthetic_answer.answer_of(synthetic_answer.make_runs(lambda k, *_: SCORES[k], ks=tuple(SCORES)))
    return answer.sizes[0]


def test_each_way_has_a_row_beside_the_k_of_the_same_cost() -> None:
    size = of_ways()
    table = ways_table(size, WAYS)
    rows: dict[Any, Any] = {row["way"]: row for row in table.records()}
    assert list(rows) == ["llrd", "lora-2"] and "add head" not in table.caption
    assert {name: row["fields"] for name, row in rows.items()} == WAYS
    assert rows["lora-2"]["k"] == "last 2" and rows["lora-2"]["probability"] > 0.9
    assert (
        3 < rows["lora-2"]["above"] < 7
        and rows["lora-2"]["above_low"] < rows["lora-2"]["above"] < rows["lora-2"]["above_high"]
    )
    assert [row.chosen for row in table.rows] == [size.recommended.recipe == way for way in rows]


def test_a_way_that_costs_less_than_every_k_has_nothing_beside_it() -> None:
    size = of_ways()
    size.choices = [replace(choice, beside_k=None) for choice in size.choices]
    table = ways_table(size, WAYS)
    assert table.caption.endswith("no k costs as little: add head, or fewer last layers, to --ways.")


def test_a_way_whose_runs_all_failed_does_not_ask_for_another_k() -> None:
    size = of_ways()
    size.choices = [choice for choice in size.choices if choice.choice != "llrd"]
    table = ways_table(size, WAYS)
    assert table.caption.endswith("A way that has no usable run is beside nothing.")
    assert "add head" not in table.caption and [bool(row["k"]) for row in table.records()] == [False, True]


def test_ways_are_drawn_over_their_cost_but_not_over_layers() -> None:
    size = of_ways()
    assert [cell.recipe for cell in on_axis(size.cells)] == ["last 1", "last 2", "full"]
    assert {mark.name for mark in marks(size)} == {"last 1", "last 2", "lora-2", "llrd", "full"}
