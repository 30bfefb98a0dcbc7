"""A search on a tiny model: seeds, probes, progress and its record."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import frostline
import frostline.search.search as search_module
from frostline import FrostlineError
from frostline.report.answer.groups import load_groups
from frostline.report.rebuild import rebuild
from frostline.statistics.inference.quantile import corrected_quantile
from frostline.statistics.predictions import RunPredictions
from frostline.sweep.progress import Progress
from search_runs import runs_in


def test_no_recommendation_if_the_budget_is_too_small_for_full(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**{**search_settings, "budget": 1e-6})
    (size,) = answer["sizes"]
    assert size["recommended"] is None and answer["sentence"].startswith("One run of full fine-tuning takes about")
    assert answer["search"]["failed_reference"] == "all" and not Path(search_settings["out"], "model").exists()
    assert answer["sentence"] in Path(search_settings["out"], "report.html").read_text()
    assert (
        frostline.find(**search_settings)["search"]["failed_reference"] is None
    )  # a larger budget continues the search


def test_seeds_can_be_given_as_numbers(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings, seeds="7,8")
    assert {run[2] for run in runs_in(search_settings["out"])} == {7, 8}


def test_max_k_replaces_full_as_the_reference(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, max_k=1)
    assert {run[0] for run in runs_in(search_settings["out"])} <= {"last 0", "last 1"}
    assert "all" not in answer["search"]["skipped"]


def test_analyze_uses_the_corrected_intervals_of_a_search(search_settings: dict[str, Any]) -> None:
    frostline.find(**search_settings)
    (group,) = load_groups([search_settings["out"]])
    assert isinstance(group.evidence, RunPredictions) and group.evidence.quantile == corrected_quantile(3)


def test_the_goal_can_be_a_margin(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, margin=0.45)
    assert answer["margin"] == 0.45 and answer["target"] is None
    assert answer["sizes"][0]["deciding_point"] == {"target": None, "corrected": False, "margin": 0.45}
    assert (search_settings["out"] / "report.html").exists()


def test_probes_and_estimates_are_recorded_and_reported(search_settings: dict[str, Any]) -> None:
    search = frostline.find(**search_settings)["search"]
    assert {len(probe["layers"]) for probe in search["probes"]["probes"]} >= {1}
    assert search["probes"]["train_rows"] > 10 and search["probes"]["sentence"]
    assert {one["by"] for one in search["estimates"]} == {"probes", "LogME", "climbing"}
    page = (search_settings["out"] / "report.html").read_text()
    assert "Linear probes on frozen features" in page and "Estimates before the search" in page


def test_the_search_ends_if_a_probe_is_good_enough(search_settings: dict[str, Any]) -> None:
    labels = ["positive", "negative"] * 100
    texts = [f"the film was {'good' if label == 'positive' else 'bad'}" for label in labels]
    rows = pd.DataFrame({"text": texts, "label": labels})
    answer = frostline.find(**{**search_settings, "train": rows, "target": 0.6, "folds": 0})
    search, size = answer["search"], answer["sizes"][0]
    assert search["by_probe"] and search["recommended"] is None and size["recommended"] is None
    assert {run["trainable"] for step in search["steps"] for run in step["runs"]} == {"last 0"}
    assert answer["sentence"].startswith("Train no layer. A ridge probe on ") and "accuracy 1.000" in answer["sentence"]
    page = (search_settings["out"] / "report.html").read_text()
    assert (
        "Train no layer." in page
        and answer["search"]["probes"]["sentence"] in page
        and not (search_settings["out"] / "model").exists()
    )
    predictions = frostline.predict(search_settings["out"] / "probe", texts[:2])
    assert [row["label"] for row in predictions.rows()] == labels[:2]
    assert frostline.find(**{**search_settings, "train": rows, "target": 0.6, "folds": 0})["search"] == search


def test_a_probe_better_than_the_recommended_k_is_saved(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Scoreboard, "above_baseline", lambda board, tune: True)
    answer = frostline.find(**search_settings, max_k=1, folds=0)
    search, size = answer["search"], answer["sizes"][0]
    (cell,) = (one for one in size["cells"] if one["trainable"] == search["recommended"])
    best = search["probes"]["best"]
    assert best["score"] > cell["validation"]["mean"] and best["low"] > search["probes"]["chance"]
    assert answer["sentence"] == size["sentence"]
    assert answer["sentence"].endswith(
        f" A linear probe on frozen features scores higher, accuracy {best['score']:.3f} (95 % confidence interval "
        f"{best['low']:.3f} to {best['high']:.3f}), without training a layer. The folder probe holds it for `frostline predict`."
    )
    assert (search_settings["out"] / "probe" / "probe.json").exists()
    (search_settings["out"] / "probe" / "probe.json").unlink()
    assert "probe" not in rebuild(search_settings["out"])["sentence"]


def test_a_probe_worse_than_the_recommended_k_is_not_saved(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Scoreboard, "above_baseline", lambda board, tune: True)
    monkeypatch.setattr(search_module.Scoreboard, "mean", lambda board, tune: 2.0)
    answer = frostline.find(**search_settings, max_k=1, folds=0)
    assert answer["search"]["probes"] and "probe" not in answer["sentence"]
    assert not (search_settings["out"] / "probe").exists()


def test_progress_shows_the_candidates_and_the_rest_of_the_budget(search_settings: dict[str, Any]) -> None:
    notes: list[str] = []

    class NotesOnly(Progress):
        def note(self, sentence: str) -> None:
            notes.append(sentence)

    search = frostline.find(**{**search_settings, "progress": NotesOnly()})["search"]
    notes_of_steps = [note for note in notes if "Trained for" in note]
    assert len(notes_of_steps) == len(search["steps"])
    known = ["all" in {run["trainable"] for run in step["runs"]} for step in search["steps"]].index(True)
    assert all("is unknown until full fine-tuning has run. Trained for" in note for note in notes_of_steps[:known])
    assert all(note.startswith("  Smallest that reaches the target so far: ") for note in notes_of_steps[known:])
    assert all(note.endswith(" of the budget left.") for note in notes_of_steps)


def test_an_interruption_before_full_has_run_leaves_no_answer(
    search_settings: dict[str, Any], monkeypatch: Any
) -> None:
    notes: list[str] = []

    class NotesOnly(Progress):
        def note(self, sentence: str) -> None:
            notes.append(sentence)

    def stop(*given: Any, **more: Any) -> None:
        if len(runs_in(search_settings["out"])) > 2:
            raise KeyboardInterrupt
        execute(*given, **more)

    execute = search_module.execute
    monkeypatch.setattr(search_module, "execute", stop)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**{**search_settings, "progress": NotesOnly()})
    answer = json.loads((search_settings["out"] / "answer.json").read_text())
    assert answer["search"]["pending_reference"] == "all" and answer["sizes"][0]["recommended"] is None
    done = answer["runs"]["done"]
    assert answer["sentence"].startswith(
        "No answer yet: full fine-tuning, the reference of every comparison, has not run. The best so far, tuning "
    )
    assert answer["sentence"].endswith(f" So far {done} of {sum(answer['runs'].values())} runs have ended.")
    assert notes[-1] == f"So far: {answer['sentence']} Report: {search_settings['out'] / 'report.html'}"
    assert "No answer yet" in (search_settings["out"] / "report.html").read_text()


def test_no_probes_if_the_cache_is_too_small(search_settings: dict[str, Any]) -> None:
    answer = frostline.find(**search_settings, cache_limit=0.0)
    assert answer["search"]["probes"] is None and answer["search"]["estimates"] == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tune": "0,1"}, "A search chooses tune itself"),
        ({"budget": 0.0}, "budget cannot be 0"),
        ({"max_k": 0}, "max_k cannot be 0"),
        ({"max_k": 9}, "max_k = 9 is more than the 3 layers of the model: give at most 3."),
        ({"train_size": "20,40"}, "A search has one train size"),
        ({"max_kk": 3}, "There is no setting 'max_kk'"),
    ],
)
def test_wrong_settings_are_refused(search_settings: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.find(**{**search_settings, **more})
    assert not search_settings["out"].exists()


def test_no_k_is_left_out_if_it_takes_seconds(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(search_module.Scoreboard, "above_baseline", lambda board, tune: True)
    monkeypatch.setattr(
        search_module.Scoreboard, "smallest_reaching_goal", lambda board: 0
    )  # the race tries no k above 2
    tried = frostline.find(**{**search_settings, "budget": None, "out": search_settings["out"] / "all"})
    assert tried["search"]["skipped"] == [] and {cell["trainable"] for cell in tried["sizes"][0]["cells"]} > {"last 3"}
    assert any("that are left" in step["why"] for step in tried["search"]["steps"])
    monkeypatch.setattr(search_module.Scoreboard, "predicted_seconds", lambda board, trials: 1e9)
    short = frostline.find(**{**search_settings, "out": search_settings["out"] / "short"})
    assert not any("that are left" in step["why"] for step in short["search"]["steps"])
