"""SetFit: the same scores as its own package by hand, the same model after it was stored, and what is refused."""

import importlib.util
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

import frostline
from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.model.loading import load_pretrained
from frostline.model.ways import Way
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from frostline.training import estimators
from frostline.training.estimators import ESTIMATORS
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows
from frostline.training.result import TaskFacts
from frostline.training.train import run
from tiny import assert_same_predictions
from training.runs import context_of, spec_of

SPEC = spec_of(
    "setfit", way=Way(estimator="setfit"), train_size=12, learning_rate=3e-3, head_learning_rate=None, max_length=32
)
TASK = TaskFacts(
    task="films",
    task_type="text-classification",
    labels=("negative", "positive"),
    columns={"text": "text"},
    max_length=32,
    sentence="It is good.",
)
SETFIT = ESTIMATORS["setfit"]


def examples(texts: list[str], targets: Any, pairs: tuple[str, ...] | None = None) -> Examples:
    return Examples(
        texts=tuple(texts), pairs=pairs, rows=np.arange(len(texts)), name="films", targets=np.asarray(targets)
    )


@pytest.fixture(scope="module")
def texts_of_films(tiny_bert: Path) -> Experiment:
    return context_of(tiny_bert)


def test_it_equals_its_own_package_by_hand(texts_of_films: Experiment, tiny_bert: Path, tmp_path: Path) -> None:
    setfit = pytest.importorskip("setfit")
    from datasets import Dataset

    experiment = texts_of_films
    result = run(SPEC, experiment)
    model = setfit.SetFitModel.from_pretrained(str(tiny_bert), device="cpu")
    arguments = setfit.TrainingArguments(
        output_dir=str(tmp_path), batch_size=8, body_learning_rate=3e-3, seed=0, report_to="none", save_strategy="no"
    )
    train = experiment.examples_of(train_rows(experiment, SPEC), "train")
    rows = Dataset.from_dict({"text": list(train.texts), "label": train.targets.tolist()})
    trainer = setfit.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.st_trainer.args.dataloader_pin_memory = False  # else torch warns on a machine without a GPU
    trainer.train()
    validation = experiment.examples_of(experiment.splits["validation"], "validation")
    by_hand = model.predict_proba(list(validation.texts), as_numpy=True)
    logits = result.logits["validation_best"]
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), by_hand, atol=1e-6)
    assert result.record.cost.steps == trainer.st_trainer.state.global_step == 11  # 2 * 42 pairs in batches of 8
    body = sum(p.numel() for name, p in model.model_body.named_parameters() if "pooler" not in name)
    assert result.record.audit.trainable_parameters == body + 32 + 1
    assert result.record.audit.tuned_share == 1.0
    assert not np.array_equal(run(SPEC.model_copy(update={"seed": 1}), experiment).logits["validation_best"], logits)


def test_a_stored_model_is_restored_and_saved(texts_of_films: Experiment, tmp_path: Path) -> None:
    setfit = pytest.importorskip("setfit")
    experiment = texts_of_films
    result = run(SPEC, experiment)
    fitted = SETFIT.fit(SPEC, experiment, result.learned)
    rows = experiment.splits["validation"]
    np.testing.assert_array_equal(fitted.logits(rows, "validation"), result.logits["validation_best"])
    fitted.save(tmp_path, TASK, False)
    texts = list(experiment.examples_of(rows, "validation").texts)
    opened = setfit.SetFitModel.from_pretrained(str(tmp_path), device="cpu")
    probabilities = opened.predict_proba(texts, as_numpy=True)
    (tmp_path / "model_head.pkl").unlink()  # frostline does not read it
    predicted = frostline.predict(tmp_path, texts)
    assert isinstance(predicted, frostline.Predictions)
    np.testing.assert_allclose(predicted.values, probabilities, atol=1e-6)
    assert predicted.labels == [opened.labels[n] for n in probabilities.argmax(1)]
    (tmp_path / "stranger.py").write_text("raise AssertionError('the code of a stranger runs')")
    known = json.loads((tmp_path / "modules.json").read_text())
    for kind in ("stranger.Module", "os.path.Module", "sentence_transformers_.Module"):
        (tmp_path / "modules.json").write_text(json.dumps([{**known[0], "type": kind}, *known[1:]]))
        with pytest.raises(FrostlineError, match="comes with Python code of its own"):
            frostline.predict(tmp_path, texts)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "It is good." in card and not any(text in card for text in texts)


def test_with_fewer_layers_the_encoder_has_as_many(texts_of_films: Experiment, tiny_bert: Path, tmp_path: Path) -> None:
    pytest.importorskip("setfit")
    shallow = load_pretrained(str(tiny_bert), labels=TASK.labels, task_type=TASK.task_type, depth=2)
    result = run(SPEC, replace(texts_of_films, pretrained=shallow))
    assert any("layer.1." in name for name in result.learned)
    assert not any("layer.2." in name for name in result.learned)
    SETFIT.fit(SPEC, replace(texts_of_films, pretrained=shallow), result.learned).save(tmp_path, TASK, False)
    assert json.loads((tmp_path / "config.json").read_bytes())["num_hidden_layers"] == 2


