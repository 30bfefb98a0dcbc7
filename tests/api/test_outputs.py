"""Texts with any number of labels, from a table to the saved model: sweep, search, probes, predictions, pipeline, bundle."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import pipeline

import frostline
from frostline import FrostlineError, Predictions
from frostline.api.find import find
from frostline.api.probe import probe
from frostline.model.terms import TEMPERATURE, THRESHOLDS
from frostline.report.error_analysis import errors_of_recommended
from frostline.report.formatting import percent
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from pages import answer_of
from small_models import edit_config, write_base, write_task
from tiny import GOOD, QUICK, Frostline, run_sweep, sentences

LABELS = ("long", "plot", "warm")
SETTINGS: dict[str, Any] = {"tune": "0,1,all", "seeds": 2, **QUICK}


def table(count: int, seed: int = 0) -> pd.DataFrame:
    texts = [row["text"] for row in sentences(count, seed=seed)]
    marks = {"warm": lambda words: any(w in GOOD for w in words), "plot": lambda words: "plot" in words}
    marks["long"] = lambda words: len(words) > 6
    sets = [[label for label, mark in marks.items() if mark(text.split())] for text in texts]
    return pd.DataFrame({"text": texts, "labels": sets})


def flags(count: int, seed: int = 0) -> pd.DataFrame:
    frame = table(count, seed)
    return frame[["text"]].assign(**{label: [int(label in own) for own in frame["labels"]] for label in LABELS})


@pytest.fixture(scope="module")
def finished(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep, with report, thresholds, temperature and model."""
    out = tmp_path_factory.mktemp("labels") / "o"
    settings = {"model": tiny_bert, "train": table(120), "out": out, "threshold": "f1_macro", "calibrate": True}
    frostline.sweep(progress=Progress(), **settings, **SETTINGS)
    return out


def test_the_answer_has_thresholds_for_every_label(finished: Path) -> None:
    answer = answer_of(finished)
    assert answer.metric == "f1_micro" and answer.task_type == "multi-label-classification"
    assert answer.sizes[0].recommended.validation_best > 0.4 and 0.4 < answer.chance < 0.8
    assert list(answer.threshold.by_label) == list(LABELS) and answer.calibration.counted == "pairs"
    assert answer.calibration.examples == 3 * answer.validation_rows
    config = json.loads((finished / "model" / "config.json").read_bytes())
    assert config["problem_type"] == "multi_label_classification"
    assert config[THRESHOLDS] == answer.threshold.by_label and config[TEMPERATURE] > 0


def test_predictions_are_those_of_the_sweep_and_of_a_pipeline(finished: Path, tmp_path: Path) -> None:
    rows = pd.read_parquet(finished / "validation.parquet")
    logits = Folder(finished).predictions(answer_of(finished).sizes[0].recommended.run)
    folder = shutil.copytree(finished / "model", tmp_path / "model")
    edit_config(folder, **{TEMPERATURE: 1.0, THRESHOLDS: {}})
    texts = rows["text"].tolist()
    plain = frostline.predict(folder, texts)
    assert isinstance(plain, Predictions) and plain.classes == LABELS and plain.thresholds == dict.fromkeys(LABELS, 0.5)
    np.testing.assert_allclose(plain.values, 1 / (1 + np.exp(-logits)), atol=1e-6)
    assert plain.labels == [[label for label, z in zip(LABELS, own, strict=True) if z >= 0] for own in logits]
    classify = pipeline("text-classification", str(folder), top_k=None, function_to_apply="sigmoid")
    for ours, theirs in zip(plain.values, classify(texts), strict=True):
        assert {one["label"]: one["score"] for one in theirs} == pytest.approx(
            dict(zip(LABELS, ours, strict=True)), abs=1e-5
        )
    saved = frostline.predict(finished / "model", texts)
    temperature, limits = saved.temperature, answer_of(finished).threshold.by_label
    np.testing.assert_allclose(saved.values, 1 / (1 + np.exp(-logits / temperature)), atol=1e-6)
    assert saved.labels[0] == [x for x, p in zip(LABELS, saved.values[0], strict=True) if p >= limits[x]]
    errors = errors_of_recommended(Folder(finished), answer_of(finished))
    printed = {(one.text, label, after) for one in errors.worst for _, label, after in one.parts if after}
    likely = {
        (text, label): p
        for text, own in zip(texts, saved.values, strict=True)
        for label, p in zip(LABELS, own, strict=True)
    }
    assert printed and all(after == f" ({percent(float(likely[text, label]))})" for text, label, after in printed)
    assert frostline.predict(finished / "model", texts, threshold=0.99).thresholds == dict.fromkeys(LABELS, 0.99)


