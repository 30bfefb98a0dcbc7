"""The estimators by the name that a way gives."""

from collections.abc import Mapping

from frostline.training.estimators.contrastive import SetFitEstimator
from frostline.training.estimators.estimators import Estimator, ProbeEstimator, WordsEstimator
from frostline.training.ways.way import Way

ESTIMATORS: Mapping[str, Estimator] = {
    "probe": ProbeEstimator(),
    "words": WordsEstimator(),
    "setfit": SetFitEstimator(),
}


def estimator_of(way: Way) -> Estimator | None:
    """The estimator of a way; None if it trains in the training loop."""
    return None if way.in_loop else ESTIMATORS[way.estimator]
