"""The posterior distribution of the mean scores of all choices, from the scores of their runs and the validation rows.

A confidence interval compares two means at a time. A decision needs more: how likely each choice is to reach the target, and
how much better it is than all others. Both come from draws of the joint posterior.

- **Seeds.** Scores of a choice are normal around its mean. The standard deviations of all choices are alike (Lee, Tang and Lin
  2019: their variances differ within a curve hardly more than estimates from 3 to 20 seeds do). Each is therefore drawn around a
  common value, which is known even with one seed per choice. Runs of the same seed are correlated.
- **Rows.** The covariance that the validation rows cause is that of the confidence intervals (``inference/jackknife.py``).
- **The curve.** Neighbouring values of k score alike. The differences between neighbours are Student's t with 3 degrees of
  freedom around a common slope, so most are small and some are large. The slope is Cauchy. Differences vary more near k = 0,
  where curves rise. The prior of the level is flat.

A Gibbs sampler draws from the posterior: means given scales are normal, and the curve's scales given means are inverse gamma.
Each chain has its own draw of the variances over seeds. A simulation (``benchmarks/probabilities.py``) shows how often a
statement with a probability of, for example, 70 to 80 % is true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CHAINS, SWEEPS, BURN_IN = 200, 30, 10
TAIL = 3.0  # degrees of freedom of the differences between neighbouring k
RISE = 3.0  # how much faster curves rise at k = 0 than at full fine-tuning: exp(RISE) times
TYPICAL_STEP = 0.02  # the prior's scale of the differences along a whole curve, in score
TYPICAL_SLOPE = 0.05  # the prior's scale of the rise along a whole curve, in score
SEED_SHARE, LEAST_SPREAD, UNKNOWN_SPREAD = 0.5, 0.003, 0.01  # prior standard deviation over seeds: see ``prior_spread``
PRIOR_SEEDS = 3.0  # how many degrees of freedom that prior is worth
ALIKE = 8.0  # degrees of freedom with which a choice's own variance is drawn around the common one
CORRELATION, CORRELATION_SEEDS = 0.1, 6.0  # between runs of one seed, and how many seeds this prior is worth


@dataclass(frozen=True)
class Observed:
    """What is known about J choices.

    Attributes:
        scores: For each choice its scores by seed; at least one.
        row_covariance: ``[J, J]``, of the mean scores; None if predictions are unknown.
        depth: Of each choice on the curve, rising: 0 for k = 0, 1 for the largest number of layers, more with the embeddings.
    """

    scores: Sequence[Mapping[str, float]]
    row_covariance: Array | None
    depth: Sequence[float]

    @property
    def means(self) -> Array:
        """The mean score of each choice, ``[J]``."""
        return np.array([np.mean(list(one.values())) for one in self.scores])

    @property
    def rows(self) -> Array:
        """The covariance of the means that the rows cause, ``[J, J]``."""
        return np.zeros((len(self.scores),) * 2) if self.row_covariance is None else self.row_covariance


@dataclass(frozen=True)
class SeedNoise:
    """How scores vary over seeds.

    Attributes:
        squares: The sum of squared deviations of each choice, ``[J]``.
        freedom: Its degrees of freedom, ``[J]``.
        correlation: Of the errors of the means, ``[J, J]``; the diagonal is one over the number of seeds.
    """

    squares: Array
    freedom: Array
    correlation: Array
    pooled: float
    pooled_freedom: float

    @classmethod
    def of(cls, observed: Observed) -> "SeedNoise":
        """Estimated from all choices together."""
        deviations = [_deviations(one) for one in observed.scores]
        squares = np.array([sum(value**2 for value in one.values()) for one in deviations])
        freedom = np.array([len(one) - 1.0 for one in deviations])
        pooled_freedom = PRIOR_SEEDS + float(freedom.sum())
        pooled = (PRIOR_SEEDS * prior_spread(observed) ** 2 + float(squares.sum())) / pooled_freedom
        counts = freedom + 1
        common = np.array([[len(one.keys() & other.keys()) for other in deviations] for one in deviations])
        correlation = _seed_correlation(deviations, pooled) * common / np.outer(counts, counts)
        np.fill_diagonal(correlation, 1 / counts)
        return cls(squares, freedom, correlation, pooled, pooled_freedom)

    def draw(self, random: np.random.Generator) -> Array:
        """Covariances of the means, ``[CHAINS, J, J]``."""
        common = self.pooled * self.pooled_freedom / random.chisquare(self.pooled_freedom, CHAINS)
        own = random.chisquare(ALIKE + self.freedom, (CHAINS, len(self.squares)))
        spread = np.sqrt((ALIKE * common[:, None] + self.squares) / own)  # [CHAINS, J]
        return spread[:, :, None] * self.correlation * spread[:, None, :]


def prior_spread(observed: Observed) -> float:
    """The standard deviation over seeds that is expected before any choice has two seeds.

    In the results by seed of Lee, Tang and Lin (2019) it is .4 to .65 of the standard error that the validation rows cause.
    """
    if observed.row_covariance is None:
        return UNKNOWN_SPREAD
    return SEED_SHARE * float(np.sqrt(np.diag(observed.row_covariance)).mean()) + LEAST_SPREAD


def draw_means(observed: Observed, random: np.random.Generator | None = None) -> Array:
    """Draws of the mean scores, ``[draws, J]``, from their posterior; the same draws for the same observations.

    Args:
        observed: The scores of J choices on one curve.
        random: Its random numbers; by default those of a fixed seed.
    """
    random = random or np.random.default_rng(0)
    assert (np.diff(observed.depth) > 0).all() and np.isfinite(observed.means).all()
    means, count = observed.means, len(observed.scores)
    precision = np.linalg.inv(SeedNoise.of(observed).draw(random) + observed.rows)  # [CHAINS, J, J]
    curve = _Curve(np.diff(_warped(observed.depth)), random)
    draws = []
    for sweep in range(SWEEPS):
        value = _normal(precision + curve.precision, precision @ means + curve.evidence, random)
        if count > 1:
            curve.update(np.diff(value, axis=1))
        if sweep >= BURN_IN:
            draws.append(value)
    every: Array = np.concatenate(draws)
    return every


class _Curve:
    """The prior of the curve in each chain: the slope, and the scales of the differences between neighbours.

    Differences are ``[CHAINS, J - 1]``. Given the slope and the scales they are normal.
    """

    def __init__(self, lengths: Array, random: np.random.Generator) -> None:
        self.lengths, self.random = lengths, random
        self.slope, self.scale = np.zeros(CHAINS), np.full(CHAINS, TYPICAL_STEP**2)
        self.steepness = np.full(CHAINS, TYPICAL_SLOPE**2)  # the variance of the slope, which makes it Cauchy
        self.local = np.ones((CHAINS, len(lengths)))
        self.differences = np.diff(np.eye(len(lengths) + 1), axis=0)  # [J - 1, J]

    @property
    def weights(self) -> Array:
        """The precision of each difference."""
        weights: Array = 1 / (self.scale[:, None] * self.lengths * self.local)
        return weights

    @property
    def precision(self) -> Array:
        """Of the means, ``[CHAINS, J, J]``."""
        precision: Array = np.einsum("ij,ci,ik->cjk", self.differences, self.weights, self.differences)
        return precision

    @property
    def evidence(self) -> Array:
        """``precision`` times the means that the slope alone expects, ``[CHAINS, J]``."""
        evidence: Array = (self.weights * self.slope[:, None] * self.lengths) @ self.differences
        return evidence

    def update(self, differences: Array) -> None:
        """Draw the slope and the scales given the differences."""
        weights, shape = self.weights, differences.shape
        certainty = 1 / self.steepness + (weights * self.lengths**2).sum(1)
        mean = (weights * self.lengths * differences).sum(1) / certainty
        self.slope = mean + self.random.standard_normal(CHAINS) / np.sqrt(certainty)
        self.steepness = (TYPICAL_SLOPE**2 + self.slope**2) / (2 * self.random.gamma(1.0, 1, CHAINS))
        squares = (differences - self.slope[:, None] * self.lengths) ** 2 / self.lengths
        self.local = (TAIL + squares / self.scale[:, None]) / (2 * self.random.gamma((TAIL + 1) / 2, 1, shape))
        total = TYPICAL_STEP**2 + (squares / self.local).sum(1)
        self.scale = total / (2 * self.random.gamma(1 + shape[1] / 2, 1, CHAINS))


def _normal(precision: Array, evidence: Array, random: np.random.Generator) -> Array:
    """One draw for each chain from the normal distribution with this precision and ``precision @ mean == evidence``."""
    lower = np.linalg.cholesky(precision)
    noise = random.standard_normal((*evidence.shape, 1))
    mean = np.linalg.solve(precision, evidence[..., None])
    drawn: Array = (mean + np.linalg.solve(np.swapaxes(lower, 1, 2), noise))[..., 0]
    return drawn


def _warped(depth: Sequence[float]) -> Array:
    """Positions on a curve whose differences are proportional to the prior variance of the scores' differences."""
    place = np.asarray(depth, float)
    warped: Array = (1 - np.exp(-RISE * place)) / (1 - np.exp(-RISE))
    return warped


def _deviations(scores: Mapping[str, float]) -> dict[str, float]:
    mean = float(np.mean(list(scores.values())))
    return {seed: score - mean for seed, score in scores.items()}


def _seed_correlation(deviations: Sequence[Mapping[str, float]], variance: float) -> float:
    """The correlation between runs of one seed: the mean over pairs of choices, shrunk towards ``CORRELATION``."""
    products = [
        sum(one[seed] * other[seed] for seed in common) / (variance * (len(common) - 1))
        for n, one in enumerate(deviations)
        for other in deviations[:n]
        if len(common := one.keys() & other.keys()) > 1
    ]
    seeds = max(map(len, deviations)) - 1
    estimate = float(np.mean(products)) if products else 0.0
    known = seeds if products else 0
    shrunk = (CORRELATION_SEEDS * CORRELATION + known * estimate) / (CORRELATION_SEEDS + known)
    return min(max(shrunk, 0.0), 0.9)
