"""Probes of words: they equal scikit-learn's on the first tokens of transformers' hidden states, cached or computed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

import frostline
from frostline.model.ways import Way
from frostline.training.estimators import ProbeEstimator, examples_of
from frostline.training.probes import Probed
from tagged import LABELS, small_base, tagged
from training.probe_tables import EXACT
from training.runs import spec_of, with_states
from training.test_tagging import context_of

MAX_LENGTH = 24  # some sentences are longer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_base(tmp_path_factory.mktemp("base"), "bert")


def frame(count: int, seed: int) -> pd.DataFrame:
    words, tags = tagged(count, seed=seed)
    return pd.DataFrame({"tokens": words, "ner_tags": tags})


TRAIN, VALIDATION = frame(90, 0), frame(40, 1)


@pytest.fixture(scope="module")
def saved(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Probed, Path]:
    """The probes, and their folder."""
    out = tmp_path_factory.mktemp("probe") / "o"
    given = {"train": TRAIN, "validation": VALIDATION, "labels": ",".join(LABELS), "max_length": MAX_LENGTH}
    (one,) = frostline.probe(model=base, out=out, max_truncated=1.0, **given, **EXACT)
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


def test_probes_equal_scikit_learn_on_first_tokens_of_transformers(base: Path, saved: tuple[Probed, Path]) -> None:
    probed, _ = saved
    of_train, of_validation = (list(first_tokens(base, part["tokens"].tolist())) for part in (TRAIN, VALIDATION))
    tags = [row[word] for row, (kept, _) in zip(TRAIN["ner_tags"], of_train, strict=True) for word in kept]
    expected = [[row[n] for n in kept] for row, (kept, _) in zip(VALIDATION["ner_tags"], of_validation, strict=True)]
    assert sum(map(len, TRAIN["tokens"])) > len(tags)  # the last words of long sentences were cut off
    assert [(probe["layers"], probe["vector"]) for probe in probed.facts["probes"]] == [
        *(((n,), "word") for n in range(4)),
        ((1, 2, 3), "word"),
    ]
    for probe in probed.facts["probes"]:
        x = np.concatenate([np.concatenate(states[list(probe["layers"])], -1) for _, states in of_train])
        reference = make_pipeline(StandardScaler(), RidgeClassifier(probe["penalty"] * len(x))).fit(x, tags)
        found = [
            reference.predict(np.concatenate(states[list(probe["layers"])], -1)).tolist() for _, states in of_validation
        ]
        score = f1_score(expected, found, mode="strict", scheme=IOB2)
        assert score == pytest.approx(probe["validation"], abs=1e-12), probe
    assert probed.best.held_out > 0.8 > probed.facts["chance"]


def test_the_saved_probe_predicts_the_same_tags(saved: tuple[Probed, Path], frostline: Any, tmp_path: Path) -> None:
    import frostline as package

    probed, out = saved
    found = list(package.predict(out / "probe", VALIDATION).rows())
    for row, logits in zip(found, probed.best.predicted, strict=True):
        expected = [None if np.isnan(word).any() else LABELS[word.argmax()] for word in logits[: len(row["tokens"])]]
        assert row["tags"] == expected
        assert all((p is None) == (tag is None) for p, tag in zip(row["probabilities"], row["tags"], strict=True))
    VALIDATION[["tokens"]].to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    result = frostline("predict", out / "probe", tmp_path / "new.jsonl", "--out", tmp_path / "tagged.jsonl")
    assert result.code == 0 and "40 sentences" in result.out, result.err
    assert pd.read_json(tmp_path / "tagged.jsonl", lines=True)["tags"].tolist() == [row["tags"] for row in found]
    with pytest.raises(package.FrostlineError, match="predicts tags of words: leave --threshold"):
        package.predict(out / "probe", VALIDATION, threshold=0.5)


def test_the_report_names_the_words(saved: tuple[Probed, Path]) -> None:
    probed, out = saved
    page = (out / "report.html").read_text()
    assert "probe on the first token of each word after layer" in probed.sentence and "TF-IDF" not in probed.sentence
    assert "A ridge probe on the first token of each word after each layer" in page


def test_cached_and_computed_states_give_the_same_probe(base: Path, tmp_path: Path) -> None:
    context = replace(context_of(base), labels=LABELS)
    cached = with_states(context, tmp_path, (0, 1, 2, 3))
    spec = spec_of("probe", way=Way(estimator="probe"), learning_rate=None)
    fits = [ProbeEstimator().fit(spec, one) for one in (context, cached)]
    assert fits[0].fitted.input == fits[1].fitted.input
    rows = np.random.default_rng(0).permutation(context.splits["test"])
    both = [fit.logits(rows, "test") for fit in fits]
    assert both[0].shape == (len(rows), context.problem.targets.shape[1], len(LABELS))
    np.testing.assert_allclose(*both, atol=1e-5)
    vectors = [examples_of(one, rows, range(4)).vectors(2) for one in (context, replace(cached))]
    np.testing.assert_allclose(*vectors, atol=1e-5)
