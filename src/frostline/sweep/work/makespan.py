"""The wall-clock time of runs that several workers share."""

import heapq
from collections.abc import Sequence


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Seconds until the last run ends, if the longest run starts first and every free worker takes the next one."""
    busy_until = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + one)
    return max(busy_until)
