"""A search on a tiny model: seeds, probes, progress and its record."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import frostline
import frostline.search.search as search_module
from frostline import FrostlineError
from frostline.api.prediction import trained_task
from frostline.report.answer.analysis import analyze
from frostline.report.answer.run_groups import load_groups
from frostline.search.probing import Alternatives
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.decision import Option
from frostline.statistics.inference import corrected_quantile
from frostline.statistics.predictions import RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.training.linear_models import WordsModel
from search_runs import runs_in
from tiny import Notes


def test_a_budget_too_small_for_full_recommends_the_best_of_the_rest(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**{**search_settings, "budget": 1e-6}).answer
    assert "Full fine-tuning was not run: one run takes about" in answer.sentence and answer.decision.choice == "words"
    assert answer.search["failed_reference"] == "full" and Path(search_settings["out"], "model").exists()
    assert (
        "Full fine-tuning was not run: one run takes about" in Path(search_settings["out"], "report.html").read_text()
    )
    assert (
        frostline.find(**search_settings).answer.search["failed_reference"] is None
    )  # a larger budget continues the search


def test_seeds_can_be_given_as_numbers(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings, seeds="7,8")
    assert {run[2] for run in runs_in(search_settings["out"])} == {7, 8}


def test_max_k_replaces_full_as_the_reference(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, max_k=1).answer
    assert {run[0] for run in runs_in(search_settings["out"])} <= {"head only", "last 1"}
    assert "full" not in answer.search["skipped"]


def test_ways_to_tune_are_tried_too(search_settings: dict[str, Any]) -> None:
    """LoRA trains at ten times the learning rates of the grid."""
    answer = frostline.find(**search_settings, ways="lora-2,mean-pooled-1").answer
    rates = {name: rate for name, rate, *_ in runs_in(search_settings["out"])}
    assert rates["lora-2"] == 10 * rates["mean-pooled-1"] == 10 * rates["full"]
    assert answer.search["selected_learning_rates"]["lora-2"] == rates["lora-2"]
    assert {one.choice for one in answer.sizes[0].choices} >= {"lora-2", "mean-pooled-1", "probe"}


@pytest.mark.parametrize("better", [True, False])
def test_heads_that_read_the_mean_are_tried_if_probes_score_better_on_it(
    search_settings: dict[str, Any], better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.search.probing.mean_is_better", lambda report, reads: better and reads == "first")
    notes = Notes()
    frostline.find(**{**search_settings, "progress": notes})
    tried = {name for name, *_ in runs_in(search_settings["out"])}
    assert ({"mean-pooled-1", "mean-pooled-2"} <= tried) == better == ("mean-pooled-1" in " ".join(notes.notes))
    assert "mean-pooled-3" not in tried


def test_analyze_decides_as_the_search_does(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings).answer
    (group,) = load_groups([search_settings["out"]])
    assert isinstance(group.evidence, RunPredictions) and group.evidence.quantile == corrected_quantile(4)
    size = analyze([group], AnalysisSettings()).groups[0].sizes[0]
    assert size.choices == answer.sizes[0].choices and {one.choice for one in size.choices} >= {
        "probe",
        "words",
    }


def test_the_goal_can_be_a_margin(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, margin=0.45).answer
    assert answer.margin == 0.45 and answer.target is None
    deciding = answer.sizes[0].deciding_point
    assert (deciding.target, deciding.corrected, deciding.margin) == (None, False, 0.45)
    assert (search_settings["out"] / "report.html").exists()


def test_probes_and_estimates_are_recorded_and_reported(search_settings: dict[str, Any]) -> None:
    search = frostline.find(**search_settings).answer.search
    assert {len(probe["layers"]) for probe in search["probes"]["probes"]} >= {1}
    assert search["probes"]["train_rows"] > 10 and search["probes"]["sentence"]
    assert 0 <= search["estimated_k"] <= 3
    page = (search_settings["out"] / "report.html").read_text()
    assert "Linear probes on frozen features" in page


def test_a_probe_can_be_recommended_and_is_saved(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(WordsModel, "fit", lambda examples, classes: None)
    labels = ["positive", "negative"] * 100
    texts = [f"the film {n} was {'good' if label == 'positive' else 'bad'}" for n, label in enumerate(labels)]
    rows = pd.DataFrame({"text": texts, "label": labels})
    settings = {**search_settings, "train": rows, "folds": 0, "target": 0.6, "refit": True}
    answer = frostline.find(**settings).answer
    search, size, model = answer.search, answer.sizes[0], search_settings["out"] / "model"
    assert search["why"].startswith("A model that trains no layer scores so high that no layer is worth tuning")
    assert {run["recipe"] for step in search["steps"] for run in step["runs"]} == {"head only"}
    assert answer.decision.choice == "probe" and size.recommended is None
    assert answer.sentence.startswith(
        "Train no layer, but fit a linear probe on frozen features. Expect accuracy 1.000"
    )
    page, splits = (search_settings["out"] / "report.html").read_text(), answer.data["report"]["splits"]
    assert answer.refit_rows == splits["train"]["rows"] + splits["validation"]["rows"]
    task = trained_task(model)
    assert f"on all {answer.refit_rows} labelled rows" in page and task and set(task.labels) == set(labels)
    assert "Train no layer" in page and search["probes"]["sentence"] in page
    assert [row["label"] for row in frostline.predict(model, texts[:2]).rows()] == labels[:2]
    again = frostline.find(**settings).answer
    assert again.search == search and again.decision == answer.decision


@pytest.mark.parametrize(("folds", "where"), [(0, ""), (5, ", on the first fold")])
def test_the_line_about_probes_says_what_it_is_about(search_settings: dict[str, Any], folds: int, where: str) -> None:
    notes = Notes()
    answer = frostline.find(**{**search_settings, "progress": notes, "folds": folds, "max_k": 1, "budget": 1.0}).answer
    assert f"Linear probes{where}: {answer.search['probes']['sentence']}" in notes.notes


def test_a_model_of_words_can_be_recommended_and_is_saved(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    random = np.random.default_rng(0)
    words = [f"w{n}" for n in range(40)]  # the tiny model's tokenizer does not know them
    labels = ["positive", "negative"] * 150
    texts = [" ".join(random.choice(words[20:] if label == "positive" else words[:20], 6)) for label in labels]
    rows = pd.DataFrame({"text": texts, "label": labels})
    monkeypatch.setattr(search_module.Observations, "above_baseline", lambda seen, recipe: True)
    settings = {**search_settings, "train": rows, "train_size": 150, "folds": 0, "learning_rate": 1e-3}
    answer = frostline.find(**settings, cache_limit=0.0).answer
    assert answer.decision.choice == "words" and answer.search["probes"] is None
    assert answer.sentence.startswith("Train no layer, but fit a TF-IDF model. Expect accuracy")
    predicted = frostline.predict(search_settings["out"] / "model", texts[:10])
    task = trained_task(search_settings["out"] / "model")
    assert task is not None and task.labels == ("negative", "positive") and task.columns.label == "label"
    assert [row["label"] for row in predicted.rows()] == labels[:10]


def test_the_model_of_an_earlier_recommendation_is_replaced(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Observations, "above_baseline", lambda seen, recipe: True)
    monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
    settings = {**search_settings, "max_k": 1, "sure": 0.99, "target": 1.0, "budget": "1h"}
    frostline.find(**settings)
    (search_settings["out"] / "model" / "estimator.json").write_text("{}")
    (search_settings["out"] / "model" / "frostline.json").unlink()
    assert frostline.find(**settings).answer.decision.choice == "last 1"
    assert not (search_settings["out"] / "model" / "estimator.json").exists()
    assert (search_settings["out"] / "model" / "config.json").exists()


def test_progress_shows_the_best_choice_and_the_budget(search_settings: dict[str, Any]) -> None:
    progress = Notes()
    search = frostline.find(**{**search_settings, "progress": progress}).answer.search
    notes_of_steps = [note for note in progress.notes if "Trained for" in note]
    assert len(notes_of_steps) == len(search["steps"])
    known = ["full" in {run["recipe"] for run in step["runs"]} for step in search["steps"]].index(True)
    assert all(note.startswith("  Full fine-tuning has not run yet. Trained for") for note in notes_of_steps[:known])
    assert all(note.startswith("  Best so far: ") for note in notes_of_steps[known:])
    assert all(note.endswith(", and the budget is 17 min.") for note in notes_of_steps)
    trained = sum(len(step["runs"]) for step in search["steps"])
    again = Notes()
    frostline.find(**{**search_settings, "progress": again})
    assert f"{trained} runs were done before." in again.notes and "done before" not in " ".join(progress.notes)


def test_the_reason_of_another_best_choice_is_its_score_and_its_cost() -> None:
    options = [
        Option(name=name, score=0.8, comparable=0.8, cost=cost, draws=np.array([expected]))
        for name, cost, expected in (("last 1", 0.25, 0.81), ("last 3", 0.75, 0.82))
    ]
    surrogate = SimpleNamespace(best=options[0], estimate=SimpleNamespace(choices=options))
    space = SimpleNamespace(reference=Recipe("full"))
    seen = SimpleNamespace(surrogate=lambda: surrogate, space=space)
    search: Any = SimpleNamespace(seen=seen, best=None)
    assert search_module.Search._why_changed(search) == "" and search.best == "last 1"
    search.best = "last 3"
    assert search_module.Search._why_changed(search) == (
        "It replaces tuning the last 3 layers, which is now expected to score 1.0 points more and costs 50 % of full "
        "fine-tuning more."
    )
    assert search_module.Search._why_changed(search) == ""


WORDS, HEAD = "a TF-IDF model", "The best so far, tuning the classifier head only, reaches accuracy"


@pytest.mark.parametrize(
    ("signal", "steps", "ended", "fitted", "stored", "best", "saved"),
    [
        (
            KeyboardInterrupt(),
            0,
            0,
            True,
            True,
            WORDS,
            "estimator.json",
        ),  # only models that train no layer are measured
        (KeyboardInterrupt(), 0, 3, True, True, WORDS, "estimator.json"),  # some runs of a step
        (SystemExit(143), 1, 0, True, True, WORDS, "estimator.json"),
        (KeyboardInterrupt(), 2, 1, True, True, WORDS, "estimator.json"),  # after one run of the reference
        (SystemExit(143), 1, 1, False, True, HEAD, "model.safetensors"),
        (KeyboardInterrupt(), 1, 1, False, False, HEAD, None),  # to train it again would not be quick
        (KeyboardInterrupt(), 2, 2, False, True, "Undecided: ", "model.safetensors"),
    ],
)
def test_an_interrupted_search_decides_among_all_that_was_measured_and_saves_it(
    search_settings: dict[str, Any],
    monkeypatch: Any,
    signal: BaseException,
    steps: int,
    ended: int,
    fitted: bool,
    stored: bool,
    best: str,
    saved: str | None,
) -> None:
    random, progress, calls = np.random.default_rng(0), Notes(), []
    words = [f"w{n}" for n in range(40)]  # the tiny model's tokenizer does not know them
    labels = ["positive", "negative"] * 150
    texts = [" ".join(random.choice(words[20:] if label == "positive" else words[:20], 6)) for label in labels]
    labels[:60] = ["positive"] * 60  # so that no model is as good as can be
    out, execute = search_settings["out"], search_module.execute

    def stop(plan: Any, runs: Any, *given: Any, **more: Any) -> None:
        calls.append(runs)
        execute(plan, runs if len(calls) <= steps else runs[:ended], *given, **more)
        if len(calls) > steps:
            if not stored:
                shutil.rmtree(out / "weights")
            raise signal

    if not fitted:
        monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
    monkeypatch.setattr(search_module, "execute", stop)
    rows = pd.DataFrame({"text": texts, "label": labels}) if fitted else search_settings["train"]
    settings = {**search_settings, "train": rows, "max_k": 2, "cache_limit": 0.0, "progress": progress}
    if not fitted:  # then a k has to learn something
        settings |= {"num_train_epochs": 4, "train_size": 100, "learning_rate": "1e-3,3e-3"}
    with pytest.raises(type(signal)):
        frostline.find(**settings)
    answer = json.loads((out / "answer.json").read_text())
    (size,) = answer["sizes"]
    assert size["decision"] is not None and best in answer["sentence"]
    assert size["decision"]["choice"] == max(size["choices"], key=lambda one: one["value"])["choice"]
    at = f"Report: {out / 'report.html'}" + (f" Model: {out / 'model'}" if saved else "")
    assert progress.notes[-1] == f"So far: {answer['sentence']} {at}"
    assert (out / "report.html").is_file()
    assert (out / "model").is_dir() == bool(saved)
    if saved:
        assert (out / "model" / saved).is_file()
        assert len(list(frostline.predict(out / "model", texts[:4]).rows())) == 4
    assert fitted or (out / "weights").is_dir() == stored  # for the rest of the search
    monkeypatch.setattr(search_module, "execute", execute)
    end = frostline.find(**settings).answer
    assert end.search["over"] and (out / "model").is_dir() == (end.decision is not None)


def test_no_probes_if_the_cache_is_too_small(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, cache_limit=0.0).answer
    assert answer.search["probes"] is None and answer.search["estimated_k"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tune": "0,1"}, "A search chooses tune itself"),
        ({"budget": 0.0}, "budget cannot be 0"),
        ({"max_k": 0}, "max_k cannot be 0"),
        ({"max_k": 9}, "max_k = 9 is more than the 3 layers of the model: give at most 3."),
        ({"train_size": "20,40"}, "A search has one train size"),
        ({"max_kk": 3}, "There is no setting 'max_kk'"),
        ({"ways": "lora-2,bilstm"}, "ways cannot have bilstm: a search tries every k and linear probes anyway"),
        ({"ways": "probe"}, "ways cannot have probe"),
        ({"ways": "last-2"}, "ways cannot have last 2"),
        ({"ways": "lorra-2"}, "There is no way to tune called 'lorra-2'"),
    ],
)
def test_wrong_settings_are_refused(search_settings: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.find(**{**search_settings, **more})
    assert not search_settings["out"].exists()
