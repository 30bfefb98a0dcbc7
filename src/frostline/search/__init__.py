"""The search for what to tune, with as little training as possible.

Start with ``policy.py``: it decides what to train next from the scores and times seen so far, and touches no model.
``observations.py`` holds them, and says what they tell about every recipe. ``search.py`` trains what the policy asks for and
writes ``search.json``. ``several_models.py`` lets the searches of several models take turns. ``search_plan.py`` forecasts the
first steps. ``probing.py`` fits models that train no layer, and estimates the first k from them. May import data, statistics,
fast, model, frozen, training, sweeps and report.

Below are the settings for which a search has defaults of its own. ``--help`` shows them, so no heavy library is imported here.
"""

from typing import Any

from frostline.training.settings import HEAD_LEARNING_RATE

# The default budget is the larger of this number of runs of the reference, on all workers, and this many seconds.
FULL_RUNS, SECONDS = 4, 120.0
# Epochs; the longer training is tried if the shorter one has fewer steps than this, or leaves the examples unfitted
SHORT, LONG, ENOUGH_STEPS = 3.0, 10.0, 60
DEFAULTS: dict[str, Any] = {
    "learning_rate": (5e-5, 1e-4, 2e-4, 5e-4),  # to try for k > 0
    "head_learning_rate": (HEAD_LEARNING_RATE, 3e-3, 1e-2, 3e-2),  # all are tried for k = 0; other k use the first
    "num_train_epochs": "auto",  # SHORT, and LONG too where SHORT is too short
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
