"""The tables of failed and missing runs: by k, by learning rate, and one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from frostline.report import formatting, names
from frostline.report.tables.by_depth import TUNED, learning_rates, rows_by_depth, title_of
from frostline.report.tables.table import Column, ReportTable, Row, Value, Values
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.outcomes import FAILURES, failure_table
from frostline.statistics.run_result import RunResult
from frostline.statistics.tune import sort_key

KINDS = tuple(name.replace(" ", "_") for name in FAILURES)
FAILED = Column(
    *("failed", "failed\nruns"),
    bad=lambda row: bool(row["failed"]),
    whole=lambda row: f"{row['failed']} of {row['runs']}",
)
TRAIN_SIZE = Column("train_size", "train\nsize", formatting.count)
LEARNING_RATE = Column("learning_rate", "learning\nrate", formatting.learning_rate)


def failures_table(curve: SizeAnswer, *, suffix: str = "") -> ReportTable:
    """The failed runs of each k by kind of failure, and the mean with and without them."""

    def values(cell: Cell) -> dict[str, Value]:
        return {
            **failure_values(cell["failures"]),
            **{"mean": cell["validation"]["mean"], "in_mean": cell["validation"]["n"]},
            "mean_with_failures": cell["validation_with_failures"]["mean"],
            "in_mean_with_failures": cell["validation_with_failures"]["n"],
            "errors": cell["errors"],
        }

    columns = (
        TUNED,
        *kind_columns(),
        *failure_columns(),
        Column("mean", "mean as\nshown", formatting.score, small=lambda row: [f"of {row['in_mean']}"]),
        Column("in_mean"),
        Column(
            *("mean_with_failures", "mean of all\nwith a score", formatting.score),
            small=lambda row: [f"of {row['in_mean_with_failures']}"],
        ),
        Column("in_mean_with_failures"),
        Column("errors", "ended in\nan error", formatting.count, bad=lambda row: bool(row["errors"])),
    )
    caption = (
        "How runs failed, and how that affects the mean. The mean as shown leaves failed runs out, unless fewer than half of "
        f"the runs succeeded: then it includes every run with a score. {learning_rates(curve)}"
    )
    title = title_of("Failures by tuned layers", curve, suffix)
    return ReportTable(f"failures{suffix}", title, caption, columns, rows_by_depth(curve, values))


def failure_rates_table(runs: Sequence[RunResult]) -> ReportTable:
    """Failure rates by train size, k and learning rate. The finished runs have their outcomes (``outcomes.with_outcomes``)."""
    by = {
        "size": lambda run: -run["train_size"],
        "k": lambda run: (sort_key(run["trainable"]), run["trainable"]),
        "learning_rate": lambda run: run["learning_rate"],
    }
    rows = [
        Row(
            {
                **{"tuned": group["k"][1], "place": n, "train_size": -group["size"]},
                **{"learning_rate": group["learning_rate"], **failure_values(group)},
            }
        )
        for n, group in enumerate(failure_table(runs, by))
    ]
    columns = (TUNED, *_size_column(runs), LEARNING_RATE, *kind_columns(), *failure_columns())
    caption = "Every learning rate that was tried, with the 95 % confidence interval (Clopper-Pearson) of the rate."
    return ReportTable(
        "failure_rates", "Failure rates by tuned layers and learning rate", caption, columns, tuple(rows)
    )


def failed_runs_table(runs: Sequence[RunResult]) -> ReportTable:
    """Every finished run that failed."""
    failed = sorted((run for run in runs if run["outcome"] in FAILURES), key=_order)
    columns = (
        *(TUNED, *_size_column(runs), Column("seed", "seed"), LEARNING_RATE),
        Column("validation_best", "score", formatting.score),
        Column("outcome", "failure", number=False),
        Column("reason", "reason", number=False),
    )
    return ReportTable("failed_runs", "Failed runs", "Each finished run that failed.", columns, _run_rows(failed))


def missing_runs_table(runs: Sequence[RunResult]) -> ReportTable:
    """Every run of the grid without a result."""
    missing = sorted((run for run in runs if run["status"] != "done"), key=_order)
    columns = (
        *(TUNED, *_size_column(runs), Column("seed", "seed"), LEARNING_RATE),
        Column("status", "status", number=False),
        Column("reason", "reason", number=False),
    )
    caption = f"Runs of the grid without a result: {len(missing)}. The same command runs them."
    return ReportTable("missing_runs", "Missing runs", caption, columns, _run_rows(missing))


def rates_table(group: Mapping[str, Any], suffix: str) -> ReportTable:
    """Failures and means at every learning rate of every k, for one model and task of an analysis."""
    several = len({row["train_size"] for row in group["rates"]}) > 1
    shown = ("train_size", "trainable", "learning_rate", "mean", "mean_with_failures")
    rows = [
        Row({**{name: row[name] for name in shown}, **failure_values(row), "place": n})
        for n, row in enumerate(group["rates"])
    ]
    columns = (
        Column("trainable", "tuned", names.trainable, number=False, rank=lambda row: row["place"]),
        Column("train_size", "examples" if several else "", formatting.count),
        LEARNING_RATE,
        *kind_columns(),
        *failure_columns(),
        Column("mean", "mean as\nshown", formatting.score),
        Column("mean_with_failures", "mean of all\nwith a score", formatting.score),
    )
    title = f"Failures by tuned layers and learning rate, {group['model']}, {group['task']}"
    caption = (
        "Failed runs at each number of tuned layers and learning rate, with the 95 % confidence interval (Clopper-Pearson) of "
        "the rate."
    )
    return ReportTable(f"rates{suffix}", title, caption, columns, tuple(rows))


def kind_columns() -> tuple[Column, ...]:
    """Columns for the number of failed runs of each kind, with values from :func:`failure_values`."""
    kinds = {name: name.replace("_", " ") for name in KINDS}
    columns = (Column(name, title, formatting.count, bad=_is(name)) for name, title in kinds.items())
    return (*columns, Column("not_above_baseline", "not above\nbaseline", formatting.count))


def failure_columns() -> tuple[Column, ...]:
    """Columns for the number of failed runs and the failure rate, with values from :func:`failure_values`."""
    rate = Column("failure_rate", "failure\nrate", formatting.percent, small=failure_interval)
    return FAILED, Column("runs"), rate, Column("failure_low"), Column("failure_high")


def failure_interval(row: Values) -> list[str]:
    """The interval of a failure rate as small print."""
    return [formatting.percent_interval(row["failure_low"], row["failure_high"])]


def failure_values(failures: Mapping[str, Any]) -> dict[str, Value]:
    """The counts of ``statistics.outcomes.failures`` as values of a row."""
    low, high = failures["interval"] or (None, None)
    rate = failures["failed"] / failures["runs"] if failures["runs"] else None
    counts = {name: failures[name] for name in (*KINDS, "failed", "runs", "not_above_baseline")}
    return {**counts, "failure_rate": rate, "failure_low": low, "failure_high": high}


def _run_rows(runs: Sequence[RunResult]) -> tuple[Row, ...]:
    shown = ("train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
    return tuple(
        Row({"tuned": run["trainable"], "place": n, **{name: run[name] for name in shown}})
        for n, run in enumerate(runs)
    )


def _size_column(runs: Sequence[RunResult]) -> tuple[Column, ...]:
    """The column of the train size. A page shows it if there are several."""
    return (TRAIN_SIZE,) if len({run["train_size"] for run in runs}) > 1 else (Column("train_size"),)


def _order(run: RunResult) -> tuple[Any, ...]:
    return -run["train_size"], sort_key(run["trainable"]), run["learning_rate"] or 0.0, run["seed"]


def _is(name: str) -> Callable[[Values], bool]:
    return lambda row: bool(row[name])
