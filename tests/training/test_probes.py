"""Probes after every layer, of texts and of words: they equal scikit-learn's on hidden states of transformers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

import frostline
import frostline.training.linear_models as linear
from frostline import Probed
from frostline.report.probe_report import probe_sentence
from frostline.training.probes import FittedProbe, best_probe
from frostline.training.result import ProbeInput
from tagged import LABELS, small_base, table
from tiny import EXACT, sentences


@pytest.fixture(scope="module")
def probed(tiny_bert: Path, probe_tables: dict[str, Path]) -> Probed:
    """The probes for the sentiment."""
    one = frostline.probe(model=tiny_bert, label_column="label", **probe_tables, **EXACT)
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


def test_probes_of_texts_equal_scikit_learn(tiny_bert: Path, probe_tables: dict[str, Path], probed: Probed) -> None:
    frames = {name: pd.read_csv(probe_tables[name]) for name in ("train", "validation")}
    train, held = (vectors(tiny_bert, frames[name]["text"].tolist()) for name in ("train", "validation"))
    y, expected = ((frames[name]["label"] == "positive").astype(int) for name in ("train", "validation"))
    *single, last = probed.report.probes
    places = [((n,), vector) for n in range(4) for vector in ("first", "mean", "last")]
    assert [(probe.layers, probe.vector) for probe in single] == places
    flat = [probe for probe in single if probe.held_out is None]
    assert [(probe.layers, probe.vector) for probe in flat] == [((0,), "first")]  # it is the same for all texts
    best = max((probe for probe in single if probe not in flat), key=lambda probe: (probe.held_out, -probe.layers[0]))
    assert (last.layers, last.vector) == ((1, 2, 3), best.vector)
    alike = [
        FittedProbe(ProbeInput(layers=of, vector="mean"), None, 1.0, 0.9) for of in ((1, 2, 3), (3,), (2,), (1, 2))
    ]
    assert [best_probe(alike[:n]).input.layers for n in (2, 4)] == [(3,), (2,)]  # of equal scores, with fewer layers
    for probe in probed.report.probes:
        x, new = (
            np.concatenate([of[layer, probe.vector] for layer in probe.layers], 1).astype(float) for of in (train, held)
        )
        reference = make_pipeline(StandardScaler(), RidgeClassifier(probe.penalty * len(x))).fit(x, y)
        assert reference.score(new, expected) == pytest.approx(probe.validation, abs=1e-12), probe


MAX_LENGTH = 24  # some sentences of words are longer
TRAIN, VALIDATION = table(90), table(40, 1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_base(tmp_path_factory.mktemp("base"), "bert")


@pytest.fixture(scope="module")
def of_words(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Probed, Path]:
    """The probes of words, and their folder."""
    out = tmp_path_factory.mktemp("probe") / "o"
    given = {"train": TRAIN, "validation": VALIDATION, "labels": ",".join(LABELS), "max_length": MAX_LENGTH}
    one = frostline.probe(model=base, out=out, max_truncated=1.0, **given, **EXACT)
    return one, out


def first_tokens(base: Path, sentences: list[list[str]]) -> Iterator[tuple[list[int], Any]]:
    """For each sentence the words that have tokens, and the hidden states ``[layers, words, D]`` of their first tokens."""
    model, tokenizer = AutoModel.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    for words in sentences:
        given = tokenizer(words, is_split_into_words=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        places = given.word_ids()
        kept = sorted({place for place in places if place is not None})
        with torch.no_grad():
            states = torch.cat(model(**given, output_hidden_states=True).hidden_states)
        yield kept, states[:, [places.index(word) for word in kept]].numpy()


def test_probes_of_words_equal_scikit_learn(base: Path, of_words: tuple[Probed, Path]) -> None:
    report = of_words[0].report
    of_train, of_validation = (list(first_tokens(base, part["tokens"].tolist())) for part in (TRAIN, VALIDATION))
    tags = [row[word] for row, (kept, _) in zip(TRAIN["ner_tags"], of_train, strict=True) for word in kept]
    expected = [[row[n] for n in kept] for row, (kept, _) in zip(VALIDATION["ner_tags"], of_validation, strict=True)]
    assert sum(map(len, TRAIN["tokens"])) > len(tags)  # the last words of long sentences were cut off
    places = [*(((n,), "word") for n in range(4)), ((1, 2, 3), "word")]
    assert [(probe.layers, probe.vector) for probe in report.probes] == places
    for probe in report.probes:
        of = list(probe.layers)
        x = np.concatenate([np.concatenate(states[of], -1) for _, states in of_train])
        reference = make_pipeline(StandardScaler(), RidgeClassifier(probe.penalty * len(x))).fit(x, tags)
        found = [reference.predict(np.concatenate(states[of], -1)).tolist() for _, states in of_validation]
        assert f1_score(expected, found, mode="strict", scheme=IOB2) == pytest.approx(probe.validation, abs=1e-12), (
            probe
        )
    assert report.best.held_out > 0.8 > report.chance


def test_the_saved_probe_predicts_the_tags_that_were_scored(
    of_words: tuple[Probed, Path], frostline: Any, tmp_path: Path
) -> None:
    import frostline as package

    probed, out = of_words
    found = list(package.predict(out / "probe", VALIDATION).rows())
    for row in found:
        assert all((p is None) == (tag is None) for p, tag in zip(row["probabilities"], row["tags"], strict=True))
    seen = [[n for n, tag in enumerate(row["tags"]) if tag] for row in found]
    tags = [[row["tags"][n] for n in own] for row, own in zip(found, seen, strict=True)]
    expected = [[row[n] for n in own] for row, own in zip(VALIDATION["ner_tags"], seen, strict=True)]
    assert f1_score(expected, tags, mode="strict", scheme=IOB2) == pytest.approx(probed.report.best.validation)
    VALIDATION[["tokens"]].to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    result = frostline("predict", out / "probe", tmp_path / "new.jsonl", "--out", tmp_path / "tagged.jsonl")
    assert result.code == 0 and "40 sentences" in result.out, result.err
    assert pd.read_json(tmp_path / "tagged.jsonl", lines=True)["tags"].tolist() == [row["tags"] for row in found]
    with pytest.raises(package.FrostlineError, match="predicts tags of words: leave --threshold"):
        package.predict(out / "probe", VALIDATION, threshold=0.5)


def test_the_report_names_the_words(of_words: tuple[Probed, Path]) -> None:
    probed, out = of_words
    sentence = probed.report.sentence
    assert "probe on the first token of each word after layer" in sentence and "TF-IDF" not in sentence
    assert "A ridge probe on the first token of each word after each layer" in (out / "report.html").read_text()


def test_validation_labels_do_not_influence_the_probes(
    tiny_bert: Path, probe_tables: dict[str, Path], probed: Probed
) -> None:
    frame = pd.read_csv(probe_tables["validation"])
    frame["label"] = frame["label"].map({"positive": "negative", "negative": "positive"})
    flipped = frostline.probe(model=tiny_bert, label_column="label", **{**probe_tables, "validation": frame}, **EXACT)
    pairs = zip(flipped.report.probes, probed.report.probes, strict=True)
    assert all((one.held_out, one.penalty) == (other.held_out, other.penalty) for one, other in pairs)
    assert flipped.report.best.layers == probed.report.best.layers
    assert flipped.report.best.vector == probed.report.best.vector
    assert flipped.report.best.validation == pytest.approx(1 - probed.report.best.validation)


@pytest.mark.parametrize("of_tags", [False, True])
def test_every_row_twice_gives_the_probes_of_every_row_once(base: Path, of_tags: bool) -> None:
    train = TRAIN if of_tags else pd.DataFrame(sentences(60)).drop_duplicates("text").assign(label=["a", "b", "b"] * 20)
    given = {"model": base, "validation": train[:20], "max_truncated": 1.0, **EXACT}
    once, twice = (frostline.probe(train=pd.concat([train] * n), **given).report.probes for n in (1, 2))
    assert [probe.penalty for probe in twice] == [probe.penalty for probe in once]
    assert [probe.held_out for probe in twice] == pytest.approx([probe.held_out for probe in once], abs=1e-9)


def test_the_words_of_a_sentence_are_held_out_together(base: Path) -> None:
    """Words of one sentence resemble each other, so the other ones would give away what is random in its tags."""
    random = np.random.default_rng(0)
    train = TRAIN.assign(ner_tags=[[random.choice(["one", "two"])] * len(words) for words in TRAIN["tokens"]])
    given = {
        "train": train,
        "validation": VALIDATION.assign(ner_tags=[["one"] * len(one) for one in VALIDATION["tokens"]]),
    }
    report = frostline.probe(model=base, max_length=MAX_LENGTH, max_truncated=1.0, **given, **EXACT).report
    states = list(first_tokens(base, train["tokens"].tolist()))
    tags = [tags[0] for tags, (kept, _) in zip(train["ner_tags"], states, strict=True) for _ in kept]
    groups = [" ".join(words) for words, (kept, _) in zip(train["tokens"], states, strict=True) for _ in kept]
    for probe in report.probes:
        x = StandardScaler().fit_transform(
            np.concatenate([np.concatenate(of[[*probe.layers]], -1) for _, of in states])
        )
        one = RidgeClassifier(probe.penalty * len(x))
        left = cross_val_predict(one, x, tags, groups=groups, cv=LeaveOneGroupOut())
        assert np.mean(left == np.array(tags)) == pytest.approx(probe.held_out, abs=1e-12)


def test_logistic_regression_on_pairs(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PENALTIES", (1e-2, 1.0))
    frame = pd.DataFrame(sentences(80)).assign(text_pair=lambda f: f["text"].iloc[::-1].tolist())
    got = frostline.probe(model=tiny_bert, train=frame, kind="logistic", **EXACT)
    report = got.report
    assert report.kind == "logistic" and report.columns["text_pair"] == "text_pair"
    assert report.validation_rows == 8 and 0 <= report.low <= report.high <= 1


def test_random_labels_are_not_significantly_better_than_the_baseline(tiny_bert: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(sentences(200)).assign(label=rng.integers(0, 2, 200).astype(str))
    got = frostline.probe(model=tiny_bert, train=frame, held_out_share=0.4, **EXACT)
    assert "frozen features are not significantly better than the majority-class baseline" in got.report.sentence
    better = probe_sentence(got.report.model_copy(update={"low": 0.6, "chance": 0.5, "tfidf_score": -0.25}))
    assert (
        "frozen features are significantly better" in better and ". The best on held-out training examples, a" in better
    )
    assert better.endswith("the majority-class baseline reaches 0.500, the TF-IDF model −0.250.")
