"""Ways to tune in the settings of a sweep: tables of a file, learning rates, refusals, growth."""

import tomllib
from typing import Any

import pytest

from frostline.sweep.settings import make_settings
from frostline.sweep.toml import to_toml
from tiny import refusal, spec

WAYS = {"mine": {"tune": 2, "layer_decay": 0.5}, "other": {"low_rank": 4}}


def test_ways_of_your_own_are_written_and_read_as_tables() -> None:
    made = spec(tune="last-1,full,mine,lora-2", way=WAYS)
    assert made.tune == (1, "all", "mine", "lora-2") and made.way["mine"].layer_decay == 0.5
    assert make_settings(tomllib.loads(to_toml(made.model_dump(mode="json")))) == made


def test_a_way_has_as_many_learning_rates_as_every_k() -> None:
    made = spec(tune="1,lora-2", learning_rate="1e-5,1e-4")
    assert [rate for rate, _ in made.learning_rate_pairs("lora-2")] == pytest.approx([1e-4, 1e-3])
    assert [rate for rate, _ in made.learning_rate_pairs(1)] == [1e-5, 1e-4]
    assert (
        made.learning_rate_pairs("mean-pooled-0") == made.learning_rate_pairs("bilstm") == made.learning_rate_pairs(0)
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tune": "all,lora_2"}, "tune cannot be 'all,lora_2'"),
        ({"tune": "all,lorra-2"}, "no way to tune called 'lorra-2' (did you mean 'lora-2'?)"),
        ({"tune": "lora-2"}, "are compared with the last k layers or with full fine-tuning: add one"),
        (
            {"tune": "all,mine", "way": {"mine": {"low_rank": -1}}},
            "low_rank in [way.mine] cannot be -1: give a number from 0 on",
        ),
        ({"tune": "all,mine", "way": {"mine": {"low_ranks": 4}}}, "cannot have 'low_ranks' (did you mean 'low_rank'?)"),
        (
            {"tune": "all,mine", "way": {"mine": {"low_rank": 4, "mixout": 0.5}}},
            "The way 'mine' cannot be used: low_rank and mixout both change how the same weights learn",
        ),
        (
            {"tune": "all,mine", "way": {"mine": {"layers": "top"}}},
            "layers in [way.mine] cannot be 'top': give 'last', 'first'",
        ),
        ({"tune": "all", "way": {"probe": {}}}, "[way.probe] has a name that means something else already"),
        ({"tune": "all", "way": {"last-2": {}}}, "[way.last-2] has a name that means something else already"),
        ({"tune": "all", "way": {"my_way": {}}}, "[way.my_way] is no name: use small letters"),
        ({"tune": "all", "way": 3}, "way has the wrong form: give tables [way.NAME]"),
    ],
)
def test_impossible_ways_are_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


def test_a_folder_that_grows_keeps_its_ways() -> None:
    older = spec(tune="all,mine", way={"mine": WAYS["mine"]})
    grown = spec(tune="1,other", way={"other": WAYS["other"]}).extended(older, 100)
    assert grown.way.keys() == {"mine", "other"} and {*grown.values_of("tune")} == {"all", "mine", 1, "other"}
