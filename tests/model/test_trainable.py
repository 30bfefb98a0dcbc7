"""Named modules: whole segments of module paths, and the notes that users get before training."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy, find_layers, module_of, parameters_in, topmost_modules
from frostline.model.terms import EMBEDDINGS, FINAL_NORM, HEAD, POOLER
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import Recipe
from frostline.training.run import Run
from small_models import small_model

SEGMENTS = ("layer", "1", "10", "11", "attention", "pooler", "pool", "a")
PATHS = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=5).map(".".join)


def anatomy_of(paths: Sequence[str]) -> Anatomy:
    return Anatomy("layer", 12, {f"{path}.weight": HEAD for path in paths}, (), 1)


def run_of(*modules: str, **more: object) -> Run:
    values = {"weights": "w", "vocabulary": "v", "data": "d", "seed": 0, "train_size": 9, "learning_rate": 1e-3}
    return Run(**{**values, "recipe": "named", "tune_modules": modules, **more})


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


def test_layer_1_is_not_layer_10() -> None:
    anatomy = anatomy_of([f"bert.encoder.layer.{n}.output" for n in range(12)])
    assert parameters_in(anatomy, ["layer.1"]) == {"bert.encoder.layer.1.output.weight"}
    assert parameters_in(anatomy, ["output"]) == set(anatomy.places)
    assert parameters_in(anatomy, ["layer.10", "layer.1.output"]) == {
        f"bert.encoder.layer.{n}.output.weight" for n in (1, 10)
    }


def test_the_names_of_the_last_layers_train_the_same_as_their_number(bert: Anatomy, gpt2: Anatomy) -> None:
    assert Trainable(
        "named",
        (
            "layer.2",
            "encoder.layer.3",
            "pooler",
            "classifier",
        ),
    ).parameters(bert) == Trainable(Recipe(2)).parameters(bert)
    assert Trainable(
        "named",
        (
            "h.3",
            "ln_f",
        ),
    ).parameters(gpt2) == Trainable(Recipe(1)).parameters(gpt2)


def test_the_head_is_always_trained_and_the_pooler_only_if_named(bert: Anatomy) -> None:
    names = Trainable(Recipe("named"), ("layer.3",)).parameters(bert)
    assert {bert.places[name] for name in names} == {"layer 3", HEAD}
    assert {bert.places[name] for name in Trainable(Recipe("named"), ("pooler",)).parameters(bert)} == {POOLER, HEAD}
    assert Trainable(Recipe("named"), ("bert",)).parameters(bert) == set(bert.places)


@pytest.mark.parametrize(
    ("modules", "layers"),
    [
        (("pooler",), 0),
        (("classifier",), 0),
        (("layer.3",), 1),
        (("layer.2.output", "pooler"), 2),
        (("layer.0",), 4),
        (("attention",), 4),
        (("word_embeddings",), None),
        (("layer.3", "embeddings"), None),
    ],
)
def test_a_run_reaches_down_to_the_lowest_named_module(
    bert: Anatomy, modules: tuple[str, ...], layers: int | None
) -> None:
    assert run_of(*modules).to_train.depth(bert) == layers


def test_training_the_final_norm_requires_no_layer(gpt2: Anatomy) -> None:
    assert run_of("ln_f").to_train.depth(gpt2) == 0
    assert {gpt2.places[name] for name in Trainable(Recipe("named"), ("ln_f",)).parameters(gpt2)} == {FINAL_NORM, HEAD}


@pytest.mark.parametrize(
    ("part", "near"),
    [
        ("layer.4", "layer.3, layer.2, layer.1"),
        ("encoder.layers.3", "encoder.layer.3, "),
        ("classifier.weight", "classifier"),
        ("poler", "pooler"),
        ("zzz", "bert, classifier"),
        ("dropout", "bert, classifier"),  # this module exists but has no parameters
    ],
)
def test_an_unknown_module_is_an_error_with_the_nearest_names(bert: Anatomy, part: str, near: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        parameters_in(bert, ["pooler", part])
    message = str(caught.value)
    assert f"called {part!r}; the nearest are {near}" in message
    assert "the 4 layers are bert.encoder.layer.0 to bert.encoder.layer.3, numbered from 0." in message


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (("layer.2", "layer.3", "pooler", "classifier"), []),
        (("layer.2", "layer.3", "classifier"), []),
        (("pooler", "classifier"), []),
        (("pooler",), ["also trained, because they are newly initialized: classifier."]),
        (
            ("layer.1", "classifier"),
            ["they are not the last layers: 3 of 4 layers must run in each step although only 1 of them is trained. "]
        ),
        (
            ("layer.0", "layer.3", "classifier"),
            ["4 of 4 layers must run in each step although only 2 of them are trained. Tuning the last 2 layers instead"],
        ),
        (("layer.3.attention", "classifier"), ["they are only a part of the last layer, which must run"]),
        (("layer.2.attention", "layer.3", "classifier"), ["they are only a part of the last 2 layers, which must run"]),
        (("layer.3", "word_embeddings", "classifier"), ["all 4 layers run in each step."]),
    ],
)  # fmt: skip
def test_notes_on_the_cost_of_modules_that_are_not_the_last_layers(
    bert: Anatomy, modules: tuple[str, ...], expected: list[str]
) -> None:
    new = {name for name, place in bert.places.items() if place == HEAD}
    notes = list(run_of(*modules).to_train.notes(bert, new))
    assert len(notes) == len(expected)
    for note, words in zip(notes, expected, strict=True):
        assert note.startswith("Named parts: ") and words in note and note.endswith(".")


def test_a_note_names_a_new_pooler_that_is_not_trained(bert: Anatomy) -> None:
    new = {name for name, place in bert.places.items() if place in (HEAD, POOLER)}
    (note,) = run_of("layer.3", "classifier").to_train.notes(bert, new)
    assert note == "Named parts: newly initialized, but not trained unless named: bert.pooler."
    assert not list(run_of("layer.3", "pooler", "classifier").to_train.notes(bert, new))
    assert not list(run_of(recipe=1, tune_modules=None).to_train.notes(bert, new))


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


def test_the_embeddings_module_is_in_its_place(bert: Anatomy) -> None:
    assert {bert.places[name] for name in parameters_in(bert, ["embeddings"])} == {EMBEDDINGS}
