"""The tables over all models and tasks of an analysis: answers, failures, and every k above full fine-tuning."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting, names
from frostline.report.answer.analysis import Analysis
from frostline.report.tables.failures import failure_columns, failure_values, kind_columns
from frostline.report.tables.operating_points import THREE_WAYS, sufficient_columns
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.tune import FULL

MODEL, TASK = Column("model", "model", number=False), Column("task", "task", number=False)


def answers_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target, for every model and task."""
    rows = [Row(_answer(group)) for group in analysis["groups"]]
    layers = {row.values["layers"] for row in rows}
    columns = (
        *(MODEL, TASK, Column("metric", "metric", names.metric, number=False)),
        Column("layers", "layers" if len(layers) > 1 else ""),
        Column("chance", "baseline", formatting.score),
        Column("full", "full", formatting.score, small=_full),
        *(Column("full_low"), Column("full_high"), Column("reference", number=False)),
        *sufficient_columns(),
        Column("verdict", number=False),
        Column("seeds_to_decide", "seeds\nneeded", formatting.count),
    )
    corrected = {group["sizes"][0]["deciding_point"]["corrected"] for group in analysis["groups"]}
    whole = "gain over the baseline" if corrected == {True} else "score"
    if len(corrected) > 1:
        whole = "gain over the baseline (of its score where the baseline is unknown)"
    caption = (
        f"The smallest number of tuned layers that reaches {formatting.target(analysis['settings']['target'])} of full "
        f"fine-tuning’s {whole}. {THREE_WAYS} Seeds needed: roughly how many seeds in total would probably decide. "
        f"{settings_sentence(analysis)}"
    )
    return ReportTable("answers", "Every task", caption, columns, tuple(rows))


def _answer(group: Mapping[str, Any]) -> dict[str, Any]:
    size = group["sizes"][0]
    full, point = size.cell(size["reference"]), size.deciding_point
    scores = full["validation"] if full else dict.fromkeys(("mean", "low", "high"))
    return {
        **{name: group[name] for name in ("model", "task", "metric", "layers", "chance")},
        **{"full": scores["mean"], "full_low": scores["low"], "full_high": scores["high"]},
        **{name: point[name] for name in ("estimate", "confident", "not_ruled_out", "verdict")},
        "seeds_to_decide": size["seeds_to_decide"],
        "reference": size["reference"],
    }


def failures_by_depth_table(analysis: Analysis) -> ReportTable:
    """The failed runs of all models and tasks, by how much was trained."""
    rows = [Row({"what": row["what"], **failure_values(row)}) for row in analysis["failures"]]
    columns = (Column("what", "trained", number=False), *kind_columns(), *failure_columns())
    caption = (
        "Failed runs of all models and tasks, with the 95 % confidence interval (Clopper-Pearson) of the rate. Diverged: no "
        "score. Degenerate: the same prediction for every example, where predictions are known. At chance and collapsed: far "
        "below the other runs of its cell, with less (at chance) or more (collapsed) than a tenth of the best run’s gain over "
        "the baseline. Where predictions are known, the distance must exceed what the sample of examples explains. Where the "
        "baseline is unknown, only lost scores can be counted. Runs that are not above the baseline are counted separately."
    )
    return ReportTable("failures_by_depth", "Failures by how much was trained", caption, columns, tuple(rows))


def above_full_table(analysis: Analysis) -> ReportTable:
    """Every k whose mean is above that of full fine-tuning."""
    rows = [Row(row) for row in sorted(analysis["above_full"], key=lambda row: (row["p_holm"] is None, row["p_holm"]))]
    columns = (
        *(MODEL, TASK, Column("trainable", "tuned", names.trainable, number=False)),
        *(Column("tuned_layers"), Column("layers")),
        Column("estimate", "above full", formatting.difference, small=_interval),
        *(Column("low"), Column("high")),
        Column("p", "p-value", formatting.p_value),
        Column("p_holm", "p-value\n(Holm)", formatting.p_value),
    )
    caption = (
        "Every k whose mean is above that of full fine-tuning. Of many comparisons some are above by chance; Holm’s method "
        f"adjusts for all {analysis['comparisons']} comparisons of this page."
    )
    return ReportTable("above_full", "Above full fine-tuning", caption, columns, tuple(rows))


def settings_sentence(analysis: Analysis) -> str:
    """A sentence on the settings of the analysis that affect a table."""
    settings = analysis["settings"]
    parts = [
        "every k at the learning rate that is best for full fine-tuning"
        if settings["one_learning_rate"]
        else "each k at its own best learning rate"
    ]
    if settings["failed_below"] is not None:
        parts.append(f"without runs at most {formatting.target(settings['failed_below'])} of the best of their cell")
    if settings["by_mean"]:
        parts.append("decided by mean scores")
    if settings["leave_out"]:
        parts.append(f"{' and '.join(settings['leave_out'])} excluded where tasks are combined")
    return f"Shown: {'; '.join(parts)}."


def _interval(row: Mapping[str, Any]) -> list[str]:
    return [formatting.difference_interval(row["low"], row["high"])]


def _full(row: Mapping[str, Any]) -> list[str]:
    """The interval of full fine-tuning. If it was not run: that of the reference, with its name."""
    instead = "" if row["reference"] in (FULL, None) else f"here {names.trainable(row['reference'])}"
    return [formatting.score_interval(row["full_low"], row["full_high"]), instead]
