"""Compare measured with published numbers. Imports no torch."""

from collections.abc import Iterator
from typing import Any

from frostline.data.wording import normalized_name
from frostline.report.answer.analysis import Analysis, GroupAnalysis
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.recipe import HEAD_ONLY
from frostline.studies.protocol import Protocol, PublishedNumber

LARGE = 0.003  # larger gaps are listed one by one
STATISTICS = ("mean", "median", "std", "min", "max")


def compare(protocol: Protocol, analysis: Analysis) -> list[dict[str, Any]]:
    """One row for each published number that has a measured counterpart; ``gap`` is measured minus published.

    A model of the study is compared with its own numbers. Any other model is compared with the numbers of all models, at the
    same share of tuned layers.
    """
    rows = []
    for published in protocol.published:
        for found in _measured(protocol, published, analysis):
            runs = protocol.settings["seeds"]
            known = {"published_runs": runs if isinstance(runs, int) else len(runs)}
            rows.append({**vars(published), **known, **found, "gap": found["measured"] - published.value})
    return rows


def gap_summary(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The gaps between measured and published means, for the models of the study; None if none of them was measured."""
    same = [row for row in rows if row["measured_model"] == row["model"] and row["statistic"] == "mean"]
    if not same:
        return None
    worst = max(same, key=lambda row: abs(row["gap"]))
    large = [row for row in same if abs(row["gap"]) > LARGE]
    errors = []  # of a mean of as many runs as were published
    for row in large:
        error = (row["std"] or 0.0) / row["published_runs"] ** 0.5 if row["published_runs"] else 0.0
        errors.append(abs(row["gap"]) / error if error else None)
    return {
        "cells": len(same),
        "mean_gap": sum(abs(row["gap"]) for row in same) / len(same),
        "largest_gap": abs(worst["gap"]),
        "largest": {name: worst[name] for name in ("table", "model", "task", "tuned", "value", "measured")},
        "large": [
            {**{name: row[name] for name in ("table", "model", "task", "tuned", "gap", "runs")}, "errors": gap}
            for row, gap in zip(large, errors, strict=True)
        ],
    }


def _measured(protocol: Protocol, published: PublishedNumber, analysis: Analysis) -> Iterator[dict[str, Any]]:
    models = [model.model for model in analysis.models]
    known = {model: protocol.short_name(model) or model for model in models}
    own = [model for model in models if known[model] == published.model]
    others = [model for model in models if known[model] not in protocol.model]
    for model in own or others:
        if published.statistic == "operating_point":
            yield from _operating_point(model, known[model], published, analysis)
            continue
        sizes = {other.train_size for other in protocol.published if other.task == published.task}
        for group in analysis.groups:
            if group.model == model and normalized_name(group.task) == normalized_name(published.task or ""):
                yield from _cells(group, known[model], published, one_size=len(sizes) == 1)
    if published.statistic == "mean_share_of_full" and analysis.head_only:
        yield {"measured_model": None, "measured_tuned": HEAD_ONLY, "measured": analysis.head_only.mean_share}


def _cells(group: GroupAnalysis, model: str, published: PublishedNumber, *, one_size: bool) -> Iterator[dict[str, Any]]:
    """The measured values to compare a published number with, at each train size.

    With ``one_size`` all numbers of the task were published for one train size, which may differ from the measured one.
    """
    for size in group.sizes[:1] if one_size else group.sizes:
        if not one_size and published.train_size is not None and size.train_size not in (None, published.train_size):
            continue
        cell = _cell(size, group.layers, published)
        if cell is None:
            continue
        value = _value(cell, published, alone=len(size.cells) == 1)
        if value is not None:
            runs = cell.validation.n
            yield {
                **{"measured_model": model, "measured_tuned": cell.recipe, "measured": value, "runs": runs},
                **{
                    "measured_size": size.train_size,
                    "measured_layers": group.layers,
                    "std": cell.validation.std,
                },
            }


def _cell(size: SizeAnswer, layers: int | None, published: PublishedNumber) -> Cell | None:
    """The cell with the same share of tuned layers as the published number."""
    if published.tuned is None or published.tuned.k is None:
        return next((cell for cell in size.cells if cell.recipe == published.tuned), None)
    numbered = [cell for cell in size.cells if cell.recipe.k is not None]
    k = published.tuned.k * (layers or published.of_layers or 1) / (published.of_layers or layers or 1)
    return next((cell for cell in numbered if round(k, 6) == cell.tuned_layers), None)


def _value(cell: Cell, published: PublishedNumber, *, alone: bool) -> float | None:
    """The statistic of a cell. ``alone``: the curve has no other k, as in a search for the learning rate of full fine-tuning."""
    searched = len(cell.learning_rates_tried) > 1
    if published.statistic == "mean_at_best_rate":
        return cell.validation.mean if searched else None
    if published.statistic in STATISTICS and not (alone and searched):
        value = getattr(cell.validation, published.statistic)
    else:
        value = cell.trainable_parameters if published.statistic == "trainable_parameters" else None
    return None if value is None else float(value)


def _operating_point(
    model: str, known: str, published: PublishedNumber, analysis: Analysis
) -> Iterator[dict[str, Any]]:
    facts = next(one for one in analysis.models if one.model == model)
    points = facts.tasks.points if facts.tasks else []
    point = next((point for point in points if point.target == 0.9), None)
    if point and point.estimate and (k := point.estimate.k) is not None:
        yield {
            "measured_model": known,
            "measured_tuned": point.estimate,
            "measured": k,
            "measured_layers": facts.layers,
        }
