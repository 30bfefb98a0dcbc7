"""The estimators by name."""

import typing

from frostline.training.estimators import ESTIMATORS, estimator_of
from frostline.training.recipes import FINE_TUNING, NAMED_WAYS, Way


def test_every_estimator_of_a_way_exists_and_has_a_name_of_its_own() -> None:
    values = set(typing.get_args(Way.model_fields["estimator"].annotation))
    assert values == {FINE_TUNING, *ESTIMATORS}
    assert {way.estimator for way in NAMED_WAYS.values()} == values


def test_what_the_loop_trains_has_none() -> None:
    assert estimator_of(Way(low_rank=8)) is None and estimator_of(Way(estimator="probe")) is ESTIMATORS["probe"]
