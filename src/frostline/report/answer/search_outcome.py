"""The state of a search, which the answer about its runs depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from frostline.data.wording import capitalized
from frostline.report.names import tuning
from frostline.statistics.cells import ANSWERS
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult

if TYPE_CHECKING:
    from frostline.sweep.results.search_record import SearchRecord


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The state of a search.

    Attributes:
        interim_analyses: The largest number of times that intervals are read before more runs are trained.
        skipped: Every k that was not trained.
        over: Whether the search has ended. A larger k that a sweep adds is then the reference as soon as it has a result.
        instead: Why the search ended without a result of the reference; None if there is one of it or of a larger k.
        awaited: The reference of every comparison, while there is no result of it or of a larger k.
        learning_rates: The learning rates that the search selected, by k.
        longest: The most epochs that the search may train; None: there was no search.
        alternatives: The names of the models that train no layer and were fitted by the search.
        train_size: The train size of the search. It does not affect the answers for other sizes.
    """

    interim_analyses: int = 1
    skipped: Sequence[str] = ()
    over: bool = False
    instead: str | None = None
    awaited: str | None = None
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    longest: float | None = None
    alternatives: Sequence[str] = ()
    train_size: int | None = None

    @classmethod
    def of(cls, search: "SearchRecord", rows: Sequence[RunResult], alternatives: Sequence[str]) -> Self:
        """The outcome of a recorded search for the answer about these runs, of which some may be newer than the search."""
        from frostline.sweep.results.search_record import selected_learning_rates

        of_search = [row for row in rows if row.train_size == search.train_size]
        trained = {row.recipe for row in of_search}
        return cls(
            interim_analyses=search.interim_analyses,
            skipped=[k for k in search.skipped if k not in trained],
            over=search.over,
            instead=_instead(search, of_search),
            awaited=None if _has_result(search.pending_reference, of_search) else search.pending_reference,
            learning_rates=selected_learning_rates(search, of_search),
            longest=max(search.num_train_epochs),
            alternatives=alternatives,
            train_size=search.train_size,
        )

    def applies_to(self, train_size: int | None) -> bool:
        """Whether the answer for this train size depends on the search."""
        return self.train_size in (None, train_size)


def _instead(search: "SearchRecord", rows: Sequence[RunResult]) -> str | None:
    """The sentence of a search whose reference has no result; None if newer runs have one of it, or of a larger k."""
    from frostline.sweep.results.search_record import newer_runs

    failed = search.failed_reference
    if not failed or _has_result(failed, rows):
        return None
    newer = newer_runs(search, rows)
    if not newer:
        return search.why
    if any(row.recipe == failed for row in newer):
        return f"No run of {tuning(failed)} has a usable score, so nothing can be compared with it."
    again = "search again with a larger --budget, or add it with --tune of `frostline sweep`"
    return f"{capitalized(tuning(failed))} has no result: {again}."


def _has_result(reference: str | None, rows: Sequence[RunResult]) -> bool:
    """Whether the reference of a search has a usable score, or a larger k, which is then the reference of the answer."""
    if reference is None:
        return False
    with_score = [row.recipe for row in rows if Recipe(row.recipe).is_k and row.outcome in ANSWERS]
    return any(Recipe(k).order >= Recipe(reference).order for k in with_score)


NO_SEARCH = SearchOutcome()
