"""Models that train no layer, as a search fits and saves them, and its estimate of k."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline
import frostline.search.search as search_module
from frostline.search.probing import estimate_k, mean_is_better
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweeps.results.folder import TEST, read_alternatives
from frostline.training.result import ProbeReport, ReportedProbe, TaskFacts


def test_models_that_train_no_layer_are_scored_on_test_as_they_are_saved(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, finish = [], search_module.finish

    def keep(*args: Any, **more: Any) -> Any:
        fitted.append(more["alternatives"])
        return finish(*args, **more)

    monkeypatch.setattr(search_module, "finish", keep)
    answer = frostline.find(**{**search_settings, "test": search_settings["train"], "budget": 1.0}).answer
    found = read_alternatives(search_settings["out"], TEST)
    assert set(found) == set(read_alternatives(search_settings["out"])) == {PROBE, WORDS}
    own = {"task": answer.task, "task_type": answer.task_type, "labels": ("negative", "positive")}
    task = TaskFacts(**own, columns=answer.columns, max_length=32, sentence="")
    for name, logits in found.items():
        (tmp_path / name).mkdir()
        fitted[0][name].save(tmp_path / name, task)
        saved = frostline.predict(tmp_path / name, search_settings["train"])
        np.testing.assert_allclose(saved.values[:, 1], 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), rtol=1e-5)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}, 2),  # one standard error is 0.02
        ({0: 0.60, 1: 0.70, 2: 0.77, 3: 0.80, 4: 0.75}, 1),
        ({0: None, 1: 0.5, 2: 0.4}, 1),
        ({0: None}, None),
    ],
)
def test_the_estimate_is_the_number_of_layers_above_the_lowest_good_one(
    scores: dict[int, float | None], expected: int | None
) -> None:
    more = {"validation": None, "penalty": 1.0}
    probes = [
        ReportedProbe(layers=(n,), vector=vector, held_out=score if vector == "mean" else None, **more)
        for n, score in scores.items()
        for vector in ("first", "mean")
    ]
    several = ReportedProbe(layers=(0, 1), vector="mean", held_out=0.99, **more)
    report = ProbeReport.model_construct(probes=(*probes, several), metric="accuracy", train_rows=400)
    assert estimate_k(report) == expected


@pytest.mark.parametrize(
    ("reads", "first", "mean", "better"),
    [
        ("first", 0.77, 0.80, True),  # one standard error is 0.02
        ("first", 0.79, 0.80, False),
        ("last", 0.60, 0.80, False),  # that probe has no score
        ("all", 0.60, 0.80, False),
        ("first", 0.77, None, False),
    ],
)
def test_the_mean_of_all_tokens_is_better_by_more_than_one_standard_error(
    reads: str, first: float, mean: float | None, better: bool
) -> None:
    scores = [(1, "first", 0.5), (1, "mean", 0.9), (2, "first", first), (2, "mean", mean), (2, "last", None)]
    probes = [
        ReportedProbe(layers=(n,), vector=vector, held_out=score, validation=None, penalty=1.0)
        for n, vector, score in scores
    ]
    report = ProbeReport.model_construct(probes=tuple(probes), metric="accuracy", train_rows=400, layers=2)
    assert mean_is_better(report, reads) == better
