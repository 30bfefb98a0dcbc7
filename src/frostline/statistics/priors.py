"""What the posterior expects of mean scores beforehand: neighbouring k score alike, and a way scores as the k of its cost."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

Array = NDArray[np.float64]

CHAINS = 200
TAIL = 3.0  # degrees of freedom of the differences between neighbouring k
RISE = 4.0  # how much more curves vary around their form at k = 0 than with all layers: exp(RISE) times
EARLY = 0.36  # the depth at which a curve of the first form has risen by erf(1), 84 % of the way
CHANCES = np.array([0.5, 0.5])  # of the two forms
TYPICAL_STEP = 0.02  # the prior's scale of the differences along a whole curve, in score
TYPICAL_SLOPE = 0.05  # the prior's scale of the rise along a whole curve, in score
TYPICAL_GAP = 0.01  # the prior's scale of the differences between a way and the k of the same cost, in score
GAP_TAIL = 1.0  # their degrees of freedom: most ways score as their k, and a few are far worse


class Curve:
    """The prior of the curve in each chain: its form and slope, and the scales of the differences between neighbours.

    Differences are ``[CHAINS, n - 1]`` for the n choices on the curve. Given form, slope and scales they are normal.
    """

    def __init__(self, depth: Sequence[float], others: int, random: np.random.Generator) -> None:
        """``depth``: of the n choices on the curve; ``others``: the number of choices that are not on it."""
        self.lengths, self.random = np.diff(_warped(depth)), random
        self.forms = np.diff(_rises(depth))  # [forms, n - 1]
        self.rises = self.forms[random.choice(len(CHANCES), CHAINS, p=CHANCES)]  # of each chain's form
        self.slope, self.scale = np.zeros(CHAINS), np.full(CHAINS, TYPICAL_STEP**2)
        self.steepness = np.full(CHAINS, TYPICAL_SLOPE**2)  # the variance of the slope, which makes it Cauchy
        self.local = np.ones((CHAINS, len(self.lengths)))
        steps = np.diff(np.eye(len(depth)), axis=0)
        self.differences = np.pad(steps, ((0, 0), (0, others)))  # [n - 1, J]

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
        """``precision`` times the means that form and slope alone expect, ``[CHAINS, J]``."""
        evidence: Array = (self.weights * self.slope[:, None] * self.rises) @ self.differences
        return evidence

    def update(self, differences: Array) -> None:
        """Draw the form, the slope and the scales given the differences."""
        shape = differences.shape
        self._draw_form_and_slope(differences)
        squares = (differences - self.slope[:, None] * self.rises) ** 2 / self.lengths
        self.local = (TAIL + squares / self.scale[:, None]) / (2 * self.random.gamma((TAIL + 1) / 2, 1, shape))
        total = TYPICAL_STEP**2 + (squares / self.local).sum(1)
        self.scale = total / (2 * self.random.gamma(1 + shape[1] / 2, 1, CHAINS))

    def _draw_form_and_slope(self, differences: Array) -> None:
        """The form is drawn by its likelihood with any slope, and then the slope of this form."""
        certainty = 1 / self.steepness[:, None] + self.weights @ (self.forms**2).T  # [CHAINS, forms]
        mean = (self.weights * differences) @ self.forms.T / certainty
        likelihood = (certainty * mean**2 - np.log(certainty)) / 2 + np.log(CHANCES)
        form = (likelihood + self.random.gumbel(size=likelihood.shape)).argmax(1)  # drawn with these log odds
        chains = np.arange(CHAINS)
        self.rises = self.forms[form]
        self.slope = (mean + self.random.standard_normal(mean.shape) / np.sqrt(certainty))[chains, form]
        self.steepness = (TYPICAL_SLOPE**2 + self.slope**2) / (2 * self.random.gamma(1.0, 1, CHAINS))


class Ways:
    """The prior of the W ways to tune in each chain: the scales of the differences between a way and its k."""

    def __init__(self, beside: Mapping[int, int], choices: int, random: np.random.Generator) -> None:
        """``beside``: the position of the k of each way, by its own; ``choices``: J."""
        self.random, self.scale = random, np.full(CHAINS, TYPICAL_GAP**2)
        self.local = np.ones((CHAINS, len(beside)))
        self.differences = np.zeros((len(beside), choices))  # [W, J]
        for row, (way, k) in zip(self.differences, beside.items(), strict=True):
            row[[way, k]] = 1, -1

    @property
    def precision(self) -> Array:
        """Of the means, ``[CHAINS, J, J]``."""
        weights = 1 / (self.scale[:, None] * self.local)
        precision: Array = np.einsum("ij,ci,ik->cjk", self.differences, weights, self.differences)
        return precision

    def update(self, means: Array) -> None:
        """Draw the scales given the means ``[CHAINS, J]``."""
        if not len(self.differences):
            return
        squares = (means @ self.differences.T) ** 2
        self.local = (GAP_TAIL + squares / self.scale[:, None]) / (
            2 * self.random.gamma((GAP_TAIL + 1) / 2, 1, squares.shape)
        )
        total = TYPICAL_GAP**2 + (squares / self.local).sum(1)
        self.scale = total / (2 * self.random.gamma(1 + squares.shape[1] / 2, 1, CHAINS))


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
    return np.array([erf(place / EARLY) / erf(1 / EARLY), place])
