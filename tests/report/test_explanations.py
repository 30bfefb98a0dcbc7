"""Sentences beside an answer: the next command, and how to load the model."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION
from frostline.report.explanations import (
    advice,
    loading,
    next_command,
    off_scale,
    sentence_without_command,
    unbalanced,
)
from frostline.statistics.answer import Counts
from frostline.statistics.predictions import Labelled
from pages import answer_of

COMMAND = "frostline sweep o/sweep.toml --seeds 5"


@pytest.mark.parametrize(
    ("command", "seconds", "pending", "above", "expected"),
    [
        (COMMAND, None, 0, True, f" To be surer: `{COMMAND}`."),
        (COMMAND, 1450.0, 0, None, f" To be surer, with about 24 min of training: `{COMMAND}`."),
        ("the same command with --folds 5", None, 0, True, " To be surer: the same command with --folds 5."),
        (COMMAND, None, 0, False, f" Next step: `{COMMAND}`."),  # nothing was learned
        (COMMAND, None, 1, True, ""),
        (None, None, 0, True, ""),
    ],
)
def test_the_command_stands_on_its_own(
    command: str | None, seconds: float | None, pending: int, above: bool | None, expected: str
) -> None:
    sizes = [SimpleNamespace(decision=SimpleNamespace(above_baseline=above), learned=False)]
    counts = Counts(done=4, failed=0, pending=pending)
    answer: Any = SimpleNamespace(next_command=command, next_seconds=seconds, runs=counts, sizes=sizes)
    answer.sentence = f"Tune the last layer.{expected} A probe scores higher."
    assert advice(answer) == expected and next_command(answer) == (command if expected else None)
    assert sentence_without_command(answer) == "Tune the last layer. A probe scores higher."


@pytest.mark.parametrize(
    ("rare", "of", "metric", "weighted", "end"),
    [
        (16, 100, "accuracy", False, "every class alike, and --class-weights balanced trains so."),
        (16, 100, "accuracy", True, "every class alike."),
        (17, 100, "accuracy", False, None),  # more than a third of an even share
        (16, 100, "f1_macro", False, None),
    ],
)
def test_a_rare_class_is_what_accuracy_hides(rare: int, of: int, metric: str, weighted: bool, end: str | None) -> None:
    split = Labelled(np.repeat([0, 1], [of - rare, rare]), CLASSIFICATION, ("ham", "spam"), metric)
    found = unbalanced(split, weighted=weighted)
    begin = " Only 16 % of the validation examples have the label 'spam': accuracy 0.840 needs none of them right."
    assert found == (f"{begin} --metric f1_macro counts {end}" if end else "")


@pytest.mark.parametrize(
    ("offset", "scale", "metric", "found"),
    [
        (0, 1, "pearson", None),
        (0.4, 1, "pearson", None),
        (5, 1, "pearson", "−24.000"),
        (5, 1, "r2", "−24.000"),
        (0, 9, "spearmanr", "−63.0"),
        (0, 1e-6, "spearmanr", "0.000 on validation, and would be 1.000 with another"),
        (0, -1, "pearson", "−3.000 on validation, and would be 0.000 with another"),
    ],
)
def test_numbers_far_from_the_labels_are_named(offset: float, scale: float, metric: str, found: str | None) -> None:
    """A correlation does not see them. The last rows are not scored, as with folds."""
    labels = np.array([-1.0, 1.0] * 20)
    numbers = np.append(scale * labels[:-2] + offset, [np.nan, np.nan])[:, None]
    split = Labelled(labels, REGRESSION, (), metric)
    for standardized, remedy in ((True, "with more epochs"), (False, "Leave --no-standardize-targets out")):
        said = off_scale(split, numbers, standardized=standardized)
        assert (f"R² is {found}" in said and remedy in said) if found else said == ""


@pytest.mark.parametrize(
    ("changes", "begin", "there", "printed"),
    [
        ((), "from transformers import pipeline", "truncation=True", "'score': "),
        (("no layer",), "import frostline\n", "", "'label': "),
        (("calibrated",), "import frostline\nfound = frostline.predict(", "", "'label': "),
        (("several labels",), "from transformers", 'top_k=None, function_to_apply="sigmoid")', "'score': "),
        (("pairs",), "from transformers", '{"text": "A text.", "text_pair": "Its pair."}', None),
        (("pairs", "no layer"), "import frostline, pandas", "DataFrame", None),
    ],
)
def test_the_model_can_be_loaded_as_shown(
    classified: Path,
    capsys: pytest.CaptureFixture[str],
    changes: tuple[str, ...],
    begin: str,
    there: str,
    printed: str | None,
) -> None:
    """The model of these texts has no pairs."""
    answer = answer_of(classified)
    if "no layer" in changes:
        answer.sizes[0].recommended = None
    if "calibrated" in changes and answer.calibration is not None:
        answer.calibration = replace(answer.calibration, saved=True)
    if "several labels" in changes:
        answer.task_type = MULTI_LABEL
    if "pairs" in changes:
        answer.columns = {**(answer.columns or {}), "text_pair": "other"}
    code = loading(answer, classified / "model")
    assert code is not None and len(code.splitlines()) == 3 and code.startswith(begin) and there in code
    if printed:
        exec(code, {})
        assert printed in capsys.readouterr().out
    answer.sizes[0].recommended = answer.sizes[0].decision = None
    assert loading(answer, classified / "model") is None
