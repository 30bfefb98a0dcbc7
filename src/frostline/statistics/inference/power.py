"""The number of seeds that a comparison needs."""

from scipy import stats

from frostline.statistics.inference.quantile import QUANTILE

MOST = 1000  # seeds


def seeds_needed(
    distance: float,
    by_seed: float,
    by_row: float,
    row_degrees_of_freedom: float,
    *,
    power: float = 0.8,
    quantile: float = QUANTILE,
) -> int | None:
    """The number of seeds that detects a difference of ``distance`` with probability ``power``; None: more than ``MOST``.

    Args:
        distance: The difference.
        by_seed: The variance of the difference over seeds, for one seed.
        by_row: The variance that the sample of rows causes. More seeds do not reduce it.
        row_degrees_of_freedom: The degrees of freedom of ``by_row``.
        power: The probability of a significant result.
        quantile: The quantile of Student's t at the ends of the interval.
    """

    def suffices(seeds: int) -> bool:
        total = by_seed / seeds + by_row
        if total == 0:
            return distance != 0
        parts = (by_seed / seeds) ** 2 / (seeds - 1) + (by_row**2 / row_degrees_of_freedom)
        degrees_of_freedom = total**2 / parts
        quantiles = float(stats.t.ppf(quantile, degrees_of_freedom) + stats.t.ppf(power, degrees_of_freedom))
        return bool(abs(distance) >= quantiles * total**0.5)

    if not suffices(MOST):
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