def test_weights_are_trained_in_float32_whatever_the_checkpoint_has(tiny_bert: Path, tmp_path: Path) -> None:
    pytest.importorskip("setfit")
    shutil.copytree(tiny_bert, tmp_path / "half")
    AutoModel.from_pretrained(tiny_bert).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    learned = run(SPEC, context_of(tmp_path / "half")).learned
    assert {value.dtype for name, value in learned.items() if name.endswith("weight")} == {torch.float32}


def test_an_interrupted_run_is_trained_again_from_its_start(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own package trains, which keeps no checkpoint of frostline."""
    setfit = pytest.importorskip("setfit")
    from transformers import TrainerCallback

    class Interrupts(TrainerCallback):
        def on_step_end(self, arguments: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 5:
                raise KeyboardInterrupt

    def interrupted(trainer: Any) -> None:
        trainer.add_callback(Interrupts)
        train(trainer)

    def trained(out: Path) -> Store:
        own = {
            "model": tiny_bert,
            "train": tiny_table,
            "tune": "0,setfit",
            "seeds": 1,
            "learning_rate": 3e-3,
            "out": out,
        }
        frostline.sweep(save_model=False, **own, train_size=12, num_train_epochs=1, test="none", progress=Progress())
        return Store(out)

    train = setfit.Trainer.train
    with monkeypatch.context() as now:
        now.setattr(setfit.Trainer, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "o")
    store = Store(tmp_path / "o")
    assert len(store.done()) == 1 and not (tmp_path / "o" / "checkpoints").exists()
    assert_same_predictions(trained(tmp_path / "o"), trained(tmp_path / "undisturbed"))
    (facts,) = (one for one in store.results().values() if one.spec.recipe == "setfit")
    assert facts.cost.steps > 5 and not facts.provenance.continued_after


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (examples(["a"] * 1001, [0] * 1000 + [1]), "for at most 1,000 examples;"),
        (examples(["a", "b"], [1, 1]), "needs two classes"),
        (examples(["a", "b"], [0, 1], pairs=("c", "d")), "the examples are pairs"),
        (examples(["a", "b"], [0.5, 1.0]), "the task is a regression"),
        (examples(["a", "b"], [[0, 1], [1, 0]]), "words have tags"),
        (examples(["a", "b"], [[True, True], [False, True]]), "texts have several labels"),
    ],
)
def test_what_it_cannot_learn_is_refused(given: Examples, message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        SETFIT.require_suitable(SPEC, given)


def test_without_the_package_it_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None)
    with pytest.raises(FrostlineError, match="install it with `pip install setfit`"):
        frostline.sweep(tune="setfit,full", model="none", train="none.csv", out=tmp_path / "o", progress=Progress())


def test_the_number_of_pairs_is_that_of_the_package(texts_of_films: Experiment) -> None:
    """12 examples of two classes have 42 pairs of one class, and 36 others, which are repeated until they are as many."""
    assert SETFIT.operations(SPEC, texts_of_films, 12.0) == 2 * 2 * 42


def test_many_examples_do_not_have_all_pairs(texts_of_films: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setfit")
    monkeypatch.setattr(estimators, "PAIRS", 5)
    many = SPEC.model_copy(update={"train_size": 24})  # 156 pairs of one class
    assert run(many, texts_of_films).record.cost.steps == 2 * 5 * 24 / 8
    assert SETFIT.operations(many, texts_of_films, 24.0) == 2 * 2 * 5 * 24


class Stranger:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("ran"),)


def test_a_pickle_in_the_folder_of_the_encoder_is_not_read(
    tiny_bert: Path, texts_of_films: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("setfit")
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "own"))
    (folder / "model_head.pkl").write_bytes(pickle.dumps(Stranger()))
    (folder / "config_setfit.json").write_text('{"normalize_embeddings": true}')
    clean, own = run(SPEC, texts_of_films), run(SPEC, context_of(folder))
    assert not Path("ran").exists()
    np.testing.assert_array_equal(own.logits["validation_best"], clean.logits["validation_best"])


@pytest.mark.parametrize("version", ["5.7.0", "5.99", "2.2.2"])
def test_a_version_that_trusts_local_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    pytest.importorskip("setfit")
    facts = tmp_path / f"sentence_transformers-{version}.dist-info" / "METADATA"
    facts.parent.mkdir()
    facts.write_text(f"Metadata-Version: 2.1\nName: sentence-transformers\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FrostlineError, match=rf"sentence-transformers 6 or later \({version} would run code"):
        SETFIT.require_installed()
