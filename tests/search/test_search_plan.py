"""The plan of a search on a tiny model, beside what the search then does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline.search.search_plan as plan_module
import frostline.sweeps.execution.forecast as forecast_module
from frostline.api import find
from frostline.search import SECONDS
from frostline.sweeps.results.forecast_record import Forecast, KindForecast


@pytest.fixture
def forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast of 40 seconds for each run of full fine-tuning, and of 2 seconds for any other run."""

    def made_up(plan: Any, requested: Any, runs: Any, progress: Any, *, plain: bool) -> Forecast:
        assert plain
        kinds = {run.kind for run in runs}
        cells = (
            KindForecast(*kind[:2], 1, 40.0 if kind[0] == "full" else 2.0, 1e9, 99.0, num_train_epochs=kind[2])
            for kind in kinds
        )
        return Forecast(tuple(cells), 0.5)

    monkeypatch.setattr(plan_module, "make_forecast", made_up)


def test_a_plan_writes_nothing_and_says_what_the_search_then_does(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast_module, "PLAN_SECONDS", 0.1)
    search_settings |= {"max_k": 1, "seeds": 2}
    made = find.plan(**search_settings)
    out = Path(search_settings["out"])
    assert not out.exists()
    assert made.of_reference is not None and made.reference_seconds is not None and made.reference_seconds > 0
    assert made.budget == made.budget_given == 1000 and made.spent == 0
    steps = find.find(**search_settings).answer.search["steps"]
    assert [(step.why, step.runs) for step in made.steps[:2]] == [(one["why"], len(one["runs"])) for one in steps[:2]]
    again = find.plan(**search_settings)
    assert again.spent > 0 and again.steps[0].done == again.steps[0].runs and again.steps[0].seconds == 0
    whole = find.find(**search_settings, exhaustive=True).answer.search["steps"][-1]["runs"]
    seconds = [run["seconds"] for run in whole if run["recipe"] == "last 1"]
    assert made.measured is None
    assert find.plan(**search_settings).reference_seconds == pytest.approx(np.median(seconds))


@pytest.mark.usefixtures("forecast")
def test_the_default_budget_is_four_runs_of_the_reference(search_settings: dict[str, Any]) -> None:
    made = find.plan(**{**search_settings, "budget": None})
    assert made.budget == 160 and made.budget_given is None
    assert made.steps[-1].seconds == made.steps[-1].runs * 40
    more = find.plan(**{**search_settings, "budget": None, "processes": 2})
    assert more.budget == SECONDS and more.steps[-1].seconds == 40  # two runs at a time
    assert made.enough == sum(step.seconds or 0.0 for step in made.steps[:-1]) + 40


@pytest.mark.usefixtures("forecast")
def test_the_plan_of_the_whole_grid_is_one_step(search_settings: dict[str, Any]) -> None:
    made = find.plan(**{**search_settings, "exhaustive": True})
    (step,) = made.steps
    assert step.runs == len(made.plan.runs) and step.seconds is not None
    assert step.seconds == sum(40.0 if run.recipe == "full" else 2.0 for run in made.plan.runs)
