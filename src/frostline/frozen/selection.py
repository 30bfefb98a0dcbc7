"""Which hidden states are computed and cached."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from frostline.model.anatomy import Anatomy

POOLED = ("first", "mean", "last")  # the pooled vectors of an example: its first token, the mean of all, its last token


@dataclass(frozen=True)
class StateSelection:
    """A selection of hidden states.

    Attributes:
        cuts: After how many layers the hidden states of all tokens are cached, ascending.
        head: Whether the one token that the head reads is cached after the last layer.
        pooled: After how many layers the pooled vectors of each example are cached; see ``POOLED``.
    """

    cuts: tuple[int, ...]
    head: bool
    pooled: tuple[int, ...] = ()

    def bytes(self, examples: int, tokens: int, width: int) -> int:
        """Bytes on disk for so many examples and tokens."""
        vectors = self.head + len(POOLED) * len(self.pooled)
        return 4 * width * (len(self.cuts) * tokens + vectors * examples) + 24 * examples

    def depth(self, layers: int) -> int:
        """How many of a model's ``layers`` must run to compute it."""
        return layers if self.head else max((*self.cuts, *self.pooled), default=layers)

    def largest_part(self, fits: Callable[["StateSelection"], bool]) -> "StateSelection":
        """The largest part for which ``fits`` is true.

        Cuts closest to the head stay longest, because they save most computation. Pooled vectors stay only where no cut is
        dropped for them.
        """
        parts = [
            replace(self, cuts=self.cuts[first:], pooled=pooled)
            for first in range(len(self.cuts) + 1)
            for pooled in dict.fromkeys((self.pooled, ()))
        ]
        return next(filter(fits, parts), StateSelection((), False))


def selection_for(cuts: Sequence[int], anatomy: Anatomy, head_reads: str) -> StateSelection:
    """The hidden states that runs from these cuts read.

    After the last layer one token of each example is enough, unless the head reads ``all``.
    """
    one_token = head_reads != "all" and anatomy.count in cuts
    cached = {cut for cut in cuts if not (one_token and cut == anatomy.count)}
    return StateSelection(tuple(sorted(cached)), one_token)
