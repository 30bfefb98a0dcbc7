"""Measured numbers are compared with published ones at the same share of layers."""

import json
from typing import Any

import pytest

from frostline.statistics.recipe import Recipe
from frostline.studies.comparison import compare, gap_summary
from frostline.studies.protocol import load_protocol


def test_the_comparison_uses_the_same_share_of_layers() -> None:
    """A model of the study is compared with its own numbers only, any other model at the same share of layers."""
    protocol = load_protocol("lowdata2021")

    def cell(k: int | str, mean: float) -> dict[str, Any]:
        scores = {"n": 5, "mean": mean, "median": mean, "std": 0.01, "min": mean, "max": mean}
        number = 6 if isinstance(k, str) else k
        return {
            **{"recipe": Recipe(k), "tuned_layers": number, "validation": scores},
            **{"learning_rates_tried": [5e-5], "trainable_parameters": 10},
        }

    size = {"train_size": 100, "cells": [cell(0, 0.5), cell(5, 0.6), cell("full", 0.7)]}
    group = {"model": "mini", "task": "sst2", "layers": 6, "sizes": [size]}
    analysis = {"models": [{"model": "mini", "layers": 6, "tasks": None}], "groups": [group], "head_only": None}
    rows = [row for row in compare(protocol, analysis) if row["statistic"] == "mean"]
    assert [(row["tuned"], row["measured_tuned"], row["value"]) for row in rows] == [
        ("full", "full", 0.866),
        ("last 10", "last 5", 0.873),
        ("head only", "head only", 0.514),
    ]
    assert rows[0]["gap"] == pytest.approx(0.7 - 0.866) and gap_summary(rows) is None
    own = json.loads(json.dumps(analysis).replace("mini", "roberta-base").replace('"layers": 6', '"layers": 12'))
    assert gap_summary(compare(protocol, own))["cells"] == 2  # type: ignore[index]
