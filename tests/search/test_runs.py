"""The runs of a search: as the grid of a sweep, and trained by several processes."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline
import frostline.api.find as find_module
import frostline.search.search as search_module
import frostline.sweeps.execution.ray_tasks as node_module
from frostline import FrostlineError, Ray
from frostline.report.rebuild import rebuild
from frostline.search.observations import Candidate, Observations
from frostline.search.search import Search, sweep_of
from frostline.statistics.recipe import Recipe
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import read_search
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings, make_settings
from ray_here import RayHere
from tiny import assert_same_predictions

TRIALS = st.builds(
    Candidate,
    st.sampled_from([*map(Recipe, (0, 1, 2, "full"))]),
    st.sampled_from([1e-4, 2e-4]),
    st.integers(min_value=0, max_value=3),
)


def in_grid(spec: Settings) -> set[tuple[Any, float, int]]:
    """Every run of a grid. k = 0 has learning rates of its own."""
    return {
        (k, own if k == "head only" else rate, seed)
        for part in spec.grids()
        for k in part.tune
        for rate, _ in part.learning_rate_pairs(k)
        for own in ((1e-4, 2e-4) if k == "head only" else (rate,))
        for seed in part.seeds
    }


@given(st.lists(TRIALS, min_size=1, max_size=12))
def test_the_grid_of_some_trials_has_these_runs_and_no_others(trials: list[Candidate]) -> None:
    spec = make_settings({"model": "m", "train": "t.csv", "tune": 0, "out": "o", "head_learning_rate": (1e-4, 2e-4)})
    heads = [replace(trial, learning_rate=rate) for trial in trials if trial.recipe.k == 0 for rate in (1e-4, 2e-4)]
    expected = {(one.recipe, one.learning_rate, one.seed) for one in [*trials, *heads]}
    assert in_grid(sweep_of(spec, trials)) == expected


@pytest.fixture
def known_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run takes a second, so that two searches cannot differ because of their times. The model seems to learn."""
    observation = Search.observation
    monkeypatch.setattr(Observations, "above_baseline", lambda seen, recipe: True)
    monkeypatch.setattr(Search, "observation", lambda self, run: replace(observation(self, run), seconds=1.0))


@pytest.mark.usefixtures("known_seconds")
def test_a_search_with_tasks_of_ray_takes_the_same_steps_and_finds_the_same(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A node loads the model once for all steps."""
    settings = {**search_settings, "stack": 1, "workers": 1, "budget": 8.0, "max_k": 1, "seeds": 4}
    monkeypatch.setattr(search_module, "finish", lambda plan, *_, **more: rebuild(plan.store.out))
    loaded = node_module._prepared.cache_info().misses
    here = frostline.find(**{**settings, "out": tmp_path / "here", "processes": 2}).answer
    monkeypatch.setitem(sys.modules, "ray", RayHere())  # type: ignore[arg-type]
    on_ray = frostline.find(**settings, ray=Ray()).answer
    assert on_ray.decision == here.decision and on_ray.sentence == here.sentence
    steps = [[{**one, "seconds": None} for one in step["runs"]] for step in on_ray.search["steps"]]
    assert steps == [[{**one, "seconds": None} for one in step["runs"]] for step in here.search["steps"]]
    assert on_ray.search["spent_seconds"] == here.search["spent_seconds"] < sum(map(len, steps))  # two at a time
    assert len(steps) > 2 and node_module._prepared.cache_info().misses == loaded + 1
    assert_same_predictions(Store(settings["out"]), Store(tmp_path / "here"))


@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_first_step_is_planned_before_anything_is_trained(
    search_settings: dict[str, Any], exhaustive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_module.slurm, "submit", lambda out, script: f"{script} of {out.name}")
    own = {"exhaustive": exhaustive, "seeds": 3, "learning_rate": 1e-3, "head_learning_rate": 1e-3}
    assert find_module.submit("a script", **{**search_settings, **own}) == "a script of o"
    runs, record = Folder(search_settings["out"]).runs, read_search(search_settings["out"])
    planned = {(run.recipe, run.seed) for run in runs}
    assert planned == (
        {(k, seed) for k in ("head only", "last 1", "last 2", "last 3", "full") for seed in range(3)}
        if exhaustive
        else {("head only", 0), ("head only", 1)}
    )
    assert record is not None and not record.over and set(record.requested) == {run.digest for run in runs}
    assert not Store(search_settings["out"]).ended()


def test_impossible_numbers_of_processes_are_refused(search_settings: dict[str, Any]) -> None:
    with pytest.raises(FrostlineError, match="processes cannot be 0: give 1 or more"):
        frostline.find(**search_settings, processes=0)
    assert not search_settings["out"].exists() and isinstance(search_settings["progress"], Progress)
