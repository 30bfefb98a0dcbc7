"""Summaries over all models and tasks of an analysis: k = 0, k above full fine-tuning, half-frozen models, failures."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import failures
from frostline.statistics.recipe import FULL, HEAD_ONLY, NAMED, Recipe
from frostline.statistics.run_result import RunResult

GroupAnalysis = Mapping[str, Any]  # one of ``groups`` in analysis.json: a model on a task, with its answers
SIGNIFICANT = 0.05  # level of adjusted p-values


def head_only(groups: Sequence[GroupAnalysis]) -> dict[str, Any] | None:
    """The share of full fine-tuning's score that k = 0 reaches, as the mean over every model and task with both."""
    shares = [
        cell["share"]["estimate"]
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if cell["recipe"] == HEAD_ONLY and cell["share"] and cell["share"]["estimate"] is not None
        if group["sizes"][0]["reference_is_full"] and not group["same_runs"]
    ]
    return {"mean_share": sum(shares) / len(shares), "groups": len(shares)} if shares else None


def above_full(groups: Sequence[GroupAnalysis]) -> list[dict[str, Any]]:
    """Every smaller k whose mean is above that of full fine-tuning, with the difference and its p-values."""
    return [
        {
            **{name: group[name] for name in ("model", "task", "layers")},
            **{name: cell[name] for name in ("recipe", "tuned_layers")},
            **{name: cell["difference"].get(name) for name in ("estimate", "low", "high", "p", "p_holm")},
        }
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if cell["difference"]
        and cell["recipe"] != group["sizes"][0]["reference"]
        and group["sizes"][0]["reference_is_full"]
        and cell["difference"]["estimate"] > 0
    ]


def half_frozen(groups: Sequence[GroupAnalysis]) -> dict[str, int]:
    """The number of curves with a half-frozen model, and in how many it is above or below full fine-tuning (Holm)."""
    differences = [
        cell["difference"]
        for group in groups
        for cell in group["sizes"][0]["cells"]
        if group["sizes"][0]["reference_is_full"] and Recipe(cell["recipe"]).k is not None
        if group["layers"] and 2 * cell["tuned_layers"] == group["layers"] and cell["difference"]
    ]
    significant = [d["estimate"] for d in differences if d.get("p_holm") is not None and d["p_holm"] < SIGNIFICANT]
    return {
        "curves": len(differences),
        "above": sum(difference["estimate"] > 0 for difference in differences),
        "significantly_above": sum(estimate > 0 for estimate in significant),
        "significantly_below": sum(estimate < 0 for estimate in significant),
    }


def failures_by_depth(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """The failures of finished runs, by how much of the model was trained."""
    kinds: dict[str, list[RunResult]] = {HEAD_ONLY: [], "some layers": [], FULL: [], NAMED: []}
    for run in runs:
        kinds.get(run.recipe, kinds["some layers"]).append(run)
    return [{"what": kind, **failures(of_kind)} for kind, of_kind in kinds.items() if of_kind]
