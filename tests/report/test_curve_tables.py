"""The tables of one curve: scores, shares, costs, failures and operating points."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import synthetic_answer
from frostline.report.figures.validation_curve import validation_curve
from frostline.report.rebuild import rebuild
from frostline.report.tables.by_depth import learning_rates
from frostline.report.tables.choices import choices_table
from frostline.report.tables.costs import costs_table
from frostline.report.tables.failures import failure_rates_table, failures_table
from frostline.report.tables.operating_points import conclusion, operating_points_table
from frostline.report.tables.scores import scores_table, shares_table
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.curve import compare
from frostline.statistics.outcomes import done, with_outcomes
from frostline.statistics.run_result import RunResult
from frostline.statistics.scores import Scores
from frostline.sweep.results.folder import Folder
from pages import answer_of, page_of
from synthetic_sweep import make_folder


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer of a sweep with a diverged and a degenerate run."""
    out = tmp_path_factory.mktemp("tables") / "out"
    return answer_of(make_folder(out, tune=(0, 2, 4, "all"), seeds=4, diverged=[("all", 1)], degenerate=[(4, 2)]))


def test_shares_are_those_of_the_answer(answer: dict[str, Any]) -> None:
    curve = answer["sizes"][0]
    shares = shares_table(curve, "accuracy")
    for cell, row in zip(curve["cells"], shares.rows, strict=True):
        assert row.values["tuned"] == cell["trainable"]
        if cell["trainable"] == curve["reference"]:
            assert row.values["p"] is None and row.values["share"] == 1.0 and "full" in row.tags
        else:
            names = {"estimate": "difference", "low": "difference_low", "high": "difference_high", "p_holm": "p_holm"}
            assert all(row.values[name] == cell["difference"][key] for key, name in names.items())
    assert [row.chosen for row in shares.rows].count(True) == 1
    assert "less that of the majority-class baseline" in shares.caption


def test_a_recommended_probe_is_said_to_be_in_the_table_of_choices(answer: dict[str, Any]) -> None:
    curve = answer["sizes"][0]
    of_probe = replace(curve, decision=replace(curve.decision, choice="probe"))
    tables = [
        (scores_table(one, "accuracy"), costs_table(one), operating_points_table(one, one.deciding_point))
        for one in (curve, of_probe)
    ]
    text = "The recommended linear probe trains no layer"
    assert [[text in table.caption for table in some] for some in tables] == [[False] * 3, [True] * 3]


def test_failures_are_counted_by_kind(answer: dict[str, Any]) -> None:
    failures = {row.values["tuned"]: row.values for row in failures_table(answer["sizes"][0]).rows}
    assert failures["all"]["diverged"] == failures["last 4"]["degenerate"] == 1
    assert failures["last 4"]["mean_with_failures"] < failures["last 4"]["mean"]


def test_operating_points_and_the_target(answer: dict[str, Any]) -> None:
    curve = answer["sizes"][0]
    points = operating_points_table(curve, curve.deciding_point)
    assert [row.values["of"] for row in points.rows] == ["gain"] * 3 + ["score"] * 3 + ["margin"]
    assert [row.values["target"] for row in points.rows if row.chosen] == [0.95]
    assert points.rows[-1].values["rule"] == "at most 0.01 below full"
    of_same_seeds = "Shares compare runs of the same seeds"
    first, *others = curve["cells"]
    more = replace(curve, cells=[replace(first, validation=replace(first.validation, n=99)), *others])
    equal = replace(curve, cells=[replace(one, validation=replace(one.validation, n=99)) for one in curve.cells])
    assert of_same_seeds in operating_points_table(more, curve.deciding_point).caption
    assert of_same_seeds not in operating_points_table(equal, curve.deciding_point).caption


def test_captions_give_the_learning_rates(answer: dict[str, Any]) -> None:
    curve = answer["sizes"][0]
    tables = (shares_table(curve, "f1"), scores_table(curve, "f1"), costs_table(curve), failures_table(curve))
    for table in tables:
        assert table.caption.endswith("Learning rate 5e-5; 0.001 for k = 0.")
    assert scores_table(curve, "f1", suffix="_9").title == "F1 by tuned layers, 1,000 examples"


