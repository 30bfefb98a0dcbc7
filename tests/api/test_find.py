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
import frostline.search.running as running_module
import frostline.sweep.execution.execute as execute_module
from frostline.api.find import DEFAULTS
from frostline.report.rebuild import rebuild
from frostline.search.trials import DEFAULT_BUDGET
from frostline.sweep.execution.progress import Progress
from frostline.sweep.prepare import prepare
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import read_search, request_again, write_search
from frostline.training.run import run as train
from search_runs import runs_in

FREE = {"negative", "positive", "train", "validation/test", "train/validation"}  # names of labels and splits

SEARCH_ONLY = ("out", "budget", "progress")  # settings that a sweep takes in other ways


def test_search_json_and_the_report_record_every_step(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings)
    out = search_settings["out"]
    search = read_search(out)
    assert search is not None and answer["search"] == search
    trained = [
        (run["trainable"], run["learning_rate"], run["seed"]) for step in search["steps"] for run in step["runs"]
    ]
    assert len(set(trained)) == len(trained)
    there = runs_in(out)
    assert set(trained) == set(there) and {row["status"] for row in there.values()} == {"done"}
    for step in search["steps"]:
        for run in step["runs"]:
            row = there[run["trainable"], run["learning_rate"], run["seed"]]
            assert run["score"] == row["validation_best"] or row["outcome"] == "diverged"
    assert {"last 0", "last 1", "last 2", "last 3", "all"} - {run[0] for run in trained} == set(search["skipped"])
    assert search["steps"][0]["standing"] == []  # before it nothing was known
    assert {one["trainable"] for one in search["standing"]} == {key[0] for key in there}
    assert all(one["beyond"] is not None for one in search["standing"]) == any(key[0] == "all" for key in there)
    if search["named"]:
        assert answer["sizes"][0]["recommended"]["trainable"] == search["named"]
        assert (out / "model" / "config.json").exists()
    assert json.loads((out / "answer.json").read_text())["search"]["why"] == search["why"]
    page = (out / "report.html").read_text()
    assert '<h2 id="search">The search</h2>' in page and search["steps"][0]["why"] in page


def test_seconds_of_parallel_steps_are_wall_clock_seconds(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "workers_for", lambda prepared, runs: 2)
    search = frostline.find(**{**search_settings, "workers": 2, "budget": None})["search"]
    of_full = [run["seconds"] for step in search["steps"] for run in step["runs"] if run["trainable"] == "all"]
    assert search["budget_seconds"] == pytest.approx(DEFAULT_BUDGET * np.median(of_full))
    assert search["spent_seconds"] == pytest.approx(sum(step["seconds"] for step in search["steps"]))
    beside = [step for step in search["steps"] if len(step["runs"]) == 2 and step["runs"][0]["trainable"] != "last 0"]
    assert beside
    for step in beside:  # a run's seconds are its share of the clock's
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
                if name not in FREE:
                    yield name
                    yield from (
                        keys(one) if name not in ("operations", "chosen_rates") else ()
                    )  # whose keys are choices of k

    assert not set(keys(frostline.find(**search_settings))) - documented


def test_a_run_of_a_search_is_scored_once(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings)
    results = Folder(search_settings["out"]).store.results().values()
    assert results and all(
        len({one["epoch"] for one in facts["scores"] if one["split"] == "validation"}) == 1 for facts in results
    )


