"""Preparing a sweep: what may differ from the sweep in the folder, what is refused, and which ways suit a train size."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

import frostline
from frostline import FrostlineError
from frostline.sweeps.plan import rows_needed
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.training import estimators
from tiny import Frostline, Notes, contents, plan_of, sentences, settings_of, tiny_bert_folder, write_csv

OTHER_DATA = "results of other data (other rows or labels, or other rows are for validation or test)"


@pytest.mark.parametrize(
    ("name", "value", "there"),
    [
        ("head_learning_rate", "same", "0.01 there, same now"),
        ("precision", "bfloat16", "float32 there, bfloat16 now"),
        ("class_weights", "balanced", "none there, balanced now"),
        ("labels", "positive,negative", OTHER_DATA),
        # a regression has another metric, and more rows no folds; the user has chosen neither
        ("train", "numbers", "results of other data (text-classification there, regression now)"),
        ("model", "other", "another sweep: its model is different"),
    ],
)
def test_a_folder_with_another_sweep_is_refused_and_the_message_names_the_difference(
    finished_small: Path, settings: dict[str, Any], tmp_path: Path, name: str, value: Any, there: str
) -> None:
    other = {name: value}
    named = f"another sweep: its value of {name} is different ({there})" if there.endswith(" now") else there
    out = Path(shutil.copytree(finished_small, tmp_path / "o"))
    if name == "model":
        other = {"model": tiny_bert_folder(tmp_path / "other", seed=1)}
    if name == "train":
        rows = [{"text": row["text"], "label": f"{n / 7:.2f}"} for n, row in enumerate(sentences(160))]
        other = {"train": write_csv(tmp_path / "t.csv", rows)}
    before = contents(out / "runs")
    of_sweep = f"add to that sweep with its own settings: `frostline sweep {out}/sweep.toml`."
    for ending in (of_sweep, "continue that search with its own `frostline find` command."):
        with pytest.raises(FrostlineError) as caught:
            frostline.sweep(progress=Progress(), **{**settings, **other})
        assert str(caught.value) == f"{out} holds {named}. Choose another --out, or {ending}"
        (out / "search.json").touch()  # now it is the folder of a search
    assert contents(out / "runs") == before


def test_cached_hidden_states_need_no_more_disk_space(
    finished_small: Path,
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """A sweep whose hidden states have filled the disk can be resumed."""
    out = Path(shutil.copytree(finished_small, tmp_path / "o"))
    monkeypatch.setattr("frostline.sweeps.plan.free_bytes", lambda path: 0)
    again = prepare(settings_of(**{**settings, "out": out}), {}, Progress())
    assert again.cached == again.states.wanted and again.cached.cuts
    empty: Path = request.getfixturevalue("empty_cache")
    elsewhere = prepare(settings_of(**{**settings, "out": out}), {}, Progress())
    assert not elsewhere.cached.cuts
    assert not empty.exists()  # planning creates no cache


def test_a_token_unknown_to_the_model_is_refused(settings: dict[str, Any], tiny_bert: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["zzq"])
    tokenizer.save_pretrained(model)
    rows = pd.DataFrame({"text": [f"the zzq film {n}" for n in range(60)], "label": ["a", "b"] * 30})
    with pytest.raises(FrostlineError, match="The tokenizer gives the token 'zzq' the number"):
        frostline.sweep(progress=Progress(), **{**settings, "model": model, "train": rows, "validation": rows[:30]})
    assert not settings["out"].exists()


LONG = ["the film was very " * 12 + str(n) for n in range(60)]


@pytest.mark.parametrize(
    ("labels", "texts", "other", "message"),
    [
        (np.linspace(0, 5, 60), None, {"class_weights": "balanced"}, "class_weights are for classes"),
        (["a", "b", "c"] * 20, None, {"threshold": "best"}, "--threshold is for two classes, but there are 3 classes"),
        (["a", "b"] * 30, LONG, {}, r"The model takes no more tokens: allow truncation with --max-truncated 1\."),
    ],
)
def test_settings_that_the_data_do_not_allow_leave_no_folder(
    settings: dict[str, Any], labels: Any, texts: list[str] | None, other: dict[str, Any], message: str
) -> None:
    rows = pd.DataFrame({"text": texts or [f"the film {n}" for n in range(60)], "label": labels})
    with pytest.raises(FrostlineError, match=message):
        frostline.sweep(progress=Progress(), **{**settings, "train": rows, **other})
    assert not settings["out"].exists()
    if texts:
        made = plan_of(**{**settings, "train": rows, "max_truncated": 1})
        assert made.truncated == {"train": 1.0, "validation": 1.0} and made.truncated_by_class == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("folds", [0, 3])
def test_only_used_examples_are_tokenized(settings: dict[str, Any], folds: int) -> None:
    given = {**settings, "train_size": [8, 16], "seeds": [0, 1], "folds": folds}
    sweep = dict(progress=Progress(), **(given if not folds else {**given, "validation": None}))
    plan = plan_of(**sweep)
    experiment = plan.experiment
    used = rows_needed(experiment, plan.runs)
    train = experiment.splits["train"]
    assert 0 < np.isin(train, used).sum() <= 32 < len(train)
    assert (experiment.tokens.lengths[used] > 0).all() and not experiment.tokens.lengths[
        np.setdiff1d(train, used)
    ].any()


def test_an_edited_copy_starts_another_sweep(finished_small: Path, tmp_path: Path, frostline: Frostline) -> None:
    edited = (finished_small / "sweep.toml").read_text().replace("seeds = [0, 1]", "seeds = [0]")
    (tmp_path / "copy.toml").write_text(edited)
    assert frostline("sweep", "copy.toml", "--out", "new", "--plan").code == 0


def test_what_is_not_given_is_that_of_the_sweep_in_the_folder(
    finished_small: Path, settings: dict[str, Any], tiny_table: Path, tmp_path: Path
) -> None:
    """A precision ``auto``, and the name of the task, although the file was renamed."""
    out = Path(shutil.copytree(finished_small, tmp_path / "o"))
    given = {**settings, "train": shutil.copy(tiny_table, tmp_path / "copy.csv"), "out": out, "precision": "auto"}
    for task, named in ((None, "films"), ("reviews", "reviews")):
        plan = prepare(settings_of(**given, task=task), {}, Progress())
        assert (plan.identity.task, plan.identity.precision) == (named, "float32") and len(plan.store.done()) == 4


def test_a_glue_task_sets_the_metric_unless_another_is_requested(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir()
    for name, rows in (("train", 40), ("dev", 20)):
        lines = [f"gj04\t{i % 2}\t\tthe film was very {name} {i}\n" for i in range(rows)]
        (tmp_path / "CoLA" / f"{name}.tsv").write_text("".join(lines))
    requested = {**settings, "train": None, "data": tmp_path / "CoLA", "glue": "cola"}
    identity = prepare(settings_of(**requested), {}, Progress()).identity
    assert (identity.task, identity.metric) == ("CoLA", "matthews_correlation")
    assert identity.labels == ("unacceptable", "acceptable")
    assert prepare(settings_of(**requested, metric="f1"), {}, Progress()).identity.metric == "f1"
    with pytest.raises(FrostlineError, match="did you mean 'CoLA'"):
        prepare(settings_of(**{**requested, "glue": "colla"}), {}, Progress())


def test_the_label_that_f1_is_about_is_named(settings: dict[str, Any]) -> None:
    """Only the order of the labels decides it."""
    plan = prepare(settings_of(**settings, metric="f1"), {}, Progress())
    said = "F1 is that of the label 'positive'; for 'negative', give --labels positive,negative"
    assert any(note.startswith(said) for note in plan.notes)
    chosen = prepare(settings_of(**settings, metric="f1", labels="positive,negative"), {}, Progress())
    assert chosen.identity.labels[1] == "negative" and not any("F1 is" in note for note in chosen.notes)


@pytest.fixture
def given(tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a comparison with two train sizes. SetFit is for at most twelve examples here."""
    pytest.importorskip("setfit")
    monkeypatch.setattr(estimators, "MOST_EXAMPLES", 12)
    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "num_train_epochs": 1, "seeds": 1}
    return {**own, "learning_rate": 1e-3, "train_size": "8,32"}


