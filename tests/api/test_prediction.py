"""``frostline.predict``: predictions for new texts."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaModel,
    pipeline,
)

import frostline
from frostline import FrostlineError
from frostline.api.prediction import Outputs, as_texts
from frostline.data.files import read_record, write_sealed
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL
from frostline.model.tokens import ZEROED_TYPES
from frostline.sweeps.progress import Progress
from hostile import flip
from small_models import edit_config
from tiny import QUICK, sentences, tiny_tokenizer


def test_probabilities_are_those_of_the_pipeline(finished_sweep: Path) -> None:
    table = pd.DataFrame(sentences(150, seed=3))
    predictions = frostline.predict(finished_sweep / "model", table)
    classify = pipeline("text-classification", str(finished_sweep / "model"), top_k=None)
    for row, expected in zip(predictions.rows(), classify(table.text.tolist()), strict=True):
        probabilities = {one["label"]: one["score"] for one in expected}
        assert row["label"] == max(probabilities, key=probabilities.__getitem__)
        assert {name: row[f"p({name})"] for name in probabilities} == pytest.approx(probabilities, abs=1e-6)
    assert predictions.values.sum(1) == pytest.approx(np.ones(150), abs=1e-6) and predictions.truncated == 0


def test_a_file_a_data_frame_and_a_list_have_the_same_predictions(finished_sweep: Path, tmp_path: Path) -> None:
    table = pd.DataFrame(sentences(6, seed=3))
    table.to_csv(tmp_path / "new.csv", index=False)
    table.rename(columns={"text": "comment"}).to_csv(tmp_path / "other.csv", index=False)
    model = finished_sweep / "model"
    expected = list(frostline.predict(model, table).rows())
    assert list(frostline.predict(model, table.text.tolist()).rows()) == expected
    for predictions in (
        frostline.predict(model, tmp_path / "new.csv"),
        frostline.predict(model, str(tmp_path / "other.csv"), text_column="comment"),
    ):  # in a file, the header is row 1
        assert [{**row, "row": row["row"] - 1} for row in predictions.rows()] == expected
    assert predictions.to_pandas().to_dict("records") == list(predictions.rows())
    assert predictions.labels == [row["label"] for row in expected]
    assert repr(predictions) == "<Predictions of text-classification for 6 texts; classes 'negative', 'positive'>"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "The list of texts is empty"),
        ("A good film.", "'A good film.' is no file: give the path of a table, or a list of texts"),
        ("A good film. " * 400, "is no file: give the path of a table, or a list of texts"),
        (["good", None], "The list of texts contains None: give strings, or a DataFrame for pairs of texts."),
        ([("good", "film " * 99)], r"The list of texts contains \('good', 'film.{40,60}\.\.\.\): give strings"),
        ({"text": ["good"]}, "a dict cannot be read as a table"),
    ],
)
def test_unusable_texts_are_refused(finished_sweep: Path, texts: Any, message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        frostline.predict(finished_sweep / "model", texts)


def test_rows_keep_their_order_and_numbers_and_do_not_depend_on_each_other(
    finished_sweep: Path, tmp_path: Path
) -> None:
    texts = [row["text"] for row in sentences(70, seed=3)]
    (tmp_path / "new.csv").write_text("\n".join(["text", "good " * 100, "", *texts]) + "\n")
    predictions = frostline.predict(finished_sweep / "model", tmp_path / "new.csv")
    rows = list(predictions.rows())
    assert [(row["row"], row["text"]) for row in rows[1:]] == list(enumerate(["", *texts], start=3))
    assert list(rows[0]) == ["row", "text", "label", "p(negative)", "p(positive)"]
    single = frostline.predict(finished_sweep / "model", texts[:1])
    assert predictions.values[2] == pytest.approx(single.values[0], abs=1e-6)
    assert (predictions.truncated, single.truncated) == (1, 0)


@pytest.mark.parametrize(
    ("task_type", "threshold", "expected"),
    [(CLASSIFICATION, 0.5, "b"), (CLASSIFICATION, None, "a"), (MULTI_LABEL, 0.5, ["a", "b"])],
)
def test_a_label_is_predicted_from_its_threshold_on(task_type: str, threshold: float | None, expected: Any) -> None:
    outputs, texts = Outputs.of_task(task_type, ("a", "b"), threshold), as_texts(["a text"], None)
    assert outputs.of_logits(texts, np.zeros((1, 2)), 0).labels == [expected]


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SMALL_ROBERTA = {**SIZES, "pad_token_id": 1}


@pytest.mark.parametrize("pads", [True, False])
def test_a_tokenizer_without_a_limit_and_a_model_whose_positions_start_at_two(tmp_path: Path, pads: bool) -> None:
    """Some classifiers of RoBERTa's type on the hub are like this: 32 positions allow 30 tokens."""
    config = RobertaConfig(vocab_size=8, max_position_embeddings=32, **SMALL_ROBERTA)
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({"<end>": 0, "<pad>": 1, "good": 2, "film": 3}, unk_token="<end>"))
    words.pre_tokenizer = Whitespace()
    marks = {"eos_token": "<end>", "unk_token": "<end>", **({"pad_token": "<pad>"} if pads else {})}
    PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(tmp_path)
    predictions = frostline.predict(tmp_path, ["good " * 40, "film", "good film"])
    assert predictions.truncated == 1 and np.isfinite(predictions.values).all()


