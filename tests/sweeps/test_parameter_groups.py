"""What a plan shows of parameters: each counts once, and notes say what is unusual."""

import re

import pytest

from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.terms import HEAD, POOLER
from frostline.model.ways import Way
from frostline.sweeps.parameter_groups import groups_of, notes_on_modules, notes_on_seeds
from small_models import small_model
from training.runs import named_spec, spec_of


def test_a_way_that_trains_other_layers_with_each_seed_is_noted() -> None:
    anatomy = Anatomy("l", 3, {f"l.{n}.weight": f"layer {n}" for n in range(3)}, (), 1)
    random, fixed = Way(tune=1, layers="random"), Way(tune=1, layers="first")
    seeds = range(4)
    runs = [spec_of(name, way=way, seed=seed) for seed in seeds for name, way in (("random-1", random), ("f", fixed))]
    (note,) = notes_on_seeds(runs, anatomy)
    layers = [re.search(rf"(layer \d) \(seed {seed}\)", note) for seed in seeds]
    trained = [run.parameters(anatomy) for run in runs if run.recipe == "random-1"]
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


@pytest.mark.parametrize(
    ("modules", "new", "note"),
    [
        ("layer.2 layer.3 pooler classifier", {HEAD}, None),
        ("layer.2 layer.3 classifier", {HEAD}, None),
        ("pooler classifier", {HEAD}, None),
        ("layer.3 pooler classifier", {HEAD, POOLER}, None),
        ("pooler", {HEAD}, "also trained, because they are newly initialized: classifier."),
        ("layer.3 classifier", {HEAD, POOLER}, "newly initialized, but not trained unless named: bert.pooler."),
        (
            "layer.1 classifier",
            {HEAD},
            "they are not the last layers: 3 of 4 layers must run in each step although only 1",
        ),
        (
            "layer.0 layer.3 classifier",
            {HEAD},
            "4 of 4 layers must run in each step although only 2 of them are trained. ",
        ),
        ("layer.3.attention classifier", {HEAD}, "they are only a part of the last layer, which must run"),
        ("layer.2.attention layer.3 classifier", {HEAD}, "they are only a part of the last 2 layers, which must run"),
        ("layer.3 word_embeddings classifier", {HEAD}, "all 4 layers run in each step."),
    ],
)
def test_notes_on_named_modules(modules: str, new: set[str], note: str | None) -> None:
    anatomy = find_layers(small_model("bert"))
    notes = list(notes_on_modules(named_spec(*modules.split()), anatomy, anatomy.within(new)))
    assert [words for words in notes if not (words.startswith("Named parts: ") and words.endswith("."))] == []
    assert len(notes) == (note is not None) and all(note is not None and note in words for words in notes)
