"""Settings: accepted and refused values, and a round trip through TOML."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.wording import parse_duration
from frostline.statistics.recipe import Recipe
from frostline.sweeps.settings import GRID, Settings, make_settings
from frostline.sweeps.toml import read_toml, to_toml
from tiny import LEAST, refusal, spec

WAYS = {"mine": {"tune": 2, "layer_decay": 0.5}, "other": {"low_rank": 4}}


def test_text_from_the_command_line_and_values_from_python_are_equal() -> None:
    assert spec(tune="0, 2,all") == spec(tune=[0, 2, "full"]) == spec(tune=(0, 2, "full"))
    assert spec(tune=3).tune == ("last 3",) and spec(tune=range(3)).tune == ("head only", "last 1", "last 2")
    assert spec(learning_rate="1e-4,3e-4").learning_rate == (1e-4, 3e-4)
    assert spec(train_size="100,500").train_size == (100, 500)
    assert spec(labels="0,1").labels == spec(labels=[0, 1]).labels == ("0", "1")
    assert spec(column_names="id, text,label").column_names == ("id", "text", "label")
    assert spec().seeds == spec(seeds=5).seeds == spec(seeds="5").seeds == (0, 1, 2, 3, 4)
    assert spec(seeds=np.int64(3)).seeds == (0, 1, 2)
    assert spec(seeds=[5]).seeds == (5,) and spec(seeds="7,3").seeds == (7, 3)
    assert spec().head_learning_rate == (1e-3,)
    assert spec(head_learning_rate="same").head_learning_rate == (None,)
    assert spec(head_learning_rate="2e-3,same").head_learning_rate == (2e-3, None)


def test_k_0_uses_all_learning_rates_of_the_head_and_every_other_k_the_first() -> None:
    one = spec(learning_rate="5e-5,1e-4", head_learning_rate="1e-3,same,1e-2,1e-4")
    assert one.learning_rate_pairs(Recipe(0)) == [(1e-3, None), (5e-5, None), (1e-4, None), (1e-2, None)]
    assert one.learning_rate_pairs(Recipe(1)) == one.learning_rate_pairs(Recipe("full")) == [(5e-5, 1e-3), (1e-4, 1e-3)]
    assert spec(head_learning_rate="same").learning_rate_pairs(Recipe(2)) == [(5e-5, None)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_train_epohs": 3}, "There is no setting 'num_train_epohs' (did you mean 'num_train_epochs'?)."),
        ({"zzz": 3}, "There is no setting 'zzz': choose from adam_beta1, "),
        ({"training": {"num_train_epochs": 3}}, "There is no table [training]: move its settings to the top"),
        ({"tune": ""}, "tune cannot be '': give at least one value."),
        ({"tune": "1,1"}, "tune cannot be '1,1': a value appears twice"),
        ({"tune": "last"}, "There is no way to tune called 'last' (did you mean 'last-2'?)"),
        ({"tune": -1}, "tune cannot be -1: give numbers of layers"),
        ({"tune": [0, True]}, "tune cannot be [0, True]: give a number or a word, not true or false."),
        ({"folds": 1}, "folds cannot be 1: give 2 or more, 0 for none, or auto."),
        ({"seeds": 0}, "seeds cannot be 0: give a number of seeds, 1 or more, or a list of them."),
        ({"seeds": 3.0}, "seeds cannot be 3.0: give a number of seeds"),
        ({"seeds": True}, "seeds cannot be True: give a number or a word"),
        ({"seeds": "0,-1"}, "seeds cannot be '0,-1': give a number from 0 on"),
        ({"learning_rate": 0}, "learning_rate cannot be 0: give a number above 0"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm cannot be inf: give a finite number"),
        ({"num_train_epochs": "many"}, "num_train_epochs cannot be 'many': give a number (training epochs;"),
        ({"train_size": "1.5"}, "train_size cannot be '1.5': give a whole number"),
        ({"target": 1.5}, "target cannot be 1.5: give a number up to 1"),
        ({"adam_beta1": 1}, "adam_beta1 cannot be 1: give a number below 1"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "cannot be 'reduce_lr_on_plateau': give 'linear', 'cosine'"),
        ({"class_weights": "even"}, "class_weights cannot be 'even': give none, balanced, or a weight"),
        ({"threshold": 1}, "threshold cannot be 1: give a number between 0 and 1, recall=0.9, or what to maximize"),
        ({"calibrate": "often"}, "calibrate cannot be 'often': give true or false"),
        ({"train": "\udcff.csv"}, "train cannot be '\\udcff.csv', which is not UTF-8: give another name."),
        ({"model": 3}, "model cannot be 3: give one text in quotes"),
        ({"tune": "named"}, "tune has `named`, but no parts are named: give --tune-modules with module paths, such as"),
        ({"tune": "0,all", "tune_modules": "pooler"}, "names pooler, but head only,full trains no named parts: add"),
        ({"tune": "named", "tune_modules": ""}, "tune_modules cannot be '': give module paths, such as encoder."),
        ({"tune": "named", "tune_modules": "layer..1"}, "tune_modules cannot be 'layer..1': give module paths"),
        ({"tune": "all,lorra-2"}, "no way to tune called 'lorra-2' (did you mean 'lora-2'?)"),
        ({"tune": "all,mine", "way": {"mine": {"low_rank": -1}}}, "low_rank in [way.mine] cannot be -1: give a number"),
        ({"tune": "all,mine", "way": {"mine": {"low_ranks": 4}}}, "cannot have 'low_ranks' (did you mean 'low_rank'?)"),
        ({"tune": "all,mine", "way": {"mine": {"low_rank": 4, "mixout": 0.5}}}, "low_rank and mixout both change how the"),
        ({"tune": "full", "way": {"probe": {}}}, "[way.probe] has a name that means something else already"),
        ({"tune": "full", "way": {"my_way": {}}}, "[way.my_way] is no name: use small letters"),
        ({"tune": "full", "way": 3}, "way has the wrong form: give tables [way.NAME]"),
        ({"grid": [{"rate": 1}]}, "A table [[grid]] has no key 'rate': it may set tune, seeds, train_size, learning_rate"),
        ({"grid": [{"seeds": 0}]}, "seeds in table 1 of [[grid]] cannot be 0: give a number of seeds"),
        ({"grid": "0,1"}, "grid has the wrong form: give tables [[grid]]"),
        ({"head_learning_rate": "1e-3,0"}, "head_learning_rate cannot be '1e-3,0': give a number above 0"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


@pytest.mark.parametrize(
    ("name", "value"), [("seeds", [["a"]] * 500), ("tune", ["x" * 3000]), ("grid", [{"seeds": "x" * 3000}])]
)
def test_a_long_value_is_refused_in_short(name: str, value: object) -> None:
    with pytest.raises(FrostlineError, match=r"\.\.\.[\]']") as refused:
        make_settings({**LEAST, name: value})
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("name", ["model", "tune", "out"])
def test_missing_values_are_refused(name: str) -> None:
    with pytest.raises(FrostlineError, match=f"{name} is missing: give --{name}, or the key in a TOML file"):
        make_settings({key: value for key, value in LEAST.items() if key != name})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text('abcdefgh-_0é"\\\n\x7f😀 .', min_size=1, max_size=8)
scalars = st.one_of(
    texts, st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
values = st.one_of(scalars, st.lists(scalars, max_size=4))
tables = st.dictionaries(names, values, max_size=4)


@given(st.dictionaries(names, st.one_of(values, tables, st.none()), max_size=6))
def test_toml_reads_back_what_was_written(written: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(written)) == {name: x for name, x in written.items() if x is not None}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seeds": st.one_of(st.integers(1, 9), st.lists(st.integers(0, 99), min_size=1, unique=True)),
            "head_learning_rate": st.lists(st.one_of(st.just("same"), st.floats(1e-6, 1e-2)), min_size=1, unique=True),
            "class_weights": st.one_of(st.just("balanced"), st.dictionaries(names, st.floats(0, 9), min_size=1)),
            "train_size": st.lists(st.integers(1, 10**6), min_size=1, unique=True),
            "labels": st.lists(texts.filter(bool), min_size=2, unique=True),
            "task": texts,
            "max_length": st.integers(1, 512),
            "tune_pooler": st.booleans(),
            "calibrate": st.booleans(),
            "threshold": st.sampled_from(["best", "balanced-accuracy", "recall=0.9", "0.3", 0.25]),
        },
    )
)
def test_a_sweep_written_as_toml_is_the_same_sweep(values: dict[str, Any]) -> None:
    made = spec(**values)
    assert make_settings(tomllib.loads(to_toml(made.model_dump(mode="json")))) == made


def test_missing_files_and_invalid_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="There is no file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(FrostlineError, match="cannot be read"):
        read_toml(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\na,b\n")
    with pytest.raises(FrostlineError, match=r"is not valid TOML.*line 1.*--train"):
        read_toml(tmp_path / "t.csv")
    (tmp_path / "s.toml").write_text('model = "m"\ntune = [0, "full"]\n')
    assert read_toml(tmp_path / "s.toml") == {"model": "m", "tune": [0, "full"]}


def test_tune_modules_alone_means_named_parts() -> None:
    assert make_settings({"model": "m", "tune_modules": "pooler", "out": "o"}).tune == ("named",)
    assert make_settings({"model": "m", "tune_modules": ["pooler"], "tune": None, "out": "o"}).tune == ("named",)
    both = spec(tune="0,2,named,all", tune_modules="encoder.layer.11, pooler,pooler")
    assert both.tune == ("head only", "last 2", "named", "full") and both.tune_modules == ("encoder.layer.11", "pooler")
    assert make_settings(tomllib.loads(to_toml(both.model_dump(mode="json")))) == both


def cells(spec: Settings) -> set[tuple[Any, ...]]:
    """The runs of a sweep, by the values of the grid; no size is None."""
    return {
        cell for part in spec.grids() for cell in itertools.product(*(getattr(part, name) or (None,) for name in GRID))
    }


PARTS = st.fixed_dictionaries(
    {
        "tune": st.sets(st.sampled_from([0, 1, "full"]), min_size=1),
        "seeds": st.sets(st.integers(0, 2), min_size=1),
        "train_size": st.none() | st.sets(st.sampled_from([50, 1000]), min_size=1),
        "learning_rate": st.sets(st.sampled_from([1e-4, 3e-4]), min_size=1),
        "num_train_epochs": st.sets(st.sampled_from([1, 3]), min_size=1),
    }
).map(lambda part: {name: value and list(value) for name, value in part.items()})


@given(PARTS, st.lists(PARTS, min_size=1, max_size=4))
def test_extending_a_sweep_adds_the_requested_runs_and_no_others(first: dict[str, Any], more: list[Any]) -> None:
    grown, requested = spec(**first), cells(spec(**first))
    for part in more:
        grown = spec(**part).extended(grown, 1000)
        requested |= cells(spec(**part))
    requested = {(k, seed, size or 1000, *rest) for k, seed, size, *rest in requested}
    assert {(k, seed, size or 1000, *rest) for k, seed, size, *rest in cells(grown)} == requested
    assert make_settings(tomllib.loads(to_toml(grown.model_dump(mode="json")))) == grown


def test_grids_are_merged_if_one_grid_has_the_same_runs() -> None:
    older = spec(tune="0,2", seeds="0,1", target=0.9)
    assert spec(tune="2,0", seeds="1,2").extended(older, 1000).seeds == (0, 1, 2)
    assert spec(tune="0,2", seeds="1,2").extended(older, 1000).grid == ()
    assert len(spec(tune="0,2,all", seeds="1,2").extended(older, 1000).grid) == 1
    assert spec(target=0.8).extended(older, 1000).target == 0.8
    assert spec(train_size=50).extended(spec(), 1000).train_size == (1000, 50)  # all examples are a size like others
    assert spec().extended(spec(), 1000).train_size is None
    named = spec(tune="named,0", tune_modules="pooler")
    for grown in (spec(tune="full").extended(named, 9), named.extended(spec(tune="full"), 9)):
        assert grown.tune_modules == ("pooler",) and {*grown.values_of("tune")} == {"named", "head only", "full"}


def test_a_grid_of_several_parts() -> None:
    few = spec(seeds=3, train_size=1000, grid=[{"seeds": 5, "train_size": "50,100"}, {"tune": 0}])
    assert [(part.tune, part.seeds, part.train_size) for part in few.grids()] == [
        (("head only", "last 1", "full"), (0, 1, 2), (1000,)),
        (("head only", "last 1", "full"), (0, 1, 2, 3, 4), (50, 100)),
        (("head only",), (0, 1, 2), (1000,)),
    ]
    assert few.values_of("seeds") == [0, 1, 2, 3, 4] and few.values_of("train_size") == [1000, 50, 100]


def test_a_way_has_as_many_learning_rates_as_every_k() -> None:
    made = spec(tune="1,lora-2", learning_rate="1e-5,1e-4,3e-4")
    of_lora, of_one_layer = ([rate for rate, _ in made.learning_rate_pairs(Recipe(name))] for name in ("lora-2", 1))
    assert of_lora == [1e-4, 1e-3, 0.003]  # 10 * 3e-4 is another number
    assert of_one_layer == [1e-5, 1e-4, 3e-4]
    heads = [made.learning_rate_pairs(Recipe(name)) for name in (0, "mean-pooled-0", "bilstm")]
    assert heads == [heads[0]] * 3


def test_ways_of_your_own_are_tables_and_stay_when_a_folder_grows() -> None:
    made = spec(tune="last-1,full,mine,lora-2", way=WAYS)
    assert made.tune == ("last 1", "full", "mine", "lora-2") and made.way["mine"].layer_decay == 0.5
    assert make_settings(tomllib.loads(to_toml(made.model_dump(mode="json")))) == made
    older = spec(tune="all,mine", way={"mine": WAYS["mine"]})
    grown = spec(tune="1,other", way={"other": WAYS["other"]}).extended(older, 100)
    assert grown.way.keys() == {"mine", "other"} and {*grown.values_of("tune")} == {"full", "mine", "last 1", "other"}


def test_durations_are_read_or_refused() -> None:
    for text, seconds in {"90": 90, "90s": 90, " 1.5 min": 90, "2h": 7200, ".5h": 1800}.items():
        assert parse_duration(text) == seconds
    for text in ("", "soon", "-3", "3 days", "1:30"):
        with pytest.raises(FrostlineError, match="is not a duration"):
            parse_duration(text)
