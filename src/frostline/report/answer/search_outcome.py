"""The state of a search, which the answer about its runs depends on."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The state of a search.

    Attributes:
        interim_analyses: The largest number of times that intervals are read before more runs are trained.
        skipped: Every k that was not trained.
        instead: Why the search ended without a result of the reference; None if it has one.
        awaited: The reference of every comparison, while the search has not trained it yet.
        train_size: The train size of the search. It does not affect the answers for other sizes.
    """

    interim_analyses: int = 1
    skipped: Sequence[str] = ()
    instead: str | None = None
    awaited: str | None = None
    train_size: int | None = None


NO_SEARCH = SearchOutcome()
