"""One curve, a task's scores over k at one train size: its cells, its operating points, and what it rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics import points
from frostline.statistics.cells import FULL, NAMED, at_rate, by_depth, counted, describe
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.outcomes import ANSWERS, clear_distance, done, judged

OF_ITSELF = {"estimate": 1.0, "low": 1.0, "high": 1.0}


def compare(runs: Sequence[Run], evidence: Evidence, choices: Choices) -> dict[str, Any]:
    """Every k of one train size against full, in plain values for JSON.

    ``runs`` are rows of the results table, finished or not, of one model, task and train size.
    """
    clear = clear_distance(runs, evidence)
    every = by_depth(judged(runs, evidence.chance, clear))
    shown = at_rate(every, evidence.chance, choices)
    ended = {k: [run for run in some if run["status"] == "done"] for k, some in shown.items()}
    good = {k: counted(some, choices) for k, some in ended.items()}
    ladder = [k for k in shown if k != NAMED]
    reference = next((k for k in reversed(ladder) if any(run["outcome"] in ANSWERS for run in good[k])), None)
    both = {k: evidence.pair(good[k], good[reference]) if reference else None for k in shown}
    learned = evidence.learned(good[reference], len(done(every[reference]))) if reference else None
    cells = [
        describe(
            shown[k],
            ended[k],
            good[k],
            sorted({run["learning_rate"] for run in every[k]}, key=lambda rate: rate or 0.0),
            evidence,
            both[k],
            evidence.pairing(good[k], good[reference]) if reference and k != reference else None,
            learned,
        )
        for k in shown
    ]
    of_reference = next((cell for cell in cells if cell["trainable"] == reference), None)
    _relate(cells, of_reference)
    steps = [cell for cell in cells if cell["trainable"] in ladder]
    found = [
        points.share_point(steps, of_reference, share, corrected=corrected, by_mean=choices.by_mean)
        for corrected in (False, True)
        for share in choices.targets
    ]
    found.append(points.margin_point(steps, of_reference, choices.margin))
    decides = choices.decides
    main = main_point({"operating_points": found, "decides": decides})
    return {
        "train_size": runs[0]["train_size"],
        "seeds": len({run["seed"] for run in runs}),
        "rates": "one for all, the best of full" if choices.one_rate else "the best of each k on validation",
        "reference": reference,
        "reference_is_full": reference == FULL,
        "learned": bool(learned),
        "clear_distance": clear,
        "cells": cells,
        "operating_points": found,
        "decides": decides,
        "seeds_to_tell": points.seeds_to_tell(both[main["possible"]], choices.goal(evidence.chance))
        if main["verdict"] == "cannot tell" and main["possible"] is not None
        else None,
        "one_standard_error": points.one_standard_error(steps),
        "knee": points.knee(steps),
        "pareto": points.pareto(cells),
        "missing": [
            {name: run.get(name) for name in ("trainable", "seed", "learning_rate", "status", "reason")}
            for run in runs
            if run["status"] != "done"
        ],
    }


def main_point(curve: Mapping[str, Any]) -> Mapping[str, Any]:
    """The operating point that the answer of a curve is about."""
    decides: Mapping[str, Any] = curve["decides"]
    return next(p for p in curve["operating_points"] if all(p[name] == value for name, value in decides.items()))


def _relate(cells: Sequence[dict[str, Any]], reference: dict[str, Any] | None) -> None:
    """Put what is relative to the reference into the cells."""
    for cell in cells:
        ours, theirs = (c and c["seconds"] and c["seconds"] + (c["shared_seconds"] or 0.0) for c in (cell, reference))
        alike = reference is not None and cell["abreast"] == reference["abreast"]
        cell["times_cheaper"] = theirs / ours if ours and theirs and alike else None
    for name in ("share", "share_corrected") if reference else ():
        assert reference is not None
        if reference[name] and reference[name]["low"] is not None:
            reference[name] = OF_ITSELF
    if reference and reference["difference"]["low"] is not None:
        reference["difference"] |= {"low": 0.0, "high": 0.0, "error": 0.0, "p": 1.0}
