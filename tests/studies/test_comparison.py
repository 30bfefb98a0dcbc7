"""Measured numbers are compared with published ones at the same share of layers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frostline.statistics.inference import summarize
from frostline.statistics.recipe import Recipe
from frostline.studies.comparison import compare, gap_summary
from frostline.studies.protocol import load_protocol


def test_the_comparison_uses_the_same_share_of_layers() -> None:
    """A model of the study is compared with its own numbers only, any other model at the same share of layers."""
    protocol = load_protocol("lowdata2021")

    def cell(k: int | str, mean: float) -> Any:
        number = 6 if isinstance(k, str) else k
        return SimpleNamespace(
            recipe=Recipe(k),
            tuned_layers=number,
            validation=summarize(np.array([mean] * 5)),
            learning_rates_tried=[5e-5],
            trainable_parameters=10,
        )

    size = SimpleNamespace(train_size=100, cells=[cell(0, 0.5), cell(5, 0.6), cell("full", 0.7)])

    def measured(model: str, layers: int) -> Any:
        group = SimpleNamespace(model=model, task="sst2", layers=layers, sizes=[size])
        models = [SimpleNamespace(model=model, layers=layers, tasks=None)]
        return SimpleNamespace(models=models, groups=[group], head_only=None)

    rows = [row for row in compare(protocol, measured("mini", 6)) if row["statistic"] == "mean"]
    assert [(row["tuned"], row["measured_tuned"], row["value"]) for row in rows] == [
        ("full", "full", 0.866),
        ("last 10", "last 5", 0.873),
        ("head only", "head only", 0.514),
    ]
    assert rows[0]["gap"] == pytest.approx(0.7 - 0.866) and gap_summary(rows) is None
    own = gap_summary(compare(protocol, measured("roberta-base", 12)))
    assert own is not None and own["cells"] == 2
