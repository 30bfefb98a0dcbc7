"""The curve of one task at one train size: each k compared with full fine-tuning, and the operating points."""

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from frostline.statistics.alternatives import alternative_run
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.cells import CellRuns, CellSummary, by_depth, counted, describe, describe_comparison
from frostline.statistics.decision import Rule, decide
from frostline.statistics.evidence import Evidence, Run, SameRows
from frostline.statistics.goal import seeds_to_decide
from frostline.statistics.joint import JointEstimate
from frostline.statistics.learning_rates import runs_at_best_learning_rate
from frostline.statistics.operating_points import UNDECIDED, margin_point, share_point
from frostline.statistics.outcomes import ANSWERS, clear_distance, done, with_outcomes
from frostline.statistics.recipe import FULL, Recipe

Curve = Mapping[str, Any]  # one of ``sizes`` in answer.json, from :func:`compare`
ITSELF = {"estimate": 1.0, "low": 1.0, "high": 1.0}  # the reference's share of itself
BEST_OF_EACH_K, BEST_OF_FULL = "best_of_each_k", "best_of_full"  # which learning rate represents a k


def compare(
    runs: Sequence[Run], evidence: Evidence, settings: AnalysisSettings, alternatives: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare each k with full fine-tuning. The result has plain values, as in answer.json.

    Args:
        runs: Rows of the results table, finished or not, of one model, task and train size.
        evidence: Their scores and what is known about the uncertainty.
        settings: The settings of the analysis.
        alternatives: The models without tuned layers that compete with every k; the evidence knows their predictions by name.
    """
    clear = clear_distance(runs, evidence)
    every = by_depth(with_outcomes(runs, evidence.chance, clear))
    cells = _cells(every, evidence.chance, settings)
    with_k = [k for k in cells if Recipe(k).is_k]
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
    of_reference = next((cell for cell in described if cell["recipe"] == reference), None)
    _relate(described, of_reference)
    steps = [cell for cell in described if cell["recipe"] in with_k]
    points = _points(steps, of_reference, settings)
    main = main_point({"operating_points": points, "deciding_point": settings.deciding_point})
    ways = [cell for cell in described if Recipe(cell["recipe"]).is_way]
    others = [name for name in alternatives if name not in cells]
    decision, choices = _decide([*steps, *ways], cells, evidence, settings, reference, others)
    for choice in [decision, *choices] if decision else ():
        name = choice["choice"]
        own = cells[name].good if name in cells else [alternative_run(name)]
        choice |= _beside_reference(choice["score"], evidence.on_same_rows(own, full))
    comparable = {one["choice"]: one["comparable"] for one in choices}
    for cell in described:
        mean = cell["validation"]["mean"]
        found = comparable.get(cell["recipe"], mean)
        cell["comparable"] = mean if mean is None or isclose(mean, found) else found
    undecided = main["not_ruled_out"] if main["verdict"] == UNDECIDED else None
    return {
        "train_size": runs[0]["train_size"],
        "seeds": len({run["seed"] for run in runs}),
        "learning_rate_rule": BEST_OF_FULL if settings.one_learning_rate else BEST_OF_EACH_K,
        "reference": reference,
        "reference_is_full": reference == FULL,
        "learned": bool(learned),
        "clear_distance": clear,
        "cells": described,
        "decision": decision,
        "choices": choices,
        "operating_points": points,
        "deciding_point": settings.deciding_point,
        "seeds_to_decide": seeds_to_decide(pairs[undecided], settings.goal(evidence.chance)) if undecided else None,
        "missing": _missing(runs),
    }


def _cells(every: Mapping[str, Sequence[Run]], chance: float | None, settings: AnalysisSettings) -> dict[str, CellRuns]:
    """The runs of each k at the learning rate that represents it."""
    cells = {}
    for k, shown in runs_at_best_learning_rate(every, chance, settings).items():
        ended = done(shown)
        rates = sorted({run["learning_rate"] for run in every[k]}, key=lambda rate: rate or 0.0)
        cells[k] = CellRuns(runs=shown, ended=ended, good=counted(ended, settings), learning_rates=rates)
    return cells


def _decide(
    steps: Sequence[CellSummary],
    cells: Mapping[str, CellRuns],
    evidence: Evidence,
    settings: AnalysisSettings,
    reference: str | None,
    alternatives: Sequence[str],
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The decision between the alternatives and all k and ways with a usable score, and what is known about each.

    See ``decision.py``.
    """
    usable = [step for step in steps if any(run["in_mean"] and run["outcome"] in ANSWERS for run in step["points"])]
    if reference is None:  # then only what is shown to have learned can be recommended
        alternatives = [one for one in alternatives if evidence.learned([alternative_run(one)], len(alternatives))]
        if not alternatives:
            return None, []
    layers = max([1, *(step["tuned_layers"] or 0 for step in usable)])
    depth = [
        1 + 1 / layers if step["tune_embeddings"] else (step["tuned_layers"] or 0) / layers
        for step in usable
        if Recipe(step["recipe"]).is_k
    ]
    # of the reference, as the costs of k are; a table of others may not know how many layers a way trains
    most = max((step["tuned_share"] or 0.0 for step in usable if Recipe(step["recipe"]).is_k), default=0.0) or 1.0
    shares = [step["tuned_share"] for step in usable if Recipe(step["recipe"]).is_way]
    ways = [1.0 if share is None else min(1.0, share / most) for share in shares]
    good = {step["recipe"]: cells[step["recipe"]].good for step in usable}
    choices = JointEstimate.of(good, depth, alternatives, evidence, ways).choices
    base = evidence.chance if settings.corrected else None
    rule = Rule.of(settings, evidence.chance)
    full = next((choice for choice in choices if choice.name == reference), None)
    return decide(choices, full, rule, base=base, margin=settings.margin)


def _beside_reference(score: float, same: SameRows | None) -> dict[str, Any]:
    """The score of a choice and that of the reference on the rows that both are scored on; if there are none, its own."""
    found = same or (score, None, None, False)
    return dict(zip(("score", "reference_score", "compared_seeds", "part_of_rows"), found, strict=True))


def _points(
    cells: Sequence[CellSummary], reference: CellSummary | None, settings: AnalysisSettings
) -> list[dict[str, Any]]:
    """Every operating point: shares of the score, shares of the gain, and the margin."""
    points = [
        share_point(cells, reference, share, corrected=corrected, by_mean=settings.by_mean)
        for corrected in (False, True)
        for share in settings.targets
    ]
    return [*points, margin_point(cells, reference, settings.margin)]


def main_point(curve: Mapping[str, Any]) -> Mapping[str, Any]:
    """The operating point that the recommendation is based on."""
    deciding: Mapping[str, Any] = curve["deciding_point"]
    return next(p for p in curve["operating_points"] if all(p[name] == value for name, value in deciding.items()))


def _relate(cells: Sequence[dict[str, Any]], reference: dict[str, Any] | None) -> None:
    """Add relative costs to the cells, and set the reference's comparison with itself to exact equality."""
    for cell in cells:
        ours, theirs = (c and c["seconds"] and c["seconds"] + (c["shared_seconds"] or 0.0) for c in (cell, reference))
        comparable = reference is not None and cell["concurrent_runs"] == reference["concurrent_runs"]
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
        {name: run.get(name) for name in ("recipe", "seed", "learning_rate", "status", "reason")}
        for run in runs
        if run["status"] != "done"
    ]
