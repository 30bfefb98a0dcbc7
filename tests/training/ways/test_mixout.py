"""Runs with mixout equal training by its formula. L2-SP equals training with its penalty in the loss."""

import pytest
import torch

from frostline.model.ways import Way
from frostline.training.train import run
from training.by_hand import gap, started, train_by_hand, way_spec

SHARE = 0.4


def equation_5(w, u, mask):
    return (mask * u + (1 - mask) * w - SHARE * u) / (1 - SHARE)


@pytest.mark.parametrize("tune", [1, "full"])
def test_a_run_equals_training_by_equation_5(even, tune):
    spec = way_spec(Way(tune=tune, mixout=SHARE))
    model, trained = started(spec, even)
    pretrained = {name: p.detach().clone() for name, p in trained.items()}
    matrices = sorted(trained.keys() & even.pretrained.anatomy.matrices - even.pretrained.new)
    random = torch.Generator().manual_seed(spec.seed_for("mixout"))
    held = {}

    @torch.no_grad()
    def around(moment):
        for name in matrices:
            if moment == "before":
                mask = (torch.rand(trained[name].shape, generator=random) < SHARE).float()
                held[name] = mask, trained[name].clone()
                trained[name].copy_(equation_5(trained[name], pretrained[name], mask))
            else:
                mask, value = held[name]
                trained[name].copy_(value)
                trained[name].grad *= (1 - mask) / (1 - SHARE)

    train_by_hand(model, trained, spec, even, around=around)
    assert len(matrices) > 5 and gap(run(spec, even), trained) < 1e-5


def test_a_run_equals_training_with_the_penalty_in_the_loss(even):
    spec = way_spec(Way(towards_pretrained=0.3))
    model, trained = started(spec, even)
    new = even.pretrained.new
    before = {name: torch.zeros_like(p) if name in new else p.detach().clone() for name, p in trained.items()}

    def around(moment):
        if moment == "after":
            (0.15 * sum((p - before[name]).square().sum() for name, p in trained.items())).backward()

    train_by_hand(model, trained, spec, even, around=around)
    distances = []
    for one in (spec, way_spec(Way())):
        result = run(one, even)
        distances.append(gap(result, before))
        assert (gap(result, trained) < 1e-5) == (one is spec)
    assert distances[0] < distances[1]
