"""What was measured beside what was published, number by number. No torch here."""

from collections.abc import Iterator, Mapping
from typing import Any

from frostline.data.folding import plain
from frostline.studies.protocol import Printed, Protocol

LARGE = 0.003  # a gap that asks for a word
STATISTICS = ("mean", "median", "std", "min", "max")


def beside(protocol: Protocol, analysis: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each published number that the analysis has an answer to.

    A model of the study is compared with its own numbers; any other model with every model's, at the same share of
    layers. ``gap`` is measured less published.
    """
    rows = []
    for printed in protocol.printed:
        for found in _measured(protocol, printed, analysis):
            runs = protocol.settings["seeds"]
            known = {"published_runs": runs if isinstance(runs, int) else len(runs)}
            rows.append({**vars(printed), **known, **found, "gap": found["measured"] - printed.value})
    return rows


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """How far the measured scores of the very same models are from the published ones; None where there are none."""
    same = [row for row in rows if row["measured_model"] == row["model"] and row["statistic"] == "mean"]
    if not same:
        return None
    worst = max(same, key=lambda row: abs(row["gap"]))
    large = [row for row in same if abs(row["gap"]) > LARGE]
    return {
        "cells": len(same),
        "mean_gap": sum(abs(row["gap"]) for row in same) / len(same),
        "largest_gap": abs(worst["gap"]),
        "largest": {name: worst[name] for name in ("table", "model", "task", "tuned", "value", "measured")},
        "large": [
            {**{name: row[name] for name in ("table", "model", "task", "tuned", "gap", "runs")}, "errors": _errors(row)}
            for row in large
        ],
    }


def _errors(row: Mapping[str, Any]) -> float | None:
    """A gap in standard errors of a mean of as many such runs as were published."""
    error = (row["std"] or 0.0) / row["published_runs"] ** 0.5 if row["published_runs"] else 0.0
    return abs(row["gap"]) / error if error else None


def _measured(protocol: Protocol, printed: Printed, analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    models = [model["model"] for model in analysis["models"]]
    known = {model: protocol.short_name(model) or model for model in models}
    own = [model for model in models if known[model] == printed.model]
    others = [model for model in models if known[model] not in protocol.model]
    for model in own or others:
        if printed.statistic == "operating_point":
            yield from _operating_point(model, known[model], printed, analysis)
            continue
        sizes = {other.train_size for other in protocol.printed if other.task == printed.task}
        for group in analysis["groups"]:
            if group["model"] == model and plain(group["task"]) == plain(printed.task or ""):
                yield from _cells(group, known[model], printed, one_size=len(sizes) == 1)
    if printed.statistic == "mean_share_of_full" and analysis["head_only"]:
        yield {"measured_model": None, "measured_tuned": "last 0", "measured": analysis["head_only"]["mean_share"]}


def _cells(group: Mapping[str, Any], model: str, printed: Printed, *, one_size: bool) -> Iterator[dict[str, Any]]:
    """``one_size``: all of the task was printed at one train size, which need not be the one that was measured."""
    for size in group["sizes"][:1] if one_size else group["sizes"]:
        if not one_size and printed.train_size is not None and size["train_size"] not in (None, printed.train_size):
            continue
        cell = _cell(size, group["layers"], printed)
        if cell is None:
            continue
        value = _value(cell, printed, alone=len(size["cells"]) == 1)
        if value is not None:
            runs = cell["validation"]["n"]
            yield {
                **{"measured_model": model, "measured_tuned": cell["trainable"], "measured": value, "runs": runs},
                **{
                    "measured_size": size["train_size"],
                    "measured_layers": group["layers"],
                    "std": cell["validation"]["std"],
                },
            }


def _cell(size: Mapping[str, Any], layers: int | None, printed: Printed) -> Mapping[str, Any] | None:
    """The cell at the published share of layers."""
    if not isinstance(printed.tuned, int):
        return next((cell for cell in size["cells"] if cell["trainable"] == printed.tuned), None)
    numbered = [cell for cell in size["cells"] if cell["trainable"].startswith("last")]
    k = printed.tuned * (layers or printed.of_layers or 1) / (printed.of_layers or layers or 1)
    return next((cell for cell in numbered if round(k, 6) == cell["tuned_layers"]), None)


def _value(cell: Mapping[str, Any], printed: Printed, *, alone: bool) -> float | None:
    """The statistic of a cell; ``alone``: nothing but full was run, which is what a search of learning rates does."""
    searched = len(cell["learning_rates_tried"]) > 1
    if printed.statistic == "mean_at_best_rate":
        return float(cell["validation"]["mean"]) if searched else None
    if printed.statistic in STATISTICS and not (alone and searched):
        value = cell["validation"][printed.statistic]
    else:
        value = cell["trainable_parameters"] if printed.statistic == "trainable_parameters" else None
    return None if value is None else float(value)


def _operating_point(model: str, known: str, printed: Printed, analysis: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    facts = next(one for one in analysis["models"] if one["model"] == model)
    point = next((p for p in (facts["tasks"] or {"points": []})["points"] if p["target"] == 0.9), None)
    if point and point["estimate"] and point["estimate"].startswith("last"):
        k = int(point["estimate"].removeprefix("last "))
        yield {
            "measured_model": known,
            "measured_tuned": point["estimate"],
            "measured": k,
            "measured_layers": facts["layers"],
        }
