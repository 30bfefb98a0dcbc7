"""What a search knows about every choice, and what it would gain from more runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from frostline.search.trials import RaceSettings, Trial
from frostline.statistics.decision import Candidate, Rule
from frostline.statistics.evidence import Evidence
from frostline.statistics.joint import JointEstimate
from frostline.statistics.next_step import NextStep
from frostline.statistics.run_result import RunResult
from frostline.statistics.tune import Tune, name_of


@dataclass(frozen=True)
class Outlook:
    """What is known about every choice, with or without a score.

    Attributes:
        estimate: Of all k, the reference, and the models that train no layer.
        rule: How one of them is chosen.
        full: The reference.
        step: What more runs are worth.
    """

    estimate: JointEstimate
    rule: Rule
    full: Candidate
    step: NextStep

    @classmethod
    def of(cls, runs: Mapping[Tune, Sequence[RunResult]], evidence: Evidence, settings: RaceSettings) -> Self:
        """From the runs that count for the mean of each k; the reference has at least one."""
        layers, reference = settings.layers, name_of(settings.reference)
        depth = [tune / layers if isinstance(tune, int) else 1 + 1 / layers for tune in settings.choices]
        cells = {name_of(tune): runs[tune] for tune in settings.choices}
        estimate = JointEstimate.of(cells, depth, settings.alternatives, evidence)
        step = NextStep(
            estimate.observed,
            estimate.posterior,
            np.array(estimate.costs),
            settings.rule,
            full=estimate.names.index(reference),
            own_rows=bool(settings.folds),
        )
        full = next(choice for choice in estimate.choices if choice.name == reference)
        return cls(estimate, settings.rule, full, step)

    @cached_property
    def best(self) -> Candidate:
        """The choice that would be recommended now."""
        return self.rule.choose(self.estimate.choices, self.full)

    def choice(self, tune: Tune) -> Candidate | None:
        """A k with a score; None if it has none."""
        return next((choice for choice in self.estimate.choices if choice.name == name_of(tune)), None)

    def probability(self, choice: Candidate) -> float:
        """The probability that a choice reaches the target."""
        return self.rule.probability(choice, self.full)

    def value(self, tune: Tune) -> float:
        """The expected value of a k, trained or not."""
        return float(self.step.values[self._position(tune)])

    def gain(self, trials: Sequence[Trial]) -> float:
        """The expected gain of these trials, in score."""
        added: dict[int, set[str]] = {}
        for trial in trials:
            added.setdefault(self._position(trial.tune), set()).add(str(trial.seed))
        return self.step.gain(added)

    def _position(self, tune: Tune) -> int:
        return self.estimate.names.index(name_of(tune))