def test_unusable_thresholds_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="threshold cannot be 2"):
        frostline.predict(finished / "model", ["a text"], threshold=2.0)
    for value, message in (
        ({"colour": 0.5}, "for labels among long, plot, warm"),
        ({"long": "high"}, "long in config"),
    ):
        folder = shutil.copytree(finished / "model", tmp_path / message[:3])
        edit_config(folder, **{THRESHOLDS: value})
        with pytest.raises(FrostlineError, match=message):
            frostline.predict(folder, ["a text"])


def test_the_command_writes_lists_of_labels(finished: Path, frostline: Frostline, tmp_path: Path) -> None:
    table(5, seed=7)[["text"]].to_csv(tmp_path / "new.csv", index=False)
    result = frostline("predict", finished / "model", "new.csv")
    assert result.code == 0 and re.search(r"Each label has its own threshold, from 0\.\d+ to 0\.\d+\.\n", result.err)
    assert frostline("predict", finished / "model", "new.csv", "--out", "new.jsonl").code == 0
    written = pd.read_csv(tmp_path / "new.predictions.csv")
    lines = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert list(written) == list(lines[0]) == ["row", "text", "labels", *(f"p({label})" for label in LABELS)]
    assert [json.loads(own) for own in written["labels"]] == [line["labels"] for line in lines]


def test_report_and_card_are_about_labels(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    for text in ("Scores by label", "Labels and probabilities", "Examples by label", "saved<br>threshold", "macro F1"):
        assert text in page, text
    assert "have a wrong label" in page and "Confusion matrix" not in page
    card = (finished / "model" / "README.md").read_text()
    assert 'frostline.predict("path/to/this/folder"' in card and "| label | validation examples |" in card


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "accuracy"}, "--threshold accuracy cannot maximize accuracy over sets"),
        ({"threshold": "best", "metric": "subset_accuracy"}, "cannot maximize subset_accuracy"),
        ({"metric": "accuracy"}, "choose one of f1_micro, f1_macro, subset_accuracy"),
        ({"class_weights": {"long": 2.0}}, "do not include 'plot', 'warm'"),
    ],
)
def test_settings_that_label_sets_do_not_have_are_refused(
    tiny_bert: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrostlineError, match=message):
        run_sweep({**SETTINGS, "model": tiny_bert, "train": table(60), "out": tmp_path / "o", **settings})


def test_probes_and_the_words_model_predict_labels(tiny_bert: Path, tmp_path: Path) -> None:
    settings = {"model": tiny_bert, "train": flags(120), "indicator_columns": list(LABELS), "precision": "float32"}
    found = probe(out=tmp_path / "probes", **settings)
    report = found.report
    assert report.metric == "f1_micro" and report.best.validation > report.chance and report.tfidf_score is not None
    predictions = frostline.predict(tmp_path / "probes" / "probe", table(5)["text"].tolist())
    assert isinstance(predictions, Predictions) and predictions.classes == LABELS
    with pytest.raises(FrostlineError, match="--kind logistic is for one label for each text"):
        probe(kind="logistic", **settings)


@pytest.mark.slow
def test_a_search_compares_with_models_that_train_no_layer(tiny_bert: Path, tmp_path: Path) -> None:
    settings = {
        "model": tiny_bert,
        "train": table(100),
        "out": tmp_path / "o",
        "budget": 1000.0,
        "progress": Progress(),
    }
    answer = find(**settings, **{**QUICK, "num_train_epochs": 1, "seeds": 2, "tune": "0,1"}).answer
    assert answer.metric == "f1_micro" and answer.search["probes"]["metric"] == "f1_micro"


def test_a_bundle_predicts_labels_beside_classes(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "bert")
    folders = [write_task(tmp_path / name, base, 1, labels=("a", "b"), seed=n) for n, name in enumerate("xy")]
    edit_config(folders[0], problem_type="multi_label_classification")
    frostline.bundle(folders, out=tmp_path / "both")
    together = frostline.load_bundle(tmp_path / "both")(["w11 w12", "w13"])
    assert list(together["x"].rows()) == list(frostline.predict(folders[0], ["w11 w12", "w13"]).rows())
    assert "labels" in next(together["x"].rows()) and "label" in next(together["y"].rows())
