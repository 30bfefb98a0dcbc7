"""The posterior distribution of the mean scores of all choices, from the scores of their runs and the validation rows.

A confidence interval compares two means at a time. A decision needs more: how likely each choice is to reach the target, and
how much better it is than all others. Both come from draws of the joint posterior.

- **Seeds.** Scores of a choice are normal around its mean. The standard deviations of all choices are alike (Lee, Tang and Lin
  2019: their variances differ within a curve hardly more than estimates from 3 to 20 seeds do). Each is therefore drawn around a
  common value, which is known even with one seed per choice. Runs of the same seed are correlated. A model that trains no layer
  has no seed.
- **Rows.** The covariance that the validation rows cause is that of the confidence intervals (``inference.py``),
  without what the spread over seeds contains already.
- **The curve.** Neighbouring values of k score alike. A curve rises early, or is straight: each chain has one of these two forms,
  times a slope. The differences between neighbours are Student's t with 3 degrees of freedom around what the form
  expects, so most are close to it, and some are not. Differences vary more near k = 0. The slope is Student's t as well: with
  Cauchy's, the mean of a k without scores need not exist. The level is flat.
- **Ways.** Another way to tune is expected to score as the k of the same cost. Differences are Cauchy around zero, with a common
  scale. The best of many ways is therefore pulled towards its k, unless it is clearly better.
- **Training length.** The curve is that of the shortest training. A longer one is expected to gain on it, the more the fewer
  steps the shorter one has. One factor multiplies what is expected at all k, because they gain alike. Its prior is far wider if
  full fine-tuning has not fitted its examples in the shortest training. Differences are Student's t with 3 degrees of freedom.
- **Learning rates.** The runs of a choice at its other learning rates are ends of a chain: each is expected to score as its
  neighbour, with Cauchy differences. So the best of several learning rates is pulled towards the others.
- **Beside the curve.** A linear probe or a TF-IDF model is expected to score as the smallest k, with wide Cauchy differences.

A Gibbs sampler draws from the posterior: means given scales are normal, and the curve's scales given means are inverse gamma.
Slopes and factors are integrated out of the draws of the means (a partially collapsed sampler: van Dyk and Park 2008).
Each chain has its own draw of the variances over seeds. A simulation (``benchmarks/probabilities.py``) shows how often a
statement with a probability of, for example, 70 to 80 % is true.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

HIGHEST = 1.0  # of every metric; the posterior knows nothing of it, and what it has above this is cut off afterwards
CHAINS = 200
TAIL = 3.0  # degrees of freedom of the differences between neighbouring k
RISE = 4.0  # how much more curves vary around their form at k = 0 than with all layers: exp(RISE) times
EARLY = 0.36  # the depth at which a curve of the first form has risen by erf(1), 84 % of the way
CHANCES = np.array([0.8, 0.2])  # of the two forms
TYPICAL_STEP = 0.02  # the prior's scale of the differences along a whole curve, in score
TYPICAL_SLOPE = 0.05  # the prior's scale of the rise along a whole curve, in score
TYPICAL_GAP = 0.01  # the prior's scale of the differences between a way and the k of the same cost, in score
TYPICAL_RATE_GAP = 0.01  # the same between neighbouring learning rates
TYPICAL_UNTRAINED_GAP = 0.2  # the same between a model that trains no layer and the smallest k
GAP_TAIL = 1.0  # the degrees of freedom of all three: most are small, and a few are large
STILL_TO_GAIN, HALF = 0.04, 1_000  # the prior's gain of training on and on, in score; half of it after so many examples
FACTOR_SPREAD = 2.0  # the prior's standard deviation of how many times as much a task gains
TYPICAL_EXCESS = (
    0.01  # the prior's scale of the differences between what a longer training gains and what is expected, in score
)
# both if full fine-tuning has not fitted its examples in the shortest training: a longer one may gain far more, and not alike
UNFITTED_FACTOR_SPREAD, UNFITTED_EXCESS = 20.0, 0.1


class Differences:
    """The prior of n differences between means in each chain: Student's t around what is expected of them, with a common scale.

    Expected are a factor times a ``form``, ``[n]`` or ``[CHAINS, n]``, here zero. The factor is normal around ``center`` with a
    ``variance``, ``[CHAINS]``. Given form and scales, the differences ``[CHAINS, n]`` are normal. The factor is
    integrated out: chains that hold one while they draw the means move too slowly where scores are uncertain.
    """

    center = 0.0

    def __init__(self, rows: Array, typical: float, tail: float, random: np.random.Generator) -> None:
        """``rows``: how the differences follow from the J means, ``[n, J]``; ``typical``: their scale before they are seen."""
        self.rows, self.typical, self.tail, self.random = rows, typical, tail, random
        self.scale, self.local, self.lengths = (
            np.full(CHAINS, typical**2),
            np.ones((CHAINS, len(rows))),
            np.ones(len(rows)),
        )
        self.products = (rows[:, :, None] * rows[:, None]).reshape(len(rows), rows.shape[1] ** 2)
        self.form, self.variance = np.zeros(len(rows)), np.ones(CHAINS)

    @property
    def weights(self) -> Array:
        """The precision of each difference given the factor, ``[CHAINS, n]``."""
        weights: Array = 1 / (self.scale[:, None] * self.lengths * self.local)
        return weights

    @property
    def precision(self) -> Array:
        """Of the means, ``[CHAINS, J, J]``."""
        tilt = (self.weights * self.form) @ self.rows
        precision = (self.weights @ self.products).reshape(*tilt.shape, -1)  # as if the factor was known
        return precision - tilt[:, :, None] * (tilt / self._certainty[:, None])[:, None]

    @property
    def evidence(self) -> Array:
        """``precision`` times the means that are expected, ``[CHAINS, J]``."""
        share = self.center / (self.variance * self._certainty)
        evidence: Array = share[:, None] * ((self.weights * self.form) @ self.rows)
        return evidence

    @property
    def _certainty(self) -> Array:
        """The precision of the factor given the means, ``[CHAINS]``."""
        certainty: Array = 1 / self.variance + (self.weights * self.form**2).sum(1)
        return certainty

    def update(self, means: Array) -> None:
        """Draw what is expected and then the scales, given the means ``[CHAINS, J]``."""
        differences = means @ self.rows.T
        squares = (differences - self._factor(differences)[:, None] * self.form) ** 2 / self.lengths
        self.local = (self.tail + squares / self.scale[:, None]) / (
            2 * self.random.gamma((self.tail + 1) / 2, 1, squares.shape)
        )
        total = self.typical**2 + (squares / self.local).sum(1)
        self.scale = total / (2 * self.random.gamma(1 + squares.shape[1] / 2, 1, CHAINS))

    def _factor(self, differences: Array) -> Array:
        """The factor, drawn given the differences, ``[CHAINS]``."""
        certainty = self._certainty
        mean = (self.center / self.variance + (self.weights * self.form * differences).sum(1)) / certainty
        factor: Array = mean + self.random.standard_normal(CHAINS) / np.sqrt(certainty)
        return factor


class Curve(Differences):
    """The differences between neighbours on the curve. Each chain has a form, and a slope as its factor."""

    def __init__(self, depth: Sequence[float], others: int, random: np.random.Generator) -> None:
        """``depth``: of the choices on the curve; ``others``: the number of choices that are not on it."""
        steps = np.diff(np.eye(len(depth)), axis=0)
        super().__init__(np.pad(steps, ((0, 0), (0, others))), TYPICAL_STEP, TAIL, random)
        self.lengths, self.forms = np.diff(_warped(depth)), np.diff(_rises(depth))  # [n], [forms, n]
        self.form = self.forms[random.choice(len(CHANCES), CHAINS, p=CHANCES)]
        self.variance = np.full(CHAINS, TYPICAL_SLOPE**2)  # drawn anew given each slope, which makes it Student's t

    def _factor(self, differences: Array) -> Array:
        """The form is drawn by its likelihood with any slope, and then the slope of this form."""
        certainty = 1 / self.variance[:, None] + self.weights @ (self.forms**2).T  # [CHAINS, forms]
        fit = (self.weights * differences) @ self.forms.T
        likelihood = (fit**2 / certainty - np.log(certainty)) / 2 + np.log(CHANCES)
        self.form = self.forms[(likelihood + self.random.gumbel(size=likelihood.shape)).argmax(1)]  # of these log odds
        slope = super()._factor(differences)
        self.variance = (TAIL * TYPICAL_SLOPE**2 + slope**2) / (2 * self.random.gamma((TAIL + 1) / 2, 1, CHAINS))
        return slope


def expected_gain(epochs: float, more_epochs: float, examples: int | None) -> float:
    """The score that a longer training is expected to gain, whatever is tuned.

    What is still to be gained falls with the number of examples that were seen, each as often as it was: by half after ``HALF``.
    """
    seen = np.array([epochs, more_epochs]) * (examples or HALF)
    left = STILL_TO_GAIN / (1 + seen / HALF)
    return float(left[0] - left[1])


class Longer(Differences):
    """What longer trainings gain on the next shorter ones of the same recipe: their form is what is expected of them.

    All share a factor, which is normal around 1. Tasks differ much in it: of two in ``docs/log.md``, one gained nothing, and the
    other more than three times what is expected. It may be far larger if the shortest training left full fine-tuning
    ``unfitted``.
    """

    def __init__(
        self, longer: Mapping[int, tuple[int, float]], choices: int, unfitted: bool, random: np.random.Generator
    ) -> None:
        """``longer``: the position of the next shorter one and the expected gain of each, by its own position; ``choices``: J."""
        rows = _beside({one: shorter for one, (shorter, _) in longer.items()}, choices)
        super().__init__(rows, UNFITTED_EXCESS if unfitted else TYPICAL_EXCESS, TAIL, random)
        self.center, spread = 1.0, UNFITTED_FACTOR_SPREAD if unfitted else FACTOR_SPREAD
        self.variance = np.full(CHAINS, spread**2)
        self.form = np.array([gain for _, gain in longer.values()])


def _beside(others: Mapping[int, int], choices: int) -> Array:
    """The differences of some choices from others, ``[n, J]``. ``others``: the position of the other, by that of the choice."""
    rows = np.zeros((len(others), choices))
    for row, (one, other) in zip(rows, others.items(), strict=True):
        row[[one, other]] = 1, -1
    return rows


def _warped(depth: Sequence[float]) -> Array:
    """Positions on a curve whose differences are proportional to the prior variance of the scores' differences."""
    place = np.asarray(depth, float)
    warped: Array = (1 - np.exp(-RISE * place)) / (1 - np.exp(-RISE))
    return warped


