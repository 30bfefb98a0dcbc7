"""The quantile of Student's t at the ends of an interval, corrected for interim analyses."""

QUANTILE = 0.975  # of a two-sided interval with 95 % confidence


def corrected_quantile(analyses: float) -> float:
    """The quantile with Bonferroni's correction: each of ``analyses`` analyses gets an equal part of the 5 %.

    Results may be analysed several times to decide whether more runs are needed. With the correction, the interval after
    stopping still has 95 % confidence. The same holds for the best of several intervals.
    """
    return 1 - (1 - QUANTILE) / analyses


def number_of_analyses(quantile: float) -> float:
    """The number of analyses of a corrected quantile: the inverse of :func:`corrected_quantile`."""
    return (1 - QUANTILE) / (1 - quantile)
