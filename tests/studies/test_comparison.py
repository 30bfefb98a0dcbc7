"""Measured numbers are compared with published ones at the same share of layers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frostline.statistics.answer import SizeAnswer
from frostline.statistics.inference import summarize
from frostline.statistics.recipe import Recipe
from frostline.studies.comparison import compare, means_of_same_models
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

    size = SizeAnswer.__new__(SizeAnswer)
    size.train_size, size.cells = 100, [cell(0, 0.5), cell(5, 0.6), cell("full", 0.7)]

    def measured(model: str, layers: int) -> Any:
        group = SimpleNamespace(model=model, task="sst2", layers=layers, sizes=[size])
        return SimpleNamespace(groups=[group], over_tasks=[])

    rows = [row for row in compare(protocol, measured("mini", 6)) if row.published.statistic == "mean"]
    assert [(row.published.tuned, row.tuned, row.published.value) for row in rows] == [
        ("full", "full", 0.866),
        ("last 10", "last 5", 0.873),
        ("head only", "head only", 0.514),
    ]
    assert rows[0].gap == pytest.approx(0.7 - 0.866) and means_of_same_models(rows) == []
    assert len(means_of_same_models(compare(protocol, measured("roberta-base", 12)))) == 2
