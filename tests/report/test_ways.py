"""The table of ways to tune, and the figures that leave them out or show them."""

from dataclasses import replace
from typing import Any

from frostline.report.figures.quality_against_cost import marks
from frostline.report.figures.validation_curve import on_axis
from frostline.report.tables.ways import ways_table
from frostline.training.ways.way import PLAIN, Way
from synthetic_answer import answer_of, make_runs

SCORES = {1: 0.7, 2: 0.8, "lora-2": 0.85, "llrd": 0.9, "all": 0.9}


def curve() -> dict[str, Any]:
    """The curve of two ways, two k and full fine-tuning."""
    answer = answer_of(make_runs(lambda k, *_: SCORES[k], ks=tuple(SCORES)))
    size: dict[str, Any] = answer["sizes"][0]
    return size


def results_of(size: dict[str, Any], **ways: Way) -> dict[str, Any]:
    """The facts of all runs, with their ways."""
    return {
        point["run"]: {"spec": {"way": ways.get(cell["trainable"].replace("-", "_"), PLAIN).model_dump(mode="json")}}
        for cell in size["cells"]
        for point in cell["points"]
    }


def test_each_way_has_a_row_beside_the_k_of_the_same_cost() -> None:
    size = curve()
    table = ways_table(size, results_of(size, lora_2=Way(tune=2, low_rank=8), llrd=Way(layer_decay=0.9)))
    assert table is not None
    rows = {row.values["way"]: row.values for row in table.rows}
    assert list(rows) == ["llrd", "lora-2"] and "add head" not in table.caption
    assert rows["lora-2"]["fields"] == "tune 2, low_rank 8" and rows["llrd"]["fields"] == "layer_decay 0.9"
    assert rows["lora-2"]["k"] == "last 2" and rows["lora-2"]["probability"] > 0.9
    assert 3 < rows["lora-2"]["above"] < 7 and rows["lora-2"]["low"] < rows["lora-2"]["above"] < rows["lora-2"]["high"]
    assert [row.chosen for row in table.rows] == [size["recommended"]["trainable"] == way for way in rows]


def test_a_way_that_costs_less_than_every_k_has_nothing_beside_it() -> None:
    size = answer_of(make_runs(lambda k, *_: 0.8, ks=("lora-1", 2, "all")))["sizes"][0]
    size["choices"] = [replace(choice, beside_k=None) for choice in size["choices"]]
    table = ways_table(size, results_of(size, lora_1=Way(tune=1, low_rank=8)))
    assert table is not None and table.caption.endswith(
        "no k costs as little: add head, or fewer last layers, to --ways."
    )


def test_a_way_whose_runs_all_failed_does_not_ask_for_another_k() -> None:
    size = curve()
    size["choices"] = [choice for choice in size["choices"] if choice["choice"] != "llrd"]
    table = ways_table(size, results_of(size, lora_2=Way(tune=2, low_rank=8), llrd=Way(layer_decay=0.9)))
    assert table is not None and table.caption.endswith("A way that has no usable run is beside nothing.")
    assert "add head" not in table.caption and [bool(row.values["k"]) for row in table.rows] == [False, True]


def test_without_ways_there_is_no_table() -> None:
    size = answer_of(make_runs(lambda k, *_: SCORES[k], ks=(1, "all")))["sizes"][0]
    assert ways_table(size, results_of(size)) is None


def test_ways_are_drawn_over_their_cost_but_not_over_layers() -> None:
    size = curve()
    assert [cell["trainable"] for cell in on_axis(size["cells"])] == ["last 1", "last 2", "all"]
    assert {mark.name for mark in marks(size)} == {"last 1", "last 2", "lora-2", "llrd", "all"}
