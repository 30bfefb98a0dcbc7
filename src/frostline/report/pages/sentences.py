"""Sentences that explain the answer on a sweep's page."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import tuning
from frostline.statistics.operating_points import UNDECIDED
from frostline.training.result import Provenance


def headline(sentence: str) -> tuple[str, str]:
    """What to tune, or the first sentence of an answer without a recommendation, and the rest."""
    text = formatting.unbroken(sentence)
    if text.startswith(("Tune ", "Train ")):
        head, _, rest = text.partition(": ")
        return f"{head}.", capitalized(rest)
    head, stop, rest = text.partition(". ")
    return (f"{head}.", rest) if stop else (head, "")


def explain_uncertainty(size: Mapping[str, Any], point: Mapping[str, Any], seeds: int, *, baseline: str) -> str | None:
    """What the verdict "undecided" means for a train size; None if the verdict is "decided".

    Args:
        size: The curve of the train size with its recommendation.
        point: The operating point that the answer is about.
        seeds: The number of seeds.
        baseline: The name of the baseline.
    """
    if size["reference"] and not size["learned"] and seeds > 1:
        return (
            f"{capitalized(tuning(size['reference']))} is not shown to be above the {baseline}, so a share of its gain has no "
            "meaning yet. First the task must be learned: with more training examples, more epochs or another learning rate."
        )
    if point["verdict"] != UNDECIDED:
        return None
    reference_runs = next((cell["runs"] for cell in size["cells"] if cell["trainable"] == size["reference"]), 0)
    if 1 in (seeds, reference_runs):
        of = "" if seeds == 1 else f" of {tuning(size['reference'])}"
        return (
            f"One seed{of} gives no confidence interval, so a difference between two k may be chance. The recommendation rests "
            "on these scores and on how much scores usually vary over seeds; five seeds would give intervals."
        )
    not_ruled_out, confident = tuning(point["not_ruled_out"]), tuning(point["confident"])
    threshold = formatting.threshold(point)
    of = "of the gain of" if point["margin"] is None else "of the score relative to"
    if point["confident"] == size["reference"]:
        known = f"No smaller k has its whole interval above {threshold} {of} {confident}."
    else:
        known = (
            f"The whole interval of {confident} lies above {threshold} {of} {tuning(size['reference'])}: it reaches the target "
            "with 95 % confidence."
        )
    needed = size["seeds_to_decide"]
    enough = f"; about {needed:,} seeds in total would probably decide" if needed else ""
    return (
        f"{known} {capitalized(not_ruled_out)} is not ruled out: with these seeds and validation examples it is undecided "
        "whether it reaches the target. The recommendation does not need that to be decided: it rests on probabilities. "
        f"More seeds and more validation examples make the intervals narrower{enough}."
    )


def trouble(counts: Mapping[str, int], unusable: int) -> str | None:
    """The numbers of runs that have no usable score, ended in an error, or have no result; None if every run succeeded.

    Args:
        counts: The numbers of runs by status: ``done``, ``failed`` (ended in an error), ``pending``.
        unusable: The number of runs that are done but have no usable score.
    """
    parts = []
    if unusable:
        parts.append(
            f"{unusable} of {counts['done']} finished runs failed (diverged, collapsed, or predict the same for all examples)"
        )
    if counts["failed"]:
        parts.append(f"{_runs(counts['failed'])} ended in an error")
    if counts["pending"]:
        parts.append(f"{_runs(counts['pending'])} not trained yet")
    return f"{'; '.join(parts)}." if parts else None


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def machines(provenances: Sequence[Provenance]) -> dict[str, str]:
    """The machine and versions of the runs. If runs differ, each value has its number of runs."""
    found: dict[str, dict[str, int]] = {}
    for provenance in provenances:
        for name, value in provenance.model_dump().items():
            if name not in ("cut", "from_cache", "continued_after"):
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
    return {
        name.replace("_", " "): next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))
        for name, counts in found.items()
    }
