"""The runs of one model on one task, with their scores: what an answer is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The state of a search, which the answer about its runs depends on.

    Attributes:
        interim_analyses: The largest number of times that intervals are read before more runs are trained.
        skipped: Every candidate that was not trained, for any number of epochs.
        over: Whether the search has ended. A larger k that a sweep adds is then the reference as soon as it has a result.
        instead: Why the search ended without a result of the reference; None if there is one of it or of a larger k.
        awaited: The reference of every comparison, while there is no result of it or of a larger k.
        learning_rates: The learning rates that the search selected, by k.
        longest: The most epochs that the search may train; None: there was no search.
        alternatives: The names of the models that train no layer and were fitted by the search.
        train_size: The train size of the search. It does not affect the answers for other sizes.
    """

    interim_analyses: int = 1
    skipped: Sequence[Recipe] = ()
    over: bool = False
    instead: str | None = None
    awaited: Recipe | None = None
    learning_rates: Mapping[Recipe, float] = field(default_factory=dict)
    longest: float | None = None
    alternatives: Sequence[Recipe] = ()
    train_size: int | None = None


NO_SEARCH = SearchOutcome()


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """The runs of one model on one task, with their scores.

    Attributes:
        layers: The number of layers of the model, L; None: unknown.
        evidence: The scores and what is known about their uncertainty.
        folder: The folder of the sweep that the runs come from; None for a table.
        search: The outcome of the search that trained the runs, if one did.
        same_runs: Whether these are the runs of another group, scored on a further evaluation set.
    """

    model: str
    task: str
    layers: int | None
    runs: Sequence[RunResult]
    evidence: Evidence
    folder: Path | None = None
    search: SearchOutcome = NO_SEARCH
    same_runs: bool = False
