"""A sweep over ways to tune, on a tiny model: the runs, the answer, the saved model, and a folder that grows."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import frostline
from frostline import FrostlineError
from frostline.frozen.forward_pass import StateSelection
from frostline.report.explanations import loading
from frostline.statistics.answer import Answer, Counts
from frostline.statistics.cells import ANSWERS
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.forecast_record import recorded
from frostline.training.saved_estimators import read_estimator
from tiny import plan_of, run_sweep, sentences, write_csv

SETTINGS = {"seeds": 2, "learning_rate": "1e-3,3e-3", "num_train_epochs": 2}
ONE_RATE = {"learning_rate": 1e-3, "head_learning_rate": 1e-3}


@pytest.fixture(scope="module")
def compared(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """The folder of a finished comparison, and its answer."""
    out = tmp_path_factory.mktemp("compared") / "o"
    given = {"model": tiny_bert, "train": tiny_table, "out": out, **SETTINGS}
    return out, frostline.sweep(tune="last-1,lora-1,gradual,lp-ft,full", progress=Progress(), **given).answer


def test_every_way_has_the_same_number_of_runs(compared: tuple[Path, Answer]) -> None:
    out, (size,) = compared[0], compared[1].sizes
    names = [run.recipe for run in Folder(out).runs]
    ways = ("last 1", "lora-1", "gradual", "lp-ft", "full")
    assert {name: names.count(name) for name in names} == dict.fromkeys(ways, 4)
    assert {cell.recipe for cell in size.cells} == set(names)
    usable = {
        cell.recipe for cell in size.cells if any(point.in_mean and point.outcome in ANSWERS for point in cell.points)
    }
    assert usable and {choice.choice for choice in size.choices} == usable
    cuts = {facts.spec.recipe: facts.provenance.cut for facts in Folder(out).store.results().values()}
    assert cuts["lora-1"] == cuts["last 1"] == 2 and cuts["lp-ft"] is None  # LoRA starts from the same hidden states


def test_a_way_alone_needs_a_folder_with_a_k(compared: tuple[Path, Answer], tiny_bert: Path, tiny_table: Path) -> None:
    """The next step of an answer is such a command, with a learning rate of its own."""
    given = {"model": tiny_bert, "train": tiny_table, **SETTINGS}
    with pytest.raises(FrostlineError, match="are compared with the last k layers or with full fine-tuning: add one"):
        frostline.sweep(tune="lora-1", out=compared[0].with_name("new"), progress=Progress(), **given)
    grown = shutil.copytree(compared[0], compared[0].with_name("grown"))
    results = frostline.open(grown).more(tune="lora-1", seeds=3, save_model=False, progress=Progress())
    assert {run.recipe for run in Folder(grown).runs if run.seed == 2} == {"lora-1"} and results.answer.runs.done == 22


def test_words_learn_a_label_that_every_training_text_has(tiny_bert: Path, tmp_path: Path) -> None:
    """Its logit was infinite, so that the run counted as diverged. Here a fold has the only text without it."""
    rows = [{"text": row["text"], "labels": [*["any"][n == 7 :], row["label"]]} for n, row in enumerate(sentences(60))]
    given = {"model": tiny_bert, "train": pd.DataFrame(rows), "tune": "0,words", "seeds": 2, "folds": 2}
    table = run_sweep(given, out=tmp_path / "o", **ONE_RATE).table()
    assert set(table["outcome"][table["recipe"] == "words"]) == {"ok"}


def test_the_cost_of_a_way_is_the_share_of_layers_that_run(compared: tuple[Path, Answer]) -> None:
    cells = {cell.recipe: cell for cell in compared[1].sizes[0].cells}
    shares = {name: cell.tuned_share for name, cell in cells.items()}
    assert shares == pytest.approx({"last 1": 1 / 3, "lora-1": 1 / 3, "gradual": 3 / 5, "lp-ft": 1.0, "full": 1.0})
    assert cells["lora-1"].trainable_parameters < cells["last 1"].trainable_parameters
    page = (compared[0] / "report.html").read_text(encoding="utf-8")
    assert "Ways to tune" in page and (compared[0] / "tables" / "ways.csv").is_file()


def test_more_ways_add_to_the_folder(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    given = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", **SETTINGS, "learning_rate": 1e-3}
    own = {"mine": {"tune": 1, "patience": 1}}
    frostline.sweep(save_model=False, tune="full,mine", way=own, progress=Progress(), **given)
    more = {"tune": "last-1,spectrum-34", "save_model": False, "progress": Progress(), **given}
    frostline.sweep(**more)
    folder = Folder(tmp_path / "o")
    assert {run.recipe for run in folder.runs} == {"full", "mine", "last 1", "spectrum-34"} and folder.is_complete
    assert folder.spec.way["spectrum-34"].modules and frostline.sweep(**more).answer.runs.done == 8
    with pytest.raises(FrostlineError, match="its way 'mine' is different"):
        frostline.sweep(tune="full,mine", way={"mine": {"tune": 2}}, progress=Progress(), **given)


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ("full,lora-9", "9 tuned layers were requested, but the model has 3"),
        ("full,reinit-9", "reinit-9: 9 layers were requested, but the model has 3"),
        ("lora-2,llrd", "are compared with the last k layers"),
        ("full,LLRD", "tune cannot be 'full,LLRD': give numbers of layers such as 2, head, full"),
    ],
)
def test_ways_that_the_model_does_not_allow_are_refused_before_anything_runs(
    ways: str, message: str, tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.sweep(tune=ways, model=tiny_bert, train=tiny_table, out=tmp_path / "o", progress=Progress())
    assert not (tmp_path / "o").exists()


def test_heads_that_read_something_else_share_the_cached_hidden_states(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    given = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", **SETTINGS, "learning_rate": 1e-3}
    own = {"last-token": {"tune": 2, "head_reads": "last"}}
    ways = "head,last-1,mean-pooled-0,mean-pooled-1,last-token,full"
    settings = {"way": own, "progress": Progress(), **given}
    plan = plan_of(**settings, tune=ways)
    assert plan.cached == StateSelection((1, 2, 3), head=True)
    places = {tune: [group.places for group in groups if group.trained] for tune, groups in plan.groups.items()}
    assert places["mean-pooled-0"] == [("head",), ("head",)] and "pooler" in str(places["head only"])
    answer = frostline.sweep(tune=ways, save_model=False, **settings).answer
    shares = {cell.recipe: cell.tuned_share for cell in answer.sizes[0].cells}
    assert shares["mean-pooled-0"] == 0 and shares["mean-pooled-1"] == shares["last 1"] == pytest.approx(1 / 3)
    costs = {choice.choice: choice.cost_of_full for choice in answer.sizes[0].choices}
    assert costs.get("mean-pooled-0", 0) == 0
    cuts = {facts.spec.recipe: facts.provenance.cut for facts in Folder(tmp_path / "o").store.results().values()}
    assert cuts == {"head only": 3, "last 1": 2, "mean-pooled-0": 3, "mean-pooled-1": 2, "last-token": 1, "full": None}
    for facts in Folder(tmp_path / "o").store.results().values():
        assert facts.provenance.head_token == (not facts.spec.recipe.startswith("mean-pooled"))


@pytest.fixture(scope="module")
def beside_a_probe(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A comparison with models that train no layer, one of which is best. Tests must not write into it."""
    folder, rows = tmp_path_factory.mktemp("probe"), sentences(160)
    tables = {
        name: write_csv(folder / f"{name}.csv", some)
        for name, some in (("train", rows[:120]), ("validation", rows[120:]))
    }
    given = {"model": tiny_bert, **tables, "test": "none", "out": folder / "o", **SETTINGS, **ONE_RATE}
    return folder, frostline.sweep(tune="head,probe,full", progress=Progress(), **given).answer


