"""Predictions for new texts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification, pipeline

import frostline
from frostline import FrostlineError
from frostline.data.load import read_unlabelled
from tiny import sentences


def test_probabilities_are_those_of_the_pipeline(finished_sweep: Path) -> None:
    texts, _ = read_unlabelled(pd.DataFrame(sentences(150, seed=3)))
    got = frostline.predict(finished_sweep / "model", texts)
    classify = pipeline("text-classification", str(finished_sweep / "model"), top_k=None)
    for row, said in zip(got.rows(texts), classify(list(texts.texts)), strict=True):
        probabilities = {one["label"]: one["score"] for one in said}
        assert row["label"] == max(probabilities, key=probabilities.__getitem__)
        assert {name: row[f"p({name})"] for name in probabilities} == pytest.approx(probabilities, abs=1e-6)
    assert got.values.sum(1) == pytest.approx(np.ones(150), abs=1e-6) and got.truncated == 0


def test_rows_keep_the_order_and_the_row_numbers_of_the_file(finished_sweep: Path, tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text("text\nthe film was very good and the cast was warm\n\ngood\nbad plot\n")
    texts, _ = read_unlabelled(file)
    rows = list(frostline.predict(finished_sweep / "model", texts).rows(texts))
    assert [(row["row"], row["text"]) for row in rows][-2:] == [(4, "good"), (5, "bad plot")]
    assert list(rows[0]) == frostline.predict(finished_sweep / "model", texts).columns(texts)
    assert list(rows[0]) == ["row", "text", "label", "p(negative)", "p(positive)"]


def test_a_prediction_does_not_depend_on_the_batch(finished_sweep: Path) -> None:
    many, _ = read_unlabelled(pd.DataFrame(sentences(70, seed=3)))
    one, _ = read_unlabelled(pd.DataFrame(sentences(70, seed=3)[:1]))
    got = [frostline.predict(finished_sweep / "model", texts).values[0] for texts in (many, one)]
    assert got[0] == pytest.approx(got[1], abs=1e-6)


def test_truncated_texts_are_counted(finished_sweep: Path) -> None:
    texts, _ = read_unlabelled(pd.DataFrame({"text": ["good " * 100, "good"]}))
    assert frostline.predict(finished_sweep / "model", texts).truncated == 1


@pytest.mark.parametrize("pads", [True, False])
def test_a_tokenizer_that_names_no_limit_and_a_model_that_counts_positions_from_two_on(
    tmp_path: Path, pads: bool
) -> None:
    """As classifiers of RoBERTa's type on the hub: 32 positions are for 30 tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=8, max_position_embeddings=32, pad_token_id=1, **sizes)
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({"<end>": 0, "<pad>": 1, "good": 2, "film": 3}, unk_token="<end>"))
    words.pre_tokenizer = Whitespace()
    marks = {"eos_token": "<end>", "unk_token": "<end>", **({"pad_token": "<pad>"} if pads else {})}
    PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(tmp_path)
    texts, _ = read_unlabelled(pd.DataFrame({"text": ["good " * 40, "film", "good film"]}))
    got = frostline.predict(tmp_path, texts)
    assert got.truncated == 1 and np.isfinite(got.values).all()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("config.json", "contains no model"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no weights in safetensors"),
    ],
)
def test_a_folder_without_a_required_file(finished_sweep: Path, tmp_path: Path, file: str, said: str) -> None:
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    (folder / file).unlink()
    with pytest.raises(FrostlineError, match=said):
        frostline.predict(folder, read_unlabelled(pd.DataFrame(sentences(2)))[0])


def test_damaged_weights_and_a_model_without_a_head(finished_sweep: Path, tiny_bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    texts, _ = read_unlabelled(pd.DataFrame(sentences(2)))
    with pytest.raises(FrostlineError, match="cannot be used: transformers cannot load it for classification"):
        frostline.predict(folder, texts)
    with pytest.raises(FrostlineError, match=r"is not a trained classifier \(its weights lack classifier\.bias\)"):
        frostline.predict(tiny_bert, texts)


def test_multi_label_classifiers_are_refused(finished_sweep: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    with pytest.raises(FrostlineError, match="is a multi-label classifier"):
        frostline.predict(folder, read_unlabelled(pd.DataFrame(sentences(2)))[0])


def test_pairs_and_single_texts_are_not_confused(finished_sweep: Path, tmp_path: Path) -> None:
    pairs, _ = read_unlabelled(pd.DataFrame({"sentence1": ["good"], "sentence2": ["bad"]}))
    single, _ = read_unlabelled(pd.DataFrame({"text": ["good"]}))
    with pytest.raises(FrostlineError, match=r"has pairs, but the model in .* was trained on single texts"):
        frostline.predict(finished_sweep / "model", pairs)
    folder = Path(shutil.copytree(finished_sweep / "model", tmp_path / "model"))
    facts = json.loads((folder / "frostline.json").read_text())
    facts["columns"] = {"text": "sentence1", "text_pair": "sentence2", "label": "label"}
    (folder / "frostline.json").write_text(json.dumps(facts))
    with pytest.raises(FrostlineError, match=r"has single texts, but the model in .* was trained on pairs"):
        frostline.predict(folder, single)
    got = frostline.predict(folder, pairs)
    assert got.columns(pairs)[:3] == ["row", "text", "text_pair"] and next(got.rows(pairs))["text_pair"] == "bad"
    (folder / "frostline.json").unlink()  # any classifier of transformers
    assert len(frostline.predict(folder, single).values) == 1