def _rises(depth: Sequence[float]) -> Array:
    """How far a curve of each form has risen at these places, as a share of its rise from k = 0 to all layers, ``[forms, n]``.

    One form rises early. In the tables of Lee, Tang and Lin (2019), a quarter of the layers gains 75 % of what full fine-tuning
    gains with BERT, in the mean over tasks; this form has 67 %. The other one is a straight line.
    """
    place = np.asarray(depth, float)
    return np.array([scipy.special.erf(place / EARLY) / scipy.special.erf(1 / EARLY), place])


SWEEPS, BURN_IN = 60, 20
SEED_SHARE, LEAST_SPREAD, UNKNOWN_SPREAD = 0.5, 0.003, 0.01  # prior standard deviation over seeds: see ``prior_spread``
NO_SPREAD = 1e-4  # of what has no seed; 0 would leave a covariance without an inverse
PRIOR_SEEDS = 3.0  # how many degrees of freedom that prior is worth
LOWEST = -1.0  # if a score is lower, chains begin at the measured means, which they would not reach otherwise
LARGEST = 1e5  # the largest absolute score to compute with; the prior is made for scores up to 1
ALIKE = 8.0  # degrees of freedom with which a choice's own variance is drawn around the common one
CORRELATION, CORRELATION_SEEDS = 0.1, 6.0  # between runs of one seed, and how many seeds this prior is worth


