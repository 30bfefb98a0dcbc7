"""What a search contributes to the answer about its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The state of a search, as far as the answer depends on it.

    Attributes:
        chosen: The k that the search ended with. It is recommended, and the answer adds how certain it is.
        interim_analyses: The largest number of times that intervals were examined before more was trained.
        skipped: Every k that was not trained.
        operations: Floating-point operations of one training run, by k.
        instead: The whole sentence of a search that ended without a k to recommend.
        awaited: The reference of every comparison while the search has not trained it yet.
        train_size: The train size of the search. It says nothing about other sizes.
    """

    chosen: str | None = None
    interim_analyses: int = 1
    skipped: Sequence[str] = ()
    operations: Mapping[str, float] = field(default_factory=dict)
    instead: str | None = None
    awaited: str | None = None
    train_size: int | None = None


NO_SEARCH = SearchOutcome()
