"""What a sweep is said to take: made without a trace, shown, recorded. No test depends on what the clock says."""

import random
from collections.abc import Mapping
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
from frostline.cli.plan_output import print_forecast, print_plan
from frostline.frozen.cache.loading import load_or_compute, missing_rows
from frostline.frozen.selection import StateSelection
from frostline.sweep.cache_space import recipe_of
from frostline.sweep.execution.execute import execute
from frostline.sweep.execution.progress import Progress
from frostline.sweep.forecast import prediction as foresee_module
from frostline.sweep.forecast import timer as timer_module
from frostline.sweep.forecast.calibration import calibrate, calibrate_plain
from frostline.sweep.forecast.pace import Pace
from frostline.sweep.forecast.prediction import make_forecast
from frostline.sweep.forecast.record import Cell, Forecast, complete, record, recorded
from frostline.sweep.forecast.workload import Workload
from frostline.sweep.results.store import Store
from tiny import SMALL, contents, go

PLANNED = {"tune": "0,1,2,all", "seeds": 2}


def sweep_of(tiny_bert: Path, tiny_table: Path, out: Path, **other: Any) -> frostline.Sweep:
    return frostline.Sweep(
        progress=Progress(), **{**SMALL, "model": tiny_bert, "train": tiny_table, "out": out, **PLANNED, **other}
    )


def states(model: torch.nn.Module) -> dict[str, Any]:
    return {
        "weights": {name: p.detach().clone() for name, p in model.named_parameters()},
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[union-attr, index]
        "python": random.getstate(),
    }


def test_a_plan_forecasts_every_cell_and_leaves_no_trace(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "cache"))
    sweep = sweep_of(tiny_bert, tiny_table, tmp_path / "o", train_size="20,40")
    prepared = sweep._prepare(Progress())
    model, before = prepared.pretrained.model, states(prepared.pretrained.model)
    found = sweep.plan().forecast
    assert found is not None and found.runs == 16 and found.forward_pass_seconds > 0
    assert {(cell.trainable, cell.train_size) for cell in found.cells} == {
        (k, n) for k in ("last 0", "last 1", "last 2", "all") for n in (20, 40)
    }
    assert all(cell.seconds > 0 and cell.trainer_seconds and cell.memory_bytes > 0 for cell in found.cells)
    assert found.seconds == pytest.approx(
        found.forward_pass_seconds + sum(cell.runs * cell.seconds for cell in found.cells)
    )
    after = states(model)
    fresh = {name for name in before["weights"] if name not in prepared.pretrained.new}
    assert all(torch.equal(before["weights"][name], after["weights"][name]) for name in fresh)
    assert torch.equal(before["torch"], after["torch"])
    assert before["numpy"] == after["numpy"] and before["python"] == after["python"]
    assert not prepared.pretrained._changed and all(p.grad is None for p in model.parameters())
    assert prepared.context.states is None and not list(tmp_path.iterdir())


