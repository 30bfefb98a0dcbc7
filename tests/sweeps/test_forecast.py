"""Forecasts: they change nothing, and are shown and recorded. No test depends on measured times."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given
from hypothesis import strategies as st

import frostline
from frostline.report.plan_text import forecast_lines
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweeps.execution import forecast as forecast_module
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.execution.forecast import Timed, Timings, make_forecast, seconds_of
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import register
from frostline.sweeps.results.forecast_record import Forecast, KindForecast, Taken, record, record_measured, recorded
from frostline.sweeps.results.store import Store
from tiny import SMALL, assert_same_predictions, contents, plan_of, run_sweep


def states(model: torch.nn.Module) -> dict[str, Any]:
    return {
        "weights": {name: p.detach().clone() for name, p in model.named_parameters()},
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[union-attr, index]
        "python": random.getstate(),
    }


@pytest.mark.usefixtures("empty_cache")
def test_a_plan_forecasts_every_cell_and_leaves_no_trace(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", **SMALL}
    plan = plan_of(**{**own, "tune": "0,1,2,all,probe", "train_size": "20,40", "seeds": 2})
    model, before = plan.experiment.pretrained.model, states(plan.experiment.pretrained.model)
    found = make_forecast(plan, plan.requested, plan.requested, Progress(), plain=True)
    assert found is not None and found.runs == 20 and found.forward_pass_seconds > 0
    assert {(cell.recipe, cell.train_size) for cell in found.cells} == {
        (k, n) for k in ("head only", "last 1", "last 2", "full", "probe") for n in (20, 40)
    }
    assert all(cell.seconds > 0 and cell.trainer_seconds and cell.memory_bytes > 0 for cell in found.cells)
    assert found.seconds == pytest.approx(
        found.forward_pass_seconds + sum(cell.runs * cell.seconds for cell in found.cells)
    )
    after = states(model)
    fresh = {name for name in before["weights"] if name not in plan.experiment.pretrained.new}
    assert all(torch.equal(before["weights"][name], after["weights"][name]) for name in fresh)
    assert torch.equal(before["torch"], after["torch"])
    assert before["numpy"] == after["numpy"] and before["python"] == after["python"]
    assert not plan.experiment.pretrained._pretrained and all(p.grad is None for p in model.parameters())
    assert plan.experiment.states is None and not list(tmp_path.iterdir())


def test_finished_runs_cost_nothing(finished_small: Path, settings: dict[str, Any], capsys: Any) -> None:
    sweep = dict(progress=Progress(), **{**settings, "out": finished_small})
    before = contents(finished_small / "runs")
    made = frostline.plan(**sweep)
    assert made.forecast == Forecast((), 0.0) and made.forecast.seconds == made.forecast.memory_bytes == 0
    assert made.forecast.trainer_seconds is None and contents(finished_small / "runs") == before
    print(*forecast_lines(made.forecast), sep="\n")
    assert "All requested runs are done" in capsys.readouterr().out
    more = frostline.plan(progress=Progress(), **{**settings, "out": finished_small, "tune": "0,1,2"})
    assert more.forecast is not None and [(cell.recipe, cell.runs) for cell in more.forecast.cells] == [("last 2", 2)]


def test_a_short_sweep_times_nothing_and_records_no_forecast(settings: dict[str, Any]) -> None:
    settings["progress"] = Progress()
    plan = plan_of(**settings)
    assert make_forecast(plan, runs := plan.requested, runs, Progress()) is None
    frostline.sweep(save_model=False, **settings)
    assert recorded(settings["out"]) == []


def test_a_class_without_examples_can_be_forecast(settings: dict[str, Any], tiny_table: Path) -> None:
    rows = pd.read_csv(tiny_table).to_dict("records")
    names = ["negative", "positive", "neither"]
    kinds = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    table = {"text": [row["text"] for row in rows], "label": [names.index(row["label"]) for row in rows]}
    train = Dataset.from_dict(table, features=kinds)
    sweep = dict(progress=Progress(), **{**settings, "train": train, "class_weights": "balanced"})
    made = frostline.plan(**sweep)
    assert made.forecast is not None and made.forecast.seconds > 0
    assert set(run_sweep({**settings, "train": train, "class_weights": "balanced"}).table().status) == {"done"}


def test_a_sweep_records_its_forecast_and_its_time(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_module, "TIMING_SHARE", 1e6)
    settings["progress"] = Progress()
    frostline.sweep(save_model=False, **settings)
    (call,) = recorded(settings["out"])
    assert [cell.recipe for cell in call.cells] == ["head only", "last 1"]
    assert call.measured is not None and call.measured.seconds >= call.measured.forward_pass_seconds > 0
    frostline.sweep(save_model=False, **settings)
    assert len(recorded(settings["out"])) == 1


def test_a_damaged_record_is_an_empty_record(tmp_path: Path) -> None:
    assert recorded(tmp_path) == []
    call = record(tmp_path, Forecast((), 1.0))
    record(tmp_path, Forecast((), 2.0))  # by another process in the same folder
    measured = Taken(seconds=4.0, forward_pass_seconds=1.0)
    record_measured(tmp_path, call, measured)
    first, second = recorded(tmp_path)
    assert first.predicted.forward_pass_seconds == 1.0 and first.measured == measured
    assert second.measured is None
    for damage in ("", "[]", '{"calls": 3}'):
        (tmp_path / "forecast.json").write_text(damage)
        assert recorded(tmp_path) == []
        record_measured(tmp_path, call, measured)


def test_a_forecast_measures_progress_and_changes_no_result(settings: dict[str, Any], finished_small: Path) -> None:
    shown, plan = Progress(), frostline.plan(progress=Progress(), **settings)
    assert plan.forecast is not None
    register(plan)
    execute(plan, plan.requested, shown)
    assert shown.runs == 4 and shown.predicted == plan.forecast.seconds == pytest.approx(shown.total)
    assert shown.done == pytest.approx(shown.total)
    assert_same_predictions(plan.store, Store(finished_small))


POINTS = {Recipe(0): (1.0, 0.5), Recipe(2): (20.0, 2.0), Recipe(6): (60.0, 6.0), FULL: (60.0, 7.0)}


@given(st.floats(2, 200), st.floats(1, 50))
def test_seconds_increase_with_operations_and_batches(operations: float, count: float) -> None:
    for k in map(Recipe, (0, 1, 4, 12, "named")):
        one = seconds_of(POINTS, k, count, count * operations)
        assert one > 0
        assert seconds_of(POINTS, k, 2 * count, 2 * count * operations) == pytest.approx(2 * one)
        assert seconds_of(POINTS, k, count, 1.5 * count * operations) >= one
    assert seconds_of(POINTS, Recipe(4), 0.0, 0.0) == 0.0


def test_what_was_timed_is_reproduced_and_the_rest_is_interpolated() -> None:
    for k, (operations, seconds) in POINTS.items():
        assert seconds_of(POINTS, k, 3, 3 * operations) == pytest.approx(3 * seconds)
    assert seconds_of(POINTS, Recipe(4), 1, 40.0) == pytest.approx(4.0)
    assert seconds_of(POINTS, Recipe(7), 1, 70.0) > 6.0
    assert seconds_of({FULL: (10.0, 1.0)}, Recipe(3), 1, 5.0) == pytest.approx(0.5)
    low, high = (Timed((1.0, 1.0), (1.0, 1.0), 0.0, memory, 0.0, 1) for memory in (10.0, 60.0))
    near = Timings({Recipe(1): low, Recipe(6): high}, 0.0, 0.0).nearest
    assert [near(Recipe(k)) for k in (0, 3, 4, "full", "named")] == [low, low, high, high, high]


def test_cells_of_a_forecast_add_up() -> None:
    two, one = (KindForecast("last 1", 10, *own) for own in ((2, 3.0, 5.0, 6.0), (1, 4.0, 9.0, 8.0)))
    both = Forecast((two, one), 5.0)
    assert (both.runs, both.seconds, both.trainer_seconds, both.memory_bytes) == (3, 15.0, 20.0, 9.0)
    assert Forecast((two, replace(one, trainer_seconds=None)), 5.0).trainer_seconds is None
    # two workers: one trains the run of 8 seconds, the other one both runs of 6 seconds
    assert Forecast(both.cells, 5.0, workers=2).seconds == 5.0 + 12.0
