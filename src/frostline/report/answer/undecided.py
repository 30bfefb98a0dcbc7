"""Sentences for results that do not allow a recommendation yet."""

from collections.abc import Mapping
from typing import Any

from frostline.report import names
from frostline.report.answer.comparison import Comparison
from frostline.report.formatting import score
from frostline.report.names import tuning
from frostline.statistics.answer import Cell

LEARN_FIRST = "To learn the task, train with more epochs, another learning rate or more examples."


def no_score(answer: Mapping[str, Any]) -> str:
    """The sentence if nothing has a usable score."""
    advice = f" {LEARN_FIRST}" if any(cell["runs"] for cell in answer["cells"]) else ""
    return f"There is no answer: {no_usable_run(answer)}.{advice}"


def no_usable_run(answer: Mapping[str, Any]) -> str:
    """Why no run has a usable score, as a clause."""
    done = sum(cell["runs"] for cell in answer["cells"])
    return f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"


def only_ways(answer: Mapping[str, Any], best: str, comparison: Comparison) -> str:
    """The sentence if ways to tune have scores, but no k has one that they could be compared with."""
    cell = next(cell for cell in answer["cells"] if cell["recipe"] == best)
    reached = f"{comparison.metric} {score(cell['validation']['mean'])}"
    why = "no run of full fine-tuning or of the last k layers succeeded"
    return f"Nothing was compared: {why}. The best way, {best}, reaches {reached}."


def reference_missing(reference: str, best: str | None, mean: float | None, metric: str) -> str:
    """The sentence while no run of the reference has ended; ``best`` is the best choice so far, with its mean score."""
    text = f"No answer yet: {tuning(reference)}, the reference of every comparison, has not run."
    return f"{text} The best so far, {tuning(best)}, reaches {names.metric(metric)} {score(mean)}." if best else text


def not_learned(answer: Mapping[str, Any], cell: Cell, full: Cell, comparison: Comparison) -> str:
    """Why full fine-tuning is not shown to be above the baseline, as a clause; empty if it is, or if the baseline is unknown.

    Args:
        answer: The curve with its recommendation.
        cell: The recommended cell.
        full: The cell of full fine-tuning.
        comparison: The quantity that k is compared by.
    """
    evidence, seeds = comparison.evidence, answer["seeds"]
    if evidence.chance is None:
        return ""
    among = sum(one["runs"] for one in answer["cells"])
    shown = [full, cell] if cell is not full and is_above_baseline(cell, comparison, among=among) else [full]
    fewest = min((one.in_mean for one in shown), key=lambda runs: evidence.rows_of(run.run for run in runs) or 0)
    baseline = f"the {comparison.baseline} ({score(evidence.baseline(fewest))})"
    reached = full_score(full, comparison, answer["decision"] if cell in shown[1:] else None)
    if not answer["learned"] and (seeds > 1 or evidence.rows is not None):
        return f"{reached}, and {_seeds_shown(full, seeds)} not show that this is above {baseline}"
    share = comparison.share(cell)
    return f"{reached}, which is not above {baseline}" if share is None or share["estimate"] is None else ""


def full_score(full: Cell, comparison: Comparison, beside: Mapping[str, Any] | None = None) -> str:
    """The mean score of full fine-tuning as a clause; beside a choice, on the rows that both are scored on."""
    if beside is None or beside["reference_score"] is None:
        return f"{tuning(full['recipe'])} reaches {comparison.metric} {score(full['validation']['mean'])}"
    return (
        f"{tuning(full['recipe'])} reaches {comparison.metric} {score(beside['reference_score'])}{on_same_rows(beside)}"
    )


def on_same_rows(choice: Mapping[str, Any]) -> str:
    """A remark if the scores of a choice and of the reference are of a part of the rows that one of them is scored on."""
    return " on the same rows" if choice["part_of_rows"] else ""


def is_above_baseline(cell: Cell, comparison: Comparison, *, among: int) -> bool:
    """Whether a cell is shown to be above the baseline; ``among``: the number of all runs."""
    return bool(comparison.evidence.learned(cell.in_mean, among))


def _seeds_shown(cell: Cell, seeds: int) -> str:
    """The seeds of a cell's mean, with the verb ``do``."""
    good = cell["validation"]["n"]
    if good == seeds:
        return "one seed does" if seeds == 1 else f"{seeds} seeds do"
    others = "failed" if cell["runs"] == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"
