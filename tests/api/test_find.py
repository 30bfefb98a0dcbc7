"""``find`` on a tiny model: its folder, its record and progress, what it recommends and saves, interruption and continuation."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import frostline
import frostline.api.find as find_plan
import frostline.search.search as search_module
from frostline import FrostlineError, Results
from frostline.api.prediction import trained_task
from frostline.report.answer.analysis import analyze
from frostline.report.answer.run_groups import load_groups
from frostline.report.rebuild import write_report
from frostline.search import DEFAULTS, SECONDS
from frostline.search.probing import Alternatives
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.inference import corrected_quantile
from frostline.statistics.predictions import RunPredictions
from frostline.sweeps.results.folder import Folder, read_alternatives, register
from frostline.sweeps.results.search_record import read_search
from frostline.training.linear_models import WordsModel
from frostline.training.train import run as train
from records import failure, runs_in
from tiny import SMALL, Notes, TrainWith, contents, plan_of, sentences, write_csv

NOT_KEYS = {"negative", "positive", "train", "validation/test", "train/validation", "train/test"}  # labels and splits
OF_SEARCH = ("out", "budget", "progress")  # a sweep has no budget; the tests give it out and progress


class Watched(Notes):
    """Looks into the folder after each step of a search: whether test scores are shown."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out, self.tested = out, list[bool]()

    def note(self, sentence: str) -> None:
        super().note(sentence)
        if "Trained for" in sentence:
            folder = Folder(self.out)
            assert not folder.is_complete and not any(row.status == "pending" for row in folder.rows)
            self.tested.append(write_report(self.out).tested or any(row.test is not None for row in folder.rows))


class Interrupted(Notes):
    """Interrupts a search after some whole steps and some results of the next one, as Ctrl-C or SIGTERM would.

    It removes a folder before that, if one is given.
    """

    def __init__(self, signal: BaseException, steps: int, ended: int, removes: Path | None = None) -> None:
        super().__init__()
        self.signal, self.steps, self.ended, self.removes = signal, steps, ended, removes

    def start(self, *given: Any) -> None:
        super().start(*given)
        self.steps -= 1
        self.stop_if(self.steps < 0 and not self.ended)

    def result(self, ended: Any) -> None:
        super().result(ended)
        self.ended -= self.steps < 0
        self.stop_if(self.steps < 0 and not self.ended)

    def stop_if(self, now: bool) -> None:
        if now:
            if self.removes:
                shutil.rmtree(self.removes)
            raise self.signal


