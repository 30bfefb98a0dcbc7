"""The printed plan of a search."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frostline.api import find
from frostline.cli.plan_output import print_search_plan
from frostline.search.search_plan import SearchPlan
from frostline.statistics.decision import Lengths
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from tiny import SMALL, Frostline


def forecast(*args: Any, **more: Any) -> Forecast:
    """A run of full fine-tuning takes 40 s."""
    return Forecast((KindForecast("full", 100, 9, 40.0, 1e9, 70.0, num_train_epochs=1.0),), 2.0)


@pytest.fixture(scope="module")
def made(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> SearchPlan:
    """A plan in which every step takes 3 s."""
    settings = {**SMALL, "model": tiny_bert, "train": tiny_table, "out": tmp_path_factory.mktemp("plan") / "o"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("frostline.search.search_plan.make_forecast", forecast)
        plan = find.plan(progress=Progress(), **settings)
    return replace(plan, steps=tuple(replace(step, seconds=3.0) for step in plan.steps))


def printed(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> str:
    print_search_plan(made)
    return " ".join(capsys.readouterr().out.split())


def test_a_plan_says_what_a_search_costs(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(made, capsys)
    assert "Full fine-tuning: about 40 s a run (70 s with transformers' Trainer) and 1.00 GB of memory." in shown
    assert "Budget: 2 min 40 s of training, the larger of 4 such runs and 120 s; --budget sets another." in shown
    assert "k = 0 first: it is the cheapest." in shown and "Train full fine-tuning." in shown
    assert "The output folder takes up to" in shown and "Hidden states of the frozen layers:" in shown
    assert "nothing can be compared" not in shown


def test_the_default_budget_is_for_the_longest_training(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    reference, lengths = made.reference.for_epochs(1.0), Lengths(1.0, 3.0)
    shown = printed(replace(made, reference=reference, lengths=lengths), capsys)
    assert "Full fine-tuning for 1 epoch: about 40 s a run" in shown
    assert "Budget: 8 min of training, the larger of 4 such runs for 3 epochs and 120 s" in shown


def test_a_budget_that_is_too_small_is_named_with_one_that_is_not(
    made: SearchPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(replace(made, budget_given=45.0), capsys)
    assert "Budget: 45 s of training, as given. It probably ends before full fine-tuning has run" in shown
    assert "give about --budget 46s or more." in shown
    assert "nothing can be compared" not in printed(replace(made, budget_given=46.0), capsys)


def test_a_plan_counts_what_an_earlier_search_spent(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(replace(made, spent=30.0, budget_given=75.0), capsys)
    assert "A search in this folder has spent 30 s; this one continues it." in shown
    ended = printed(replace(made, spent=30.0, over=True), capsys)
    assert "A search in this folder has spent 30 s, and has ended: only a larger budget trains more." in ended
    assert "give about --budget 76s or more." in shown


def test_a_reference_without_a_forecast(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = replace(made, plan=replace(made.plan, forecast=Forecast((), 2.0)))
    assert "Full fine-tuning: no forecast, because all its runs are done." in printed(nothing, capsys)
    shown = printed(replace(made, plan=replace(made.plan, forecast=None)), capsys)
    assert "because no step could be timed. Budget: the larger of 4 such runs and 120 s." in shown


def test_a_measured_reference_needs_no_forecast(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(replace(made, measured=50.0), capsys)
    assert "Full fine-tuning: 50 s a run, as measured in this folder." in shown
    assert "Budget: 3 min 20 s of training, the larger of 4 such runs and 120 s" in shown
    two = replace(made, plan=replace(made.plan, forecast=replace(forecast(), workers=2)))
    assert "the larger of 4 such runs, 2 at a time, and 120 s" in printed(two, capsys)


def test_a_reference_that_is_too_large_for_the_memory(made: SearchPlan, capsys: pytest.CaptureFixture[str]) -> None:
    assert made.of_reference is not None
    large = Forecast((replace(made.of_reference, memory_bytes=1e15),), 2.0)
    shown = printed(replace(made, plan=replace(made.plan, forecast=large)), capsys)
    assert "That is more than is free: give --max-k" in shown
    assert "--exhaustive" in printed(replace(made, exhaustive=True), capsys)


@pytest.mark.parametrize("budget", ["5minutes", "300"])
def test_a_budget_has_a_unit_or_is_in_seconds(
    budget: str, frostline: Frostline, tiny_bert: Path, tiny_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.search.search_plan.make_forecast", forecast)
    got = frostline("find", "--model", tiny_bert, "--budget", budget, "--train", tiny_table, "--out", "f", "--plan")
    assert got.code == 0 and "Budget: 5 min of training, as given." in " ".join(got.out.split())
