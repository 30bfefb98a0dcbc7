"""The runs of a search on a tiny model: its plan, the grid of a sweep, several processes, and models that train no layer."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline
import frostline.api.find as find_module
import frostline.search.search as search_module
import frostline.search.search_plan as plan_module
import frostline.sweeps.execution.forecast as forecast_module
import frostline.sweeps.execution.ray_tasks as node_module
from frostline import Ray
from frostline.api import find
from frostline.report.rebuild import write_report
from frostline.search import SECONDS
from frostline.search.observations import Candidate, Observations
from frostline.search.probing import Alternatives, estimate_k, mean_is_better
from frostline.search.search import Search, sweep_of
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import TEST, Folder, read_alternatives
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from frostline.sweeps.results.search_record import read_search
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings, make_settings
from frostline.training.result import ProbeReport, ReportedProbe, TaskFacts
from ray_here import RayHere
from tiny import assert_same_predictions, plan_of, sentences, write_csv

RECIPES = st.sampled_from([*map(Recipe, (0, 1, 2, "full"))])
TRIALS = st.builds(Candidate, RECIPES, st.sampled_from([1e-4, 2e-4]), st.integers(0, 3))


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
    settings = {**search_settings, "stack": 1, "workers": 1, "budget": 8.0, "tune": "0,1", "seeds": 4}
    monkeypatch.setattr(search_module, "finish", lambda plan, *_, **more: write_report(plan.store.out))
    loaded = node_module._prepared.cache_info().misses
    here = frostline.find(**{**settings, "out": tmp_path / "here", "processes": 2}).answer
    monkeypatch.setitem(sys.modules, "ray", RayHere())  # type: ignore[arg-type]
    on_ray = frostline.find(**settings, executor=Ray()).answer
    assert on_ray.decision == here.decision  # its sentence may have doubts of the measured times
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


def test_a_second_submission_keeps_the_steps(search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    frostline.find(**search_settings)
    before = read_search(search_settings["out"])
    monkeypatch.setattr(find_module.slurm, "submit", lambda out, script: "1")
    find_module.submit("a script", **search_settings)
    after = read_search(search_settings["out"])
    assert before is not None and after is not None and before.over and not after.over
    assert after.steps == before.steps and after.steps and after.results_so_far == before.results_so_far
    assert set(after.requested) == set(before.requested)


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


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("tune", "share"), [("1,full", 1 / 3), ("1,2", 1 / 2), ("auto", 1 / 3), ("1,bilstm", 1.0)])
def test_the_cost_of_a_k_is_its_share_of_the_layers_of_the_reference(
    search_settings: dict[str, Any], tune: str, share: float
) -> None:
    """Also where the largest k among the candidates has fewer layers than the model."""
    space = find.plan(**search_settings, tune=tune).seen.space
    assert space.share(Recipe(1)) == pytest.approx(share) and space.share(space.reference) == 1.0
    heads = {one for one in space.recipes if space.trains_head_only(one)}
    assert heads == {"head only", *["bilstm"] * ("bilstm" in tune)} and space.share(space.head_only) == 0
    assert all(space.share(one) == 1 for one in heads if one == "bilstm")  # it has more weights than the tiny model


def test_a_plan_says_what_the_search_will_do(search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_module, "PLAN_SECONDS", 0.1)
    search_settings |= {"tune": "0,1", "seeds": 2}
    made = find.plan(**search_settings)
    out = Path(search_settings["out"])
    assert not out.exists()
    assert made.of_reference is not None and made.reference_seconds is not None and made.reference_seconds > 0
    assert made.budget == made.seen.budget_given == 1000 and made.spent == 0
    steps = find.find(**search_settings).answer.search["steps"]
    assert [(step.why, step.runs) for step in made.steps[:2]] == [(one["why"], len(one["runs"])) for one in steps[:2]]
    again = find.plan(**search_settings)
    assert again.spent > 0 and again.steps[0].done == again.steps[0].runs and again.steps[0].seconds == 0
    whole = find.find(**search_settings, exhaustive=True).answer.search["steps"][-1]["runs"]
    seconds = [run["seconds"] for run in whole if run["recipe"] == "last 1"]
    assert made.measured is None
    assert find.plan(**search_settings).reference_seconds == pytest.approx(np.median(seconds))


def test_a_text_in_two_validation_rows_counts_once(search_settings: dict[str, Any]) -> None:
    rows = [{"text": f"good film {n}", "label": ("negative", "positive")[n % 2]} for n in range(20)]
    again = [{**row, "text": row["text"].upper()} for row in rows]
    write_csv(search_settings["out"].with_name("v.csv"), rows + again)
    del search_settings["budget"]
    plan = plan_of(**{**search_settings, "tune": "0,full", "validation": search_settings["out"].with_name("v.csv")})
    evidence = Search(plan, Progress(), None, Alternatives()).seen.evidence
    assert evidence.rows == 40 and evidence.split.different_texts(np.ones(40, bool)) == 20


def test_a_way_without_epochs_comes_after_every_k(search_settings: dict[str, Any]) -> None:
    """It once took the place of k = 0 in the posterior, and each k that of the next smaller one."""
    pytest.importorskip("setfit")
    space = find.plan(**{**search_settings, "tune": "auto,setfit", "num_train_epochs": "3,10"}).seen.space
    assert space.recipes[: len(space.curve)] == space.curve and Recipe("setfit") in space.recipes


@pytest.mark.usefixtures("forecast")
def test_the_default_budget_is_four_runs_of_the_reference(search_settings: dict[str, Any]) -> None:
    made = find.plan(**{**search_settings, "budget": None})
    assert made.budget == 160 and made.seen.budget_given is None
    assert made.steps[-1].seconds == made.steps[-1].runs * 40
    more = find.plan(**{**search_settings, "budget": None, "processes": 2})
    assert more.budget == SECONDS and more.steps[-1].seconds == 40  # two runs at a time
    assert made.enough == sum(step.seconds or 0.0 for step in made.steps[:-1]) + 40


@pytest.mark.usefixtures("forecast")
def test_the_plan_of_the_whole_grid_is_one_step(search_settings: dict[str, Any]) -> None:
    made = find.plan(**{**search_settings, "exhaustive": True})
    (step,) = made.steps
    own = [run for run in made.plan.runs if not run.recipe.is_way]  # probes decide later whether ways are tried
    assert step.runs == len(own) and step.seconds is not None
    assert step.seconds == sum(40.0 if run.recipe == "full" else 2.0 for run in own)


def test_models_that_train_no_layer_are_scored_on_test_as_they_are_saved(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, finish = [], search_module.finish

    def keep(*args: Any, **more: Any) -> Any:
        fitted.append(more["alternatives"])
        return finish(*args, **more)

    monkeypatch.setattr(search_module, "finish", keep)
    test = write_csv(tmp_path / "test.csv", sentences(200)[160:])
    answer = frostline.find(**{**search_settings, "test": test, "budget": 1.0}).answer
    found = read_alternatives(search_settings["out"], TEST)
    assert set(found) == set(read_alternatives(search_settings["out"])) == {PROBE, WORDS}
    own = {"task": answer.task, "task_type": answer.task_type, "labels": ("negative", "positive")}
    task = TaskFacts(**own, columns=answer.columns, max_length=32, sentence="")
    for name, logits in found.items():
        (tmp_path / name).mkdir()
        fitted[0][name].save(tmp_path / name, task, False)
        saved = frostline.predict(tmp_path / name, test)
        np.testing.assert_allclose(saved.values[:, 1], 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), rtol=1e-5)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}, 2),  # one standard error is 0.02
        ({0: 0.60, 1: 0.70, 2: 0.77, 3: 0.80, 4: 0.75}, 1),
        ({0: None, 1: 0.5, 2: 0.4}, 1),
        ({0: None}, None),
    ],
)
def test_the_estimate_is_all_above_the_lowest_good_layer(scores: dict[int, float | None], expected: int | None) -> None:
    more = {"validation": None, "penalty": 1.0}
    probes = [
        ReportedProbe(layers=(n,), vector=vector, held_out=score if vector == "mean" else None, **more)
        for n, score in scores.items()
        for vector in ("first", "mean")
    ]
    several = ReportedProbe(layers=(0, 1), vector="mean", held_out=0.99, **more)
    report = ProbeReport.model_construct(probes=(*probes, several), metric="accuracy", train_rows=400)
    assert estimate_k(report) == expected


@pytest.mark.parametrize(
    ("reads", "first", "mean", "better"),
    [
        ("first", 0.77, 0.80, True),  # one standard error is 0.02
        ("first", 0.79, 0.80, False),
        ("last", 0.60, 0.80, False),  # that probe has no score
        ("all", 0.60, 0.80, False),
        ("first", 0.77, None, False),
    ],
)
def test_the_mean_of_all_tokens_is_better_by_more_than_one_standard_error(
    reads: str, first: float, mean: float | None, better: bool
) -> None:
    scores = [(1, "first", 0.5), (1, "mean", 0.9), (2, "first", first), (2, "mean", mean), (2, "last", None)]
    probes = [
        ReportedProbe(layers=(n,), vector=vector, held_out=score, validation=None, penalty=1.0)
        for n, vector, score in scores
    ]
    report = ProbeReport.model_construct(probes=tuple(probes), metric="accuracy", train_rows=400, layers=2)
    assert mean_is_better(report, reads) == better