def test_results_after_a_forecast_are_bit_equal(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    plain = go({**SMALL, "model": tiny_bert, "train": tiny_table, "out": tmp_path / "plain", **PLANNED})
    sweep = sweep_of(tiny_bert, tiny_table, tmp_path / "timed")
    sweep.plan()
    sweep.run(save_model=False)
    ours, theirs = Store(sweep.out), Store(plain.out)
    assert ours.results().keys() == theirs.results().keys() and len(ours.results()) == 8
    for digest in theirs.results():
        for name, logits in theirs.predictions(digest).items():
            assert np.array_equal(ours.predictions(digest)[name], logits)


def test_what_is_done_takes_nothing(finished_small: Path, settings: dict[str, Any], capsys: Any) -> None:
    sweep = frostline.Sweep(progress=Progress(), **{**settings, "out": finished_small})
    before = contents(finished_small / "runs")
    made = sweep.plan()
    assert made.forecast == Forecast((), 0.0, 0.0) and made.forecast.seconds == made.forecast.memory_bytes == 0
    assert made.forecast.trainer_seconds is None and contents(finished_small / "runs") == before
    print_forecast(made.forecast)
    assert "All requested runs are done" in capsys.readouterr().out


def test_only_what_is_missing_is_forecast(finished_small: Path, settings: dict[str, Any]) -> None:
    made = frostline.Sweep(progress=Progress(), **{**settings, "out": finished_small, "tune": "0,1,2"}).plan()
    assert made.forecast is not None and [(cell.trainable, cell.runs) for cell in made.forecast.cells] == [
        ("last 2", 2)
    ]


def test_a_short_sweep_times_nothing_and_says_so(settings: dict[str, Any]) -> None:
    sweep = frostline.Sweep(progress=Progress(), **settings)
    prepared = sweep._prepare(Progress())
    assert make_forecast(prepared, sweep._requested(prepared)) is None
    sweep.run(save_model=False)
    assert recorded(sweep.out) == []
    assert (sweep.out / "tables" / "predicted.csv").read_text().count("\n") == 1


def test_without_time_for_the_deepest_nothing_is_said_but_a_plan_takes_it(settings: dict[str, Any]) -> None:
    sweep = frostline.Sweep(progress=Progress(), **{**settings, "tune": "0,1,2,3"})
    prepared = sweep._prepare(Progress())
    workload = Workload(prepared.context, prepared.plan.cached)
    wanted = workload.wanted(sweep._requested(prepared))
    assert calibrate(workload, wanted, 1e9, budget=0.0, ends=False) is None
    found = calibrate(workload, wanted, 1e9, budget=0.0, ends=True)
    assert found is not None and set(found.cut) == set(calibrate_plain(workload, wanted, 1e9)) == {0, 3}


def test_runs_that_are_trained_as_one_are_timed_as_one(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    run_stacked = timer_module.run_stacked

    def counted(specs: Any, context: Any, **more: Any) -> Any:
        together.append(len({spec.seed for spec in specs}))
        return run_stacked(specs, context, **more)

    monkeypatch.setattr(timer_module, "run_stacked", counted)
    sweep = frostline.Sweep(progress=Progress(), **{**settings, "seeds": 3})
    made = sweep.plan()
    assert made.forecast is not None
    head, layer = made.forecast.cells
    assert together == [1, 3, 1, 1]  # the last layer, heads as one, and twice as plain transformers
    assert head.runs == layer.runs == 3 and 0 < head.seconds < layer.seconds
    assert head.memory_bytes > 0
    together.clear()
    frostline.Sweep(progress=Progress(), **{**settings, "seeds": 3, "stack": 1}).plan()
    assert together == [1, 1, 1, 1]


@pytest.mark.parametrize(("workers", "sizes"), [(1, [1, 3, 1, 1]), (2, [1, 2, 1, 1])])
def test_of_heads_each_worker_times_its_own(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, workers: int, sizes: list[int]
) -> None:
    together: list[int] = []
    run_stacked = timer_module.run_stacked

    def counted(specs: Any, context: Any, **more: Any) -> Any:
        together.append(len(specs))
        return run_stacked(specs, context, **more)

    monkeypatch.setattr(timer_module, "run_stacked", counted)
    monkeypatch.setattr(foresee_module, "in_each", lambda workers, work: [work()])  # here, where they are counted
    frostline.Sweep(progress=Progress(), **{**settings, "seeds": 3, "workers": workers}).plan()
    assert together == sizes


def test_a_class_that_no_row_has_is_foreseen_too(settings: dict[str, Any], tiny_table: Path) -> None:
    rows = pd.read_csv(tiny_table).to_dict("records")
    names = ["negative", "positive", "neither"]
    kinds = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    table = {"text": [row["text"] for row in rows], "label": [names.index(row["label"]) for row in rows]}
    train = Dataset.from_dict(table, features=kinds)
    sweep = frostline.Sweep(progress=Progress(), **{**settings, "train": train, "class_weights": "balanced"})
    made = sweep.plan()
    assert made.forecast is not None and made.forecast.seconds > 0
    assert set(go({**settings, "train": train, "class_weights": "balanced"}).table().status) == {"done"}


def test_a_plan_shows_it_in_words(tiny_bert: Path, tiny_table: Path, tmp_path: Path, capsys: Any) -> None:
    named = {"tune": "0,named,all", "tune_modules": "layer.1"}
    made = sweep_of(tiny_bert, tiny_table, tmp_path / "o", **named).plan()
    print_plan(made)
    print_forecast(made.forecast)
    said = capsys.readouterr().out
    for words in ("per run", "memory", "Forecast from timed steps", "transformers' Trainer and its defaults"):
        assert words in said
    assert "Full trains everything" in said and "Named parts: freezing all else saves" in said
    assert "last layer, nearest in parameters, would save" in said


def test_a_sweep_records_its_forecast_and_what_it_took(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresee_module, "SHARE", 1e6)
    sweep = frostline.Sweep(progress=Progress(), **settings)
    sweep.run(save_model=False)
    (call,) = recorded(sweep.out)
    assert [cell["trainable"] for cell in call["predicted"]["cells"]] == ["last 0", "last 1"]
    assert call["measured"]["seconds"] >= call["measured"]["forward_pass_seconds"] > 0
    sweep.run(save_model=False)
    assert len(recorded(sweep.out)) == 1
    table = (sweep.out / "tables" / "predicted.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table[1:]] == ["last 0", "last 1", "forward pass", "total"]
    assert "Forecast and measured cost" in (sweep.out / "report.html").read_text()
    frostline.Sweep(progress=Progress(), **{**settings, "tune": "2"}).run(save_model=False)
    assert len(recorded(sweep.out)) == 2


def test_records_that_are_damaged_say_nothing(tmp_path: Path) -> None:
    assert recorded(tmp_path) == []
    call = record(tmp_path, Forecast((), 1.0, 3.0))
    record(tmp_path, Forecast((), 2.0, 3.0))  # of another process on the same folder
    complete(tmp_path, call, {"seconds": 4.0, "forward_pass_seconds": 1.0})
    first, second = recorded(tmp_path)
    assert first["predicted"]["forward_pass_seconds"] == 1.0 and first["measured"]["seconds"] == 4.0
    assert second["measured"] is None
    for damage in ("", "[]", '{"calls": 3}'):
        (tmp_path / "forecast.json").write_text(damage)
        assert recorded(tmp_path) == []
        complete(tmp_path, call, {"seconds": 4.0})


def test_the_progress_goes_by_the_forecast(settings: dict[str, Any]) -> None:
    class Watched(Progress):
        said: tuple[Any, ...] = ()

        def start(self, runs: int, work: float, *, seconds: bool = False) -> None:
            self.said = (runs, work, seconds)
            super().start(runs, work, seconds=seconds)

    sweep, watched = frostline.Sweep(progress=Progress(), **settings), Watched()
    forecast = sweep.plan().forecast
    assert forecast is not None
    prepared = sweep._prepare(Progress())
    execute(prepared, sweep._requested(prepared), watched)
    assert watched.said == (4, pytest.approx(forecast.seconds), True)
    assert watched.done == pytest.approx(watched.total)


def test_rows_that_are_kept_need_no_pass(settings: dict[str, Any], tmp_path: Path) -> None:
    prepared = frostline.Sweep(progress=Progress(), **settings)._prepare(Progress())
    context, need = prepared.context, StateSelection((2,), head=True)
    recipe = recipe_of(prepared.pretrained, context.machine, context.forward_pass(need))
    rows = np.flatnonzero(context.tokens.lengths)[:30]
    first = missing_rows(context.tokens, rows, need, recipe, folder=tmp_path)
    assert set(first) <= set(rows) and (np.diff(context.tokens.lengths[first]) >= 0).all()
    load_or_compute(context.forward_pass(need), context.tokens, rows[:20], recipe, folder=tmp_path)
    assert set(missing_rows(context.tokens, rows, need, recipe, folder=tmp_path)) == set(first) - set(rows[:20])
    for shard in tmp_path.glob("*/*/shard.json"):
        shard.write_text("{")
    assert len(missing_rows(context.tokens, rows, need, recipe, folder=tmp_path)) == len(first)


POINTS: dict[int | str, tuple[float, float]] = {0: (1.0, 0.5), 2: (20.0, 2.0), 6: (60.0, 6.0), "all": (60.0, 7.0)}


@given(st.floats(2, 200), st.floats(1, 50))
def test_seconds_rise_with_operations_and_batches(operations: float, count: float) -> None:
    pace = Pace(POINTS)
    for k in (0, 1, 4, 12, "named"):
        one = pace.seconds(k, count, count * operations)
        assert one > 0
        assert pace.seconds(k, 2 * count, 2 * count * operations) == pytest.approx(2 * one)
        assert pace.seconds(k, count, 1.5 * count * operations) >= one
    assert pace.seconds(4, 0.0, 0.0) == 0.0


def test_what_was_timed_is_given_back_and_what_lies_between_lies_between() -> None:
    pace = Pace(POINTS)
    for k, (operations, seconds) in POINTS.items():
        assert pace.seconds(k, 3, 3 * operations) == pytest.approx(3 * seconds)
    assert pace.seconds(4, 1, 40.0) == pytest.approx(4.0)
    assert pace.seconds(7, 1, 70.0) > 6.0
    assert Pace({"all": (10.0, 1.0)}).seconds(3, 1, 5.0) == pytest.approx(0.5)


CELL = {"trainable": "last 1", "train_size": 10, "training_seconds": 1.0, "evaluation_seconds": 1.0, "timed": True}


def test_forecasts_add_up() -> None:
    def cell(runs: int, seconds: float, **other: Any) -> Cell:
        values: Mapping[str, Any] = {**CELL, "runs": runs, "seconds": seconds, "trainer_seconds": 2 * seconds}
        return Cell(**{"memory_bytes": 5.0, **values, **other})

    both = Forecast((cell(2, 3.0), cell(1, 4.0, memory_bytes=9.0)), 5.0, 0.1)
    assert (both.runs, both.seconds, both.trainer_seconds, both.memory_bytes) == (3, 15.0, 20.0, 9.0)
    assert Forecast((cell(2, 3.0), cell(1, 4.0, trainer_seconds=None)), 5.0, 0.1).trainer_seconds is None
