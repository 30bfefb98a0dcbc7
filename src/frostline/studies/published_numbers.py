"""The published numbers of a study, read from ``published/STUDY.csv``."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from frostline.statistics.recipe import Recipe

FOLDER = files("frostline.studies") / "published"


@dataclass(frozen=True)
class PublishedNumber:
    """One published number. A field that does not apply is None.

    Attributes:
        table: The table or figure of the publication.
        model: The study's name of the model.
        task: The task.
        metric: The metric of a score.
        train_size: The number of training examples.
        tuned: What was trained, as a ``Tune``.
        of_layers: The number of layers of the model.
        statistic: What the number is, such as "mean" or "trainable_parameters".
        value: The number; scores are between 0 and 1.
    """

    table: str
    model: str | None
    task: str | None
    metric: str | None
    train_size: int | None
    tuned: Recipe | None
    of_layers: int | None
    statistic: str
    value: float


def read_published(study: str) -> tuple[PublishedNumber, ...]:
    """All published numbers of a study."""
    with (FOLDER / f"{study}.csv").open(encoding="utf-8") as file:
        return tuple(_number(row) for row in csv.DictReader(file))


def _number(row: Mapping[str, str]) -> PublishedNumber:
    tuned = row["tuned"]
    return PublishedNumber(
        table=row["table"],
        model=row["model"] or None,
        task=row["task"] or None,
        metric=row["metric"] or None,
        train_size=int(row["train_size"]) if row["train_size"] else None,
        tuned=Recipe(tuned) if tuned else None,
        of_layers=int(row["of_layers"]) if row["of_layers"] else None,
        statistic=row["statistic"],
        value=float(row["value"]),
    )
