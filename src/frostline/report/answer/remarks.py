"""Sentences that follow the recommendation: its certainty, failed and missing runs, and named parts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frostline.data.wording import capitalized, ranges
from frostline.report.answer.comparison import Cell, Comparison, number
from frostline.report.names import LAST, tuning


def certainty(answer: Mapping[str, Any], point: Mapping[str, Any], comparison: Comparison, *, unknown: bool) -> str:
    """How certain it is that a search has chosen the smallest k that reaches the target.

    Args:
        answer: The curve with its recommendation.
        point: The operating point that the answer is about.
        comparison: What a k is compared by.
        unknown: Whether some smaller k has no score.
    """
    name, possible = answer["recommended"]["trainable"], point["possible"]
    seeds = f" (about {answer['seeds_to_tell']} seeds would tell)" if answer["seeds_to_tell"] else ""
    if name == point["sure"] == possible:
        if name == answer["reference"]:
            return f"This holds with 95 % confidence{' among the choices that were tried' if unknown else ''}"
        rest = (
            "; whether something smaller does is unknown"
            if unknown
            else ", and with 95 % confidence nothing smaller does"
        )
        return f"It reaches the target with 95 % confidence{rest}"
    if name == point["sure"] and possible:
        return f"It reaches the target with 95 % confidence; whether {tuning(possible)} does cannot be told{seeds}"
    more_seeds = seeds if possible == name else ""
    return (
        f"It likely reaches the target, but not with 95 % confidence: {_why_uncertain(answer, comparison)}{more_seeds}"
    )


def _why_uncertain(answer: Mapping[str, Any], comparison: Comparison) -> str:
    """Why the recommended k is not shown to reach the target with confidence."""
    by_name = {cell["trainable"]: cell for cell in answer["cells"]}
    cell, full = by_name[answer["recommended"]["trainable"]], by_name[answer["reference"]]
    compared = cell["difference"] if comparison.choices.by_margin else comparison.share(cell)
    assert compared is not None
    if compared["low"] is not None:
        return f"its interval extends below {comparison.threshold}"
    one = next((c for c in (cell, full) if c["validation"]["n"] == 1), None)
    if one:
        return f"one seed of {tuning(one['trainable'])} gives no interval"
    return f"the seeds of {tuning(full['trainable'])} differ too much"


def smaller(cell: Cell, names: Iterable[str]) -> list[int]:
    """The values of k among these names that train less than the cell does."""
    ks = [int(name.removeprefix(LAST)) for name in names if name.startswith(LAST)]
    return [k for k in ks if cell["tune_embeddings"] or k < cell["tuned_layers"]]


def not_tried(ks: Sequence[int]) -> str:
    """A sentence that these values of k were not trained; empty if there are none."""
    parts = [
        tuning(f"{LAST}{first}") if first == last else f"tuning the last {first} to {last} layers"
        for first, last in ranges(ks)
    ]
    return f" {capitalized(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def failed_runs(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """A sentence that counts the failed runs of each of these k; empty if none failed."""
    parts = [
        f"{cell['runs'] - cell['validation']['n']} of {cell['runs']} runs of {tuning(cell['trainable'])} failed"
        for cell in (cells[name] for name in dict.fromkeys(names))
        if cell["validation"]["n"] < cell["runs"]
    ]
    return f" {' and '.join(parts)}." if parts else ""


def named_parts_only(named: Cell, comparison: Comparison, *, others: bool) -> str:
    """The answer if only named parts have a score; ``others``: whether other choices were run too."""
    scores = named["validation"]
    basis = "one seed" if scores["n"] == 1 else f"{scores['n']} seeds"
    if scores["low"] is not None:
        basis += f", 95 % confidence interval {number(scores['low'])} to {number(scores['high'])}"
    if comparison.evidence.chance is not None:
        basis += f"; {comparison.baseline} {number(comparison.evidence.chance)}"
    why = "no other run has succeeded so far" if others else "add numbers of layers and all to --tune to compare"
    score = f"{comparison.metric} {number(scores['mean'])}"
    return f"The named parts reach {score} ({basis}). Nothing was compared: {why}."


def named_parts(named: Cell | None, full: Cell, comparison: Comparison) -> str:
    """A sentence on the named parts beside the answer about the last layers; empty if there are none."""
    if named is None:
        return ""
    share = comparison.share(named)
    if share is None or share["estimate"] is None:
        return " The named parts cannot be compared: none of their runs has succeeded so far."
    return f" The named parts reach {comparison.with_full(named, full)}."


def full_not_run(cells: Mapping[str, Cell], comparison: Comparison) -> str:
    """A sentence that the reference is not full fine-tuning; empty if it is."""
    if len(cells) < 2 or any(cell["tune_embeddings"] for cell in cells.values()):
        return ""
    return " Full fine-tuning was not run" + (
        ": add all to --tune." if comparison.evidence.rows is not None else " here."
    )
