"""The search on a tiny model: its folder is a sweep's, its decisions are written down, it goes on where it stopped."""

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
from frostline.search.course import FULLS
from frostline.sweep.execution.progress import Progress
from frostline.sweep.prepare import prepare
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import read_search, request_again, write_search
from frostline.training.run import run as train
from search_runs import runs_in

FREE = {"negative", "positive", "train", "validation/test", "train/validation"}  # names of labels and splits


def test_the_folder_holds_just_what_was_trained_and_why(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**wanted)
    out = wanted["out"]
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


def test_side_by_side_its_steps_take_what_the_clock_says(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "workers_for", lambda prepared, runs: 2)
    search = frostline.find(**{**wanted, "workers": 2, "budget": None})["search"]
    of_full = [run["seconds"] for step in search["steps"] for run in step["runs"] if run["trainable"] == "all"]
    assert search["budget_seconds"] == pytest.approx(FULLS * np.median(of_full))
    assert search["spent_seconds"] == pytest.approx(sum(step["seconds"] for step in search["steps"]))
    beside = [step for step in search["steps"] if len(step["runs"]) == 2 and step["runs"][0]["trainable"] != "last 0"]
    assert beside
    for step in beside:  # a run's seconds are its share of the clock's
        assert step["seconds"] == pytest.approx(2 * max(run["seconds"] for run in step["runs"]))


def test_every_key_of_the_answer_is_documented(wanted: dict[str, Any]) -> None:
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

    assert not set(keys(frostline.find(**wanted))) - documented


def test_a_run_of_a_search_is_scored_once(wanted: dict[str, Any]) -> None:
    frostline.find(**wanted)
    results = Folder(wanted["out"]).store.results().values()
    assert results and all(
        len({one["epoch"] for one in facts["scores"] if one["split"] == "validation"}) == 1 for facts in results
    )


def test_stopped_anywhere_it_goes_on_to_the_same_end(wanted: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    whole = frostline.find(**wanted)
    execute, calls = running_module.execute, []

    def interrupted(*args: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) in (2, 5):
            raise KeyboardInterrupt
        execute(*args, **more)

    monkeypatch.setattr(running_module, "execute", interrupted)
    again = {**wanted, "out": tmp_path / "again"}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            frostline.find(**again)
        so_far = read_search(again["out"])
        assert so_far is not None and "interrupted" in so_far["why"]
        assert Path(again["out"], "report.html").exists()
    end = frostline.find(**again)
    assert runs_in(again["out"]).keys() == runs_in(wanted["out"]).keys()
    assert end["sizes"][0]["cells"][0]["validation"] == whole["sizes"][0]["cells"][0]["validation"]
    assert end["search"]["named"] == whole["search"]["named"]


@pytest.mark.parametrize("exhaustive", [False, True])
def test_what_has_ended_of_a_step_that_is_stopped_is_on_its_page(
    wanted: dict[str, Any], monkeypatch: Any, exhaustive: bool
) -> None:
    def stop(prepared: Any, runs: Any, progress: Any, **more: Any) -> None:
        execute(prepared, runs[:1], progress, **more)
        raise KeyboardInterrupt

    execute = running_module.execute
    monkeypatch.setattr(running_module, "execute", stop)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**wanted, exhaustive=exhaustive)
    search, ended = (
        read_search(wanted["out"]),
        [row for row in runs_in(wanted["out"]).values() if row["status"] == "done"],
    )
    assert search is not None and len(search["steps"][0]["runs"]) == len(ended) == 1 and search["spent_seconds"] > 0
    assert not {row["trainable"] for row in ended} & set(search["skipped"])


def test_a_grid_whose_full_failed_names_nothing(wanted: dict[str, Any], monkeypatch: Any) -> None:
    def sometimes(spec: Any, context: Any, **more: Any) -> Any:
        if spec.tune == "all":
            raise RuntimeError("out of memory, say")
        return train(spec, context, **more)

    monkeypatch.setattr(execute_module, "run", sometimes)
    answer = frostline.find(**{**wanted, "seeds": 2}, exhaustive=True)
    assert answer["search"]["lacks"] == "all" and answer["sizes"][0]["recommended"] is None
    assert answer["sentence"].startswith("The whole grid was trained. Full failed at every rate that was tried")


def test_exhaustive_trains_the_grid_and_names_by_the_same_rule(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**{**wanted, "learning_rate": 1e-3}, exhaustive=True)
    assert len(runs_in(wanted["out"])) == 5 * 5 and answer["search"]["why"].startswith("The whole grid was trained.")


