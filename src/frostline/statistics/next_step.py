"""What more runs would be worth: the expected gain of a decision, before they are trained (the knowledge gradient).

More seeds of some choices move the posterior means of all of them. How far is known in advance: the means move with the
covariance that the posterior loses (Frazier, Powell and Dayanik 2009, INFORMS Journal on Computing 21).
The gain is the expected value of the best choice after the move, less that of the best choice now.

The variances over seeds and the scales of the curve's prior are those of each chain. More seeds do not reduce the error that
the validation rows cause, so where it dominates, they are worth nothing. Nor are they if nothing can score higher. What was not
tried yet is worth at most what knowing its score would be.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm

from frostline.statistics.decision import JointEstimate, Option, Rule
from frostline.statistics.posterior import HIGHEST, scaled, seed_correlation
from frostline.statistics.recipe import Recipe

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOVES = 4_000  # simulated moves of the means
FAR = -6.0  # standard deviations from the highest score; normal scores with a lower mean do not reach it
SAME_ROWS = 0.7  # the correlation of the errors that rows cause in two choices, until two choices have a score


@dataclass(frozen=True)
class Surrogate:
    """What is expected of J choices, and what more runs of them are worth before they are trained.

    Attributes:
        estimate: Every choice that may get runs is among these, with or without scores.
        rule: How a choice is made.
        full: Full fine-tuning, which has scores.
        own_rows: Whether each seed is scored on validation rows of its own, as with cross-validation.
    """

    estimate: JointEstimate
    rule: Rule
    full: Option
    own_rows: bool = False

    @cached_property
    def best(self) -> Option:
        """The choice that would be recommended now."""
        return self.rule.choose(self.estimate.choices, self.full)

    def choice(self, name: str | None) -> Option | None:
        """A choice with a score; None if it has none."""
        return next((choice for choice in self.estimate.choices if choice.name == name), None)

    def probability(self, choice: Option) -> float:
        """The probability that a choice reaches the target."""
        return self.rule.probability(choice, self.full)

    def value(self, name: Recipe) -> float:
        """The expected value of a choice, trained or not."""
        return float(self.values[self.estimate.names.index(name)])

    def gain(self, added: Mapping[Recipe, Collection[str]], elsewhere: float = -math.inf) -> float:
        """The expected gain of training more runs, in score.

        If a wanted certainty decides, it is the expected change of the cost of what is chosen, at the usual price.

        Args:
            added: The new seeds of some choices.
            elsewhere: The value of the best choice of another model. A gain counts as far as it exceeds it.
        """
        seen, names = self.estimate.observed.seen, self.estimate.names
        scores = zip(names, self.estimate.observed.scores, strict=True)
        after = [{*one, *added.get(name, ())} for name, one in scores]
        kept = self._kept(self._covariance(after))
        moves = self._moves(self._total - kept)
        scored = np.flatnonzero([len(one) > 0 for one in after])
        if self.rule.sure is None:
            known, new = max(self.values[seen].max(), elsewhere), np.setdiff1d(scored, seen)
            best = np.maximum(self._values(self.means + moves, kept)[:, scored].max(1), elsewhere).mean()
            gain = max(0.0, float(best - known))
            return min(gain, self._most(new, known)) if len(new) else gain
        now = self._cheapest(np.zeros((1, len(self.costs))), seen, self._total)
        return self.rule.exchange * float(np.abs(self._cheapest(moves, scored, kept) - now).mean())

    def _most(self, choices: Indices, known: float) -> float:
        """The expected gain above the value ``known`` if the scores of some choices were known: no runs of them gain more.

        Of a choice without scores, a normal distribution promises far more: its variance is that of long tails.
        """
        values = self.estimate.draws[:, choices] - self.rule.price * self.costs[choices]
        return float(np.maximum(values.max(1) - known, 0.0).mean())

    @cached_property
    def costs(self) -> Array:
        """Of each choice, as a share of full fine-tuning, ``[J]``."""
        return np.array(self.estimate.costs)

    @cached_property
    def means(self) -> Array:
        """The means of the posterior, which knows no highest score, ``[J]``."""
        return np.asarray(self.estimate.posterior.draws.mean(0))

    @cached_property
    def values(self) -> Array:
        """The expected scores less the price of the costs, ``[J]``."""
        return self._values(self.means, self._total)

    def _values(self, means: Array, covariance: Array) -> Array:
        """The expected scores less the price of the costs. Scores are normal, and what is above the highest score counts as that.

        Args:
            means: Of the normal distributions, ``[..., J]``.
            covariance: ``[J, J]``.
        """
        spread = np.sqrt(np.maximum(np.diag(covariance), 1e-24))
        distance, values = (means - HIGHEST) / spread, means - self.rule.price * self.costs
        if distance.max() < FAR:
            return np.asarray(values)
        return np.asarray(values - spread * (distance * ndtr(distance) + norm.pdf(distance)))

    def _cheapest(self, moves: Array, scored: Indices, covariance: Array) -> Array:
        """For each move the cost of the cheapest choice that reaches the goal with the wanted probability."""
        goal, wanted, full = self.rule.goal, self.rule.sure, self.estimate.names.index(self.full.name)
        contrasts = np.eye(len(self.costs))
        contrasts[:, full] -= goal.share
        spread = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts))
        distance = (self.means + moves) @ contrasts.T - goal.threshold
        probability = ndtr(distance / np.maximum(spread, 1e-12))
        # full fine-tuning requires no more than if it had the highest possible score
        distance, spread = self.means + moves - goal.required_score(HIGHEST), np.sqrt(np.diag(covariance))
        enough = np.maximum(probability, ndtr(distance / np.maximum(spread, 1e-12))) >= wanted
        enough[:, full] = True
        return np.asarray(np.where(enough, self.costs, np.inf)[:, scored].min(1))

    def _moves(self, lost: Array) -> Array:
        """Random moves of the means with the covariance ``lost``, ``[MOVES, J]``; the same ones at every call."""
        root = _root(lost)
        normal = np.random.default_rng(0).standard_normal((MOVES // 2, len(lost)))
        return np.asarray(np.concatenate([normal, -normal]) @ root)

    @cached_property
    def _total(self) -> Array:
        """The posterior covariance of the means, ``[J, J]``. It includes that the chains disagree about the scales."""
        return np.cov(self.estimate.posterior.draws.T, ddof=0).reshape(len(self.costs), -1)

    @cached_property
    def _unit(self) -> Array:
        """The matrix that turns a covariance within chains into a share of the total one, ``[J, J]``."""
        within = self._covariance([set(one) for one in self.estimate.observed.scores])
        return np.asarray(_root(self._total) @ np.linalg.inv(_root(within)))

    def _kept(self, within: Array) -> Array:
        """The total covariance that remains if a covariance ``within`` chains remains: the same share of it."""
        return np.asarray(self._unit @ within @ self._unit.T)

    def _covariance(self, seeds: Sequence[Collection[str]]) -> Array:
        """The posterior covariance of the means if each choice had these seeds: the mean over the chains, ``[J, J]``."""
        some = np.flatnonzero([len(one) > 0 for one in seeds])
        with_seeds = [one for one in seeds if one]
        correlation = seed_correlation(with_seeds, self.estimate.posterior.noise.between)
        by_seeds = scaled(correlation, self.estimate.posterior.spreads[:, some])
        precision = self.estimate.posterior.curves.copy()
        rows = self._rows[np.ix_(some, some)]
        if self.own_rows:  # more seeds mean more rows
            behind = [len(self.estimate.observed.scores[self._nearest[n]]) for n in some.tolist()]
            fewer = np.array(behind) / [len(one) for one in with_seeds]
            rows = rows * np.sqrt(np.outer(fewer, fewer))
        precision[:, some[:, None], some] += np.linalg.inv(by_seeds + rows)
        return np.asarray(np.linalg.inv(precision).mean(0))

    @cached_property
    def _rows(self) -> Array:
        """The covariance that the rows cause, ``[J, J]``. A choice without scores resembles its nearest one with scores."""
        seen, count = self.estimate.observed.seen, len(self.costs)
        rows = np.zeros((count, count))
        rows[np.ix_(seen, seen)] = self.estimate.observed.rows
        alike = self._correlation_of_neighbours(rows)
        for n, nearest in self._nearest.items():
            if n != nearest:
                rows[n] = rows[:, n] = alike * rows[nearest]
                rows[n, n] = rows[nearest, nearest]
        return rows

    @cached_property
    def _nearest(self) -> dict[int, int]:
        """For every choice the nearest one on the curve that has scores; each choice with scores is its own."""
        seen, longer = self.estimate.observed.seen.tolist(), self.estimate.observed.longer
        on_curve = [n for n in seen if self.estimate.observed.depth[n] is not None]
        order = sorted(range(len(self.costs)), key=lambda n: min(abs(n - one) for one in on_curve))
        found = {}
        for n in order:
            near = n
            while near not in seen and near in longer:  # what trains longer resembles what trains less long
                near = longer[near][0]
            found[n] = near if near in seen else min(on_curve, key=lambda one: abs(one - near))
        return found

    def _correlation_of_neighbours(self, rows: Array) -> float:
        on_curve = [n for n in self.estimate.observed.seen if self.estimate.observed.depth[n] is not None]
        pairs = [
            rows[one, two] / np.sqrt(rows[one, one] * rows[two, two])
            for one, two in pairwise(on_curve)
            if rows[one, one] and rows[two, two]
        ]
        return float(np.clip(np.mean(pairs), 0.0, 0.99)) if pairs else SAME_ROWS


def _root(covariance: Array) -> Array:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
