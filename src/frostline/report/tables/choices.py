"""The table of choices: everything that can be recommended, with its probabilities and its value."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting
from frostline.report.names import mark_of_choice, trainable, whole
from frostline.report.tables.by_depth import title_of
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.answer import SizeAnswer

PROBABILITIES = {"gain_90": "90 %\nof gain", "gain_95": "95 %\nof gain", "gain_99": "99 %\nof gain", "margin": "margin"}


SAME_ROWS = (
    " A mean score is over the folds that the reference is scored on, too, and beside it is the reference’s on these folds. "
    "Expected scores are for all folds."
)


def choices_table(curve: SizeAnswer, *, price: float, margin: float, suffix: str = "") -> ReportTable:
    """Each choice beside full fine-tuning: expected points lost, cost, and the probability of each usual target.

    Args:
        curve: One train size of an answer.
        price: The score that the training time of full fine-tuning is worth.
        margin: The distance below full fine-tuning that counts as equally good.
        suffix: The end of the file name, which is unique on a page with several curves.
    """
    decision = curve["decision"]
    chosen, mark = (decision["choice"], mark_of_choice(decision)) if decision else (None, "")
    rows = [
        Row(
            {
                **{
                    name: choice[name]
                    for name in ("choice", "score", "reference_score", "below_full", "low", "high", "cost_of_full")
                },
                **choice["probabilities"],
                **{name: choice[name] for name in ("better_than_previous", "expected", "value", "dominated_by")},
            },
            tags=(mark,) if choice["choice"] == chosen else _dominated(choice),
            chosen=choice["choice"] == chosen,
        )
        for choice in curve["choices"]
    ]
    parts = any(choice["part_of_rows"] for choice in curve["choices"])
    beside = "full" if curve["reference_is_full"] else trainable(curve["reference"]) if curve["reference"] else ""
    interval = Column("below_full", "expected\npoints lost", formatting.points, small=lambda row: [_interval(row)])
    columns = (
        Column("choice", "tuned", trainable, number=False, strong=True),
        Column("score", "mean\nscore", formatting.score),
        Column("reference_score", f"{beside} on\nthe same rows" if parts else "", formatting.score),
        *(interval, Column("low"), Column("high")),
        Column("cost_of_full", "layers\n(cost)", formatting.percent),
        *(Column("expected", "expected\nscore", formatting.score), Column("value", "value", formatting.score)),
        *(Column(name, title, formatting.percent) for name, title in PROBABILITIES.items()),
        Column("better_than_previous", "better than the\nnext smaller k", formatting.percent),
        Column("dominated_by"),
    )
    caption = (
        f"The value of a choice is its expected score less {price:g} times its cost. The highest value is recommended, unless a "
        f"probability of reaching the target is wanted. The cost is the number of tuned layers as a share of {whole(curve)}; "
        "training time is roughly proportional to it. Expected scores and probabilities come from the joint posterior of all "
        f"mean scores, given the runs and the validation examples. The margin is {margin:g}. Below the points lost: their 95 % "
        "interval, which is the posterior's. It also uses the scores of similar choices. The 95 % confidence intervals of other "
        "tables use only the runs of the k themselves."
        f"{SAME_ROWS if parts else ''}"
    )
    return ReportTable(f"choices{suffix}", title_of("Choices", curve, suffix), caption, columns, tuple(rows))


def _dominated(choice: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"dominated by {trainable(choice['dominated_by'])}",) if choice["dominated_by"] else ()


def _interval(row: object) -> str:
    assert isinstance(row, dict)
    return f"{formatting.points(row['low'])} to {formatting.points(row['high'])}"
