"""The saved model is trained once more on all labelled rows except the test set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import frostline
import frostline.report.recommended_model as recommended_model
from frostline.statistics.answer import Answer
from tiny import QUICK, Notes, sentences

LAST = {"load_best_model_at_end": False, "evaluations_per_epoch": 0}  # as a refit, which has no validation rows


def trained(out: Path, **settings: Any) -> tuple[Answer, list[str]]:
    """The answer of a sweep of one recipe, and what a user read."""
    notes = Notes()
    given = {**QUICK, "tune": 2, "test": "none", "workers": 1, "out": out, **settings}
    return frostline.sweep(**given, progress=notes).answer, notes.notes


def weights(out: Path) -> dict[str, Any]:
    return load_file(out / "model" / "model.safetensors")


def facts(out: Path) -> Any:
    return json.loads((out / "model" / "frostline.json").read_bytes())


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("held_out", [False, True])
def test_it_is_the_model_of_a_sweep_that_trains_on_all_rows(tiny_bert: Path, tmp_path: Path, held_out: bool) -> None:
    """With folds that is the default. Rows that are held out for validation come after those of training."""
    rows, given = pd.DataFrame(sentences(60)), {"model": tiny_bert, **LAST, "seeds": [2]}
    parts = {"train": rows[:45], "validation": rows[45:], "refit": True} if held_out else {"train": rows, "folds": 3}
    answer, _ = trained(tmp_path / "o", **given, **parts)
    trained(tmp_path / "all", **given, train=rows, validation=rows[45:])
    assert answer.refit_rows == 60 and facts(tmp_path / "o")["refit"]["rows"] == 60
    assert_same(weights(tmp_path / "o"), weights(tmp_path / "all"))


def test_it_is_trained_once(tiny_bert: Path, tmp_path: Path) -> None:
    """A second call finds it, also for another card; without the flag it is replaced."""
    given = {"model": tiny_bert, "train": pd.DataFrame(sentences(60)), "folds": 3}
    answer, _ = trained(tmp_path / "o", seeds=3, **given)
    found = facts(tmp_path / "o")
    assert found["run"] == answer.sizes[0].recommended.run and found["logit_gap"] is None  # type: ignore[union-attr]
    card = (tmp_path / "o" / "model" / "README.md").read_text()
    assert "on all 60 labelled" in card and "fine-tuned on 60 examples" in card and "metric_value" not in card
    assert "trained once more, on all 60 labelled rows. Scores are those" in (tmp_path / "o/report.html").read_text()
    file, before = tmp_path / "o" / "model" / "model.safetensors", weights(tmp_path / "o")
    written = file.stat().st_mtime_ns
    trained(tmp_path / "o", seeds=3, **given)
    assert file.stat().st_mtime_ns == written
    trained(tmp_path / "o", seeds=3, **given, calibrate=True)  # another card, the same weights
    assert file.stat().st_mtime_ns != written
    assert_same(weights(tmp_path / "o"), before)
    plain, _ = trained(tmp_path / "o", seeds=3, **given, refit=False)
    assert plain.refit_rows is None and facts(tmp_path / "o")["logit_gap"] == 0
    assert any(abs(before[name] - value).max() > 0 for name, value in weights(tmp_path / "o").items())


def test_if_it_fails_the_validated_model_is_saved(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(recommended_model, "run", fail)
    answer, notes = trained(tmp_path / "o", model=tiny_bert, train=pd.DataFrame(sentences(60)), folds=3, seeds=1)
    kept = "Training on all 60 labelled rows failed (RuntimeError: no memory); the saved model is that of the best run instead."
    assert kept in notes and answer.refit_rows is None and facts(tmp_path / "o")["logit_gap"] == 0


def test_a_way_without_the_loop_is_fitted_again(tiny_bert: Path, tmp_path: Path) -> None:
    given = {"model": tiny_bert, "train": pd.DataFrame(sentences(60)), "folds": 3, "tune": "words,0", "price": 50}
    answer, _ = trained(tmp_path / "o", seeds=3, **given)
    assert answer.sizes[0].recommended.recipe == "words" and answer.refit_rows == 60  # type: ignore[union-attr]
    assert len(list(frostline.predict(tmp_path / "o" / "model", ["a warm film"]).rows())) == 1
