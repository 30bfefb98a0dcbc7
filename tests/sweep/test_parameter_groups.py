"""Names of the parameter groups: merged paths lose no layer and no part."""

import re

from frostline.model.anatomy import Anatomy, find_layers
from frostline.sweep.parameter_groups import groups_of, notes_on_seeds
from frostline.training.recipes import Way
from small_models import small_model
from training.runs import spec_of


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
