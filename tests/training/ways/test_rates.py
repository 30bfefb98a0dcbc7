"""Learning rates by layer, and options of the optimizer."""

from frostline.model.ways import Way
from frostline.training.train import run
from frostline.training.updates import optimizer_groups
from training.by_hand import gap, started, train_by_hand, way_spec
from training.runs import spec_of


def test_a_run_with_decay_equals_adamw_with_groups_made_by_hand(even):
    spec = way_spec(Way(layer_decay=0.5), learning_rate=8e-3)
    model, trained = started(spec, even)
    layers = {f"bert.encoder.layer.{n}.": rate for n, rate in enumerate((2e-3, 4e-3, 8e-3))}
    rates = {**layers, "bert.embeddings.": 1e-3, "bert.pooler.": 3e-3, "classifier.": 3e-3}
    groups = [
        {
            "params": [p],
            "lr": next(rate for beginning, rate in rates.items() if name.startswith(beginning)),
            "weight_decay": 0.0 if name.endswith(".bias") or "LayerNorm" in name else spec.weight_decay,
        }
        for name, p in trained.items()
    ]
    train_by_hand(model, trained, spec, even, groups=groups)
    assert gap(run(spec, even), trained) < 1e-5
    assert gap(run(way_spec(Way(), learning_rate=8e-3), even), trained) > 1e-3


def test_every_group_of_an_uncorrected_optimizer_says_so(experiment):
    parameters = dict(experiment.pretrained.model.named_parameters())
    spec = spec_of("uncorrected", way=Way(bias_correction=False))
    groups = optimizer_groups(spec, experiment.pretrained.anatomy, parameters)
    assert len(groups) == 4 and all(group["bias_correction"] is False for group in groups)
