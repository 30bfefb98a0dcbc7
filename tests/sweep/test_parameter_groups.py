"""Names of the parameter groups: merged paths lose no layer and no part."""

import re

from hypothesis import given
from hypothesis import strategies as st

from frostline.model.anatomy import Anatomy, find_layers
from frostline.sweep.parameter_groups import groups_of, merged_paths, notes_on_seeds
from frostline.training.recipes import Way
from small_models import small_model
from training.runs import spec_of


@given(st.sets(st.integers(0, 30)), st.sampled_from(["", ".output", ".attention.query"]))
def test_merged_paths_name_every_layer_again(numbers: set[int], rest: str) -> None:
    found = merged_paths([f"bert.layer.{n}{rest}" for n in numbers] + ["bert.pooler", "bert.layer"], "bert.layer.")
    assert found[:2] == ("bert.pooler", "bert.layer")
    ends = [one.removeprefix("bert.layer.").removesuffix(rest).split(" .. ") for one in found[2:]]
    assert [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)] == sorted(numbers)


def test_parts_of_the_same_layers_are_merged() -> None:
    paths = [f"l.{n}.{part}" for n in (0, 1, 2, 4) for part in ("a", "b.c")]
    assert merged_paths([*paths, "l.7", "e"], "l.") == ("e", "l.0 .. 2.{a, b.c}", "l.4.{a, b.c}", "l.7")
    assert merged_paths(["embeddings", "layer 3", "layer 4", "head"], "layer ") == (
        "embeddings",
        "head",
        "layer 3 .. 4",
    )


def test_a_way_that_trains_other_layers_with_each_seed_is_noted() -> None:
    anatomy = Anatomy("l", 3, {f"l.{n}.weight": f"layer {n}" for n in range(3)}, (), 1)
    random, fixed = Way(tune=1, layers="random"), Way(tune=1, layers="first")
    seeds = range(4)
    runs = [spec_of(name, way=way, seed=seed) for seed in seeds for name, way in (("random-1", random), ("f", fixed))]
    (note,) = notes_on_seeds(runs, anatomy)
    layers = [re.search(rf"(layer \d) \(seed {seed}\)", note) for seed in seeds]
    trained = [run.to_train.parameters(anatomy) for run in runs if run.recipe == "random-1"]
    for found, names in zip(layers, trained, strict=True):
        assert found is not None and {anatomy.places[name] for name in names} >= {found[1]}
    assert len({found[1] for found in layers if found}) > 1 and note.startswith("random-1 trains other layers")


def test_every_parameter_of_the_model_counts_once_and_low_rank_factors_beside_them() -> None:
    model = small_model("bert")
    whole = sum(p.numel() for p in model.parameters())
    for way, more in ((Way(tune=2), 0), (Way(tune=2, low_rank=3), 1)):
        groups = groups_of([spec_of("w", way=way)], model, find_layers(model))
        factors = sum(group.parameters for group in groups if group.trained and "layer" in group.places[0])
        assert sum(group.parameters for group in groups) == whole + more * factors and factors
