"""The GLUE tasks: names, labels, metrics, and the options that they decide."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk

from frostline import FrostlineError
from frostline.data.glue import GLUE, glue_task
from frostline.data.kinds import REGRESSION
from frostline.statistics.metrics import check_metric, score
from glue_layouts import (
    NAMES,
    original,
)
from loaded import loaded, refused


def test_the_nine_tasks() -> None:
    assert NAMES == ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
    facts = {task.name: (task.labels, task.metric) for task in GLUE.values()}
    assert facts == {
        "CoLA": (("unacceptable", "acceptable"), "matthews_correlation"),
        "SST-2": (("negative", "positive"), "accuracy"),
        "MRPC": (("not_equivalent", "equivalent"), "f1"),
        "STS-B": ((), "spearmanr"),
        "QQP": (("not_duplicate", "duplicate"), "f1"),
        "MNLI": (("entailment", "neutral", "contradiction"), "accuracy"),
        "QNLI": (("entailment", "not_entailment"), "accuracy"),
        "RTE": (("entailment", "not_entailment"), "accuracy"),
        "WNLI": (("not_entailment", "entailment"), "accuracy"),
    }


@pytest.mark.parametrize("written", ["SST-2", "sst2", "sst-2", "SST2", "Sst_2", " sst 2"])
def test_names_in_any_case(written: str) -> None:
    assert glue_task(written).name == "SST-2"


def test_the_error_for_an_unknown_task_suggests_a_similar_name() -> None:
    sentence = refused(glue="colla")
    assert sentence.startswith(
        "--glue 'colla' is not a task of GLUE (did you mean 'CoLA'?); pass one of CoLA, SST-2, MRPC"
    )
    with pytest.raises(FrostlineError, match="'imdb' is not a task of GLUE"):
        glue_task("imdb")


@pytest.mark.parametrize(
    "option",
    [
        {"text_column": "sentence"},
        {"text_pair_column": "sentence2"},
        {"label_column": "label"},
        {"column_names": ["a", "b"]},
        {"task_type": REGRESSION},
        {"labels": ["a", "b"]},
        {"config": "cola"},
    ],
)
def test_options_that_the_task_decides_are_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    flag = "--" + next(iter(option)).replace("_", "-")
    sentence = refused(glue="cola", data=original(tmp_path, "CoLA"), **option)
    assert (
        sentence.startswith(f"{flag} cannot be given with CoLA of GLUE, which decides") and "leave it out" in sentence
    )
    assert "leave them out" in refused(glue="cola", text_column="a", label_column="b")


def test_the_name_of_the_task_can_be_given(tmp_path: Path) -> None:
    data = loaded(glue="wnli", data=original(tmp_path, "WNLI"), test="none", task="Winograd")
    assert data.task.name == "Winograd" and data.task.labels == ("not_entailment", "entailment")


@pytest.mark.parametrize("name", NAMES)
def test_the_metric_equals_that_of_other_libraries(name: str) -> None:
    task = glue_task(name)
    if name == "STS-B":
        targets, logits = np.array([0.0, 2.5, 5.0, 3.0]), np.array([[0.4], [0.1], [4.0], [3.9]])
        expected = scipy.stats.spearmanr(targets, logits[:, 0]).statistic
        assert expected == pytest.approx(0.8)
    else:
        targets, predicted = np.array([0, 0, 0, 1, 1, 1, 1, 0]), np.array([0, 1, 0, 1, 0, 1, 1, 0])
        logits = np.eye(len(task.labels))[predicted]
        expected = {
            "accuracy": sk.accuracy_score(targets, predicted),
            "f1": sk.f1_score(targets, predicted),  # of the class with index 1
            "matthews_correlation": sk.matthews_corrcoef(targets, predicted),
        }[task.metric]
        by_hand = {"accuracy": 6 / 8, "f1": 2 * 3 / (2 * 3 + 1 + 1), "matthews_correlation": (3 * 3 - 1) / 16}
        assert expected == pytest.approx(by_hand[task.metric])
    assert check_metric(task.metric, task.task_type, len(task.labels)) == task.metric
    assert score(targets, logits, task.task_type)[task.metric] == pytest.approx(expected)
