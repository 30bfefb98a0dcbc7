"""Ways to tune: their names, which fields go together, and which parameters each of them trains."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy, find_layers, module_of, parameters_in, topmost_modules
from frostline.model.terms import EMBEDDINGS, FINAL_NORM, HEAD, POOLER
from frostline.model.ways import EXAMPLES, NUMBERED_WAYS, Way, way_named
from small_models import small_model

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ways-to-tune.md").read_text(encoding="utf-8")
SEGMENTS = ("layer", "1", "10", "11", "attention", "pooler", "pool", "a")
PATHS = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("last-2", Way(tune=2)),
        ("head", Way(tune=0)),
        ("full", Way()),
        ("named", Way(modules=("pooler",))),
        ("lora-3", Way(tune=3, low_rank=8, rate_factor=10)),
        ("spectrum-25", Way(signal_share=0.25)),
        ("random-2", Way(tune=2, layers="random")),
        ("reinit-2", Way(reinitialized=2)),
        ("transferred-4", Way(transferred=4)),
        ("mean-pooled-0", Way(tune=0, head_reads="mean")),
        ("bilstm-4", Way(tune=0, lstm_width=768, lstm_states=4)),
        ("gradual-2", Way(tune=2, order="gradual")),
        ("llrd", Way(mixout=0.1)),  # an own way comes first
        ("mine", Way(tune=1)),
    ],
)
def test_every_name_of_the_grid_stands_for_a_way(name: str, way: Way) -> None:
    own = {"llrd": Way(mixout=0.1), "mine": Way(tune=1)}
    assert way_named(name, own, ["pooler"]) == way


def test_no_two_names_stand_for_the_same_way() -> None:
    assert len({str(way_named(name)) for name in EXAMPLES}) == len(EXAMPLES)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(FrostlineError, match=r"no way to tune called 'mixot' \(did you mean 'mixout'\?\)"):
        way_named("mixot")
    with pytest.raises(FrostlineError, match="no way to tune called 'lora-02'"):
        way_named("lora-02")
    with pytest.raises(FrostlineError, match=r"choose from llrds, lora-all, .*, lora-2, .*, last-2"):
        way_named("zzzz", {"llrds": Way()})


def in_column(header: str, name: str) -> list[str]:
    """The names in the first column of a table of the page."""
    rows = PAGE.partition(header)[2].partition("\n\n")[0].splitlines()
    return [found for row in rows for found in re.findall(name, row.split("|")[1])]


def kind(name: str) -> str:
    """A name without its number, if any number will do: ``lora-N``."""
    beginning = re.sub(r"-\d+$", "", name)
    return f"{beginning}-N" if beginning != name and beginning in NUMBERED_WAYS else name


def test_the_page_lists_every_name_and_every_field() -> None:
    listed = map(kind, in_column("| name | what it does |\n", r"`([\w-]+)`"))
    assert sorted(listed) == sorted(["last-2", "full", "head", *map(kind, EXAMPLES)])
    assert sorted(in_column("| field | meaning | default |\n", r"`(\w+)`")) == sorted(Way.model_fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modules": ("pooler",), "tune": 2}, "modules chooses parts of layers, but tune is about whole layers"),
        ({"signal_share": 0.5, "low_rank": 4}, "signal_share chooses parts of layers, but low_rank is about"),
        ({"modules": ("pooler",), "order": "gradual"}, "unfreezes whole layers, but modules parts of them"),
        ({"low_rank": 8, "mixout": 0.5}, "low_rank and mixout both change"),
        ({"mixout": 0.5, "towards_pretrained": 0.1}, "mixout and towards_pretrained both change"),
        ({"low_rank": 8, "only": "biases"}, "leaves them frozen"),
        ({"low_rank": 8, "order": "gradual"}, "cannot be combined"),
        ({"order": "gradual", "layers": "first", "tune": 2}, "unfreezes from the top"),
        ({"layers": "random"}, "needs a number of layers"),
        ({"tune": 0, "low_rank": 8}, "low_rank is about tuned layers, but tune = 0"),
        ({"tune": 0, "low_rank": "last 2"}, "low_rank is about tuned layers, but tune = 0"),
        ({"tune": 0, "only": "norms"}, "only is about tuned layers, but tune = 0"),
        ({"reinitialized": 1, "transferred": 2}, "choose one of them"),
        ({"reinitialized": 1, "layers": "first", "tune": 2}, "reinitialized and layers = 'first' cannot be combined"),
        ({"reinitialized": 1, "low_rank": 4}, "reinitialized and low_rank = 4 cannot be combined"),
        ({"transferred": 1, "order": "gradual"}, "transferred and order = 'gradual' cannot be combined"),
        ({"reinitialized": 1, "order": "head-first"}, "reinitialized and order = 'head-first' cannot be combined"),
        ({"transferred": 1, "tune": 2}, "would stay random"),
        ({"modules": ()}, "modules is empty"),
        ({"low_rank": True}, "not true or false"),
        ({"tune": "named"}, "give a number of layers, or full"),
        ({"reinitialized": 3, "tune": 2}, "would stay random"),
        ({"transferred": 3, "only": "norms"}, "transferred and only = 'norms' cannot be combined"),
        ({"order": "head-first", "lstm_width": 8}, "fits a linear head, but lstm_width adds an LSTM"),
        ({"lstm_states": 4}, "lstm_states is about a BiLSTM"),
        ({"mixout": 1.0}, "less than 1"),
        ({"estimator": "probe", "tune": 2}, "tune is about fine-tuning, but estimator = 'probe'"),
        ({"low_ranks": 8}, "Extra inputs"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Way(**values)


def test_ways_that_keep_a_state_of_their_own_are_trained_one_by_one() -> None:
    assert not any(way.alone for way in (Way(), Way(tune=2), Way(layer_decay=0.9), Way(only="biases")))
    states = {"low_rank": 4, "order": "gradual", "mixout": 0.5, "towards_pretrained": 0.1, "patience": 2}
    assert all(Way(**{name: value}).alone for name, value in states.items())


def anatomy_of(paths: Sequence[str]) -> Anatomy:
    return Anatomy("layer", 12, {f"{path}.weight": HEAD for path in paths}, (), 1)


@pytest.fixture(scope="module")
def bert() -> Anatomy:
    """Four layers."""
    return find_layers(small_model("bert"))


@pytest.fixture(scope="module")
def gpt2() -> Anatomy:
    """Four layers and a final norm."""
    return find_layers(small_model("gpt2"))


@given(st.lists(PATHS, min_size=1, unique=True), PATHS)
def test_only_whole_consecutive_segments_match(paths: list[str], part: str) -> None:
    wanted = part.split(".")
    expected = {
        f"{path}.weight"
        for path in paths
        for segments in [path.split(".")]
        if any(segments[n : n + len(wanted)] == wanted for n in range(len(segments)))
    }
    if expected:
        assert parameters_in(anatomy_of(paths), [part]) == expected
    else:
        with pytest.raises(FrostlineError, match=re.escape(repr(part))):
            parameters_in(anatomy_of(paths), [part])


def test_the_names_of_the_last_layers_train_the_same_as_their_number(bert: Anatomy, gpt2: Anatomy) -> None:
    named = Way(modules=("layer.2", "encoder.layer.3", "pooler", "classifier"))
    assert named.parameters(bert) == Way(tune=2).parameters(bert)
    assert Way(modules=("h.3", "ln_f")).parameters(gpt2) == Way(tune=1).parameters(gpt2)


@pytest.mark.parametrize(
    ("modules", "places", "layers"),
    [
        ("pooler", {POOLER}, 0),
        ("classifier", set(), 0),
        ("layer.3", {"layer 3"}, 1),  # without the pooler
        ("layer.2.output pooler", {"layer 2", POOLER}, 2),
        ("layer.0", {"layer 0"}, 4),
        ("attention", {f"layer {n}" for n in range(4)}, 4),
        ("word_embeddings", {EMBEDDINGS}, None),
        ("embeddings", {EMBEDDINGS}, None),
        ("bert", {EMBEDDINGS, *(f"layer {n}" for n in range(4)), POOLER}, None),
    ],
)
def test_named_modules_are_trained_with_the_head_and_reach_down_to_the_lowest_one(
    bert: Anatomy, modules: str, places: set[str], layers: int | None
) -> None:
    names = Way(modules=tuple(modules.split())).parameters(bert)
    assert {bert.places[name] for name in names} == {*places, HEAD} and bert.depth(names) == layers


def test_training_the_final_norm_requires_no_layer(gpt2: Anatomy) -> None:
    names = Way(modules=("ln_f",)).parameters(gpt2)
    assert {gpt2.places[name] for name in names} == {FINAL_NORM, HEAD} and gpt2.depth(names) == 0


@pytest.mark.parametrize(
    ("part", "near"),
    [
        ("layer.4", "layer.3, layer.2, layer.1"),
        ("encoder.layers.3", "encoder.layer.3, "),
        ("classifier.weight", "classifier"),
        ("zzz", "bert, classifier"),
        ("dropout", "bert, classifier"),  # this module exists but has no parameters
    ],
)
def test_an_unknown_module_is_an_error_with_the_nearest_names(bert: Anatomy, part: str, near: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        parameters_in(bert, ["pooler", part])
    assert f"called {part!r}; the nearest are {near}" in str(caught.value)
    assert "the 4 layers are bert.encoder.layer.0 to bert.encoder.layer.3, numbered from 0." in str(caught.value)


@given(st.data())
def test_the_topmost_modules_hold_exactly_the_given_parameters(bert: Anatomy, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(bert.places)), min_size=1))
    others = set(bert.places) - names
    found = topmost_modules(sorted(names), others)

    def inside(name: str, path: str) -> bool:
        return f"{name}.".startswith(f"{path}.")

    assert all(sum(inside(name, path) for path in found) == 1 for name in names)
    assert not any(inside(name, path) for name in others for path in found)
    for path in found:  # the module around it holds others
        assert not module_of(path) or any(inside(name, module_of(path)) for name in others)