def test_an_interrupted_search_continues_to_the_same_answer(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    whole = frostline.find(**search_settings)
    execute, calls = running_module.execute, []

    def interrupted(*args: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) in (2, 5):
            raise KeyboardInterrupt
        execute(*args, **more)

    monkeypatch.setattr(running_module, "execute", interrupted)
    again = {**search_settings, "out": tmp_path / "again"}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            frostline.find(**again)
        so_far = read_search(again["out"])
        assert so_far is not None and "interrupted" in so_far["why"]
        assert Path(again["out"], "report.html").exists()
    end = frostline.find(**again)
    assert runs_in(again["out"]).keys() == runs_in(search_settings["out"]).keys()
    assert end["sizes"][0]["cells"][0]["validation"] == whole["sizes"][0]["cells"][0]["validation"]
    assert end["search"]["named"] == whole["search"]["named"]


@pytest.mark.parametrize("exhaustive", [False, True])
def test_finished_runs_of_an_interrupted_step_are_in_the_report(
    search_settings: dict[str, Any], monkeypatch: Any, exhaustive: bool
) -> None:
    def stop(prepared: Any, runs: Any, progress: Any, **more: Any) -> None:
        execute(prepared, runs[:1], progress, **more)
        raise KeyboardInterrupt

    execute = running_module.execute
    monkeypatch.setattr(running_module, "execute", stop)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**search_settings, exhaustive=exhaustive)
    search, ended = (
        read_search(search_settings["out"]),
        [row for row in runs_in(search_settings["out"]).values() if row["status"] == "done"],
    )
    assert search is not None and len(search["steps"][0]["runs"]) == len(ended) == 1 and search["spent_seconds"] > 0
    assert not {row["trainable"] for row in ended} & set(search["skipped"])