def test_pairs_for_a_model_with_one_token_type(tmp_path: Path) -> None:
    """RoBERTa's type has one, and this tokenizer gives the second text another."""
    tokenizer = tiny_tokenizer("input_ids", "token_type_ids", "attention_mask")
    tokenizer.save_pretrained(tmp_path / "base")
    about = {"max_position_embeddings": 40, "type_vocab_size": 1, "initializer_range": 0.2}
    config = RobertaConfig(vocab_size=len(tokenizer), **about, **SMALL_ROBERTA)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        RobertaModel(config).save_pretrained(tmp_path / "base")
    pairs = pd.DataFrame(sentences(160)).assign(second="the film was warm")
    settings = {"model": tmp_path / "base", "train": pairs, "text_column": "text", "text_pair_column": "second"}
    sweep = dict(**settings, out=tmp_path / "o", tune="0,all", seeds=1, progress=Progress(), **QUICK)
    assert frostline.plan(timed=False, **sweep).notes.count(ZEROED_TYPES) == 1
    frostline.sweep(**sweep)
    new = pd.DataFrame(sentences(20, seed=4)).assign(second="a plot")[["text", "second"]]
    predictions = frostline.predict(tmp_path / "o" / "model", new)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "o" / "model").eval()
    given = tokenizer(new["text"].tolist(), new["second"].tolist(), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = classifier(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits.softmax(-1)
    assert np.abs(predictions.values - expected.numpy()).max() < 1e-5
    probed = frostline.probe(**settings, precision="float32")
    assert probed.report.notes.count(ZEROED_TYPES) == 1


def test_a_folder_that_is_no_model(finished_sweep: Path, tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(FrostlineError, match=message):
            frostline.predict(tmp_path / "model", ["good film", "bad film"])

    refused("There is no folder .*model")
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    (folder / "frostline.json").unlink()
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    refused("cannot be used: transformers cannot load")
    (folder / "config.json").unlink()
    refused("contains no model")
    shutil.copytree(finished_sweep / "model", folder / "model")
    refused(r"give .*model\.$")


@pytest.mark.parametrize(
    ("saved_as", "why"),
    [
        ("BertModel", "it was saved as BertModel, which has no head"),
        ("BertForMaskedLM", "it was saved as BertForMaskedLM, which has no head"),
        ("BertForSequenceClassification", r"its weights lack classifier\.bias"),
    ],
)
def test_a_model_without_a_trained_head(tiny_bert: Path, tmp_path: Path, saved_as: str, why: str) -> None:
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    edit_config(folder, architectures=[saved_as])
    with pytest.raises(FrostlineError, match=rf"is not a trained classifier \({why}"):
        frostline.predict(folder, ["good film"])


def test_pairs_and_single_texts_are_not_confused(finished_sweep: Path, tmp_path: Path) -> None:
    pairs, single = pd.DataFrame({"sentence1": ["good"], "sentence2": ["bad"]}), ["good"]
    with pytest.raises(FrostlineError, match=r"has pairs, but the model in .* was trained on single texts"):
        frostline.predict(finished_sweep / "model", pairs)
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    facts = read_record(folder / "frostline.json")
    facts["columns"] = {"text": "sentence1", "text_pair": "sentence2", "label": "label"}
    write_sealed(folder / "frostline.json", facts, inside=folder)
    with pytest.raises(FrostlineError, match=r"has single texts, but the model in .* was trained on pairs"):
        frostline.predict(folder, single)
    predictions = frostline.predict(folder, pairs)
    row = next(predictions.rows())
    assert list(row)[:3] == ["row", "text", "text_pair"] and row["text_pair"] == "bad"
    (folder / "frostline.json").unlink()  # then it is any classifier of transformers
    assert len(frostline.predict(folder, single).values) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: flip(model / "model.safetensors", 0.999), "the checksum of model.safetensors is wrong"),
        (lambda model: flip(model / "tokenizer.json"), "the checksum of tokenizer.json is wrong"),
        (lambda model: os.truncate(model / "model.safetensors", 2**40), "the checksum of model.safetensors is wrong"),
        (lambda model: (model / "tokenizer_config.json").unlink(), "tokenizer_config.json is missing"),
        (lambda model: (model / "adapter_config.json").write_text("{}"), "adapter_config.json was added"),
        (lambda model: flip(model / "frostline.json"), "frostline.json is damaged"),
        (lambda model: record(model, {"../../x": [1, "0"]}), "the record names '../../x'"),
        (lambda model: record(model, {"config.json": "0"}), "the record names 'config.json'"),
    ],
)
def test_a_model_that_is_not_what_was_saved_is_refused(
    finished_sweep: Path, tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    model = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    change(model)
    with pytest.raises(FrostlineError, match=re.escape(reason)) as caught:
        frostline.predict(model, ["good film"])
    assert "copy it again" in str(caught.value)
    if "safetensors" in reason:
        with pytest.raises(FrostlineError, match="copy it again"):
            frostline.bundle([model, finished_sweep / "model"], names=["a", "b"], out=tmp_path / "bundle")
        assert not (tmp_path / "bundle").exists()


def record(model: Path, files: dict[str, Any]) -> None:
    """Write a record whose own checksum is right."""
    write_sealed(model / "frostline.json", {**read_record(model / "frostline.json"), "files": files}, inside=model)


def test_files_that_no_model_is_read_from_may_be_changed_or_added(finished_sweep: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    (model / "onnx").mkdir()
    for name in ("README.md", ".gitattributes", "notes.txt", "onnx/config.json"):
        (model / name).write_text("of a user")
    found, before = (frostline.predict(one, ["good film"]).values for one in (model, finished_sweep / "model"))
    assert (found == before).all()


def with_keys(model: Path, folder: Path, **keys: Any) -> Path:
    """A copy of a model with more keys in its config.json."""
    edit_config(copy := Path(shutil.copytree(model, folder)), **keys)
    return copy


def test_a_temperature_and_a_threshold_of_the_configuration(finished_sweep: Path, tmp_path: Path) -> None:
    texts = [row["text"] for row in sentences(40, seed=3)]
    plain = frostline.predict(finished_sweep / "model", texts)
    same = frostline.predict(with_keys(finished_sweep / "model", tmp_path / "one", calibration_temperature=1), texts)
    assert list(same.rows()) == list(plain.rows()) and plain.temperature == 1 and not plain.thresholds
    keys = {"calibration_temperature": 2.0, "decision_threshold": 0.7, "decision_threshold_label": "negative"}
    found = frostline.predict(with_keys(finished_sweep / "model", tmp_path / "two", **keys), texts)
    odds = np.sqrt(plain.values[:, 0] / plain.values[:, 1])  # dividing logits by 2 takes the square root of the odds
    assert found.values[:, 0] == pytest.approx(odds / (1 + odds), abs=1e-5)
    assert [row["label"] for row in found.rows()] == found.labels
    assert found.labels == ["negative" if p >= 0.7 else "positive" for p in found.values[:, 0]]
    other = frostline.predict(tmp_path / "two", texts, threshold=0.2)
    assert other.labels == ["negative" if p >= 0.2 else "positive" for p in found.values[:, 0]]
    assert (other.values == found.values).all()
    second = frostline.predict(finished_sweep / "model", texts, threshold=0.9)
    assert second.labels == ["positive" if p >= 0.9 else "negative" for p in plain.values[:, 1]]


@pytest.mark.parametrize(
    ("keys", "threshold", "message"),
    [
        ({}, 1.5, "The threshold cannot be 1.5: give a probability between 0 and 1."),
        ({"id2label": {0: "a", 1: "b", 2: "c"}}, 0.5, "A threshold is for two labels, but this model has 3 labels"),
        ({"calibration_temperature": "warm"}, None, "calibration_temperature in config.json is 'warm': give a number"),
        ({"decision_threshold": 0.3, "decision_threshold_label": "x"}, None, "is 'x': name one of negative, positive."),
    ],
)
def test_an_unusable_temperature_or_threshold_is_refused(
    finished_sweep: Path, tmp_path: Path, keys: dict[str, Any], threshold: float | None, message: str
) -> None:
    model = with_keys(finished_sweep / "model", tmp_path / "model", **keys)
    if "id2label" in keys:
        resized = AutoModelForSequenceClassification.from_pretrained(model, ignore_mismatched_sizes=True)
        resized.save_pretrained(model)
        (model / "frostline.json").unlink()  # then it is any classifier of transformers
    with pytest.raises(FrostlineError, match=re.escape(message)):
        frostline.predict(model, ["good film"], threshold=threshold)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problem_type": "regression", "num_labels": 3}, "The model predicts 3 numbers for each text"),
        ({"id2label": {0: "good", 1: "bad", 2: "good"}}, "config.json names two outputs 'good'"),
        (
            {"num_labels": 1},
            "one output, and its config.json does not say what it is: write there problem_type regression if",
        ),
    ],
)
def test_a_model_of_others_whose_outputs_would_be_lost_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        Outputs.of_config(RobertaConfig(**settings))
