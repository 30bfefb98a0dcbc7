"""``find`` on a tiny model: the folder of a sweep, recorded decisions, interruption and continuation."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import pipeline

import frostline
import frostline.search.search as search_module
from frostline.report.rebuild import rebuild
from frostline.search import DEFAULTS, SECONDS
from frostline.search.probing import Alternatives
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import read_search, request_again, write_search
from frostline.training.train import run as train
from records import failure
from search_runs import runs_in
from tiny import TrainWith, plan_of

NOT_KEYS = {"negative", "positive", "train", "validation/test", "train/validation"}  # names of labels and splits

SEARCH_ONLY = ("out", "budget", "progress")  # a sweep has no budget; the tests give it out and progress


def test_search_json_and_the_report_record_every_step(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings).answer
    out = search_settings["out"]
    record, search = read_search(out), answer.search
    assert record is not None and record.model_dump(mode="json") == search
    trained = [(run["recipe"], run["learning_rate"], run["seed"]) for step in search["steps"] for run in step["runs"]]
    assert len(set(trained)) == len(trained)
    rows = runs_in(out)
    assert set(trained) == set(rows) and {row.status for row in rows.values()} == {"done"}
    for step in search["steps"]:
        for run in step["runs"]:
            row = rows[run["recipe"], run["learning_rate"], run["seed"]]
            assert run["score"] == row.validation_best or row.outcome == "diverged"
    assert {"head only", "last 1", "last 2", "last 3", "full"} - {run[0] for run in trained} == set(search["skipped"])
    assert search["steps"][0]["results_so_far"] == []  # nothing was known before the first step
    assert {one["recipe"] for one in search["results_so_far"]} == {key[0] for key in rows}
    assert all(one["expected"] is not None for one in search["results_so_far"]) == any(key[0] == "full" for key in rows)
    assert (out / "model").exists() == (answer.sizes[0].decision is not None)
    assert json.loads((out / "answer.json").read_text())["search"]["why"] == search["why"]
    page = (out / "report.html").read_text()
    assert "The search" in page and search["steps"][0]["why"] in page


def test_seconds_of_parallel_steps_are_wall_clock_seconds(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "workers_for", lambda plan, runs: 2)
    search = frostline.find(**{**search_settings, "workers": 2, "budget": None}).answer.search
    assert search["budget_seconds"] == SECONDS  # four runs take less
    assert search["spent_seconds"] == pytest.approx(sum(step["seconds"] for step in search["steps"]))
    parallel = [step for step in search["steps"] if len(step["runs"]) == 2 and step["runs"][0]["recipe"] != "head only"]
    assert parallel
    for step in parallel:  # the seconds of a run are its share of the wall-clock time
        assert step["seconds"] == pytest.approx(2 * max(run["seconds"] for run in step["runs"]))


def test_every_key_of_the_answer_is_documented(search_settings: dict[str, Any]) -> None:
    documented = set(
        re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs" / "reference" / "answer-json.md").read_text())
    )

    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, list):
            for one in value:
                yield from keys(one)
        elif isinstance(value, dict):
            for name, one in value.items():
                if name not in NOT_KEYS:
                    yield name
                    yield from (
                        keys(one) if name not in ("operations", "selected_learning_rates") else ()
                    )  # keys of these two are values of k

    assert sorted(set(keys(frostline.find(**search_settings).answer.to_json())) - documented) == []


def test_a_run_of_a_search_is_scored_once(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings)
    results = Folder(search_settings["out"]).store.results().values()
    assert results and all(
        len({one.epoch for one in result.scores if one.split == "validation"}) == 1 for result in results
    )


def test_an_interrupted_search_continues_to_the_same_answer(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    whole = frostline.find(**search_settings).answer
    execute, calls = search_module.execute, []

    def interrupted(*args: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) in (2, 5):
            raise KeyboardInterrupt
        execute(*args, **more)

    monkeypatch.setattr(search_module, "execute", interrupted)
    again = {**search_settings, "out": tmp_path / "again"}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            frostline.find(**again)
        so_far = read_search(again["out"])
        assert so_far is not None and "interrupted" in so_far.why
        assert Path(again["out"], "report.html").exists()
    end = frostline.find(**again).answer
    assert runs_in(again["out"]).keys() == runs_in(search_settings["out"]).keys()
    assert end.sizes[0].cells[0].validation == whole.sizes[0].cells[0].validation
    assert (end.decision and end.decision.choice) == (whole.decision and whole.decision.choice)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])  # the last one stands for a kill
@pytest.mark.parametrize("writes", ["register", "write_search"])
def test_a_search_that_is_stopped_before_its_first_run_starts_again(
    search_settings: dict[str, Any], monkeypatch: Any, stop: type[BaseException], writes: str
) -> None:

    def stopped(*args: Any, **more: Any) -> None:
        raise stop

    with monkeypatch.context() as patched:
        patched.setattr(search_module, writes, stopped)
        with pytest.raises(stop):
            frostline.find(**search_settings)
    assert not Path(search_settings["out"], "sweep.toml").exists()
    assert frostline.find(**search_settings).answer.decision


@pytest.mark.parametrize("exhaustive", [False, True])
def test_finished_runs_of_an_interrupted_step_are_in_the_report(
    search_settings: dict[str, Any], monkeypatch: Any, exhaustive: bool
) -> None:
    def stop(plan: Any, runs: Any, progress: Any, **more: Any) -> None:
        execute(plan, runs[:1], progress, **more)
        raise KeyboardInterrupt

    execute = search_module.execute
    monkeypatch.setattr(search_module, "execute", stop)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**search_settings, exhaustive=exhaustive)
    search = read_search(search_settings["out"])
    done = [row for row in runs_in(search_settings["out"]).values() if row.status == "done"]
    assert search is not None and len(search.steps[0].runs) == len(done) == 1 and search.spent_seconds > 0
    assert not {row.recipe for row in done} & set(search.skipped)


def test_exhaustive_recommends_the_best_of_the_rest_if_full_failed(
    search_settings: dict[str, Any], train_with: TrainWith
) -> None:
    def fails_for_full(spec: Any, experiment: Any, **more: Any) -> Any:
        if spec.recipe == "full":
            raise RuntimeError("out of memory")
        return train(spec, experiment, **more)

    train_with(fails_for_full)
    answer = frostline.find(**{**search_settings, "seeds": 2}, exhaustive=True).answer
    assert answer.search["failed_reference"] == "full" and answer.decision.choice == "words"
    assert "The whole grid was trained. Every run of full fine-tuning failed" in answer.sentence
    train_with(train)
    again = frostline.find(**{**search_settings, "seeds": 2}, exhaustive=True).answer  # trains the failed runs again
    assert again.search["failed_reference"] is None and again.runs.failed == 0


def test_exhaustive_trains_the_whole_grid(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**{**search_settings, "learning_rate": 1e-3}, exhaustive=True).answer
    assert len(runs_in(search_settings["out"])) == 5 * 5 and answer.search["why"].startswith(
        "The whole grid was trained."
    )


def test_the_saved_model_reproduces_the_scores_of_its_run(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Observations, "above_baseline", lambda seen, recipe: True)
    monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
    answer = frostline.find(**search_settings, max_k=1, folds=0).answer
    folder, recommended = Folder(search_settings["out"]), answer.sizes[0].recommended
    assert recommended.recipe == answer.decision.choice
    logits = folder.predictions(recommended.run)
    examples = folder.split("validation")
    assert examples is not None
    classify = pipeline("text-classification", model=str(search_settings["out"] / "model"), top_k=None)
    for predicted, ours in zip(classify(list(examples.texts), function_to_apply="none"), logits, strict=True):
        scores = {one["label"]: one["score"] for one in predicted}
        np.testing.assert_allclose([scores[label] for label in folder.identity.labels], ours, atol=1e-5)
    card = (search_settings["out"] / "model" / "README.md").read_text()
    assert "frostline searched for how" in card and answer.sentence[:60] in card


def test_no_recommendation_on_shuffled_labels(search_settings: dict[str, Any]) -> None:
    labels = np.random.default_rng(0).permutation(["yes", "no"] * 30)
    rows = pd.DataFrame({"text": [f"the film number {n}" for n in range(60)], "label": labels})
    for exhaustive in (False, True):
        out = search_settings["out"] / str(exhaustive)
        answer = frostline.find(**{**search_settings, "train": rows, "out": out}, exhaustive=exhaustive).answer
        search = answer.search
        assert "No run scores above the baseline with 95 % confidence." in search["why"]
        constant = "There is no answer: all"  # every run diverged or predicts a constant
        assert answer.sentence.startswith(("Undecided: nothing", constant))


def test_too_few_validation_examples_are_reported(search_settings: dict[str, Any]) -> None:
    rows = pd.DataFrame({"text": [f"film {n}" for n in range(24)], "label": ["yes", "no"] * 12})
    answer = frostline.find(**{**search_settings, "train": rows, "train_size": None}).answer
    assert answer.validation_rows < 10 and "validation examples are too few for any conclusion" in answer.sentence


def test_test_scores_are_hidden_until_the_search_is_over(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, scored = search_module.execute, []

    def execute_and_check(plan: Any, *args: Any, **more: Any) -> None:
        execute(plan, *args, **more)
        folder = Folder(search_settings["out"])
        assert not any(row.status == "pending" for row in folder.rows)
        scored.append(rebuild(search_settings["out"]).tested)
        assert not folder.is_complete and all(row.test is None for row in folder.rows)

    monkeypatch.setattr(search_module, "execute", execute_and_check)
    answer = frostline.find(**{**search_settings, "test": search_settings["train"]}).answer
    assert len(scored) > 2 and not any(scored) and answer.tested
    assert all(row.test is not None for row in Folder(search_settings["out"]).rows)


def test_the_budget_can_be_a_duration(search_settings: dict[str, Any]) -> None:
    assert frostline.find(**{**search_settings, "budget": "10min"}).answer.search["budget_seconds"] == 600


def test_max_k_can_be_the_recommended_k(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Observations, "above_baseline", lambda seen, recipe: True)
    monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
    answer = frostline.find(**search_settings, max_k=1, sure=0.99, target=1.0).answer
    assert answer.decision.choice == "last 1" and "last 1" in answer.search["selected_learning_rates"]


def test_unfinished_runs_of_other_settings_are_abandoned(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    """Otherwise they would stay pending, and the test set would never be scored."""
    execute = search_module.execute

    def interrupted(plan: Any, runs: Any, *args: Any, **more: Any) -> None:
        if any(run.recipe == "full" for run in runs):
            raise KeyboardInterrupt
        execute(plan, runs, *args, **more)

    monkeypatch.setattr(search_module, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**search_settings)
    assert not Folder(search_settings["out"]).is_complete
    monkeypatch.setattr(search_module, "execute", execute)
    answer = frostline.find(**search_settings, max_k=1).answer
    assert answer.search["abandoned"] and answer.runs.pending == 0 and "So far" not in answer.sentence
    assert Folder(search_settings["out"]).is_complete
    assert "full" in {run.recipe for run in Folder(search_settings["out"]).requested}
    again = frostline.find(**search_settings).answer  # this search requests the run again
    assert not again.search["abandoned"] and "full" in {key[0] for key in runs_in(search_settings["out"])}


def test_runs_of_a_sweep_are_not_abandoned(search_settings: dict[str, Any]) -> None:
    out, settings = (
        search_settings["out"],
        {name: value for name, value in search_settings.items() if name not in SEARCH_ONLY},
    )
    plan = plan_of(**{**DEFAULTS, **settings}, out=out, tune="2,all")
    search_module.register(plan)  # the sweep is interrupted before its first run
    requested = {run.digest for run in Folder(out).requested}
    for _ in range(2):
        search = frostline.find(**search_settings, max_k=1).answer.search
        assert not requested & set(search["abandoned"]) and not Folder(out).is_complete


def test_a_sweep_can_train_runs_that_were_abandoned(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings, max_k=1)
    out, settings = (
        search_settings["out"],
        {name: value for name, value in search_settings.items() if name not in SEARCH_ONLY},
    )
    search_module.register(plan_of(**{**DEFAULTS, **settings}, out=out, tune="full"))
    (run, *_) = [run for run in Folder(out).requested if run.recipe == "full"]
    search = read_search(out)
    assert search is not None and not Folder(out).is_complete
    write_search(out, search.model_copy(update={"abandoned": [run.digest]}))
    assert run.digest not in {one.digest for one in Folder(out).runs}
    request_again(out, {run.digest})
    assert run.digest in {one.digest for one in Folder(out).runs}
    write_search(out, search.model_copy(update={"abandoned": [run.digest]}))
    Folder(out).store.fail(failure(run))
    assert run.digest in {one.digest for one in Folder(out).runs}  # failed runs are not hidden
