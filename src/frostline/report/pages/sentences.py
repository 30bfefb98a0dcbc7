"""Sentences of a sweep's page that explain its answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import tuning


def headline(sentence: str) -> tuple[str, str]:
    """The first sentence of an answer, and the rest."""
    head, stop, rest = formatting.unbroken(sentence).partition(". ")
    return (f"{head}.", rest) if stop else (head, "")


def explain_uncertainty(
    size: Mapping[str, Any], point: Mapping[str, Any], seeds: int, *, baseline: str, searched: bool
) -> str | None:
    """What "cannot tell" means for a train size; None if everything is certain.

    Args:
        size: The curve of the train size with its recommendation.
        point: The operating point that the answer is about.
        seeds: The number of seeds.
        baseline: The name of the baseline.
        searched: Whether a search chose what to train; it recommends by the mean.
    """
    if size["reference"] and not size["learned"] and seeds > 1:
        return (
            f"{capitalized(tuning(size['reference']))} is not shown to be above the {baseline}, so a share of its gain has no "
            "meaning yet. First the task must be learned: with more training examples, more epochs or another learning rate."
        )
    if point["verdict"] != "cannot tell":
        return None
    if seeds == 1:
        return (
            "One seed gives no confidence interval, so a difference between two choices may be chance. The recommendation "
            "rests on the scores as they are; five seeds would give intervals."
        )
    possible, sure = tuning(point["possible"]), tuning(point["sure"])
    threshold = formatting.threshold(point)
    of = "of the gain of" if point["margin"] is None else "of the score relative to"
    if point["sure"] == size["reference"]:
        known = f"No smaller k has its whole interval above {threshold} {of} {sure}."
    else:
        known = (
            f"The whole interval of {sure} lies above {threshold} {of} {tuning(size['reference'])}: it reaches the target with "
            "95 % confidence."
        )
    basis = "by its mean" if searched else "with 95 % confidence"
    return (
        f"{known} {capitalized(possible)} is not ruled out: these seeds and validation examples cannot tell whether it reaches "
        f"the target. The recommendation is the smallest k that does {basis}. More seeds and more validation examples make "
        "the intervals narrower."
    )


def machines(provenances: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The machine and versions of the runs; if runs differ, every value with its number of runs."""
    found: dict[str, dict[str, int]] = {}
    for provenance in provenances:
        for name, value in provenance.items():
            if name != "cut":
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
    return {
        name.replace("_", " "): next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))
        for name, counts in found.items()
    }
