"""Models that train no layer, as a search fits and saves them, and its estimates of k."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import frostline
import frostline.search.search as search_module
from frostline.search.probing import by_layer, logme
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweep.results.folder import TEST, read_alternatives
from frostline.training.result import TaskFacts


def test_models_that_train_no_layer_are_scored_on_test_as_they_are_saved(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, finish = [], search_module.finish

    def keep(*args: Any, **more: Any) -> Any:
        fitted.append(more["alternatives"])
        return finish(*args, **more)

    monkeypatch.setattr(search_module, "finish", keep)
    answer = frostline.find(**{**search_settings, "test": search_settings["train"], "budget": 1.0})
    found = read_alternatives(search_settings["out"], TEST)
    assert set(found) == set(read_alternatives(search_settings["out"])) == {PROBE, WORDS}
    own = {"task": answer.task, "task_type": answer.task_type, "labels": ("negative", "positive")}
    task = TaskFacts(**own, columns=answer.columns, max_length=32, sentence="")
    for name, logits in found.items():
        (tmp_path / name).mkdir()
        fitted[0][name].save(tmp_path / name, task)
        saved = frostline.predict(tmp_path / name, search_settings["train"])
        np.testing.assert_allclose(saved.values[:, 1], 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), rtol=1e-5)


def test_by_layer_counts_the_layers_above_the_lowest_good_one() -> None:
    scores = {0: 0.60, 1: 0.70, 2: 0.79, 3: 0.80, 4: 0.75}
    assert by_layer(scores, 0.0) == 1
    assert by_layer(scores, 0.02) == 2
    assert by_layer({0: float("nan"), 1: 0.5, 2: 0.4}, 0.0) == 1
    assert by_layer({}, 0.1) is None


def evidence(features: np.ndarray, targets: np.ndarray, weights: float, noise: float) -> float:
    """The log evidence per row by its definition: the targets are normally distributed with this covariance."""
    rows = len(features)
    covariance = np.eye(rows) / noise + features @ features.T / weights
    return float(stats.multivariate_normal(np.zeros(rows), covariance).logpdf(targets)) / rows


@pytest.mark.parametrize(("rows", "width"), [(60, 5), (20, 40)])
def test_logme_maximizes_the_evidence(rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, width)).astype(np.float32)
    targets = features @ rng.normal(size=width) + rng.normal(0, 2.0, rows)
    best = optimize.minimize(
        lambda logs: -evidence(features.astype(float), targets, *np.exp(logs)), [0.0, 0.0], method="Nelder-Mead"
    )
    assert logme(features, targets, 0) == pytest.approx(-best.fun, abs=1e-3)


def test_logme_is_a_mean_over_classes_and_labels() -> None:
    """Of classes it is that of their indicators, so separable ones are better than noise."""
    rng = np.random.default_rng(0)
    targets = np.arange(90) % 3
    separable = (np.eye(3)[targets] @ rng.normal(size=(3, 8)) + rng.normal(0, 0.3, (90, 8))).astype(np.float32)
    noise = rng.normal(size=(90, 8)).astype(np.float32)
    assert logme(separable, targets, 3) > logme(noise, targets, 3) + 0.1
    sets = rng.random((90, 3)) < 0.4
    assert logme(noise, sets, 3) == pytest.approx(np.mean([logme(noise, own.astype(float), 0) for own in sets.T]))
