"""The published protocols: every file is complete, every protocol is a valid sweep, and its values of k suit its models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.glue import glue_task
from frostline.statistics.recipe import Recipe
from frostline.studies.protocol import FOLDER, load_protocol, protocol_names, tune_values
from frostline.sweeps.settings import make_settings

NAMES = ("amazon-tutorial", "jeong2025", "lee2019", "lowdata2021", "transferred2018")


def test_a_wrong_name_gets_the_nearest_study() -> None:
    assert tuple(protocol_names()) == NAMES
    with pytest.raises(FrostlineError, match="did you mean 'lee2019'"):
        load_protocol("lee2020")
    with pytest.raises(FrostlineError, match="choose from amazon-tutorial"):
        load_protocol("x")


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_is_a_valid_sweep_and_short(name: str) -> None:
    protocol = load_protocol(name)
    for model in protocol.models:
        for task in protocol.tasks:
            settings = protocol.settings_of(model, task)
            rates = protocol.line_search or settings["learning_rate"]
            spec = make_settings(
                {**settings, "tune": tune_values(protocol.tune, 12), "learning_rate": rates, "out": "o"}
            )
            assert spec.model == protocol.model[model]["hub"] and spec.task == task
            assert spec.glue is None or glue_task(spec.glue).name == task
    lines = (FOLDER / f"{name}.toml").read_text().splitlines()
    assert len(lines) <= 70
    assert protocol.published and all(printed.table for printed in protocol.published)
    for printed in protocol.published:
        assert printed.model is None or printed.model in protocol.models
        assert printed.task is None or printed.task.removesuffix("-mm") in protocol.tasks


def test_hub_name_and_short_name_are_the_same_model() -> None:
    protocol = load_protocol("lee2019")
    assert protocol.short_name("FacebookAI/roberta-base") == protocol.short_name("roberta-base") == "roberta-base"
    assert protocol.settings_of("roberta-base", "CoLA")["num_train_epochs"] == 10
    assert protocol.settings_of("bert-base", "CoLA")["num_train_epochs"] == 3
    other = protocol.settings_of("some/folder", "CoLA")
    assert other["model"] == "some/folder" and other["num_train_epochs"] == 3


def recipes(*given: int | str) -> list[Recipe]:
    return [Recipe(one) for one in given]


def test_values_relative_to_the_number_of_layers() -> None:
    assert tune_values("0..L/2, all", 12) == recipes(0, 1, 2, 3, 4, 5, 6, "full")
    assert tune_values("0..L:2", 12) == recipes(0, 2, 4, 6, 8, 10, 12)
    assert tune_values("0, L/6, L/3, 2L/3, 5L/6, L, all", 12) == recipes(0, 2, 4, 8, 10, 12, "full")
    assert tune_values("named, 3, 1", 12) == recipes(1, 3, "named")
    assert tune_values("full, last-2, head", 12) == recipes(0, 2, "full")


def test_ways_relative_to_the_number_of_layers() -> None:
    names = (0, "lora-1", "llrd", "transferred-0", "transferred-1", "transferred-2", "full")
    assert tune_values("0, lora-1..L/2, llrd, transferred-0..L", 3) == recipes(*names)
    assert tune_values("bilstm, bilstm-4, probe", 3) == recipes("bilstm", "bilstm-4", "probe")
    with pytest.raises(FrostlineError, match="'lorra-2' is not a number of layers"):
        tune_values("lorra-2", 12)


@given(st.integers(1, 48))
def test_values_are_distinct_rising_and_within_the_model(layers: int) -> None:
    for name in NAMES:
        found = tune_values(load_protocol(name).tune, layers)
        numbers = [one.k for one in found if one.k is not None]
        assert numbers == sorted(set(numbers)) and all(0 <= k <= layers for k in numbers)
        assert found[: len(numbers)] == recipes(*numbers)
