"""Sentences of the page that explain an answer."""

from typing import Any

import pytest

from frostline.report.pages.sentences import explain_uncertainty


def explained(runs: int, seeds: int) -> str:
    """What is said of an undecided k = 1, if full fine-tuning has this many of the seeds."""
    cells = [{"recipe": "full", "runs": runs}]
    size: dict[str, Any] = {"reference": "full", "learned": True, "cells": cells, "seeds_to_decide": 12}
    point = {
        **{"verdict": "undecided", "not_ruled_out": "last 1", "confident": "full"},
        **{"margin": None, "target": 0.95, "threshold": 0.95},
    }
    sentence = explain_uncertainty(size, point, seeds, baseline="majority-class baseline")
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
