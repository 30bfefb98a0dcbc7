"""Probes after every layer: they equal scikit-learn's, and validation scores do not influence the choice."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

import frostline
import frostline.training.linear_models as linear
from frostline.training.probes import Probed, last_layers_inputs, single_layer_inputs
from tiny import sentences
from training.probe_tables import EXACT, write_probe_tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_probe_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def probed(tiny_bert: Path, tables: dict[str, Any]) -> Probed:
    """The probes for the sentiment."""
    (one,) = frostline.probe(model=tiny_bert, label_columns="label", **tables, **EXACT)
    return one


def vectors(folder: Path, texts: list[str]) -> dict[tuple[int, str], Any]:
    """The pooled vectors of transformers after every layer, ``[n, D]``, one text at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found: dict[tuple[int, str], list[Any]] = {}
    with torch.no_grad():
        for text in texts:
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            for layer, x in enumerate(states):
                for name, vector in (("first", x[0, 0]), ("mean", x[0].mean(0)), ("last", x[0, -1])):
                    found.setdefault((layer, name), []).append(vector.numpy())
    return {place: np.stack(some) for place, some in found.items()}


def test_probes_equal_scikit_learn_on_features_of_transformers(
    tiny_bert: Path, tables: dict[str, Any], probed: Probed
) -> None:
    got = probed
    frames = {name: pd.read_csv(tables[name]) for name in ("train", "validation")}
    train, held = (vectors(tiny_bert, frames[name]["text"].tolist()) for name in ("train", "validation"))
    y = (frames["train"]["label"] == "positive").astype(int)
    expected = (frames["validation"]["label"] == "positive").astype(int)
    *single, last = got.facts["probes"]
    assert [(probe["layers"], probe["vector"]) for probe in single] == [
        (p.layers, p.vector) for p in single_layer_inputs(3, of_words=False)
    ]
    flat = [probe for probe in single if probe["held_out"] is None]
    assert [(probe["layers"], probe["vector"]) for probe in flat] == [
        ((0,), "first")
    ]  # this vector is the same for all texts
    best = max(
        (probe for probe in single if probe not in flat), key=lambda probe: (probe["held_out"], -probe["layers"][0])
    )
    assert [(last["layers"], last["vector"])] == [(p.layers, p.vector) for p in last_layers_inputs(3, best["vector"])]
    for probe in got.facts["probes"]:
        x, new = (
            np.concatenate([of[layer, probe["vector"]] for layer in probe["layers"]], 1).astype(float)
            for of in (train, held)
        )
        reference = make_pipeline(StandardScaler(), RidgeClassifier(probe["penalty"] * len(x))).fit(x, y)
        assert reference.score(new, expected) == pytest.approx(probe["validation"], abs=1e-12), probe


def test_probes_fitted_in_threads_equal_probes_fitted_one_by_one(
    tiny_bert: Path, tables: dict[str, Any], probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    (got,) = frostline.probe(model=tiny_bert, label_columns=["label"], **tables, **EXACT)
    assert got.facts == probed.facts


def test_validation_labels_do_not_influence_the_choice_of_the_probe(
    tiny_bert: Path, tables: dict[str, Any], probed: Probed
) -> None:
    frame = pd.read_csv(tables["validation"])
    frame["label"] = frame["label"].map({"positive": "negative", "negative": "positive"})
    (flipped,) = frostline.probe(model=tiny_bert, label_columns="label", **{**tables, "validation": frame}, **EXACT)
    assert flipped.best.input == probed.best.input and flipped.best.probe.penalty == probed.best.probe.penalty
    assert flipped.facts["best"]["score"] == pytest.approx(1 - probed.facts["best"]["score"])


def test_logistic_regression_on_pairs(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PENALTIES", (1e-2, 1.0))
    frame = pd.DataFrame(sentences(80)).assign(text_pair=lambda f: f["text"].iloc[::-1].tolist())
    (got,) = frostline.probe(model=tiny_bert, train=frame, kind="logistic", **EXACT)
    assert got.facts["kind"] == "logistic" and got.facts["columns"]["text_pair"] == "text_pair"
    assert got.facts["validation_rows"] == 8 and 0 <= got.facts["best"]["low"] <= got.facts["best"]["high"] <= 1


def test_random_labels_are_not_significantly_better_than_the_baseline(tiny_bert: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(sentences(200)).assign(label=rng.integers(0, 2, 200).astype(str))
    (got,) = frostline.probe(model=tiny_bert, train=frame, held_out_share=0.4, **EXACT)
    assert "frozen features are not significantly better than the majority-class baseline" in got.sentence
