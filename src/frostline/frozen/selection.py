"""Which hidden states are computed and cached."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from frostline.model.anatomy import Anatomy

POOLED = ("first", "mean", "last")  # the pooled vectors of an example: first token, mean of all tokens, last token


@dataclass(frozen=True)
class StateSelection:
    """A selection of hidden states.

    Attributes:
        cuts: Cache the hidden states of all tokens after these numbers of layers; ascending.
        head: Cache the hidden state of the head's token after the last layer.
        pooled: Cache the pooled vectors of each example after these numbers of layers; see ``POOLED``.
    """

    cuts: tuple[int, ...]
    head: bool
    pooled: tuple[int, ...] = ()

    def bytes(self, examples: int, tokens: int, width: int) -> int:
        """Bytes on disk for this number of examples and tokens."""
        vectors = self.head + len(POOLED) * len(self.pooled)
        return 4 * width * (len(self.cuts) * tokens + vectors * examples) + 24 * examples

    def depth(self, layers: int) -> int:
        """How many of a model's ``layers`` must run to compute this selection."""
        return layers if self.head else max((*self.cuts, *self.pooled), default=layers)

    def largest_part(self, fits: Callable[["StateSelection"], bool]) -> "StateSelection":
        """The largest part of this selection for which ``fits`` is true.

        The cuts farthest from the head are dropped first, because they save the least computation. Pooled vectors are dropped
        before any cut.
        """
        parts = [
            replace(self, cuts=self.cuts[first:], pooled=pooled)
            for first in range(len(self.cuts) + 1)
            for pooled in dict.fromkeys((self.pooled, ()))
        ]
        return next(filter(fits, parts), StateSelection((), False))


def selection_for(cuts: Sequence[int], anatomy: Anatomy, head_reads: str) -> StateSelection:
    """The hidden states that runs from these cuts need.

    After the last layer, the head's token of each example is enough, unless the head reads ``all`` tokens.
    """
    one_token = head_reads != "all" and anatomy.count in cuts
    cached = {cut for cut in cuts if not (one_token and cut == anatomy.count)}
    return StateSelection(tuple(sorted(cached)), one_token)
