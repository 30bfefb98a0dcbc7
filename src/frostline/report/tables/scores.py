"""The table of scores by k, and each k compared with full fine-tuning."""

from collections.abc import Mapping
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import baseline, rows_differ
from frostline.report.names import metric as name_of_metric
from frostline.report.tables.by_depth import (
    TUNED,
    comparable_column,
    interval_below,
    interval_columns,
    learning_rate_columns,
    learning_rates,
    learning_rates_of,
    reference,
    rows_by_depth,
    title_of,
    without_layers,
)
from frostline.report.tables.table import Column, ReportTable, Value, Values
from frostline.statistics.answer import Cell, SizeAnswer


def scores_table(curve: SizeAnswer, metric: str, *, tested: bool = False, suffix: str = "") -> ReportTable:
    """Mean and spread of the scores of each k, over the runs in its mean.

    Args:
        curve: One train size of an answer.
        metric: The name of the metric in results.
        tested: Whether test scores are known.
        suffix: The end of the file name, which is unique on a page with several curves.
    """

    def values(cell: Cell) -> dict[str, Value]:
        spread = cell["validation"]
        return {
            **learning_rates_of(cell),
            "comparable": cell["comparable"],
            **{"runs": spread["n"], "finished_runs": cell["runs"]},
            **{name: spread[name] for name in ("mean", "low", "high", "median", "lower_quartile", "upper_quartile")},
            **{name: spread[name] for name in ("std", "min", "max")},
            **{"last_epoch": cell["validation_last"]["mean"], "train": cell["train_last"]["mean"]},
            **({"test": cell["test"]["mean"]} if tested else {}),
        }

    columns = (
        *(TUNED, Column("mean", "mean", formatting.score, strong=True)),
        *((comparable_column(curve, "comparable"),) if rows_differ(curve["cells"]) else ()),
        *interval_columns("95 % CI\nof the mean", "low", "high", formatting.score_interval),
        *((Column("test", "mean\non test", formatting.score),) if tested else ()),
        Column("median", "median\n(quartiles)", formatting.score, small=_quartiles),
        *(Column("lower_quartile"), Column("upper_quartile")),
        *(Column(name, name, formatting.score) for name in ("std", "min", "max")),
        Column("last_epoch", "mean at the\nlast epoch", formatting.score),
        Column("train", "mean\non train", formatting.score),
        *(Column("runs", "runs", small=_of_all), Column("finished_runs")),
        *learning_rate_columns(),
    )
    title = title_of(f"{capitalized(name_of_metric(metric))} by tuned layers", curve, suffix)
    caption = (
        "Scores on validation of the runs that succeeded, at the epoch that each run is evaluated at; CI: confidence "
        f"interval. {learning_rates(curve)}{without_layers(curve)}"
    )
    return ReportTable(f"scores{suffix}", title, caption, columns, rows_by_depth(curve, values))


def shares_table(curve: SizeAnswer, metric: str, *, suffix: str = "") -> ReportTable:
    """Each k compared with full fine-tuning: shares, the difference with its p-value, and the gain from pairing.

    Args:
        curve: One train size of an answer.
        metric: The name of the metric in results.
        suffix: The end of the file name, which is unique on a page with several curves.
    """

    def values(cell: Cell) -> dict[str, Value]:
        is_reference = cell["trainable"] == curve["reference"]
        whole = {"estimate": 1.0, "low": None, "high": None}
        found: dict[str, Value] = {}
        for name in ("share", "share_corrected"):
            known = cell[name] is not None and cell[name]["estimate"] is not None
            found |= _with_bounds(name, whole if is_reference and known else cell[name])
        difference = {} if is_reference else cell["difference"] or {}
        return {
            **found,
            **_with_bounds("difference", difference),
            **{"p": difference.get("p"), "p_holm": difference.get("p_holm"), "pairing_gain": cell["pairing_gain"]},
        }

    below_difference = interval_below("difference_low", "difference_high", formatting.difference_interval)
    columns = (
        TUNED,
        *_share_columns("share", "share of\nthe score"),
        *_share_columns("share_corrected", "share of\nthe gain"),
        Column("difference", f"difference\nin {name_of_metric(metric)}", formatting.difference, small=below_difference),
        *(Column("difference_low"), Column("difference_high")),
        Column("p", "p-value", formatting.p_value),
        Column("p_holm", "p-value\n(Holm)", formatting.p_value),
        Column("pairing_gain", "narrower\nby pairing", formatting.times),
    )
    caption = (
        f"{reference(curve)}, with 95 % confidence intervals. Gain: the score less that of the {baseline(metric)}. "
        "Holm: the p-value adjusted for all comparisons. Narrower by pairing: how many times wider the interval would be if "
        f"runs of the same seed were not compared with each other. {learning_rates(curve)}{without_layers(curve)}"
    )
    whole = "full fine-tuning" if curve["reference_is_full"] or not curve["reference"] else "the reference"
    title = title_of(f"Share of {whole} by tuned layers", curve, suffix)
    return ReportTable(f"shares{suffix}", title, caption, columns, rows_by_depth(curve, values))


def _share_columns(name: str, title: str) -> tuple[Column, ...]:
    below = interval_below(f"{name}_low", f"{name}_high", formatting.percent_interval)
    return Column(name, title, formatting.percent, small=below), Column(f"{name}_low"), Column(f"{name}_high")


def _with_bounds(name: str, found: Mapping[str, Any] | None) -> dict[str, Value]:
    """An estimate and its interval as values of a row."""
    known = found or {}
    keys = {"estimate": name, "low": f"{name}_low", "high": f"{name}_high"}
    return {key: known.get(which) for which, key in keys.items()}


def _quartiles(row: Values) -> list[str]:
    low, high = row["lower_quartile"], row["upper_quartile"]
    return [f"{formatting.score(low)} to {formatting.score(high)}"] if row["runs"] not in (0, 1) else []


def _of_all(row: Values) -> list[str]:
    return [] if row["runs"] == row["finished_runs"] else [f"of {row['finished_runs']}"]