def test_failure_rates_by_k_and_learning_rate(tmp_path: Path) -> None:
    rates = (5e-5, 1e-3)
    out = make_folder(
        tmp_path / "out", tune=(0, 2, "all"), seeds=3, learning_rates=rates, diverged=[("all", 1)], test=False
    )
    answer = rebuild(out)
    curve = answer["sizes"][0]
    table = failure_rates_table(done(with_outcomes(Folder(out).rows(), answer["chance"], curve["clear_distance"])))
    keys = [(row.values["tuned"], row.values["learning_rate"], row.values["failed"]) for row in table.rows]
    assert keys == [("last 0", 1e-3, 0), *((k, rate, int(k == "all")) for k in ("last 2", "all") for rate in rates)]
    last = table.rows[-1].values
    assert last["failure_rate"] == pytest.approx(1 / 3) and last["failure_low"] < 0.01 and last["failure_high"] > 0.9
    assert "its own best learning rate" in learning_rates(curve)
    one = replace(curve, learning_rate_rule="best_of_full")
    assert learning_rates(one).endswith("best for full fine-tuning; k = 0 at its own best.")
    assert "Failure rates by tuned layers and learning rate" in page_of(out).words


def test_a_curve_with_scores_only() -> None:
    """Like a table of a paper, it has no costs, no learning rates and no baseline."""
    names = {"last 0": 0, "last 2": 2, "all": 4}
    runs = [
        RunResult(
            **{"train_size": 100, "recipe": name, "tuned_layers": k, "tune_embeddings": name == "all", "seed": seed},
            **{"run": f"{name} {seed}", "validation_best": 0.6 + 0.05 * k + 0.01 * seed},
        )
        for name, k in names.items()
        for seed in range(3)
    ]
    curve = compare(runs, Scores("accuracy", None), AnalysisSettings(corrected=False))
    main = curve.deciding_point
    scores, shares = scores_table(curve, "accuracy"), shares_table(curve, "accuracy")
    costs, points = costs_table(curve), operating_points_table(curve, main)
    assert [row.values["share"] for row in shares.rows][-1] == 1.0
    assert {row.values["share_corrected"] for row in shares.rows} == {None}
    assert scores.caption.endswith("The learning rates are unknown.")
    assert all(len(table.latex()) > 100 and table.csv() for table in (scores, shares, costs, points))
    assert [row.tags for row in points.rows if row.chosen] == [("the target",)]
    assert "Mean accuracy" in validation_curve(curve, metric="accuracy").get_label()


def test_the_options_with_their_probabilities() -> None:
    answer = synthetic_answer.answer_of(synthetic_answer.make_runs(synthetic_answer.clear))
    (size,) = answer["sizes"]
    table = choices_table(size, price=answer["price"], margin=0.01)
    rows = {row.values["choice"]: row for row in table.rows}
    assert list(rows) == ["last 0", "last 1", "last 2", "all"]
    assert (
        [name for name, row in rows.items() if row.chosen] == [answer["sizes"][0]["decision"]["choice"]] == ["last 2"]
    )
    assert rows["all"].values["gain_95"] == 1.0 and rows["last 0"].values["gain_95"] == 0.0
    assert rows["last 0"].values["cost_of_full"] == 0.0
    assert "less 0.02 times its cost" in table.caption


def test_a_smaller_k_without_results_is_mentioned() -> None:
    cells: list[dict[str, object]] = [
        {"trainable": k, "difference": {"estimate": 0.0}, "validation": {"n": 3}}
        for k in ("last 0", "last 1", "last 2", "all")
    ]
    curve = {"cells": cells, "reference": "all", "reference_is_full": True}
    decided = {"verdict": "decided", "estimate": "last 2", "confident": "last 2", "not_ruled_out": "last 2"}
    assert conclusion(decided, curve).endswith("lies above the target, and that of every smaller k below it.")
    cells[1]["difference"] = None
    assert conclusion(decided, curve).endswith("lies above the target; some smaller k has no results.")


def test_why_a_target_is_undecided() -> None:
    cells = [{"trainable": k, "validation": {"n": 3}} for k in ("last 1", "last 2", "all")]
    curve = {"cells": cells, "reference": "all", "reference_is_full": True}
    point = {"verdict": "undecided", "estimate": "last 2", "confident": "last 2", "not_ruled_out": "last 1"}
    start = "Undecided: tuning the last 2 layers reaches it with confidence, and tuning the last layer"
    assert conclusion(point, curve) == f"{start} is not ruled out."
    cells[0]["validation"] = {"n": 1}
    assert conclusion(point, curve) == f"{start} has one seed, so no interval rules it out."
    of_full = conclusion({**point, "confident": "all"}, curve)
    assert of_full.startswith(
        "Undecided: no smaller k reaches it with confidence, and tuning the last layer has one seed"
    )


@pytest.mark.parametrize(("reference", "name"), [("all", "full fine-tuning"), ("last 3", "tuning the last 3 layers")])
def test_the_reference_is_named(reference: str, name: str) -> None:
    nothing = {"estimate": None, "confident": None, "not_ruled_out": None, "verdict": "undefined"}
    curve = {"reference": reference, "reference_is_full": reference == "all"}
    assert conclusion(nothing, curve) == f"Undefined: {name} is not shown to be above the baseline."