@dataclass(frozen=True)
class Observed:
    """What is known about J choices.

    Attributes:
        scores: For each choice its scores by seed. A choice on the curve may have none; then only its neighbours tell about it.
        row_covariance: ``[J, J]``, of the mean scores; NaN for a choice without scores. None if predictions are unknown.
        depth: Of each choice on the curve, rising: 0 for k = 0, 1 for the largest number of layers, more with the embeddings.
            None, after all others: the choice is not on the curve.
        beside: For ways to tune, by position: the position of the k that they are expected to score as.
        untrained: The same for models that train nothing, which have one score.
        heads: The same for ways that train a head only.
        other_rates: The same for the runs of a choice at another learning rate, with the neighbouring learning rate.
        longer: For longer trainings, by position: the position of the next shorter one, and the score it is expected to gain.
        unfitted: Whether full fine-tuning has not fitted its examples in the shortest training, so that a longer one may gain far
            more.
        measured: The mean score of each choice with scores, as it was measured; None: as in ``scores``. With folds, ``scores``
            are without the effects of the folds.
        squares_of_rows: What the rows add to the sum of squared deviations over seeds of each choice with scores, ``[seen]``;
            None: each seed has the same rows, and ``row_covariance`` is without that.
        lowest: The lowest possible score.
    """

    scores: Sequence[Mapping[str, float]]
    row_covariance: Array | None
    depth: Sequence[float | None]
    beside: Mapping[int, int] = field(default_factory=dict)
    untrained: Mapping[int, int] = field(default_factory=dict)
    heads: Mapping[int, int] = field(default_factory=dict)
    other_rates: Mapping[int, int] = field(default_factory=dict)
    longer: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    unfitted: bool = False
    measured: Sequence[float] | None = None
    squares_of_rows: Array | None = None
    lowest: float = -np.inf

    @property
    def seen(self) -> NDArray[np.int64]:
        """The positions of the choices with scores."""
        return np.flatnonzero([len(one) > 0 for one in self.scores])

    @property
    def means(self) -> Array:
        """The mean score of each choice with scores, ``[seen]``."""
        return np.array([np.mean(list(one.values())) for one in self.scores if one])

    def first(self, count: int) -> "Observed":
        """What is known about the first ``count`` choices, without other learning rates of them."""
        covariance, seen = self.row_covariance, int((self.seen < count).sum())
        return replace(
            self,
            scores=self.scores[:count],
            row_covariance=None if covariance is None else covariance[:count, :count],
            depth=self.depth[:count],
            other_rates={},
            measured=None if self.measured is None else self.measured[:seen],
            squares_of_rows=None if self.squares_of_rows is None else self.squares_of_rows[:seen],
        )

    def divided_by(self, unit: float) -> "Observed":
        """The same in another unit of scores."""
        return replace(
            self,
            scores=[{seed: score / unit for seed, score in one.items()} for one in self.scores],
            row_covariance=None if self.row_covariance is None else self.row_covariance / unit**2,
            squares_of_rows=None if self.squares_of_rows is None else self.squares_of_rows / unit**2,
        )

    @property
    def rows(self) -> Array:
        """The covariance of these means that the rows cause, ``[seen, seen]``."""
        seen = self.seen
        return np.zeros((len(seen),) * 2) if self.row_covariance is None else self.row_covariance[np.ix_(seen, seen)]


