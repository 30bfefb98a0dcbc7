"""Probing as a whole: features that are the model's own, places chosen without validation, probes that can be used again."""

import json
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
from frostline import FrostlineError
from frostline.data import read_unlabelled
from frostline.frozen.forward_pass import Pass, PassBatch
from frostline.training.probes.probing import places, together
from tiny import Frostline as Program
from tiny import sentences, write_csv

EXACT = {"precision": "float32"}


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """Training and validation sentences with two columns of labels: what is said of a film, and how long the sentence is."""
    files = {}
    for split, count, seed in (("train", 120, 0), ("validation", 60, 1)):
        rows = [{**row, "words": str(len(row["text"].split()))} for row in sentences(count, seed=seed)]
        files[split] = write_csv(tmp_path / f"{split}.csv", rows)
    return {**files, "text_column": "text"}


def vectors(folder: Path, texts: list[str]) -> dict[tuple[int, str], Any]:
    """By transformers, one text at a time: [n, D] after every layer."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found: dict[tuple[int, str], list[Any]] = {}
    with torch.no_grad():
        for text in texts:
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            for layer, x in enumerate(states):
                for name, vector in (("first", x[0, 0]), ("mean", x[0].mean(0)), ("last", x[0, -1])):
                    found.setdefault((layer, name), []).append(vector.numpy())
    return {place: np.stack(some) for place, some in found.items()}


def test_probes_are_scikit_learns_on_transformers_own_features(tiny_bert: Path, tables: dict[str, Any]) -> None:
    (got,) = frostline.probe(model=tiny_bert, label_columns=["label"], **tables, **EXACT)
    frames = {name: pd.read_csv(tables[name]) for name in ("train", "validation")}
    train, held = (vectors(tiny_bert, frames[name]["text"].tolist()) for name in ("train", "validation"))
    y = (frames["train"]["label"] == "positive").astype(int)
    wanted = (frames["validation"]["label"] == "positive").astype(int)
    *single, last = got.facts["probes"]
    assert [(probe["layers"], probe["vector"]) for probe in single] == [(p.layers, p.pooled) for p in places(3)]
    flat = [probe for probe in single if probe["unseen"] is None]
    assert [(probe["layers"], probe["vector"]) for probe in flat] == [((0,), "first")]  # the same for all texts
    best = max(
        (probe for probe in single if probe not in flat), key=lambda probe: (probe["unseen"], -probe["layers"][0])
    )
    assert [(last["layers"], last["vector"])] == [(p.layers, p.pooled) for p in together(3, best["vector"])]
    for probe in got.facts["probes"]:
        x, new = (
            np.concatenate([of[layer, probe["vector"]] for layer in probe["layers"]], 1).astype(float)
            for of in (train, held)
        )
        hand = make_pipeline(StandardScaler(), RidgeClassifier(probe["strength"] * len(x))).fit(x, y)
        assert hand.score(new, wanted) == pytest.approx(probe["validation"], abs=1e-12), probe


def test_probes_side_by_side_are_those_of_one_at_a_time(
    tiny_bert: Path, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        (got,) = frostline.probe(model=tiny_bert, label_columns=["label"], **tables, **EXACT)
        facts.append(got.facts)
    assert facts[0] == facts[1]


def test_validation_decides_nothing(tiny_bert: Path, tables: dict[str, Any], tmp_path: Path) -> None:
    (got,) = frostline.probe(model=tiny_bert, label_columns="label", **tables, **EXACT)
    frame = pd.read_csv(tables["validation"])
    frame["label"] = frame["label"].map({"positive": "negative", "negative": "positive"})
    (turned,) = frostline.probe(model=tiny_bert, label_columns="label", **{**tables, "validation": frame}, **EXACT)
    assert turned.best.place == got.best.place and turned.best.probe.strength == got.best.probe.strength
    assert turned.facts["best"]["score"] == pytest.approx(1 - got.facts["best"]["score"])


def test_what_is_not_defined_is_null_and_drawn_as_nothing(
    frostline: Program, tiny_bert: Path, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the embeddings all texts have the same first token, of which nothing is correlated with anything."""
    monkeypatch.chdir(tmp_path)
    words = ["--train", tables["train"], "--validation", tables["validation"], "--text-column", "text"]
    said = frostline("probe", "--model", tiny_bert, *words, "--label-column", " words ", "--problem-type", "regression")
    assert said.code == 0 and "nan" not in said.out.lower().replace("nant", ""), said.err
    facts = json.loads(Path("frostline-probe/probes.json").read_text(), parse_constant=pytest.fail)["probes"][0]
    assert facts["probes"][0]["unseen"] is None and facts["probes"][0]["validation"] is None
    assert facts["best"]["score"] is not None and "nan" not in Path("frostline-probe/tables/probes.csv").read_text()


def test_where_nothing_can_be_scored_it_says_so(tiny_bert: Path, tables: dict[str, Any], tmp_path: Path) -> None:
    """The correlation of one row."""
    frame = pd.read_csv(tables["validation"])[:1]
    wanted = {**tables, "validation": frame, "problem_type": "regression", **EXACT}
    (got,) = frostline.probe(model=tiny_bert, label_columns="words", out=tmp_path / "p", **wanted)
    assert got.facts["best"]["score"] is None and "No probe has a" in got.sentence
    page = (tmp_path / "p" / "report.html").read_text()
    assert "No probe has a" in page and " nan" not in page and ">nan" not in page