def test_the_model_of_a_search_opens_and_says_what_its_run_said(wanted: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(running_module.Board, "learned", lambda board, tune: True)
    answer = frostline.find(**wanted, max_k=1, folds=0)
    folder, recommended = Folder(wanted["out"]), answer["sizes"][0]["recommended"]
    assert recommended["trainable"] == answer["search"]["named"]
    logits = folder.predictions(recommended["run"])
    examples = folder.split("validation")
    assert examples is not None
    classify = pipeline("text-classification", model=str(wanted["out"] / "model"), top_k=None)
    for said, ours in zip(classify(list(examples.texts), function_to_apply="none"), logits, strict=True):
        scores = {one["label"]: one["score"] for one in said}
        np.testing.assert_allclose([scores[label] for label in folder.identity.labels], ours, atol=1e-5)
    card = (wanted["out"] / "model" / "README.md").read_text()
    assert "frostline searched for the smallest" in card and "interval" in card and answer["sentence"][:60] in card


def test_on_shuffled_labels_nothing_is_learned_and_no_k_is_named(wanted: dict[str, Any]) -> None:
    labels = np.random.default_rng(0).permutation(["yes", "no"] * 30)
    rows = pd.DataFrame({"text": [f"the film number {n}" for n in range(60)], "label": labels})
    for exhaustive in (False, True):
        out = wanted["out"] / str(exhaustive)
        answer = frostline.find(**{**wanted, "train": rows, "out": out}, exhaustive=exhaustive)
        search = answer["search"]
        assert search["named"] is None and "Nothing that was trained is surely above guessing." in search["why"]
        constant = "There is no answer: all"  # finished runs diverged or predict a constant
        assert answer["sentence"].startswith(("Cannot tell: full", constant))


def test_on_data_too_small_it_says_so(wanted: dict[str, Any]) -> None:
    rows = pd.DataFrame({"text": [f"film {n}" for n in range(24)], "label": ["yes", "no"] * 12})
    answer = frostline.find(**{**wanted, "train": rows, "train_size": None})
    assert answer["validation_rows"] < 10 and "validation examples are too few for any conclusion" in answer["sentence"]


def test_test_is_not_looked_at_before_the_search_is_over(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, scored = running_module.execute, []

    def between(prepared: Any, *args: Any, **more: Any) -> None:
        execute(prepared, *args, **more)
        folder = Folder(wanted["out"])
        assert not any(row["status"] == "pending" for row in folder.rows())
        scored.append(rebuild(wanted["out"])["tested"])
        assert not folder.stands and all(row["test"] is None for row in folder.rows())

    monkeypatch.setattr(running_module, "execute", between)
    answer = frostline.find(**{**wanted, "test": wanted["train"]})
    assert len(scored) > 2 and not any(scored) and answer["tested"]
    assert all(row["test"] is not None for row in Folder(wanted["out"]).rows())


def test_a_probe_that_an_earlier_call_left_and_this_one_does_not_keep_goes(wanted: dict[str, Any]) -> None:
    frostline.find(**wanted, cache_limit=0.0)  # without probes
    left = wanted["out"] / "probe" / "probe.json"
    left.parent.mkdir()
    left.write_text("{}")
    frostline.find(**wanted, cache_limit=0.0)
    assert not left.exists()


def test_a_budget_may_be_a_text(wanted: dict[str, Any]) -> None:
    assert frostline.find(**{**wanted, "budget": "10min"})["search"]["budget_seconds"] == 600


def test_the_deepest_that_is_allowed_may_be_the_answer(wanted: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(running_module.Board, "found", lambda board: board.course.reference)
    monkeypatch.setattr(running_module.Board, "learned", lambda board, tune: True)
    search = frostline.find(**wanted, max_k=1)["search"]
    assert search["named"] == "last 1" and "last 1" in search["chosen_rates"]
    assert {guess["by"]: guess["place"] for guess in search["guesses"]}["climbing"] == 2


def test_what_an_earlier_call_began_and_this_one_does_not_want_is_given_up(
    wanted: dict[str, Any], monkeypatch: Any
) -> None:
    """Else it would be pending for ever, and test never scored."""
    execute = running_module.execute

    def interrupted(prepared: Any, runs: Any, *args: Any, **more: Any) -> None:
        if any(run.trainable == "all" for run in runs):
            raise KeyboardInterrupt
        execute(prepared, runs, *args, **more)

    monkeypatch.setattr(running_module, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**wanted)
    assert not Folder(wanted["out"]).stands
    monkeypatch.setattr(running_module, "execute", execute)
    answer = frostline.find(**wanted, max_k=1)
    assert answer["search"]["given_up"] and answer["runs"]["pending"] == 0 and "So far" not in answer["sentence"]
    assert Folder(wanted["out"]).stands
    assert "all" in {run.trainable for run in Folder(wanted["out"]).asked}
    again = frostline.find(**wanted)  # which wants it after all
    assert not again["search"]["given_up"] and "all" in {key[0] for key in runs_in(wanted["out"])}


def test_what_a_sweep_has_asked_for_is_not_given_up(wanted: dict[str, Any]) -> None:
    out, settings = wanted["out"], {name: x for name, x in wanted.items() if name not in ("out", "budget", "progress")}
    sweep = frostline.Sweep(**{**DEFAULTS, **settings}, out=out, tune="2,all", progress=Progress())
    running_module.register(prepare(sweep.spec, {}, Progress()))  # and is interrupted
    asked = {run.digest for run in Folder(out).asked}
    for _ in range(2):
        search = frostline.find(**wanted, max_k=1)["search"]
        assert not asked & set(search["given_up"]) and not Folder(out).stands


def test_a_sweep_that_asks_for_what_was_given_up_gets_it(wanted: dict[str, Any]) -> None:
    frostline.find(**wanted, max_k=1)
    out, settings = wanted["out"], {name: x for name, x in wanted.items() if name not in ("out", "budget", "progress")}
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
