"""Loss, scores and logits of a problem, compared with torch and with explicit formulas."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from frostline.data.kinds import CLASSIFICATION, REGRESSION
from frostline.training.problem import Problem
from training.lines import ONE_EPOCH, TRAIN, Line, fit, problem_of
from training.stand_in import META, StandIn


@pytest.mark.parametrize("kind", [CLASSIFICATION, REGRESSION])
def test_losses_of_several_runs_together_are_those_of_each_run(kind):
    draw = np.random.default_rng(0)
    targets = draw.integers(3, size=20) if kind == CLASSIFICATION else draw.normal(size=20)
    problem = problem_of(targets, task_type=kind)
    logits = torch.from_numpy(draw.normal(size=(3, 5, 3 if kind == CLASSIFICATION else 1))).float()
    rows = draw.integers(20, size=(3, 5))
    together = problem._by_run(logits, problem._targets(rows, logits.device))
    torch.testing.assert_close(together, problem.losses(logits, rows))


def test_logits_have_the_order_of_the_rows():
    """They are computed in batches sorted by length."""
    lengths = np.random.default_rng(0).integers(1, 9, 40)
    problem = Problem(CLASSIFICATION, np.zeros(40, np.int64), lengths, None, "accuracy")
    seen = []

    def forward(rows):
        seen.extend(lengths[rows])
        return torch.from_numpy(rows[:, None] * np.ones(2))

    rows = np.random.default_rng(1).permutation(40)[:23]
    assert np.array_equal(problem.logits(forward, rows, 4)[:, 0], rows)
    assert seen == sorted(seen)


def test_class_weights_change_the_loss_as_in_torch():
    targets = np.array([0, 1, 1, 2])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([1.0, 0.25, 3.0])
    plain = problem_of(targets).loss(logits, np.arange(4))
    weighted = problem_of(targets, weights=weights).loss(logits, np.arange(4))
    each = -logits.log_softmax(1)[range(4), targets]
    assert plain.item() == pytest.approx(each.mean().item(), rel=1e-6)
    by_hand = (weights[targets] * each).sum() / weights[targets].sum()
    assert weighted.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert weighted.item() != pytest.approx(plain.item(), rel=1e-3)
    assert torch.equal(weighted, F.cross_entropy(logits, torch.from_numpy(targets), weight=weights))


def test_a_batch_whose_classes_have_weight_0_changes_nothing():
    problem = problem_of(np.array([0, 0, 0, 1]), weights=torch.tensor([0.0, 1.0]))
    logits, rows = torch.zeros(2, 2, 2, requires_grad=True), np.array([[0, 1], [2, 3]])
    losses = problem.losses(logits, rows)
    losses.sum().backward()
    assert losses.tolist() == [0, pytest.approx(np.log(2))]
    assert not logits.grad[0].any() and not logits.grad[1, 0].any() and logits.grad[1, 1].all()
    with StandIn() as watched:
        problem.losses(torch.empty(2, 2, 2, device=META), rows)
    assert watched.reads.total() == 0


def test_batches_whose_classes_have_weight_0_do_not_end_a_run():
    line = Line()
    problem = problem_of(line.targets, weights=torch.tensor([0.0, 1.0]))
    settings = ONE_EPOCH.model_copy(update={"per_device_train_batch_size": 1})
    trained = fit(line, settings, problem=problem)
    assert trained.outcome != "diverged" and trained.steps == len(TRAIN)


def test_the_loss_of_a_regression_is_the_mean_squared_error():
    targets = np.array([0.5, 2.0, -1.0, 7.0])
    logits = torch.tensor([[1.0], [2.0], [0.0]])
    problem = problem_of(targets, task_type=REGRESSION, metric="pearson")
    assert problem.loss(logits, np.arange(3)).item() == pytest.approx((0.25 + 0 + 1) / 3)


def test_losses_are_in_fp32_under_autocast():
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert problem_of(np.zeros(4, np.int64)).loss(logits, np.arange(4)).dtype == torch.float32
