"""Sweeps that are extended in the same folder: more seeds, train sizes and values of k."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import frostline
from frostline import FrostlineError, Results
from frostline.report.rebuild import finish, write_report
from frostline.statistics.recipe import Recipe
from frostline.sweeps.execution.execute import execute, prepare_hidden_states
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import register
from frostline.sweeps.results.store import Store
from frostline.training.train import run
from tiny import Notes, assert_same_predictions, plan_of, run_sweep, settings_of, table


def cells(results: Results) -> set[tuple[Any, ...]]:
    done = results.table().query("status == 'done'")
    return set(done[["recipe", "seed", "train_size", "learning_rate"]].itertuples(index=False, name=None))


def test_an_extended_sweep_equals_the_same_grid_in_one_call(settings: dict[str, Any], tmp_path: Path) -> None:
    run_sweep(settings, seeds=1, tune="1")
    run_sweep(settings, seeds=2, tune="all,1")
    grown = run_sweep(settings, seeds=2, tune="0")
    whole = run_sweep(settings, seeds=2, tune="0,1,all", out=tmp_path / "whole")
    assert set(grown.table().recipe) == {"head only", "last 1", "full"}
    pd.testing.assert_frame_equal(table(grown), table(whole))
    assert_same_predictions(Store(grown.folder), Store(whole.folder))
    assert len(cells(run_sweep(settings, tune="0", seeds=1, train_size=None))) == 7


def test_training_lengths_together_have_the_results_of_each_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= {"seeds": 1}
    alone = [run_sweep(settings, num_train_epochs=epochs, out=tmp_path / f"{epochs}") for epochs in (1, 2)]
    both = run_sweep(settings, num_train_epochs=2)
    both = run_sweep(settings, num_train_epochs="1,2")
    joined = pd.concat([table(one) for one in alone]).set_index("run")
    found = table(both).set_index("run").loc[joined.index]
    pd.testing.assert_frame_equal(found.drop(columns="recipe"), joined.drop(columns="recipe"))
    named = [
        Recipe(recipe).for_epochs(epochs) for recipe, epochs in zip(joined.recipe, joined.num_train_epochs, strict=True)
    ]
    assert found.recipe.tolist() == named and len(found) == 2 * len(table(alone[0]))


def test_what_has_no_training_length_is_fitted_once(settings: dict[str, Any]) -> None:
    given = {**settings, "tune": "1,bitfit,probe", "seeds": 1}
    for epochs in ("2", "3,2"):
        found = table(run_sweep(given, num_train_epochs=epochs))
        assert found.recipe.tolist().count("probe") == 1 and found.validation_best.notna().all()
    assert {"bitfit for 3 epochs", "bitfit for 2 epochs"} < {*found.recipe} and len(found) == 5
    assert {cell.recipe.trained for cell in write_report(settings["out"]).sizes[0].cells} == {
        "last 1",
        "bitfit",
        "probe",
    }


def test_two_processes_that_extend_one_folder_train_the_runs_of_both(settings: dict[str, Any]) -> None:
    first = dict(progress=Progress(), **{**settings, "tune": "0", "seeds": 1})
    plan = plan_of(**first)  # it has read the folder before the other call changes it
    run_sweep(settings, tune="1,all", seeds=2)
    register(plan)
    execute(plan, plan.requested, Progress())
    both = {(k, seed, 20, 1e-3) for k in ("last 1", "full") for seed in (0, 1)} | {("head only", 0, 20, 1e-2)}
    assert cells(frostline.open(settings["out"])) == both

    finish(plan, shown := Notes())
    assert ["the same command again to save the model" in note for note in shown.notes] == [True]
    frostline.sweep(**first)  # that command
    assert (first["out"] / "model" / "config.json").exists()


def test_named_parts_can_be_added_but_other_named_parts_need_another_folder(settings: dict[str, Any]) -> None:
    settings |= {"seeds": 1}
    run_sweep(settings, tune="0,1")
    both = run_sweep(settings, tune_modules="pooler,layer.1", tune=None)
    assert set(both.table().recipe) == {"head only", "last 1", "named"} and set(both.table().status) == {"done"}
    assert set(run_sweep(settings, tune="2").table().recipe) == {"head only", "last 1", "last 2", "named"}
    with pytest.raises(FrostlineError, match=r"value of tune_modules is different \(layer\.1,pooler there"):
        run_sweep(settings, tune="named", tune_modules="pooler")


def test_an_older_run_of_an_extended_sweep_reads_its_own_rows(settings: dict[str, Any]) -> None:
    """Every seed has its own training examples. Their hidden states are loaded when an older run is trained again."""
    run_sweep(settings, tune="1", seeds=1, num_train_epochs=1)
    grown = dict(progress=Progress(), **{**settings, "tune": "1", "seeds": 2})
    plan = prepare(settings_of(**grown), {}, Progress())
    execute(plan, plan.runs, Progress())
    older = next(spec for spec in plan.runs if spec.seed == 0)
    with pytest.raises(AssertionError, match="hidden states of these rows were not loaded"):
        run(older, plan.experiment)
    prepare_hidden_states(plan, [older], Progress())
    again = run(older, plan.experiment)
    there = plan.store.predictions(older.digest)
    assert all(np.array_equal(again.logits[name], there[name]) for name in there)
