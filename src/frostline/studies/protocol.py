"""A published protocol: what it ran, what it printed, and the choices that make its headline. No torch here."""

import csv
import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from frostline import FrostlineError
from frostline.data.folding import between_commas, plain
from frostline.data.glue import GLUE
from frostline.statistics.choices import Choices
from frostline.training.specification import Tune

HERE = files("frostline.studies")
DEPTH = r"(?:\d+|\d*L)(?:/[1-9]\d*)?"  # 3, L, 2L/3
TERM = re.compile(r"(?P<factor>\d*)(?P<layers>L?)(/(?P<divisor>\d+))?")
SPAN = re.compile(rf"(?P<first>{DEPTH})(\.\.(?P<last>{DEPTH})(:(?P<step>[1-9]\d*))?)?")
NAMES: Mapping[str, Tune] = {"all": "all", "named": "named"}


@dataclass(frozen=True)
class Printed:
    """A number that stands in the publication. What does not apply is None."""

    table: str
    model: str | None
    task: str | None
    metric: str | None
    train_size: int | None
    tuned: int | str | None  # k, all, or named
    of_layers: int | None
    statistic: str
    value: float


class Protocol(BaseModel):
    """A study as it ships with the package."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    title: str
    source: str
    asks: str
    models: tuple[str, ...]  # our short names; their hub names are in ``model``
    tasks: tuple[str, ...]
    tune: str  # values of k, which may speak of L
    line_search: tuple[float, ...] = ()  # rates that are tried on full; the best is then every k's
    differs: tuple[str, ...] = ()  # what runs otherwise here, a sentence each
    contradictions: tuple[str, ...] = ()  # where the publication disagrees with itself or the field
    settings: Mapping[str, Any]
    model: Mapping[str, Mapping[str, Any]]
    task: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    as_published: Choices = Choices()  # what makes its headline

    @cached_property
    def printed(self) -> tuple[Printed, ...]:
        """What was published, number by number."""
        with (HERE / "published" / f"{self.name}.csv").open(encoding="utf-8") as file:
            return tuple(_printed(row) for row in csv.DictReader(file))

    def short_name(self, model: str) -> str | None:
        """Our name of a model of the study, from that or its hub name; None for any other model."""
        return next((short for short, facts in self.model.items() if model in (short, facts["hub"])), None)

    def settings_of(self, model: str, task: str) -> dict[str, Any]:
        """The sweep's settings for one of the study's models, or another one, on one task."""
        short = self.short_name(model)
        of_model = dict(self.model[short]) if short else {}
        return {
            **self.settings,
            **self.task.get(task, {"glue": task} if plain(task) in GLUE else {}),
            "task": task,
            "model": of_model.pop("hub", model),
            **of_model,
        }


def protocol_names() -> list[str]:
    """The studies that ship with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in HERE.iterdir() if entry.name.endswith(".toml"))


def load_protocol(name: str) -> Protocol:
    """A study by its name.

    Raises:
        FrostlineError: there is none of that name; the message lists those there are.
    """
    known = protocol_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else "choose one of these."
        raise FrostlineError(f"There is no study {name!r} among {', '.join(known)}: {hint}")
    return Protocol(name=name, **tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8")))


def depths(words: str | Sequence[Any], layers: int) -> list[Tune]:
    """Values of k from words with commas, or a list, that may speak of L, the number of layers.

    ``0..L/2, all`` is every k from 0 to half of the layers, and full; ``0..L:2`` is every second one; ``2L/3`` is
    two thirds. What is not whole is rounded down; each value stands once, in rising order.

    Raises:
        FrostlineError: a word is none of these.
    """
    words = words if isinstance(words, str) else ",".join(map(str, words))
    found: list[Tune] = []
    for part in between_commas(words):
        if part in NAMES:
            found.append(NAMES[part])
            continue
        match = SPAN.fullmatch(part)
        if match is None:
            raise FrostlineError(
                f"--tune {part!r} is no number of layers: give numbers, shares of L such as L/2, ranges such as 0..L or 0..L:2, "
                "all, or named; several with commas."
            )
        first, last = (_depth(match[name] or match["first"], layers) for name in ("first", "last"))
        found += range(first, last + 1, int(match["step"] or 1))
    numbers = sorted({k for k in found if isinstance(k, int)})
    return [*numbers, *dict.fromkeys(k for k in found if not isinstance(k, int))]


def _depth(term: str, layers: int) -> int:
    match = TERM.fullmatch(term)
    assert match is not None
    factor = int(match["factor"] or 1) * (layers if match["layers"] else 1)
    return factor // int(match["divisor"] or 1)


def _printed(row: Mapping[str, str]) -> Printed:
    tuned = row["tuned"]
    return Printed(
        table=row["table"],
        model=row["model"] or None,
        task=row["task"] or None,
        metric=row["metric"] or None,
        train_size=int(row["train_size"]) if row["train_size"] else None,
        tuned=int(tuned) if tuned.isdigit() else tuned or None,
        of_layers=int(row["of_layers"]) if row["of_layers"] else None,
        statistic=row["statistic"],
        value=float(row["value"]),
    )
