"""The share of full fine-tuning's score or gain that a cell reaches, with Fieller's interval."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from frostline.statistics.inference.pair import FULL_MEAN, Pair

LARGEST = 10  # a bound that is farther than this from the estimate counts as no bound


@dataclass(frozen=True)
class Ratio:
    """A share and its interval. None: undefined, or unbounded on that side."""

    estimate: float | None
    low: float | None
    high: float | None


def ratio(pair: Pair, base: float = 0.0, above: bool | None = None) -> Ratio:
    """``(cell - base) / (full - base)`` with the interval of Fieller (1954).

    The interval contains the shares ``p`` for which ``cell - base - p (full - base)`` does not differ significantly from 0. It
    is undefined unless full fine-tuning is significantly above the base.

    Args:
        pair: The means and their errors.
        base: The score of the constant baseline; 0 for a share of the score.
        above: The result of another test of whether full fine-tuning is above the base; None: no such test. Single runs may
            show it although the mean over seeds does not. The share then has an estimate without bounds.
    """
    cell, full = pair.means - base
    if not full > 0 or above is False:
        return Ratio(None, None, None)
    estimate = float(cell / full)
    if pair.runs < 2:
        return Ratio(estimate, None, None)
    if not is_above(pair, base):
        return Ratio(estimate if above else None, None, None)
    return Ratio(estimate, _bound(pair, base, estimate, -1), _bound(pair, base, estimate, +1))


def is_above(pair: Pair, base: float) -> bool:
    """Whether the whole interval of full fine-tuning's mean lies above ``base``."""
    return pair.runs > 1 and bool(pair.interval(FULL_MEAN)[0] > base)


def _bound(pair: Pair, base: float, estimate: float, side: int) -> float | None:
    """One end of Fieller's interval, on this side of the estimate; None if it is too far away.

    There the absolute value of ``cell - base - p (full - base)`` equals t times its standard error.
    """

    def excess(p: float) -> float:
        value, error, degrees_of_freedom = pair.contrast(np.array([1.0, -p]))
        value -= base * (1 - p)
        return abs(value) - float(stats.t.ppf(pair.quantile, degrees_of_freedom)) * error

    step = 1e-3
    while step < LARGEST:
        if excess(estimate + side * step) > 0:
            if excess(estimate) >= 0:  # no error at all: the estimate is exact
                return estimate
            return float(optimize.brentq(excess, estimate, estimate + side * step, xtol=1e-9))
        step *= 1.5
    return None