@dataclass(frozen=True)
class SeedNoise:
    """How the scores of the choices that have some vary over seeds.

    Attributes:
        squares: The sum of squared deviations of each choice, ``[seen]``.
        freedom: Its degrees of freedom, ``[seen]``.
        correlation: Of the errors of the means, ``[seen, seen]``; the diagonal is one over the number of seeds.
        between: The correlation between runs of one seed.
        pooled: The common variance over seeds.
        pooled_freedom: Its degrees of freedom.
        untrained: Whether each choice trains nothing, so that nothing in it is random, ``[seen]``.
    """

    squares: Array
    freedom: Array
    correlation: Array
    between: float
    pooled: float
    pooled_freedom: float
    untrained: NDArray[np.bool_]

    @classmethod
    def of(cls, observed: Observed) -> "SeedNoise":
        """Estimated from all choices together, without other learning rates of them, which may be far noisier."""
        deviations = [_deviations(one) for one in observed.scores if one]
        chosen = np.array([n not in observed.other_rates for n in observed.seen], bool)
        squares = np.array([sum(value**2 for value in one.values()) for one in deviations])
        if observed.squares_of_rows is not None:
            squares -= observed.squares_of_rows
        freedom = np.array([len(one) - 1.0 for one in deviations])
        pooled_freedom = PRIOR_SEEDS + float(freedom[chosen].sum())
        pooled = (PRIOR_SEEDS * prior_spread(observed) ** 2 + max(0.0, float(squares[chosen].sum()))) / pooled_freedom
        squares = np.maximum(squares, 0.0)
        between = _seed_correlation([one for one, own in zip(deviations, chosen, strict=True) if own], pooled)
        untrained = np.isin(observed.seen, [*observed.untrained])
        return cls(squares, freedom, seed_correlation(deviations, between), between, pooled, pooled_freedom, untrained)

    def draw(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Standard deviations over seeds: of each choice, ``[CHAINS, seen]``, and the common one, ``[CHAINS]``."""
        common = self.pooled * self.pooled_freedom / random.chisquare(self.pooled_freedom, CHAINS)
        own = random.chisquare(ALIKE + self.freedom, (CHAINS, len(self.squares)))
        spreads = np.sqrt((ALIKE * common[:, None] + self.squares) / own)
        return np.where(self.untrained, NO_SPREAD, spreads), np.sqrt(common)


def seed_correlation(seeds: Sequence[Collection[str]], between: float) -> Array:
    """The covariance of means over these seeds, ``[J, J]``, if each run has variance 1.

    Args:
        seeds: The seeds of each of J choices.
        between: The correlation between runs of one seed.
    """
    counts = np.array([len(one) for one in seeds], float)
    common = np.array([[len(set(one) & set(other)) for other in seeds] for one in seeds])
    covariance: Array = between * common / np.outer(counts, counts)
    np.fill_diagonal(covariance, 1 / counts)
    return covariance


def prior_spread(observed: Observed) -> float:
    """The standard deviation over seeds that is expected before any choice has two seeds.

    In the results by seed of Lee, Tang and Lin (2019) it is .4 to .65 of the standard error that the validation rows cause.
    """
    if observed.row_covariance is None:
        return UNKNOWN_SPREAD
    return SEED_SHARE * float(np.sqrt(np.diag(observed.rows)).mean()) + LEAST_SPREAD


@dataclass(frozen=True)
class Posterior:
    """The posterior of the mean scores.

    Attributes:
        draws: Of the mean scores, ``[draws, J]``.
        noise: How scores vary over seeds.
        spreads: The standard deviation over seeds of each choice in each chain, ``[CHAINS, J]``; without scores the common one.
        curves: The precision of the means by the prior of everything but learning rates, in each chain, ``[CHAINS, J, J]``.
    """

    draws: Array
    noise: SeedNoise
    spreads: Array
    curves: Array

    def first(self, count: int) -> "Posterior":
        """That of the first ``count`` choices. The prior ties none of them to one of the others, except by learning rates."""
        return replace(
            self,
            draws=self.draws[:, :count],
            spreads=self.spreads[:, :count],
            curves=self.curves[:, :count, :count],
        )


def posterior(observed: Observed) -> Posterior:
    """The posterior of the mean scores; the same draws for the same observations.

    An R² can be far below 0, where a model does not reach the scale of its labels. Such scores are divided by a unit.

    Args:
        observed: The scores of J choices.
    """
    if (unit := abs(observed.means).max(initial=0.0) / LARGEST) > 1:
        found = posterior(observed.divided_by(unit))
        return replace(found, draws=found.draws * unit, spreads=found.spreads * unit, curves=found.curves / unit**2)
    random = np.random.default_rng(0)
    on_curve = [place for place in observed.depth if place is not None]
    assert (np.diff(on_curve) > 0).all() and np.isfinite(observed.means).all()
    noise, count = SeedNoise.of(observed), len(on_curve)
    own, common = noise.draw(random)
    spreads = np.repeat(common[:, None], len(observed.depth), 1)
    spreads[:, observed.seen] = own
    precision, evidence = _from_scores(observed, scaled(noise.correlation, own))
    curve = Curve(on_curve, len(observed.depth) - count, random)
    pairs = (
        (observed.beside, TYPICAL_GAP),
        ({**observed.untrained, **observed.heads}, TYPICAL_UNTRAINED_GAP),
        (observed.other_rates, TYPICAL_RATE_GAP),
    )
    choices = len(observed.depth)
    alike = [Differences(_beside(some, choices), typical, GAP_TAIL, random) for some, typical in pairs]
    longer = Longer(observed.longer, len(observed.depth), observed.unfitted, random)
    draws, parts = [], [one for one in (curve, *alike, longer) if len(one.rows)]
    if observed.means.min(initial=0.0) < LOWEST:
        start = np.interp(range(choices), observed.seen, observed.means)
        for one in parts:
            one.update(np.tile(start, (CHAINS, 1)))
    for sweep in range(SWEEPS):
        value = _normal(
            precision + sum(one.precision for one in parts), evidence + sum(one.evidence for one in parts), random
        )
        for one in parts:
            one.update(value)
        if sweep >= BURN_IN:
            draws.append(value)
    beside, untrained, _ = alike
    curves = curve.precision + longer.precision + beside.precision + untrained.precision
    return Posterior(np.concatenate(draws), noise, spreads, curves)


def scaled(correlation: Array, spreads: Array) -> Array:
    """The covariance of each chain, ``[CHAINS, J, J]``, from one for unit spreads ``[J, J]`` and the spreads ``[CHAINS, J]``."""
    return spreads[:, :, None] * correlation * spreads[:, None, :]


def _from_scores(observed: Observed, by_seeds: Array) -> tuple[Array, Array]:
    """What the scores tell about the means: their precision ``[CHAINS, J, J]``, and the precision times their values."""
    seen, count = observed.seen, len(observed.scores)
    precision, evidence = np.zeros((CHAINS, count, count)), np.zeros((CHAINS, count))
    known = np.linalg.inv(by_seeds + observed.rows)
    precision[:, seen[:, None], seen] = known
    evidence[:, seen] = known @ observed.means
    return precision, evidence


def _normal(precision: Array, evidence: Array, random: np.random.Generator) -> Array:
    """One draw for each chain from the normal distribution with this precision and ``precision @ mean == evidence``."""
    noise = np.linalg.cholesky(precision) @ random.standard_normal((*evidence.shape, 1))
    return np.asarray(np.linalg.solve(precision, evidence[..., None] + noise)[..., 0])


def _deviations(scores: Mapping[str, float]) -> dict[str, float]:
    mean = float(np.mean(list(scores.values())))
    return {seed: score - mean for seed, score in scores.items()}


def _seed_correlation(deviations: Sequence[Mapping[str, float]], variance: float) -> float:
    """The correlation between runs of one seed: the mean over pairs of choices, shrunk towards ``CORRELATION``."""
    products = [
        sum(one[seed] * other[seed] for seed in common) / (variance * (len(common) - 1))
        for n, one in enumerate(deviations)
        for other in deviations[:n]
        if len(common := [seed for seed in one if seed in other]) > 1
    ]
    seeds = max(map(len, deviations)) - 1
    estimate = float(np.mean(products)) if products else 0.0
    known = seeds if products else 0
    shrunk = (CORRELATION_SEEDS * CORRELATION + known * estimate) / (CORRELATION_SEEDS + known)
    return min(max(shrunk, 0.0), 0.9)