@pytest.fixture(scope="module")
def other_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of rows that are not in ``tiny_table``."""
    return write_csv(tmp_path_factory.mktemp("rows") / "test.csv", sentences(200)[160:])


@pytest.fixture(scope="module")
def watched(
    tiny_bert: Path, tiny_table: Path, other_rows: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, Watched]:
    """A finished search with a test set, and its progress. Tests must not write into it."""
    out = tmp_path_factory.mktemp("search") / "o"
    given = {**SMALL, "model": tiny_bert, "train": tiny_table, "test": other_rows, "out": out, "budget": "1000s"}
    progress = Watched(out)
    return frostline.find(**given, progress=progress), progress


def test_search_json_and_the_report_record_every_step(watched: tuple[Results, Watched]) -> None:
    out, before = watched[0].folder, contents(watched[0].folder)
    answer = watched[0].answer
    assert "runs. " in repr(watched[0]) and contents(out) == before  # the answer of a search is not written again
    record, search = read_search(out), answer.search
    assert record is not None and record.model_dump(mode="json") == search and search["budget_seconds"] == 1000
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
    usable = {key[0] for key, row in rows.items() if row.outcome == "ok"}
    assert {one["recipe"] for one in search["results_so_far"]} == {*usable, "full"}  # the reference always has a score
    assert all(one["expected"] is not None for one in search["results_so_far"]) == any(key[0] == "full" for key in rows)
    assert (out / "model").exists() == (answer.sizes[0].decision is not None)
    assert json.loads((out / "answer.json").read_text())["search"]["why"] == search["why"]
    page = (out / "report.html").read_text()
    assert "The search" in page and search["steps"][0]["why"] in page and "Linear probes on frozen features" in page
    assert search["probes"]["train_rows"] > 10 and search["probes"]["sentence"] and 0 <= search["estimated_k"] <= 3
    for result in Folder(out).store.results().values():  # each run is scored once
        assert len({one.epoch for one in result.scores if one.split == "validation"}) == 1


def test_progress_shows_the_best_choice_and_the_budget_between_steps(watched: tuple[Results, Watched]) -> None:
    search, notes = watched[0].answer.search, watched[1].notes
    of_steps = [note for note in notes if "Trained for" in note]
    known = ["full" in {run["recipe"] for run in step["runs"]} for step in search["steps"]].index(True)
    assert len(of_steps) == len(search["steps"]) - 1  # the answer follows the last step, and may differ
    assert all(note.startswith("  Full fine-tuning has not run yet. Trained for") for note in of_steps[:known])
    assert all(note.startswith("  Best so far: ") for note in of_steps[known:])
    assert all(note.endswith(", and the budget is 17 min.") for note in of_steps)
    assert f"Linear probes, on the first fold: {search['probes']['sentence']}" in notes
    assert "done before" not in " ".join(notes)


def test_test_scores_are_hidden_until_the_search_is_over(watched: tuple[Results, Watched]) -> None:
    found, progress = watched
    assert len(progress.tested) > 1 and not any(progress.tested) and found.answer.tested
    assert all(row.test is not None for row in Folder(found.folder).rows)


def test_analyze_decides_as_the_search_does(watched: tuple[Results, Watched]) -> None:
    (group,) = load_groups([watched[0].folder])
    assert isinstance(group.evidence, RunPredictions) and group.evidence.quantile == corrected_quantile(4)
    size = analyze([group], AnalysisSettings()).groups[0].sizes[0]
    assert size.choices == watched[0].answer.sizes[0].choices
    assert "words" in {one.choice for one in size.choices}


def test_every_key_of_the_answer_is_documented(watched: tuple[Results, Watched]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "answer-json.md").read_text()

    def keys(value: Any) -> Iterator[str]:
        for one in value if isinstance(value, list) else ():
            yield from keys(one)
        for name, one in value.items() if isinstance(value, dict) else ():
            if name not in NOT_KEYS:
                yield name
                if name not in ("operations", "selected_learning_rates"):  # their keys are values of k
                    yield from keys(one)

    assert {*keys(watched[0].answer.to_json())} <= {*re.findall(r"`(\w+)`", page)}


def test_an_interrupted_search_continues_to_the_same_answer(
    watched: tuple[Results, Watched], tiny_bert: Path, tiny_table: Path, other_rows: Path, tmp_path: Path
) -> None:
    whole, out = watched[0].answer, tmp_path / "again"
    given = {**SMALL, "model": tiny_bert, "train": tiny_table, "test": other_rows, "out": out, "budget": "1000s"}
    for steps, ended in ((1, 0), (2, 1)):
        with pytest.raises(KeyboardInterrupt):
            frostline.find(**given, progress=Interrupted(KeyboardInterrupt(), steps, ended))
        so_far = read_search(out)
        assert so_far is not None and "interrupted" in so_far.why and (out / "report.html").exists()
    end = frostline.find(**given, progress=(shown := Notes())).answer
    assert runs_in(out).keys() == runs_in(watched[0].folder).keys()
    assert end.sizes[0].cells[0].validation == whole.sizes[0].cells[0].validation
    assert (end.decision and end.decision.choice) == (whole.decision and whole.decision.choice)
    assert any(re.fullmatch(r"\d+ runs were done before\.", note) for note in shown.notes)


@pytest.mark.parametrize(("stop", "writes"), [(KeyboardInterrupt, "register"), (MemoryError, "write_search")])
def test_a_search_that_is_stopped_before_its_first_run_starts_again(
    search_settings: dict[str, Any], monkeypatch: Any, stop: type[BaseException], writes: str
) -> None:
    """The second error stands for a kill."""

    def stopped(*args: Any, **more: Any) -> None:
        raise stop

    with monkeypatch.context() as patched:
        patched.setattr(search_module, writes, stopped)
        with pytest.raises(stop):
            frostline.find(**search_settings)
    assert not Path(search_settings["out"], "sweep.toml").exists()
    assert frostline.find(**{**search_settings, "budget": 1.0}).answer.decision


@pytest.mark.parametrize("exhaustive", [False, True])
def test_finished_runs_of_an_interrupted_step_are_in_the_report(
    search_settings: dict[str, Any], exhaustive: bool
) -> None:
    stops = Interrupted(KeyboardInterrupt(), 0, 1)
    with pytest.raises(KeyboardInterrupt):
        frostline.find(**{**search_settings, "progress": stops, "stack": 1}, exhaustive=exhaustive)
    search = read_search(search_settings["out"])
    done = [row for row in runs_in(search_settings["out"]).values() if row.status == "done"]
    assert search is not None and len(search.steps[0].runs) == len(done) == 1 and search.spent_seconds > 0
    assert not {row.recipe for row in done} & set(search.skipped)


def test_exhaustive_trains_the_whole_grid_and_recommends_the_best_of_the_rest_if_full_failed(
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
    assert len(runs_in(search_settings["out"])) == 5 * 2


def test_a_record_that_cannot_be_read_makes_no_other_answer(
    watched: tuple[Results, Watched], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue("frostline")
    out = tmp_path / "o"
    shutil.copytree(watched[0].folder, out)
    whole, answer = (out / "search.json").read_text(), (out / "answer.json").read_bytes()
    for damage in ("{", whole.replace("0", "1", 1)):
        (out / "search.json").write_text(damage)
        for command in ("status", "report"):
            refused = run(command, out)
            assert refused.code == 2 and "search.json cannot be read: the command of the search" in refused.err
        assert (out / "answer.json").read_bytes() == answer and (out / "search.json").read_text() == damage


def test_the_largest_k_is_recommended_and_its_model_replaces_that_of_an_earlier_recommendation(
    search_settings: dict[str, Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
    enough = {"learning_rate": 3e-3, "num_train_epochs": 12}  # to learn something
    given, out = {**search_settings, **enough, "tune": "0,1", "sure": 0.99, "target": 1.0}, search_settings["out"]
    answer = frostline.find(**given).answer
    assert answer.sizes[0].recommended.recipe == answer.decision.choice == "last 1"
    assert {run[0] for run in runs_in(out)} == {"head only", "last 1"} and "full" not in answer.search["skipped"]
    assert "last 1" in answer.search["selected_learning_rates"]
    card = (out / "model" / "README.md").read_text()
    assert "frostline searched for how" in card and answer.sentence[:60] in card
    (out / "model" / "estimator.json").write_text("{}")
    (out / "model" / "frostline.json").unlink()
    assert frostline.find(**given).answer.decision.choice == "last 1"
    assert not (out / "model" / "estimator.json").exists() and (out / "model" / "config.json").exists()


def test_no_recommendation_on_shuffled_labels(search_settings: dict[str, Any]) -> None:
    labels = np.random.default_rng(0).permutation(["yes", "no"] * 30)
    rows = pd.DataFrame({"text": [f"the film number {n}" for n in range(60)], "label": labels})
    for exhaustive, seeds in ((False, 5), (True, 2)):
        given = {**search_settings, "train": rows, "seeds": seeds, "out": search_settings["out"] / str(exhaustive)}
        answer = frostline.find(**given, exhaustive=exhaustive).answer
        assert "No fine-tuned model scores above the baseline with 95 % confidence." in answer.search["why"]
        constant = "There is no answer: all"  # every run diverged or predicts a constant
        assert answer.sentence.startswith(("Undecided: nothing", constant))


def test_too_few_validation_examples_are_reported(search_settings: dict[str, Any]) -> None:
    rows = pd.DataFrame({"text": [f"film {n}" for n in range(24)], "label": ["yes", "no"] * 12})
    answer = frostline.find(**{**search_settings, "train": rows, "train_size": None}, margin=0.45).answer
    assert answer.validation_rows < 10 and "validation examples are too few for any conclusion" in answer.sentence
    assert answer.margin == 0.45 and answer.target is None


def test_unfinished_runs_of_other_settings_are_abandoned(search_settings: dict[str, Any]) -> None:
    """Otherwise they would stay pending, and the test set would never be scored."""
    out = search_settings["out"]

    class Stops(Notes):
        def begin(self, what: str) -> None:
            if what.startswith("full"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        frostline.find(**{**search_settings, "progress": Stops()})
    assert not Folder(out).is_complete
    answer = frostline.find(**search_settings, tune="0,1").answer
    assert answer.search["abandoned"] and answer.runs.pending == 0 and "So far" not in answer.sentence
    assert Folder(out).is_complete and "full" in {run.recipe for run in Folder(out).requested}
    hidden = next(run for run in Folder(out).requested if run.recipe == "full")
    assert hidden.digest not in {run.digest for run in Folder(out).runs}
    Folder(out).store.fail(failure(hidden))
    assert hidden.digest in {run.digest for run in Folder(out).runs}  # failed runs are not hidden
    again = frostline.find(**search_settings).answer  # this search requests the run again
    assert not again.search["abandoned"] and "full" in {key[0] for key in runs_in(out)}


def test_runs_of_a_sweep_are_not_abandoned(search_settings: dict[str, Any]) -> None:
    out, own = search_settings["out"], {name: x for name, x in search_settings.items() if name not in OF_SEARCH}
    register(plan_of(**{**DEFAULTS, **own}, out=out, tune="2,all"))  # interrupted before its first run
    requested = {run.digest for run in Folder(out).requested}
    for _ in range(2):
        search = frostline.find(**search_settings, tune="0,1").answer.search
        assert not requested & set(search["abandoned"]) and not Folder(out).is_complete


def test_seconds_of_parallel_steps_are_wall_clock_seconds(search_settings: dict[str, Any]) -> None:
    search = frostline.find(**{**search_settings, "workers": 2, "budget": None}).answer.search
    assert search["budget_seconds"] == SECONDS  # four runs take less
    assert search["spent_seconds"] == pytest.approx(sum(step["seconds"] for step in search["steps"]))
    parallel = [step for step in search["steps"] if len(step["runs"]) == 2 and step["runs"][0]["recipe"] != "head only"]
    assert parallel
    for step in parallel:  # the seconds of a run are its share of the wall-clock time
        assert step["seconds"] == pytest.approx(2 * max(run["seconds"] for run in step["runs"]))


@pytest.mark.parametrize(("size", "batch", "lengths"), [(40, 8, {3.0, 10.0}), (100, 2, {3.0})])
def test_a_short_training_of_few_steps_is_compared_with_a_longer_one(
    search_settings: dict[str, Any], size: int, batch: int, lengths: set[float]
) -> None:
    own = {"num_train_epochs": "auto", "train_size": size, "per_device_train_batch_size": batch}
    made = find_plan.plan(**{**search_settings, **own})
    assert {run.num_train_epochs for run in made.plan.runs} == lengths


def test_a_longer_training_follows_where_full_has_not_fitted_its_examples(search_settings: dict[str, Any]) -> None:
    slow = {"num_train_epochs": "auto", "train_size": 40, "per_device_train_batch_size": 2, "learning_rate": 1e-6}
    only = {"only": "transformers", "tune": "0,1,full", "seeds": 1}  # a probe learns all there is
    given = {**search_settings, **slow, **only}
    assert find_plan.plan(**given).longer == 10
    notes = Notes()
    answer = frostline.find(**{**given, "progress": notes}).answer
    assert answer.search["num_train_epochs"] == [3.0, 10.0] and " epochs" in answer.sentence
    assert {row.num_train_epochs for row in Folder(given["out"]).rows} == {3.0, 10.0}
    assert sum(text.endswith("The search goes on with 10 epochs, too.") for text in notes.notes) == 1
    assert len({*notes.notes}) == len(notes.notes)  # what was trained before is not told again
    again = frostline.find(**given).answer
    assert again.decision == answer.decision and again.runs == answer.runs
    small = {**given, "out": given["out"].with_name("small"), "budget": 1e-6}
    assert frostline.find(**small).answer.search["num_train_epochs"] == [3.0]


def test_a_budget_too_small_for_full_recommends_the_best_of_the_rest(search_settings: dict[str, Any]) -> None:
    answer, page = frostline.find(**{**search_settings, "budget": 1e-6}).answer, search_settings["out"] / "report.html"
    refused = "Full fine-tuning was not run: one run takes about"
    assert refused in answer.sentence and refused in page.read_text() and answer.decision.choice == "words"
    assert answer.search["failed_reference"] == "full" and (search_settings["out"] / "model").exists()
    grown = {**search_settings, "out": search_settings["out"].with_name("grown"), "budget": 1e-6}
    frostline.open(shutil.copytree(search_settings["out"], grown["out"])).more(tune="full", save_model=False)
    search = frostline.find(**grown).answer.search  # runs of a sweep take nothing of the budget
    assert search["failed_reference"] is None and "full" not in search["skipped"]
    assert not any(run["recipe"] == "full" for step in search["steps"] for run in step["runs"])
    (search_settings["out"] / "search.json").write_text("{")  # the search writes it again
    larger = frostline.find(**search_settings).answer  # a larger budget continues the search
    assert larger.search["failed_reference"] is None and (search_settings["out"] / "damaged" / "search.json").exists()
    again = frostline.find(**{**search_settings, "budget": 1e-6}).answer  # it stops sooner, and forgets no run
    assert again.search["failed_reference"] is None and again.search["skipped"] == larger.search["skipped"]
    assert refused not in page.read_text() and len(again.search["steps"]) < len(larger.search["steps"])


def test_the_candidates_may_be_given(search_settings: dict[str, Any]) -> None:
    """A way that trains a head only has the learning rates of k = 0."""
    own = {"small": {"tune": 1, "layer_decay": 0.5}, "wide": {"tune": 0, "lstm_width": 8}}
    answer = frostline.find(**search_settings, tune="3,small,wide", way=own, exhaustive=True).answer
    rates: dict[str, set[float]] = {}
    for name, rate, *_ in runs_in(search_settings["out"]):
        rates.setdefault(name, set()).add(rate)
    assert set(rates) == {"head only", "last 3", "small", "wide"} and answer.decision.reference == "last 3"
    assert rates["wide"] == rates["head only"] != rates["small"] == rates["last 3"]


def test_a_search_over_given_candidates_tries_each(search_settings: dict[str, Any]) -> None:
    """LoRA trains at ten times the learning rates of the grid."""
    own = {"lstm": {"tune": 0, "lstm_width": 8}, "pool": {"modules": ["pooler"]}}
    answer = frostline.find(**search_settings, tune="full,last-1,lstm,mean-pooled-0,pool,lora-2", way=own).answer
    rates = {name: rate for name, rate, *_ in runs_in(search_settings["out"])}
    names = {"head only", "last 1", "full", "lstm", "mean-pooled-0", "pool", "lora-2"}
    assert rates.keys() == names == {*answer.search["operations"]} and rates["lora-2"] == 10 * rates["full"]
    assert answer.search["selected_learning_rates"]["lora-2"] == rates["lora-2"]
    assert {one.choice for one in answer.sizes[0].choices} >= {"lora-2", "mean-pooled-0", "words"}
    assert answer.runs.pending == 0 and not answer.search["skipped"]


def test_heads_that_read_the_mean_are_tried_if_probes_score_better_on_it(
    search_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.search.search.mean_is_better", lambda report, reads: reads == "first")
    frostline.find(**{**search_settings, "progress": (shown := Notes()), "seeds": "7,8"})
    runs = runs_in(search_settings["out"])
    tried = {name for name, *_ in runs}
    assert {"mean-pooled-1", "mean-pooled-2"} <= tried and "mean-pooled-1" in " ".join(shown.notes)
    assert "mean-pooled-3" not in tried and {run[2] for run in runs} == {7, 8}


def test_a_probe_can_be_recommended_and_is_saved(search_settings: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(WordsModel, "fit", lambda examples, classes: None)
    labels = ["positive", "negative"] * 100
    texts = [f"the film {n} was {'good' if label == 'positive' else 'bad'}" for n, label in enumerate(labels)]
    rows, progress = pd.DataFrame({"text": texts, "label": labels}), Notes()
    settings = {**search_settings, "train": rows, "folds": 0, "target": 0.6, "refit": True, "progress": progress}
    answer = frostline.find(**settings).answer
    search, size, model = answer.search, answer.sizes[0], search_settings["out"] / "model"
    assert search["why"].startswith("A model that trains no layer scores so high that no layer is worth tuning")
    assert {run["recipe"] for step in search["steps"] for run in step["runs"]} == {"head only"}
    assert answer.decision.choice == "probe" and size.recommended is None
    begin = "Train no layer, but fit a linear probe on frozen features. Expect accuracy 1.000"
    assert answer.sentence.startswith(begin) and f"Linear probes: {search['probes']['sentence']}" in progress.notes
    page, splits = (search_settings["out"] / "report.html").read_text(), answer.data["report"]["splits"]
    assert answer.refit_rows == splits["train"]["rows"] + splits["validation"]["rows"]
    task = trained_task(model)
    assert f"on all {answer.refit_rows} labelled rows" in page and task and set(task.labels) == set(labels)
    assert "Train no layer" in page and search["probes"]["sentence"] in page
    assert [row["label"] for row in frostline.predict(model, texts[:2]).rows()] == labels[:2]
    again = frostline.find(**settings).answer
    assert again.search == search and again.decision == answer.decision


def test_the_probe_of_each_fold_is_chosen_without_its_rows(search_settings: dict[str, Any], tmp_path: Path) -> None:
    """It predicts what the runs of ``--tune probe`` predict, each of which chooses a layer on its own training rows."""
    noise = np.random.default_rng(0).integers(0, 2, 60).astype(str)  # without a signal, folds choose different layers
    rows = pd.DataFrame(sentences(60)).assign(label=noise)
    given = {**search_settings, "train": rows, "train_size": None, "folds": 3, "seeds": 3}
    frostline.find(**{**given, "budget": "1s"}, tune="0,1")
    given_to_sweep = {name: value for name, value in given.items() if name not in ("budget", "out")}
    frostline.sweep(**given_to_sweep, tune="0,probe", save_model=False, out=tmp_path / "swept")
    swept, found = Folder(tmp_path / "swept"), read_alternatives(given["out"])["probe"]
    for run in (run for run in swept.runs if run.recipe == "probe"):
        values = swept.predictions(run.digest)
        scored = ~np.isnan(values).any(1)
        assert scored.sum() == 20 and found[scored] == pytest.approx(values[scored], abs=1e-5)


def test_a_search_of_what_transformers_opens_recommends_nothing_else(search_settings: dict[str, Any]) -> None:
    """An earlier search in the folder that had a TF-IDF model changes nothing. One that had another head is refused."""
    assert "words" in {
        one.choice for one in frostline.find(**search_settings, tune="0,1,2,3,full").answer.sizes[0].choices
    }
    answer = frostline.find(**search_settings, only="transformers").answer
    names = {one.choice for one in answer.sizes[0].choices}
    assert not names & {"probe", "words"} and answer.search["probes"] is not None
    assert not (search_settings["out"] / "model").exists()  # that of the earlier search is not recommended any more
    frostline.find(**search_settings, tune="auto,mean-pooled-1")
    with pytest.raises(FrostlineError, match="runs of mean-pooled-1, which transformers does not open"):
        frostline.find(**search_settings, only="transformers")


def of_unknown_words(count: int) -> tuple[list[str], list[str]]:
    """Texts and labels that a model of words learns; the tiny model's tokenizer does not know them."""
    random, labels = np.random.default_rng(0), ["positive", "negative"] * (count // 2)
    words = [f"w{n}" for n in range(40)]
    return [" ".join(random.choice(words[20:] if x == "positive" else words[:20], 6)) for x in labels], labels


def test_a_model_of_words_can_be_recommended_and_is_saved(search_settings: dict[str, Any]) -> None:
    texts, labels = of_unknown_words(300)
    rows = pd.DataFrame({"text": texts, "label": labels})
    settings = {**search_settings, "train": rows, "train_size": 150, "folds": 0}
    answer = frostline.find(**settings, cache_limit=0.0).answer
    assert answer.decision.choice == "words"
    assert answer.search["probes"] is answer.search["estimated_k"] is None  # the cache is too small
    assert answer.sentence.startswith("Train no layer, but fit a TF-IDF model. Expect accuracy")
    predicted = frostline.predict(search_settings["out"] / "model", texts[:10])
    task = trained_task(search_settings["out"] / "model")
    assert task is not None and task.labels == ("negative", "positive") and task.columns.label == "label"
    assert [row["label"] for row in predicted.rows()] == labels[:10]


HEAD = "The best so far, tuning the classifier head only, reaches accuracy"


@pytest.mark.parametrize(
    ("signal", "steps", "ended", "fitted", "stored", "best", "saved"),
    [
        (KeyboardInterrupt(), 0, 0, True, True, "a TF-IDF model", "estimator.json"),  # before any run has ended
        (SystemExit(143), 2, 1, True, True, "a TF-IDF model", "estimator.json"),  # after one run of the reference
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
    out = search_settings["out"]
    progress = Interrupted(signal, steps, ended, None if stored else out / "weights")
    texts, labels = of_unknown_words(300)
    labels[:60] = ["positive"] * 60  # so that no model is as good as can be
    settings = {**search_settings, "tune": "0,1,2", "cache_limit": 0.0, "stack": 1, "progress": progress}
    if fitted:
        settings["train"] = pd.DataFrame({"text": texts, "label": labels})
    else:  # then a k has to learn something
        monkeypatch.setattr(search_module, "fit_alternatives", lambda *given: Alternatives())
        settings |= {"num_train_epochs": 3, "train_size": 60, "learning_rate": "1e-3,3e-3"}
    with pytest.raises(type(signal)):
        frostline.find(**settings)
    answer = json.loads((out / "answer.json").read_text())
    (size,) = answer["sizes"]
    assert size["decision"] is not None and best in answer["sentence"]
    assert size["decision"]["choice"] == max(size["choices"], key=lambda one: one["value"])["choice"]
    at = f"Report: {out / 'report.html'}" + (f" Model: {out / 'model'}" if saved else "")
    assert progress.notes[-1] == f"So far: {answer['sentence']} {at}"
    assert (out / "report.html").is_file() and (out / "model").is_dir() == bool(saved)
    if saved:
        assert (out / "model" / saved).is_file()
        assert len(list(frostline.predict(out / "model", texts[:4]).rows())) == 4
    assert fitted or (out / "weights").is_dir() == stored  # for the rest of the search
    end = frostline.find(**{**settings, "progress": Notes()}).answer
    assert end.search["over"] and (out / "model").is_dir() == (end.decision is not None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"grid": [{"tune": 1}]}, "A search has no grid: leave it out, or run `frostline sweep`"),
        ({"tune": "0,lora-2"}, "A search compares with the last k layers or with full fine-tuning: add one to --tune, such"),
        ({"tune": "auto,loro-2"}, r"There is no way to tune called 'loro-2' \(did you mean 'lora-2'\?\)"),
        ({"tune": "full,named"}, "A search cannot try named: leave it out of tune"),
        ({"budget": 0.0}, "budget cannot be 0"),
        ({"tune": "9"}, "9 tuned layers were requested, but the model has 3"),
        ({"train_size": "20,40"}, "A search has one train size"),
        ({"tune": "full,probe"}, "tune cannot have probe: a search fits models that train no layer anyway"),
        ({"only": "bert"}, "only cannot be 'bert': give all, or transformers"),
        ({"only": "transformers", "tune": "full,mean-pooled-1"}, "sentence-transformers opens it. Leave one of both out"),
        ({"only": "transformers", "tune": "full,setfit"}, "frostline opens it. Leave one of both out"),
        ({"processes": 0}, "processes cannot be 0: give 1 or more"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(search_settings: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.find(**{**search_settings, **more})
    assert not search_settings["out"].exists()
