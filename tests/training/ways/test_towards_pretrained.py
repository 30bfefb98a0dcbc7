"""L2-SP equals training with its penalty in the loss."""

import torch

from frostline.model.ways import Way
from frostline.training.train import run
from training.by_hand import context_without_dropout, gap, parameters_of, started, train_by_hand, way_spec


def test_a_run_equals_training_with_the_penalty_in_the_loss(tmp_path):
    experiment = context_without_dropout(tmp_path)
    spec = way_spec(Way(towards_pretrained=0.3))
    model, names = started(spec, experiment)
    trained = parameters_of(model, names)
    new = experiment.pretrained.new
    before = {name: torch.zeros_like(p) if name in new else p.detach().clone() for name, p in trained.items()}

    def around(moment):
        if moment == "after":
            (0.15 * sum((p - before[name]).square().sum() for name, p in trained.items())).backward()

    train_by_hand(model, trained, spec, experiment, around=around)
    distances = []
    for one in (spec, way_spec(Way())):
        result = run(one, experiment)
        distances.append(gap(result, before))
        assert (gap(result, trained) < 1e-5) == (one is spec)
    assert distances[0] < distances[1]
