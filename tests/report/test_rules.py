"""Sentences on the rules that select k."""

from pathlib import Path

import pytest

from frostline.report import names
from frostline.report.tables import rules
from page_text import answer_of
from synthetic_sweep import make_folder


def test_other_rules(tmp_path: Path) -> None:
    curve = answer_of(make_folder(tmp_path / "out", tune=(0, 1, 2, 4, "all"), seeds=3))["sizes"][0]
    main = {"target": 0.95, "margin": None, "verdict": "undecided"}
    found = {name: value for name, value, _ in rules.other_rules({**curve, "seeds_to_decide": 12}, main)}
    assert found["Seeds needed"] == "about 12 or more" and found["Knee"] == names.trainable(curve["knee"])
    unknown = {**curve, "seeds_to_decide": None, "one_standard_error": None, "knee": None}
    found = {name: value for name, value, _ in rules.other_rules(unknown, main)}
    assert list(found.values()) == [
        "unknown with one seed",
        "no clear bend",
        "more seeds will probably not decide; more validation examples may",
    ]
    of_folds = {name: value for name, value, _ in rules.other_rules({**unknown, "folds": 5}, main)}
    assert of_folds["Seeds needed"] == "more seeds will probably not decide"
    assert rules.other_rules(curve, {**main, "verdict": "decided"})[-1][1] == "no more: the conclusion is certain"
    alone = {**curve, "cells": curve["cells"][-1:]}
    assert rules.other_rules(alone, {**main, "verdict": "decided"})[-1][1] == "unknown: only one k has a score"


def test_a_smaller_k_without_results_is_mentioned() -> None:
    cells: list[dict[str, object]] = [
        {"trainable": k, "difference": {"estimate": 0.0}, "validation": {"n": 3}}
        for k in ("last 0", "last 1", "last 2", "all")
    ]
    curve = {"cells": cells, "reference": "all", "reference_is_full": True}
    decided = {"verdict": "decided", "estimate": "last 2", "confident": "last 2", "not_ruled_out": "last 2"}
    assert rules.conclusion(decided, curve).endswith("lies above the target, and that of every smaller k below it.")
    cells[1]["difference"] = None
    assert rules.conclusion(decided, curve).endswith("lies above the target; some smaller k has no results.")


def test_why_a_target_is_undecided() -> None:
    cells = [{"trainable": k, "validation": {"n": 3}} for k in ("last 1", "last 2", "all")]
    curve = {"cells": cells, "reference": "all", "reference_is_full": True}
    point = {"verdict": "undecided", "estimate": "last 2", "confident": "last 2", "not_ruled_out": "last 1"}
    conclusion = "Undecided: tuning the last 2 layers reaches it with confidence, and tuning the last layer"
    assert rules.conclusion(point, curve) == f"{conclusion} is not ruled out."
    cells[0]["validation"] = {"n": 1}
    assert rules.conclusion(point, curve) == f"{conclusion} has one seed, so no interval rules it out."
    of_full = rules.conclusion({**point, "confident": "all"}, curve)
    assert of_full.startswith(
        "Undecided: no smaller k reaches it with confidence, and tuning the last layer has one seed"
    )


@pytest.mark.parametrize(("reference", "name"), [("all", "full fine-tuning"), ("last 3", "tuning the last 3 layers")])
def test_the_reference_is_named(reference: str, name: str) -> None:
    nothing = {"estimate": None, "confident": None, "not_ruled_out": None, "verdict": "undefined"}
    curve = {"reference": reference, "reference_is_full": reference == "all"}
    assert rules.conclusion(nothing, curve) == f"Undefined: {name} is not shown to be above the baseline."
