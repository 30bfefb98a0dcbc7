"""Mixout equals its formula, in values and gradients. L2-SP equals training with its penalty in the loss."""

import pytest
import torch

from frostline.model.ways import Way
from frostline.training.start import Mixout
from frostline.training.train import run
from training.by_hand import context_without_dropout, gap, parameters_of, started, train_by_hand, way_spec

SHARE = 0.4


def equation_5(w, u, mask):
    return (mask * u + (1 - mask) * w - SHARE * u) / (1 - SHARE)


def test_values_and_gradients_are_those_of_equation_5():
    torch.manual_seed(0)
    w, u, x = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4), torch.randn(3, 4)
    before = w.detach().clone()
    mask = (torch.rand(5, 4, generator=torch.Generator().manual_seed(7)) < SHARE).float()
    expected = equation_5(before.requires_grad_(), u, mask)
    (x @ expected.T).pow(3).sum().backward()
    mixout = Mixout({"w": w}, {"w": u}, SHARE, torch.Generator().manual_seed(7))
    mixout.before_forward()
    assert torch.allclose(w, expected, atol=1e-6)
    (x @ w.T).pow(3).sum().backward()
    mixout.after_backward()
    assert torch.equal(w, before) and torch.allclose(w.grad, before.grad, rtol=1e-4, atol=1e-5)


def test_the_expectation_of_the_mixed_matrix_is_the_matrix():
    w, u = torch.full((2, 2), 3.0), torch.full((2, 2), 1.0)
    mixout = Mixout({"w": w}, {"w": u}, SHARE, torch.Generator().manual_seed(1))
    total = torch.zeros(2, 2)
    for _ in range(4000):
        mixout.before_forward()
        total += w
        mixout.after_backward()
    assert (total / 4000 - 3).abs().max() < 0.1


@pytest.mark.parametrize("tune", [1, "full"])
def test_a_run_equals_training_by_hand(tmp_path, tune):
    experiment = context_without_dropout(tmp_path)
    spec = way_spec(Way(tune=tune, mixout=SHARE))
    model, names = started(spec, experiment)
    trained = parameters_of(model, names)
    pretrained = {name: p.detach().clone() for name, p in trained.items()}
    matrices = sorted(names & experiment.pretrained.anatomy.matrices - experiment.pretrained.new)
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

    train_by_hand(model, trained, spec, experiment, around=around)
    assert len(matrices) > 5 and gap(run(spec, experiment), trained) < 1e-5


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
