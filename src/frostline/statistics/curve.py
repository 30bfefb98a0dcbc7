"""The curve of one task at one train size: every k compared with full fine-tuning, and the operating points."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import FULL, NAMED, Cell, by_depth, counted, describe, describe_comparison
from frostline.statistics.choices import Choices
from frostline.statistics.curve_rules import knee, one_standard_error
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.goal import seeds_to_decide
from frostline.statistics.learning_rates import at_shown_rates
from frostline.statistics.operating_points import margin_point, share_point
from frostline.statistics.outcomes import ANSWERS, clear_distance, done, with_outcomes
from frostline.statistics.pareto import pareto

ITSELF = {"estimate": 1.0, "low": 1.0, "high": 1.0}  # the reference's share of itself


def compare(runs: Sequence[Run], evidence: Evidence, choices: Choices) -> dict[str, Any]:
    """Compare every k with full fine-tuning, in plain values as in answer.json.

    Args:
        runs: Rows of the results table, finished or not, of one model, task and train size.
        evidence: What is known about their scores.
        choices: How they become an answer.
    """
    clear = clear_distance(runs, evidence)
    every = by_depth(with_outcomes(runs, evidence.chance, clear))
    cells = _cells(every, evidence.chance, choices)
    with_k = [k for k in cells if k != NAMED]
    reference = next((k for k in reversed(with_k) if any(run["outcome"] in ANSWERS for run in cells[k].good)), None)
    full = cells[reference].good if reference else ()
    pairs = {k: evidence.pair(cell.good, full) if reference else None for k, cell in cells.items()}
    learned = evidence.learned(full, len(done(every[reference]))) if reference else None
    gains = {
        k: evidence.pairing(cell.good, full) if k != reference and reference else None for k, cell in cells.items()
    }
    described = [
        describe(cell, evidence, describe_comparison(pairs[k], evidence.chance, learned, gains[k]))
        for k, cell in cells.items()
    ]
    of_reference = next((cell for cell in described if cell["trainable"] == reference), None)
    _relate(described, of_reference)
    steps = [cell for cell in described if cell["trainable"] in with_k]
    points = _points(steps, of_reference, choices)
    main = main_point({"operating_points": points, "decides": choices.decides})
    undecided = main["possible"] if main["verdict"] == "cannot tell" else None
    return {
        "train_size": runs[0]["train_size"],
        "seeds": len({run["seed"] for run in runs}),
        "rates": "one for all, the best of full" if choices.one_rate else "the best of each k on validation",
        "reference": reference,
        "reference_is_full": reference == FULL,
        "learned": bool(learned),
        "clear_distance": clear,
        "cells": described,
        "operating_points": points,
        "decides": choices.decides,
        "seeds_to_tell": seeds_to_decide(pairs[undecided], choices.goal(evidence.chance)) if undecided else None,
        "one_standard_error": one_standard_error(steps),
        "knee": knee(steps),
        "pareto": pareto(described),
        "missing": _missing(runs),
    }


def _cells(every: Mapping[str, Sequence[Run]], chance: float | None, choices: Choices) -> dict[str, Cell]:
    """The runs of each k at the learning rate at which it is shown."""
    cells = {}
    for k, shown in at_shown_rates(every, chance, choices).items():
        ended = done(shown)
        rates = sorted({run["learning_rate"] for run in every[k]}, key=lambda rate: rate or 0.0)
        cells[k] = Cell(runs=shown, ended=ended, good=counted(ended, choices), learning_rates=rates)
    return cells


def _points(
    cells: Sequence[Mapping[str, Any]], reference: Mapping[str, Any] | None, choices: Choices
) -> list[dict[str, Any]]:
    """Every operating point: shares of the score, shares of the gain, the margin."""
    points = [
        share_point(cells, reference, share, corrected=corrected, by_mean=choices.by_mean)
        for corrected in (False, True)
        for share in choices.targets
    ]
    return [*points, margin_point(cells, reference, choices.margin)]


def main_point(curve: Mapping[str, Any]) -> Mapping[str, Any]:
    """The operating point that the recommendation rests on."""
    decides: Mapping[str, Any] = curve["decides"]
    return next(p for p in curve["operating_points"] if all(p[name] == value for name, value in decides.items()))


def _relate(cells: Sequence[dict[str, Any]], reference: dict[str, Any] | None) -> None:
    """Add relative costs to the cells, and make the reference exactly equal to itself."""
    for cell in cells:
        ours, theirs = (c and c["seconds"] and c["seconds"] + (c["shared_seconds"] or 0.0) for c in (cell, reference))
        comparable = reference is not None and cell["abreast"] == reference["abreast"]
        cell["times_cheaper"] = theirs / ours if ours and theirs and comparable else None
    for name in ("share", "share_corrected") if reference else ():
        assert reference is not None
        if reference[name] and reference[name]["low"] is not None:
            reference[name] = ITSELF
    if reference and reference["difference"]["low"] is not None:
        reference["difference"] |= {"low": 0.0, "high": 0.0, "error": 0.0, "p": 1.0}


def _missing(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The runs without a result."""
    return [
        {name: run.get(name) for name in ("trainable", "seed", "learning_rate", "status", "reason")}
        for run in runs
        if run["status"] != "done"
    ]
