"""The tables of a search: its steps, and the estimates that it started from."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.report import formatting
from frostline.report.names import printed
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.recipe import Recipe


def search_table(found: Mapping[str, Any]) -> ReportTable:
    """The steps of a search with their reasons; ``found`` is ``search`` of answer.json."""
    columns = (
        Column("step", "step", formatting.count),
        Column("why", "reason", number=False),
        Column("tuned", "tuned", number=False),
        Column("rates", "learning\nrate", number=False),
        Column("runs", "runs", formatting.count),
        Column("low", "lowest\nscore", formatting.score),
        Column("high", "highest\nscore", formatting.score),
        Column("seconds", "time", formatting.seconds),
    )
    rows = tuple(Row(_step(n, step)) for n, step in enumerate(found["steps"], 1))
    return ReportTable("search", "Search", _caption(found), columns, rows, sortable=False)


def _step(number: int, step: Mapping[str, Any]) -> dict[str, Any]:
    scores = [run["score"] for run in step["runs"] if run["score"] is not None]
    ks = list(dict.fromkeys(printed(run["recipe"]) for run in step["runs"]))
    rates = list(dict.fromkeys(formatting.learning_rate(run["learning_rate"]) for run in step["runs"]))
    return {
        **{"step": number, "why": step["why"], "tuned": ", ".join(ks), "runs": len(step["runs"])},
        **{"rates": ", ".join(rates), "low": min(scores, default=None), "high": max(scores, default=None)},
        "seconds": step["seconds"],
    }


def _caption(found: Mapping[str, Any]) -> str:
    """The training time and its budget, the end of the search, and every k that it did not train."""
    budget, skipped = found["budget_seconds"], ", ".join(printed(name) for name in found["skipped"])
    spent = f"{formatting.seconds(found['spent_seconds'])} of training"
    if budget is not None:
        spent += f"; the budget was {formatting.seconds(budget)}"
    ended = found["why"] or "It has not ended."
    return f"Every step with its reason. {spent}. {ended} {f'Not trained: {skipped}.' if skipped else 'Every k was trained.'}"


def estimates_table(answer: Mapping[str, Any]) -> ReportTable:
    """The estimates of k that a search started from. The rank is that of the recommended k among all k by their distance."""
    columns = (
        Column("by", "estimate", number=False),
        Column("k", "estimated k", formatting.count),
        Column("rank", "rank of the\nchosen k", formatting.count),
    )
    caption = (
        "Cheap estimates decide where a search starts, never what it chooses. Each one ranks all k by their distance from the "
        "estimate; a low rank of the chosen k means a good estimate. Climbing up from k = 0 is shown for comparison."
    )
    found, choice = answer["search"], answer["decision"] and answer["decision"]["choice"]
    chosen = Recipe(choice).k if choice in found["operations"] else None
    ks = [k for name in found["operations"] if (k := Recipe(name).k) is not None]
    rows = [
        {**one, "rank": None if chosen is None else _by_distance(one["k"], ks).index(chosen) + 1}
        for one in ([*found["estimates"], {"by": "climbing", "k": 0}] if found["estimates"] else ())
    ]
    return ReportTable("estimates", "Estimates", caption, columns, tuple(Row(row) for row in rows), sortable=False)


def _by_distance(k: int, ks: Sequence[int]) -> list[int]:
    """All ``ks`` sorted by their distance from the estimate ``k``; of two equally close ones, the smaller is first."""
    return sorted(ks, key=lambda one: (abs(one - k), one))
