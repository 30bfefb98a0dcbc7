"""The metric of each task in a table of results, and the score of its constant baseline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frostline import FrostlineError
from frostline.data.glue.tasks import DEV_CHANCE, GLUE
from frostline.data.parsing import normalized_name
from frostline.data.table import Table
from frostline.data.wording import listed, quoted
from frostline.statistics.metrics import METRICS, canonical_name


def rows_of_one_metric(
    table: Table, rows: Sequence[dict[str, Any]], wanted: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    """The rows of one metric per task: the one in ``wanted`` (``""`` for all tasks), GLUE's own, or the only one.

    Raises:
        FrostlineError: A task has several metrics, or not the one that is wanted.
    """
    present: dict[str, list[str]] = {}
    for row in rows:
        if row["metric"] is not None and row["metric"] not in present.setdefault(row["task"], []):
            present[row["task"]].append(row["metric"])
    chosen = {}
    for task, metrics in present.items():
        metric = wanted.get(normalized_name(task), wanted.get(""))
        metric = canonical_name(metric) if metric else _glue_metric(task) if len(metrics) > 1 else metrics[0]
        if metric not in metrics:
            raise FrostlineError(
                f"{table.name}: {task} has scores in {listed(metrics)}{' but not in ' + quoted(metric) if metric else ''}; "
                f"choose one with --metric {task}=NAME."
            )
        chosen[task] = metric
    for row in rows:  # a run without a result may have no metric
        metric = chosen.get(row["task"], row["metric"])
        if row["metric"] in (None, metric) and metric is not None:
            yield {**row, "metric": metric}


def _glue_metric(task: str) -> str | None:
    """GLUE's metric for a task that has the name of one of GLUE's."""
    found = GLUE.get(normalized_name(task).removesuffix("mm")) or GLUE.get(normalized_name(task))
    return found.metric if found else None


def baseline_score(
    task: str, metric: str, given: Mapping[str, float], rows: Sequence[Mapping[str, Any]]
) -> float | None:
    """The score of the best constant prediction.

    It is the first known of: the user's value, the table's value, the value that the metric defines, and the value of GLUE's
    development set. None: unknown.
    """
    if normalized_name(task) in given:
        return given[normalized_name(task)]
    in_table = {row["chance"] for row in rows} - {None}
    if len(in_table) == 1:
        return float(in_table.pop())
    if metric in METRICS and METRICS[metric].constant is not None:
        return METRICS[metric].constant
    return DEV_CHANCE.get((normalized_name(task), metric))