def test_several_columns_take_one_pass_and_the_next_call_none(
    tiny_bert: Path, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    batches = Pass.batches

    def counted(made_by: Pass, *args: Any) -> list[PassBatch]:
        found = batches(made_by, *args)
        passed.extend(len(batch.rows) for batch in found if made_by.need.pooled)
        return found

    monkeypatch.setattr(Pass, "batches", counted)
    monkeypatch.setattr("frostline.frozen.hidden_states.cache_folder", lambda: tmp_path / "cache")
    wanted = {"model": tiny_bert, "label_columns": "label,words", **tables, **EXACT}
    films, words = frostline.probe(**wanted)
    assert sum(passed) == pd.concat([pd.read_csv(tables[name]) for name in ("train", "validation")])["text"].nunique()
    assert films.facts["columns"]["label"] == "label" and words.facts["columns"]["label"] == "words"
    passed.clear()
    again = frostline.probe(**wanted)
    assert not passed and [one.facts for one in again] == [films.facts, words.facts]


def test_what_was_saved_predicts_the_same(tiny_bert: Path, tables: dict[str, Any], tmp_path: Path) -> None:
    for labels, more in (("label", {}), ("words", {"problem_type": "regression"})):
        (got,) = frostline.probe(
            model=tiny_bert, label_columns=labels, out=tmp_path / labels, **tables, **more, **EXACT
        )
        folder = tmp_path / labels / "probe"
        texts, _ = read_unlabelled(tables["validation"])
        said = frostline.predict(folder, texts)
        features = got.best.values if labels == "words" else got.best.values.argmax(1)
        if labels == "words":
            np.testing.assert_allclose(said.values, features, rtol=1e-5)
            assert not said.labels
        else:
            assert (said.values.argmax(1) == features).all()
            np.testing.assert_allclose(said.values.sum(1), 1, rtol=1e-6)
            assert said.labels == ("negative", "positive")


def test_pairs_and_logistic(tiny_bert: Path) -> None:
    frame = pd.DataFrame(sentences(80)).assign(text_pair=lambda f: f["text"].iloc[::-1].tolist())
    (got,) = frostline.probe(model=tiny_bert, train=frame, kind="logistic", **EXACT)
    assert got.facts["kind"] == "logistic" and got.facts["columns"]["text_pair"] == "text_pair"
    assert got.facts["validation_rows"] == 8 and 0 <= got.facts["best"]["low"] <= got.facts["best"]["high"] <= 1


def test_noise_is_called_noise(tiny_bert: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(sentences(200)).assign(label=rng.integers(0, 2, 200).astype(str))
    (got,) = frostline.probe(model=tiny_bert, train=frame, held_out_share=0.4, **EXACT)
    assert "it cannot be told that frozen features are better than guessing" in got.sentence


def test_the_program(frostline: Program, tiny_bert: Path, tables: dict[str, Any]) -> None:
    words = [
        "--model",
        tiny_bert,
        "--train",
        tables["train"],
        "--validation",
        tables["validation"],
        "--text-column",
        "text",
    ]
    said = frostline("probe", *words, "--label-column", "label,words", "--out", "p")
    assert said.code == 0, said.err
    assert "after layer" in said.out and "words: accuracy on 60 validation rows" in said.out
    page = Path("p/report.html").read_text()
    assert page.count("<figure") == 2 and "What frozen" not in said.out
    facts = json.loads(Path("p/probes.json").read_text())["probes"]
    assert [one["columns"]["label"] for one in facts] == ["label", "words"]
    assert Path("p/tables/probes_words.csv").read_text().count("\n") == 1 + len(places(3)) + 1
    assert Path("p/figures/probe_curve_label.svg").exists()
    assert frostline("probe", *words, "--label-column", "label", "--out", "p").code == 0  # into its own folder again
    said = frostline("predict", "p/probe_words", tables["validation"], "--out", "said.csv")
    assert said.code == 0 and Path("said.csv").read_text().startswith("row,text,label,p(")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--kind", "tree"], "There is no kind of probe 'tree': give ridge or logistic"),
        (["--label-column", "lable"], "there is no column 'lable'"),
        (["--out", "full"], "full exists and holds no probes"),
        (["--max-length", "4"], "would be cut"),
    ],
)
def test_mistakes(frostline: Program, tiny_bert: Path, tables: dict[str, Any], more: list[str], message: str) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    words = ["--model", tiny_bert, "--train", tables["train"], "--text-column", "text", "--label-column", "label"]
    said = frostline("probe", *words, *more)
    assert said.code == 2 and message in said.err and said.err.count("\n") == 1, said.err
    assert not Path("frostline-probe").exists()


def test_a_setting_that_is_of_training(tiny_bert: Path, tables: dict[str, Any]) -> None:
    with pytest.raises(FrostlineError, match="Probes have no setting 'tune'"):
        frostline.probe(model=tiny_bert, tune="0,1", **tables)
