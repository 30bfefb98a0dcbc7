"""The joint estimate of all choices: every k, other ways to tune, and the models that train no layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from frostline.statistics.alternatives import Alternative
from frostline.statistics.decision import Option
from frostline.statistics.evidence import Evidence
from frostline.statistics.posterior import Observed, Posterior, posterior
from frostline.statistics.run_result import Scored


@dataclass(frozen=True)
class JointEstimate:
    """What is known about J choices together.

    Attributes:
        names: ``last 2``, ``all``, ``lora-2``, ``probe``; every k comes first, ascending.
        costs: Of each, the share of layers that it tunes. Measured times would make the decisions of equal sweeps differ.
        observed: Their scores.
        posterior: Of their mean scores.
        ways: The positions of the ways to tune.
    """

    names: tuple[str, ...]
    costs: tuple[float, ...]
    observed: Observed
    posterior: Posterior
    ways: range = range(0)

    @classmethod
    def of(
        cls,
        cells: Mapping[str, Sequence[Scored]],
        depth: Sequence[float],
        alternatives: Sequence[str],
        evidence: Evidence,
        ways: Sequence[float] = (),
    ) -> Self:
        """The estimate from the runs that count for the mean of each choice.

        Args:
            cells: The runs of each k, ascending, then those of each way. At least one of them has runs.
            depth: The place of each k on the curve: its share of the layers, and more than 1 with the embeddings.
            alternatives: The models that train no layer; ``evidence`` knows their predictions by name.
            evidence: The scores and their uncertainty.
            ways: The cost of each way.
        """
        runs: list[Sequence[Scored]] = [*cells.values(), *([Alternative(name)] for name in alternatives)]
        costs = (*(min(1.0, place) for place in depth), *ways, *(0.0 for _ in alternatives))
        observed = evidence.observed(runs, [*depth, *(None for _ in (*ways, *alternatives))])
        observed = replace(observed, beside=_beside(costs[: len(depth)], ways))
        return cls((*cells, *alternatives), costs, observed, posterior(observed), range(len(depth), len(cells)))

    @cached_property
    def choices(self) -> tuple[Option, ...]:
        """The choices that have a score, the cheapest first."""
        observed = self.observed
        measured = observed.means if observed.measured is None else observed.measured
        means = zip(observed.seen.tolist(), observed.means, measured, strict=True)
        choices = [
            Option(
                name=self.names[n],
                score=float(score),
                comparable=float(mean),
                cost=self.costs[n],
                draws=self.posterior.draws[:, n],
                is_way=n in self.ways,
            )
            for n, mean, score in means
        ]
        return tuple(sorted(choices, key=lambda choice: choice.cost))  # stable: k = 0 before the models without layers


def _beside(ks: Sequence[float], ways: Sequence[float]) -> dict[int, int]:
    """For each way that runs layers in training, the position of the largest k that costs at most as much.

    A way that trains no layer reads other features than k = 0 does, so it is not expected to score as that.
    """
    beside = {}
    for way, cost in enumerate(ways, start=len(ks)):
        affordable = [k for k, price in enumerate(ks) if price <= cost]  # rising, as the costs of k are
        if cost > 0 and affordable:
            beside[way] = affordable[-1]
    return beside