def test_exhaustive_recommends_nothing_if_full_failed(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    def sometimes(spec: Any, context: Any, **more: Any) -> Any:
        if spec.tune == "all":
            raise RuntimeError("out of memory, say")
        return train(spec, context, **more)

    monkeypatch.setattr(execute_module, "run", sometimes)
    answer = frostline.find(**{**search_settings, "seeds": 2}, exhaustive=True)
    assert answer["search"]["lacks"] == "all" and answer["sizes"][0]["recommended"] is None
    assert answer["sentence"].startswith("The whole grid was trained. Every run of full fine-tuning failed")


def test_exhaustive_trains_the_whole_grid(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**{**search_settings, "learning_rate": 1e-3}, exhaustive=True)
    assert len(runs_in(search_settings["out"])) == 5 * 5 and answer["search"]["why"].startswith(
        "The whole grid was trained."
    )


def test_the_saved_model_reproduces_the_scores_of_its_run(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(running_module.Scoreboard, "above_baseline", lambda board, tune: True)
    answer = frostline.find(**search_settings, max_k=1, folds=0)
    folder, recommended = Folder(search_settings["out"]), answer["sizes"][0]["recommended"]
    assert recommended["trainable"] == answer["search"]["named"]
    logits = folder.predictions(recommended["run"])
    examples = folder.split("validation")
    assert examples is not None
    classify = pipeline("text-classification", model=str(search_settings["out"] / "model"), top_k=None)
    for name_of, ours in zip(classify(list(examples.texts), function_to_apply="none"), logits, strict=True):
        scores = {one["label"]: one["score"] for one in name_of}
        np.testing.assert_allclose([scores[label] for label in folder.identity.labels], ours, atol=1e-5)
    card = (search_settings["out"] / "model" / "README.md").read_text()
    assert "frostline searched for the smallest" in card and "interval" in card and answer["sentence"][:60] in card


def test_no_recommendation_on_shuffled_labels(search_settings: dict[str, Any]) -> None:
    labels = np.random.default_rng(0).permutation(["yes", "no"] * 30)
    rows = pd.DataFrame({"text": [f"the film number {n}" for n in range(60)], "label": labels})
    for exhaustive in (False, True):
        out = search_settings["out"] / str(exhaustive)
        answer = frostline.find(**{**search_settings, "train": rows, "out": out}, exhaustive=exhaustive)
        search = answer["search"]
        assert search["named"] is None and "No run scores above the baseline with 95 % confidence." in search["why"]
        constant = "There is no answer: all"  # finished runs diverged or predict a constant
        assert answer["sentence"].startswith(("Cannot tell: full", constant))


def test_too_few_validation_examples_are_reported(search_settings: dict[str, Any]) -> None:
    rows = pd.DataFrame({"text": [f"film {n}" for n in range(24)], "label": ["yes", "no"] * 12})
    answer = frostline.find(**{**search_settings, "train": rows, "train_size": None})
    assert answer["validation_rows"] < 10 and "validation examples are too few for any conclusion" in answer["sentence"]


def test_test_scores_are_hidden_until_the_search_is_over(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, scored = running_module.execute, []

    def between(prepared: Any, *args: Any, **more: Any) -> None:
        execute(prepared, *args, **more)
        folder = Folder(search_settings["out"])
        assert not any(row["status"] == "pending" for row in folder.rows())
        scored.append(rebuild(search_settings["out"])["tested"])
        assert not folder.stands and all(row["test"] is None for row in folder.rows())

    monkeypatch.setattr(running_module, "execute", between)
    answer = frostline.find(**{**search_settings, "test": search_settings["train"]})
    assert len(scored) > 2 and not any(scored) and answer["tested"]
    assert all(row["test"] is not None for row in Folder(search_settings["out"]).rows())


def test_the_probe_of_an_earlier_call_is_removed(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings, cache_limit=0.0)  # without probes
    left = search_settings["out"] / "probe" / "probe.json"
    left.parent.mkdir()
    left.write_text("{}")
    frostline.find(**search_settings, cache_limit=0.0)
    assert not left.exists()


def test_the_budget_can_be_a_duration(search_settings: dict[str, Any]) -> None:
    assert frostline.find(**{**search_settings, "budget": "10min"})["search"]["budget_seconds"] == 600


def test_max_k_can_be_the_recommended_k(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(running_module.Scoreboard, "smallest_reaching_goal", lambda board: board.settings.reference)
    monkeypatch.setattr(running_module.Scoreboard, "above_baseline", lambda board, tune: True)
    search = frostline.find(**search_settings, max_k=1)["search"]
    assert search["named"] == "last 1" and "last 1" in search["chosen_rates"]
    assert {guess["by"]: guess["place"] for guess in search["guesses"]}["climbing"] == 2


def test_unfinished_runs_of_other_settings_are_given_up(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    """Else it would be pending for ever, and test never scored."""
    execute = running_module.execute

    def interrupted(prepared: Any, runs: Any, *args: Any, **more: Any) -> None:
        if any(run.trainable == "all" for run in runs):
            raise KeyboardInterrupt
        execute(prepared, runs, *args, **more)

    monkeypatch.setattr(running_module, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**search_settings)
    assert not Folder(search_settings["out"]).stands
    monkeypatch.setattr(running_module, "execute", execute)
    answer = frostline.find(**search_settings, max_k=1)
    assert answer["search"]["given_up"] and answer["runs"]["pending"] == 0 and "So far" not in answer["sentence"]
    assert Folder(search_settings["out"]).stands
    assert "all" in {run.trainable for run in Folder(search_settings["out"]).asked}
    again = frostline.find(**search_settings)  # which wants it after all
    assert not again["search"]["given_up"] and "all" in {key[0] for key in runs_in(search_settings["out"])}


def test_runs_of_a_sweep_are_not_given_up(search_settings: dict[str, Any]) -> None:
    out, settings = (
        search_settings["out"],
        {key: x for key, x in search_settings.items() if key not in SEARCH_ONLY},
    )
    sweep = frostline.Sweep(**{**DEFAULTS, **settings}, out=out, tune="2,all", progress=Progress())
    running_module.register(prepare(sweep.spec, {}, Progress()))  # and is interrupted
    asked = {run.digest for run in Folder(out).asked}
    for _ in range(2):
        search = frostline.find(**search_settings, max_k=1)["search"]
        assert not asked & set(search["given_up"]) and not Folder(out).stands


def test_a_sweep_can_train_runs_that_were_given_up(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings, max_k=1)
    out, settings = (
        search_settings["out"],
        {key: x for key, x in search_settings.items() if key not in SEARCH_ONLY},
    )
    sweep = frostline.Sweep(**{**DEFAULTS, **settings}, out=out, tune="all", progress=Progress())
    running_module.register(prepare(sweep.spec, {}, Progress()))
    (run, *_) = [run for run in Folder(out).asked if run.trainable == "all"]
    search = read_search(out)
    assert search is not None and not Folder(out).stands
    write_search(out, {**search, "given_up": [run.digest]})
    assert run.digest not in {one.digest for one in Folder(out).runs}
    request_again(out, {run.digest})
    assert run.digest in {one.digest for one in Folder(out).runs}
    write_search(out, {**search, "given_up": [run.digest]})
    Folder(out).store.fail(run.digest, {"digest": run.digest, "reason": "it was"})
    assert run.digest in {one.digest for one in Folder(out).runs}  # what failed is not hidden
