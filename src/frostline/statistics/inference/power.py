"""The number of seeds that a comparison needs."""

from scipy import stats

from frostline.statistics.inference.quantile import QUANTILE

MOST = 1000  # seeds


def seeds_needed(
    distance: float,
    by_seed: float,
    by_row: float,
    row_freedom: float,
    *,
    power: float = 0.8,
    quantile: float = QUANTILE,
) -> int | None:
    """The number of seeds that shows a difference of ``distance`` with probability ``power``; None: more than ``MOST``.

    Args:
        distance: The difference.
        by_seed: The variance of the difference between two seeds.
        by_row: The variance that the rows cause, which more seeds do not reduce.
        row_freedom: The degrees of freedom of ``by_row``.
        power: The probability of a significant result.
        quantile: The quantile of Student's t at the ends of the interval.
    """

    def suffices(seeds: int) -> bool:
        total = by_seed / seeds + by_row
        if total == 0:
            return distance != 0
        freedom = total**2 / ((by_seed / seeds) ** 2 / (seeds - 1) + (by_row**2 / row_freedom))
        quantiles = float(stats.t.ppf(quantile, freedom) + stats.t.ppf(power, freedom))
        return bool(abs(distance) >= quantiles * total**0.5)

    if not suffices(MOST):
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
