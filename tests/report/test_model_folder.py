"""The folder of a saved model, as transformers reads it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import frostline.report.recommended_model as model_folder
from frostline import FrostlineError
from frostline.api.prediction import predict
from frostline.data.load import read_unlabelled
from frostline.model.loading import load_pretrained
from frostline.model.terms import OUTPUT_KEYS
from frostline.report.recommended_model import Saved, save_model
from frostline.sweep.results.folder import Folder
from pages import answer_of
from tiny import LABELS, MAX_LENGTH, recommended_predictions, saved_sweep


def test_pipeline_gives_the_labels_and_the_logits_of_the_run(classified: Path) -> None:
    texts, logits = recommended_predictions(classified)
    classify = pipeline("text-classification", model=str(classified / "model"), top_k=None)
    found = classify(texts, truncation=True, function_to_apply="none")
    labels = sorted(LABELS)
    assert Folder(classified).identity.labels == tuple(labels)
    ours = np.array([[{x["label"]: x["score"] for x in row}[label] for label in labels] for row in found])
    assert np.abs(ours - logits).max() < 1e-5 * np.abs(logits).max()
    likely = classify(texts, truncation=True, top_k=1)
    assert [row[0]["label"] for row in likely] == [labels[n] for n in logits.argmax(1)]


def test_pipeline_gives_the_predicted_number(regressed: Path) -> None:
    texts, logits = recommended_predictions(regressed)
    found = pipeline("text-classification", model=str(regressed / "model"))(texts, truncation=True)
    assert np.abs(np.array([row["score"] for row in found]) - logits[:, 0]).max() < 1e-5 * np.abs(logits).max()
    config = json.loads((regressed / "model" / "config.json").read_text())
    assert config["problem_type"] == "regression"


def test_the_folder_holds_the_model_and_nothing_of_this_machine(licensed_bert: Path, classified: Path) -> None:
    folder = classified / "model"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md", "config.json", "frostline.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    for path in folder.iterdir():
        content = path.read_bytes()
        assert str(licensed_bert).encode() not in content and os.fsencode(classified) not in content
    config = json.loads((folder / "config.json").read_text())
    assert config["use_cache"] is True and config["problem_type"] == "single_label_classification"
    assert "frostline" not in json.dumps(config) and "_attn_implementation" not in config
    assert config["id2label"] == {str(n): label for n, label in enumerate(sorted(LABELS))}
    assert AutoTokenizer.from_pretrained(folder).model_max_length == MAX_LENGTH
    state = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    assert all(value.dtype == torch.float32 for value in state.values() if value.is_floating_point())


def test_frostline_json(classified: Path) -> None:
    facts, answer = json.loads((classified / "model" / "frostline.json").read_text()), answer_of(classified)
    recommended = answer.sizes[0].recommended
    assert facts["run"] == recommended.run and facts["sentence"] == answer.sentence
    assert facts["labels"] == sorted(LABELS) and facts["max_length"] == MAX_LENGTH and facts["metric"] == "accuracy"
    assert facts["spec"]["seed"] == recommended.seed and facts["logit_gap"] == 0


def _save_arguments(licensed_bert: Path, out: Path) -> tuple[Any, ...]:
    folder, answer = Folder(out), answer_of(out)
    identity = folder.identity
    pretrained = load_pretrained(str(licensed_bert), labels=identity.labels, task_type=identity.task_type)
    spec = next(run for run in folder.runs if run.digest == answer.sizes[0].recommended.run)
    return pretrained, identity, answer, spec


def test_an_older_folder_is_replaced_as_a_whole(licensed_bert: Path, classified: Path, tmp_path: Path) -> None:
    arguments = _save_arguments(licensed_bert, classified)
    pretrained, target = arguments[0], tmp_path / "deep" / "model"
    before = (pretrained.tokenizer.model_max_length, dict(pretrained.tokenizer.init_kwargs))
    assert save_model(target, *arguments, Saved(0.0, trained_again=False)) == target
    (target / "old.txt").write_text("of an older model")
    save_model(target, *arguments, Saved(2.5e-4, trained_again=True))
    assert not (target / "old.txt").exists() and "0.00025" in (target / "README.md").read_text()
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert (pretrained.tokenizer.model_max_length, pretrained.tokenizer.init_kwargs) == before
    assert pretrained.model.config.use_cache is False


def test_a_full_disk_leaves_the_older_folder(
    licensed_bert: Path, classified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, target = _save_arguments(licensed_bert, classified), tmp_path / "model"
    save_model(target, *arguments, Saved(0.0, trained_again=False))
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_folder, "_facts", full)
    with pytest.raises(FrostlineError, match="No space left"):
        save_model(target, *arguments, Saved(0.0, trained_again=False))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_swap_that_fails_leaves_the_older_folder(
    licensed_bert: Path, classified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, target = _save_arguments(licensed_bert, classified), tmp_path / "model"
    save_model(target, *arguments, Saved(0.0, trained_again=False))
    (target / "mine.txt").write_text("still here")
    rename, failed = os.rename, []

    def fails_for_the_new(source: Path, destination: Path) -> None:
        if str(source).endswith(".part") and not failed:
            failed.append(source)
            raise OSError(5, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fails_for_the_new)
    with pytest.raises(FrostlineError, match="Input/output"):
        save_model(target, *arguments, Saved(0.0, trained_again=False))
    assert (target / "mine.txt").read_text() == "still here"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_temperature_and_threshold_are_saved_and_applied(licensed_bert: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"tune": "0", "head_learning_rate": 2e-3, "num_train_epochs": 2}
    out = saved_sweep(licensed_bert, tmp_path / "out", lambda n: "ab"[n % 2], **settings)
    model, texts = out / "model", recommended_predictions(out)[0]
    plain, runs = predict(model, texts), sorted(path.name for path in (out / "runs").iterdir())
    assert plain.temperature == 1 and plain.threshold is None and not {*OUTPUT_KEYS} & read_config(model).keys()
    saved_sweep(licensed_bert, out, lambda n: "ab"[n % 2], **settings, calibrate=True, threshold=0.7)
    assert sorted(path.name for path in (out / "runs").iterdir()) == runs, "no run is trained for it"
    answer, config, found = answer_of(out), read_config(model), predict(model, texts)
    temperature = answer.calibration.temperature
    keys = {"calibration_temperature": temperature, "decision_threshold": 0.7, "decision_threshold_label": "b"}
    assert keys.items() <= config.items() and found.temperature == temperature != 1
    logits = np.log(plain.values)
    assert found.values == pytest.approx(softmax(logits / temperature, axis=1), abs=1e-5)
    assert found.predicted == ["b" if p >= 0.7 else "a" for p in found.values[:, 1]] != plain.predicted
    card = " ".join((model / "README.md").read_text().split())
    assert "is saved as calibration\\_temperature in config.json" in card and "This threshold was given." in card
    assert card.count("frostline predict applies what is saved") == 1
    scores = [row["score"] for row in pipeline("text-classification", model=str(model))(texts, truncation=True)]
    assert scores == pytest.approx(plain.values.max(1), abs=1e-5), "transformers ignores the keys"
    AutoModelForSequenceClassification.from_pretrained(model).save_pretrained(tmp_path / "again")
    assert keys.items() <= read_config(tmp_path / "again").items(), "and keeps them"


def read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


OWN_CODE = """
from transformers import BertConfig, BertForSequenceClassification


class OwnConfig(BertConfig):
    model_type = "own-of-frostline-tests"


class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""


def test_a_model_with_code_of_its_own_is_saved_with_it(licensed_bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(licensed_bert, tmp_path / "own"))
    (folder / "modeling_own.py").write_text(OWN_CODE)
    config = json.loads((folder / "config.json").read_text())
    kinds = {"AutoConfig": "OwnConfig", "AutoModelForSequenceClassification": "OwnForSequenceClassification"}
    config |= {"model_type": "own-of-frostline-tests", "auto_map": {k: f"modeling_own.{v}" for k, v in kinds.items()}}
    (folder / "config.json").write_text(json.dumps(config))
    out = saved_sweep(folder, tmp_path / "out", lambda n: "ab"[n % 2], tune="0", trust_remote_code=True)
    assert json.loads((out / "model" / "config.json").read_text())["use_cache"] is True
    assert (out / "model" / "modeling_own.py").is_file() and (out / "report.html").is_file()
    texts, logits = recommended_predictions(out)
    got = predict(out / "model", read_unlabelled(pd.DataFrame({"text": texts}))[0], trust_remote_code=True)
    assert [got.labels[n] for n in got.values.argmax(1)] == ["ab"[n] for n in logits.argmax(1)]