def test_a_probe_is_one_run_for_each_seed(beside_a_probe: tuple[Path, Answer]) -> None:
    folder = Folder(beside_a_probe[0] / "o")
    runs = [run for run in folder.runs if run.recipe == "probe"]
    assert [(run.seed, run.learning_rate) for run in runs] == [(0, None), (1, None)]
    # it reads cached features, whose time it shares
    assert {folder.store.result(run.digest).provenance.cut for run in runs} == {3}


def test_a_probe_competes_at_no_cost(beside_a_probe: tuple[Path, Answer]) -> None:
    folder, answer = beside_a_probe
    choices = {choice.choice: choice for choice in answer.sizes[0].choices}
    assert choices["probe"].cost_of_full == 0.0
    assert choices["probe"].beside_k.choice == "head only"
    assert answer.opened_by == "frostline" and str(loading(answer, folder)).startswith("import frostline")
    assert answer.decision.choice == "probe" and "a linear probe on frozen features" in answer.sentence.casefold()
    page = (folder / "o" / "report.html").read_text(encoding="utf-8")
    assert "Ways to tune" in page and "linear probe" in page


def test_the_probe_is_that_of_frostline_probe(beside_a_probe: tuple[Path, Answer], tiny_bert: Path) -> None:
    path, answer = beside_a_probe
    tables = {name: path / f"{name}.csv" for name in ("train", "validation")}
    probed = frostline.probe(model=tiny_bert, progress=Progress(), **tables)
    folder, saved = Folder(path / "o"), read_estimator(path / "o" / "model")
    assert saved is not None and saved.facts.probe is not None
    assert (saved.facts.probe.layers, saved.facts.probe.vector) == (
        probed.report.best.layers,
        probed.report.best.vector,
    )
    cell = next(cell for cell in answer.sizes[0].cells if cell.recipe == "probe")
    assert [point.validation_best for point in cell.points] == [probed.report.best.validation] * 2
    logits = folder.store.predictions(answer.sizes[0].recommended.run)["validation_best"]
    examples = folder.split("validation")
    assert examples is not None
    predicted = frostline.predict(path / "o" / "model", list(examples.texts)).values
    np.testing.assert_allclose(predicted, softmax(logits, 1), atol=1e-5)


def test_a_comparison_with_probes_goes_on_and_grows(
    beside_a_probe: tuple[Path, Answer], tiny_bert: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(beside_a_probe[0] / "o", tmp_path / "o")
    tables = {name: beside_a_probe[0] / f"{name}.csv" for name in ("train", "validation")}
    given = {"model": tiny_bert, **tables, "test": "none", "out": out, **SETTINGS, **ONE_RATE}
    saved = (out / "model" / "estimator.json").stat().st_mtime_ns
    answer = frostline.sweep(tune="probe,full", progress=Progress(), **given).answer
    assert answer.runs.done == 6 and (out / "model" / "estimator.json").stat().st_mtime_ns == saved
    answer = frostline.sweep(tune="words,full", progress=Progress(), **given).answer
    assert answer.runs == Counts(done=8, failed=0, pending=0)
    (cell,) = recorded(out)[-1].cells
    assert (cell.recipe, cell.runs) == ("words", 2) and 0 < cell.seconds < 60