def cells(runs: Any) -> set[tuple[str, int]]:
    return {(str(run.recipe), run.train_size) for run in runs}


def test_a_size_that_is_too_large_is_left_out_with_a_note(given: dict[str, Any]) -> None:
    progress = Notes()
    plan = plan_of(progress=progress, **given, tune="last-1,setfit,full")
    others = {(name, size) for name in ("last 1", "full") for size in (8, 32)}
    assert cells(plan.runs) == {*others, ("setfit", 8)}
    assert "setfit is left out at train size 32: it is for at most 12 examples." in progress.notes
    with pytest.raises(FrostlineError, match="setfit cannot have 24 examples: it is for at most 12 examples;"):
        plan_of(**{**given, "train_size": "24,32", "tune": "setfit,full"})
    assert not given["out"].exists()


def test_a_size_that_has_too_few_steps_for_all_phases_is_left_out_with_a_note(given: dict[str, Any]) -> None:
    progress = Notes()
    few = {**given, "train_size": "8,40", "per_device_train_batch_size": 8}
    plan = plan_of(progress=progress, **few, tune="gradual,full")
    assert cells(plan.runs) == {("gradual", 40), ("full", 8), ("full", 40)}
    assert "gradual is left out at train size 8: its 5 phases need as many steps, but a run has 1." in progress.notes
    with pytest.raises(
        FrostlineError, match=r"gradual cannot have 8 examples: .* a run has 1; give more --num-train-e"
    ):
        plan_of(progress=progress, **{**few, "train_size": 8, "tune": "gradual,full"})


def test_the_same_command_goes_on_and_another_one_adds(given: dict[str, Any]) -> None:
    frostline.sweep(save_model=False, tune="last-1,setfit,full", progress=Progress(), **given)
    again = plan_of(**given, tune="last-1,setfit,full")
    assert not again.missing(again.runs) and cells(again.runs) == cells(Folder(given["out"]).runs)
    grown = plan_of(**{**given, "train_size": "4,32", "tune": "setfit,full"})
    assert cells(grown.runs) == {*cells(again.runs), ("setfit", 4), ("full", 4)}


def test_parts_of_a_grid_keep_their_own_sizes(given: dict[str, Any]) -> None:
    own = {name: value for name, value in given.items() if name != "train_size"}
    grid = ({"train_size": (4, 32), "tune": ("setfit", "full")}, {"train_size": (8,), "seeds": (5,)})
    runs = plan_of(**{**own, "grid": grid, "tune": "last-1,full"}).runs
    rows = max(run.train_size for run in runs)
    assert cells(runs) == {
        ("setfit", 4),
        ("full", 4),
        ("full", 32),
        *((k, n) for k in ("last 1", "full") for n in (8, rows)),
    }
    assert {run.seed for run in runs if run.train_size == 8} == {5}
