"""Sentences beside an answer: the next command, how to load the model, what failed, and what is uncertain."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frostline.data.kinds import MULTI_LABEL
from frostline.report.explanations import (
    advice,
    explain_uncertainty,
    loading,
    next_command,
    sentence_without_command,
    training_time,
    trouble,
)
from frostline.statistics.answer import Counts
from pages import answer_of


def answer(command: str | None = "frostline sweep o/sweep.toml --seeds 5", pending: int = 0) -> Any:
    advice = f" To be surer: `{command}`." if command and not pending else ""
    return SimpleNamespace(
        sentence=f"Tune the last layer.{advice} A probe scores higher.",
        decision=SimpleNamespace(next_command=command, next_seconds=None),
        runs=Counts(done=4, failed=0, pending=pending),
    )


def test_the_command_stands_on_its_own() -> None:
    assert next_command(answer()) == "frostline sweep o/sweep.toml --seeds 5"
    for one in (answer(), answer(None), answer(pending=1)):
        assert sentence_without_command(one) == "Tune the last layer. A probe scores higher."
    assert next_command(answer(None)) is None and next_command(answer(pending=1)) is None
    undecided = answer()
    undecided.decision = None
    assert next_command(undecided) is None


def test_the_model_can_be_loaded_as_shown(classified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer_of(classified)
    code = loading(found, classified / "model")
    assert code is not None and len(code.splitlines()) == 3 and code.startswith("from transformers import pipeline")
    assert "truncation=True" in code
    exec(code, {})
    assert "'score': " in capsys.readouterr().out


def test_a_recommendation_that_is_no_k_is_loaded_by_frostline(
    classified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer_of(classified)
    found.sizes[0].recommended = None
    code = loading(found, classified / "model")
    assert code is not None and len(code.splitlines()) == 3 and code.startswith("import frostline")
    exec(code, {})
    assert "'label': " in capsys.readouterr().out


def test_a_model_with_a_temperature_is_loaded_by_frostline(classified: Path) -> None:
    found = answer_of(classified)
    assert found.calibration is not None
    found.calibration = replace(found.calibration, saved=True)
    assert str(loading(found, Path("o/model"))).startswith("import frostline\nfound = frostline.predict(")


def test_each_of_several_labels_is_shown_with_a_probability_of_its_own(classified: Path) -> None:
    found = replace(answer_of(classified), task_type=MULTI_LABEL)
    assert 'top_k=None, function_to_apply="sigmoid")' in str(loading(found, Path("o/model")))


def test_pairs_are_loaded_with_pairs(classified: Path) -> None:
    found = answer_of(classified)
    found.columns = {**(found.columns or {}), "text_pair": "other"}
    assert '{"text": "A text.", "text_pair": "Its pair."}' in str(loading(found, Path("o/model")))
    found.sizes[0].recommended = None
    assert "DataFrame" in str(loading(found, Path("o/model")))
    found.sizes[0].recommended = found.sizes[0].decision = None
    assert loading(found, Path("o/model")) is None


def test_trouble_counts_every_run_that_did_not_succeed() -> None:
    assert trouble(Counts(done=3, failed=0, pending=0), 0) is None
    text = trouble(Counts(done=33, failed=1, pending=4), 2)
    failed = "2 of 33 finished runs failed (diverged, collapsed, or predict the same for all examples)"
    assert text == f"{failed}; 1 run ended in an error; 4 runs not trained yet."


def test_the_time_of_the_next_command_is_said() -> None:
    known = answer()
    assert training_time(known) is None and advice(known) == " To be surer: `frostline sweep o/sweep.toml --seeds 5`."
    known.decision.next_seconds = 1450.0
    assert training_time(known) == "about 24 min of training"
    assert advice(known) == " To be surer, with about 24 min of training: `frostline sweep o/sweep.toml --seeds 5`."
    known.sentence = f"Tune it.{advice(known)}"
    assert sentence_without_command(known) == "Tune it."
    assert advice(answer(None)) == advice(answer(pending=1)) == ""


def explained(runs: int, seeds: int) -> str:
    """What is said of an undecided k = 1, if full fine-tuning has this many of the seeds."""
    point = SimpleNamespace(verdict="undecided", not_ruled_out="last 1", confident="full", margin=None, target=0.95)
    cells = [SimpleNamespace(recipe="full", runs=runs)]
    size: Any = SimpleNamespace(reference="full", learned=True, cells=cells, seeds_to_decide=12, deciding_point=point)
    sentence = explain_uncertainty(size, seeds, baseline="majority-class baseline")
    assert sentence
    return sentence


@pytest.mark.parametrize(
    ("runs", "seeds", "begin"),
    [
        (1, 1, "One seed gives no confidence interval"),
        (1, 5, "One seed of full fine-tuning gives no confidence interval"),
        (2, 5, "No smaller k has its whole interval above 95"),
    ],
)
def test_intervals_are_explained_only_if_the_reference_has_several_seeds(runs: int, seeds: int, begin: str) -> None:
    text = explained(runs, seeds)
    assert text.startswith(begin) and ("not ruled out" in text) == (runs > 1) == ("about 12 seeds" in text)
