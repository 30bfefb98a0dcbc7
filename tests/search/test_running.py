"""A search as it runs: seeds, probes, progress and its record."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import frostline
import frostline.search.running as running_module
from frostline import FrostlineError
from frostline.data.load import read_unlabelled
from frostline.report.answer.groups import load_groups
from frostline.report.rebuild import rebuild
from frostline.statistics.inference.quantile import corrected_quantile
from frostline.statistics.predictions import Predictions
from frostline.sweep.execution.progress import Progress
from frostline.sweep.results.search_record import FILE, chosen_rates, read_search
from search_runs import runs_in


def test_rates_that_somebody_tried_since_are_compared_as_in_any_sweep(wanted: dict[str, Any]) -> None:
    search = {
        "chosen_rates": {"last 1": 1e-3, "all": 1e-4},
        "steps": [{"runs": [{"trainable": k, "learning_rate": r} for k, r in (("last 1", 1e-3), ("all", 1e-4))]}],
    }
    rows = [{"trainable": k, "learning_rate": r, "status": "done"} for k, r in (("last 1", 1e-3), ("all", 1e-4))]
    assert chosen_rates(search, rows) == {"last 1": 1e-3, "all": 1e-4}
    assert chosen_rates(search, [*rows, {**rows[1], "learning_rate": 1e-5}]) == {"last 1": 1e-3}
    assert chosen_rates(search, [*rows, {**rows[1], "learning_rate": 1e-5, "status": "pending"}]).keys() == {
        "last 1",
        "all",
    }


def test_a_budget_that_full_would_break_is_said_and_nothing_is_recommended(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**{**wanted, "budget": 1e-6})
    (size,) = answer["sizes"]
    assert size["recommended"] is None and answer["sentence"].startswith("One training of full takes about")
    assert answer["search"]["lacks"] == "all" and not Path(wanted["out"], "model").exists()
    assert answer["sentence"] in Path(wanted["out"], "report.html").read_text()
    assert frostline.find(**wanted)["search"]["lacks"] is None  # with more of it, it goes on


def test_seeds_are_those_that_were_given(wanted: dict[str, Any]) -> None:
    frostline.find(**wanted, seeds="7,8")
    assert {run[2] for run in runs_in(wanted["out"])} == {7, 8}


def test_a_largest_k_stands_for_full(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**wanted, max_k=1)
    assert {run[0] for run in runs_in(wanted["out"])} <= {"last 0", "last 1"}
    assert "all" not in answer["search"]["skipped"]


def test_what_is_gathered_from_its_folder_has_its_intervals(wanted: dict[str, Any]) -> None:
    frostline.find(**wanted)
    (group,) = load_groups([wanted["out"]])
    assert isinstance(group.evidence, Predictions) and group.evidence.quantile == corrected_quantile(3)


def test_a_margin_in_place_of_a_target(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**wanted, margin=0.45)
    assert answer["margin"] == 0.45 and answer["target"] is None
    assert answer["sizes"][0]["decides"] == {"target": None, "corrected": False, "margin": 0.45}
    assert (wanted["out"] / "report.html").exists()


def test_what_frozen_features_do_alone_and_what_it_let_guess_is_there(wanted: dict[str, Any]) -> None:
    search = frostline.find(**wanted)["search"]
    assert {len(probe["layers"]) for probe in search["probes"]["probes"]} >= {1}
    assert search["probes"]["train_rows"] > 10 and search["probes"]["sentence"]
    assert {guess["by"] for guess in search["guesses"]} == {"probes", "LogME", "climbing"}
    page = (wanted["out"] / "report.html").read_text()
    assert "Linear probes on frozen features" in page and "Estimates before the search" in page


def test_where_frozen_features_are_enough_nothing_more_is_trained(wanted: dict[str, Any]) -> None:
    labels = ["positive", "negative"] * 100
    texts = [f"the film was {'good' if label == 'positive' else 'bad'}" for label in labels]
    rows = pd.DataFrame({"text": texts, "label": labels})
    answer = frostline.find(**{**wanted, "train": rows, "target": 0.6, "folds": 0})
    search, size = answer["search"], answer["sizes"][0]
    assert search["by_probe"] and search["named"] is None and size["recommended"] is None
    assert {run["trainable"] for step in search["steps"] for run in step["runs"]} == {"last 0"}
    assert answer["sentence"].startswith("Train no layer. A ridge probe on ") and "accuracy 1.000" in answer["sentence"]
    page = (wanted["out"] / "report.html").read_text()
    assert (
        "Train no layer." in page
        and answer["search"]["probes"]["sentence"] in page
        and not (wanted["out"] / "model").exists()
    )
    asked, _ = read_unlabelled(rows[:2][["text"]])
    said = frostline.predict(wanted["out"] / "probe", asked)
    assert [said.labels[n] for n in said.values.argmax(1)] == labels[:2]
    assert frostline.find(**{**wanted, "train": rows, "target": 0.6, "folds": 0})["search"] == search


def test_a_probe_that_reaches_more_than_what_is_named_is_said_and_kept(
    wanted: dict[str, Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(running_module.Board, "learned", lambda board, tune: True)
    answer = frostline.find(**wanted, max_k=1, folds=0)
    search, size = answer["search"], answer["sizes"][0]
    (cell,) = (one for one in size["cells"] if one["trainable"] == search["named"])
    best = search["probes"]["best"]
    assert best["score"] > cell["validation"]["mean"] and best["low"] > search["probes"]["chance"]
    assert answer["sentence"] == size["sentence"]
    assert answer["sentence"].endswith(
        f" A linear probe on frozen features scores higher, accuracy {best['score']:.3f} (95 % confidence interval "
        f"{best['low']:.3f} to {best['high']:.3f}), without training a layer. The folder probe holds it for `frostline predict`."
    )
    assert (wanted["out"] / "probe" / "probe.json").exists()
    (wanted["out"] / "probe" / "probe.json").unlink()
    assert "probe" not in rebuild(wanted["out"])["sentence"]


def test_a_probe_that_reaches_less_than_what_is_named_is_neither_said_nor_kept(
    wanted: dict[str, Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(running_module.Board, "learned", lambda board, tune: True)
    monkeypatch.setattr(running_module.Board, "mean", lambda board, tune: 2.0)
    answer = frostline.find(**wanted, max_k=1, folds=0)
    assert answer["search"]["probes"] and "probe" not in answer["sentence"]
    assert not (wanted["out"] / "probe").exists()


def test_its_progress_says_where_the_answer_lies_and_what_is_left(wanted: dict[str, Any]) -> None:
    notes: list[str] = []

    class Noting(Progress):
        def note(self, sentence: str) -> None:
            notes.append(sentence)

    search = frostline.find(**{**wanted, "progress": Noting()})["search"]
    told = [note for note in notes if "Trained for" in note]
    assert len(told) == len(search["steps"])
    known = ["all" in {run["trainable"] for run in step["runs"]} for step in search["steps"]].index(True)
    assert all("is not known before full has run. Trained for" in note for note in told[:known])
    assert all(note.startswith("  Enough so far: ") for note in told[known:])
    assert all(", at most " in note and note.endswith(" left.") for note in told)  # of the budget that was given


def test_stopped_before_full_has_run_there_is_no_answer_yet(wanted: dict[str, Any], monkeypatch: Any) -> None:
    notes: list[str] = []

    class Noting(Progress):
        def note(self, sentence: str) -> None:
            notes.append(sentence)

    def stop(*_: Any, **__: Any) -> None:
        if len(runs_in(wanted["out"])) > 2:
            raise KeyboardInterrupt
        execute(*_, **__)

    execute = running_module.execute
    monkeypatch.setattr(running_module, "execute", stop)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**{**wanted, "progress": Noting()})
    answer = json.loads((wanted["out"] / "answer.json").read_text())
    assert answer["search"]["awaits"] == "all" and answer["sizes"][0]["recommended"] is None
    ended = answer["runs"]["done"]
    assert answer["sentence"].startswith(
        "No answer yet: full fine-tuning, the reference of every comparison, has not run. The best so far, tuning "
    )
    assert answer["sentence"].endswith(f" So far {ended} of {sum(answer['runs'].values())} runs have ended.")
    assert notes[-1] == f"So far: {answer['sentence']} The page: {wanted['out'] / 'report.html'}"
    assert "No answer yet" in (wanted["out"] / "report.html").read_text()


def test_without_room_for_them_there_are_no_probes(wanted: dict[str, Any]) -> None:
    answer = frostline.find(**wanted, cache_limit=0.0)
    assert answer["search"]["probes"] is None and answer["search"]["guesses"] == []


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
def test_mistakes(wanted: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.find(**{**wanted, **more})
    assert not wanted["out"].exists()


def test_a_damaged_record_says_nothing(tmp_path: Path) -> None:
    assert read_search(tmp_path) is None
    for damage in ("", "[]", "{", '{"named": "all"}'):
        (tmp_path / FILE).write_text(damage)
        assert read_search(tmp_path) is None
