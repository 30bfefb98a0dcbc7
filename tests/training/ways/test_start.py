"""Layers with new values: which ones, and that they follow the law of transformers."""

import math

import pytest
import torch

from frostline.model.anatomy import find_layers
from frostline.model.pretrained import Pretrained
from frostline.model.terms import layer_number
from frostline.model.ways import Way
from frostline.training.start import planned, reinitialized
from frostline.training.train import run, start_values
from small_models import small_model
from training.by_hand import way_spec
from training.runs import largest_difference, weights_of, with_states


def test_the_top_layers_and_the_pooler_start_anew(experiment):
    places = experiment.pretrained.anatomy.places

    def new_places(way):
        return {places[name] for name in reinitialized(way_spec(way), experiment.pretrained.anatomy)}

    assert new_places(Way()) == set()
    assert new_places(Way(reinitialized=2)) == {"layer 1", "layer 2", "pooler"}
    assert new_places(Way(transferred=1)) == {"layer 1", "layer 2", "pooler"}
    assert new_places(Way(transferred=0)) == {"layer 0", "layer 1", "layer 2", "pooler"}
    assert new_places(Way(transferred=9)) == set()


def test_new_values_follow_the_law_of_transformers(experiment):
    spec, places = way_spec(Way(reinitialized=2)), experiment.pretrained.anatomy.places
    experiment.pretrained.restore()
    before = weights_of(experiment)
    start_values(spec, experiment)
    new = reinitialized(spec, experiment.pretrained.anatomy)
    deviation = experiment.pretrained.model.config.initializer_range
    for name, p in experiment.pretrained.model.named_parameters():
        if name not in new:
            assert places[name] == "head" or torch.equal(p, before[name])
        elif "LayerNorm" in name or name.endswith("bias"):
            assert torch.equal(p, torch.full_like(p, float("LayerNorm.weight" in name)))
        else:
            assert not torch.equal(p, before[name]) and abs(float(p.detach().std()) / deviation - 1) < 0.2


def test_other_seeds_give_other_values_and_the_head_does_not_depend_on_the_way(experiment):
    heads, layers = [], []
    for spec in (way_spec(Way()), way_spec(Way(reinitialized=1)), way_spec(Way(reinitialized=1), seed=1)):
        start_values(spec, experiment)
        weights = weights_of(experiment)
        heads.append(weights["classifier.weight"])
        layers.append(weights["bert.encoder.layer.2.output.dense.weight"])
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[1], heads[2])
    assert not torch.equal(layers[1], layers[2])


def test_a_type_that_scales_some_matrices_scales_new_ones_too(tmp_path):
    """GPT-2 divides the deviation of the matrices before each sum by the root of twice the number of layers."""
    model = small_model("gpt2")
    anatomy = find_layers(model)
    pretrained = Pretrained("m", tmp_path, None, model, None, anatomy, "", "", 32, frozenset({"score.weight"}))
    new = frozenset(name for name, place in anatomy.places.items() if layer_number(place) is not None)
    pretrained.start_run(new | {"score.weight"}, 3, new)
    deviations = {
        leaf: torch.cat(
            [p.detach().flatten() for n, p in model.named_parameters() if n.endswith(f"{leaf}.weight")]
        ).std()
        for leaf in ("mlp.c_proj", "mlp.c_fc")
    }
    expected = 1 / math.sqrt(2 * model.config.n_layer)
    assert float(deviations["mlp.c_proj"] / deviations["mlp.c_fc"]) == pytest.approx(expected, rel=0.1)


def test_a_run_with_new_layers_trains_them(experiment):
    """With a learning rate that changes nothing, new layers differ from the pretrained ones, but do not move."""
    moved = [
        run(way_spec(Way(reinitialized=1), learning_rate=rate), experiment).record.audit.moved for rate in (3e-3, 1e-60)
    ]
    assert moved == [["embeddings", "layer 0", "layer 1", "layer 2", "pooler", "head"], ["pooler", "head"]]


def test_runs_with_and_without_new_layers_start_from_the_same_cached_hidden_states(even, tmp_path):
    cached = with_states(even, tmp_path, cuts=(1,))
    results = []
    for new in (0, 1, 2):
        spec = way_spec(Way(tune=2, reinitialized=new), num_train_epochs=2, evaluations_per_epoch=1)
        without, found = (run(spec, experiment) for experiment in (even, cached))
        assert [one.record.provenance.cut for one in (without, found)] == [None, 1]
        assert largest_difference(without, found) < 1e-5
        assert all(largest_difference(found, other) > 1e-3 for other in results)
        results.append(found)


@pytest.mark.parametrize("layers", ["first", "middle", "spread", "random"])
def test_controls_train_exactly_as_many_parameters_as_the_last_layers(experiment, layers):
    model, anatomy = experiment.pretrained.model, experiment.pretrained.anatomy

    def count(spec):
        return sum(p.numel() for p in planned(spec, model, anatomy).values())

    last = count(way_spec(Way(tune=2)))
    spec = way_spec(Way(tune=2, layers=layers))
    assert count(spec) == last == run(spec, experiment).record.audit.trainable_parameters


def test_biases_and_norms_alone(experiment):
    anatomy = experiment.pretrained.anatomy
    for only, ends in (("biases", ("bias",)), ("norms", ("LayerNorm.weight", "LayerNorm.bias"))):
        names = way_spec(Way(only=only)).parameters(anatomy)
        inside = {name for name in names if anatomy.places[name] not in ("head", "pooler")}
        assert inside == {n for n, p in anatomy.places.items() if n.endswith(ends) and p not in ("head", "pooler")}
        assert {"classifier.weight", "bert.pooler.dense.weight"} <= names
