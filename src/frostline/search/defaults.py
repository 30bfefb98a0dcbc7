"""The settings for which a search has defaults of its own. Imports no heavy library, so ``--help`` can show them quickly."""

from typing import Any

from frostline.training.settings import HEAD_LEARNING_RATE

# The default budget is the larger of this number of runs of the reference, on all workers, and this many seconds.
FULL_RUNS, SECONDS = 4, 120.0
DEFAULTS: dict[str, Any] = {
    "learning_rate": (5e-5, 1e-4, 2e-4),  # to try for k > 0
    "head_learning_rate": (HEAD_LEARNING_RATE, 3e-3, 1e-2, 3e-2),  # all are tried for k = 0; other k use the first
    "seeds": 5,  # the most of any k
    "folds": "auto",
    "evaluations_per_epoch": 0,  # selecting the best epoch on validation takes time, and its score is too optimistic
}


def default_budget(seconds: float) -> float:
    """Wall-clock seconds of training, if no budget is given.

    Args:
        seconds: Of one run of the reference, divided by the number of runs that are trained at the same time.
    """
    return max(SECONDS, FULL_RUNS * seconds)
