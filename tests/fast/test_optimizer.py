"""Optimizer steps with dense gradients and with sparse gradients of large tables, compared with torch's AdamW on dense ones."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from frostline.fast.optimizer import LARGE, AdamW, clear_gradients, gradient_of, gradients_of, sparse_gradients

ROWS = LARGE + 17
OPTIONS = {"betas": (0.9, 0.99), "eps": 1e-6}
EARLY, LATE = torch.tensor([[1, 2]]), torch.tensor([[5, 6]])


class Reader(nn.Module):
    """A model that looks up rows of one table, with ``tables`` embedding modules that share it."""

    def __init__(self, padding=None, tables=1, rows=ROWS):
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList(nn.Embedding(rows, 5, padding_idx=padding) for _ in range(tables))
        for table in self.tables[1:]:
            table.weight = self.tables[0].weight
        self.linear = nn.Linear(5, 3)

    def forward(self, *ids):
        read = [table(x) for table, x in zip(self.tables, ids, strict=True)]
        return self.linear(torch.cat([x.mean(-2) for x in read])).square().sum()


class WithPenalty(Reader):
    """It also reads its table without a lookup."""

    def forward(self, ids):
        return super().forward(ids) + self.tables[0].weight.square().mean()


def batches(steps, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randint(0, 60 + 40 * n, (4, 7), generator=draw),) for n in range(steps)]


def groups(model, decay, **more):
    return [{"params": [*model.parameters()], "lr": 0.01, "weight_decay": decay, **more}]


def assert_same_steps(model, steps, decay, *, limit=0.1, flush=True):
    """Train a model with sparse gradients and a copy of it with torch's AdamW, and compare norms and tables.

    Returns:
        The model and the copy.
    """
    reference = copy.deepcopy(model)
    optimizer = AdamW(groups(model, decay), **OPTIONS)
    reference_optimizer = torch.optim.AdamW(groups(reference, decay), **OPTIONS, fused=True)
    with sparse_gradients(model):
        for ids in steps:
            model(*ids).backward()
            gradients = gradients_of(model.parameters())
            norm = nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
            optimizer.step()
            assert not gradients_of(model.parameters())
            reference(*ids).backward()
            torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference.parameters(), limit))
            reference_optimizer.step()
            reference_optimizer.zero_grad()
        if flush:
            optimizer.flush()
            torch.testing.assert_close(model.tables[0].weight, reference.tables[0].weight, rtol=1e-5, atol=1e-6)
    return model, reference


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("flush", [True, False])
def test_steps_equal_those_of_the_whole_table(padding, decay, flush):
    model = Reader(padding)
    before = model.tables[0].weight.detach().clone()
    model, reference = assert_same_steps(model, batches(6), decay, flush=flush)
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    unread = torch.arange(ROWS) >= 260
    after = model.tables[0].weight
    torch.testing.assert_close(after[unread], before[unread] * (1 - 0.01 * decay) ** 6)
    assert not torch.equal(after[~unread], before[~unread] * (1 - 0.01 * decay) ** 6)


@pytest.mark.parametrize(("rows", "decay", "limit"), [(ROWS, 0.0, 1e6), (LARGE - 1, 0.5, 0.1)])
def test_steps_are_bitwise_identical_without_decay_and_clipping_or_sparse_gradients(rows, decay, limit):
    model, reference = assert_same_steps(Reader(rows=rows), batches(6), decay, limit=limit)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), reference.parameters(), strict=True))


def test_tables_that_are_read_twice_in_a_step_or_without_a_lookup():
    (one,), (two,) = batches(2)
    assert_same_steps(Reader(tables=2), [(one, two), (two + 200, one), (one, one)], 0.5)
    assert_same_steps(WithPenalty(), batches(4), 0.5)


def test_deferred_decay_is_applied_to_rows_that_are_read_late():
    model = Reader()
    weight = model.tables[0].weight
    before = weight.detach().clone()
    optimizer = AdamW(groups(model, 0.5), **OPTIONS)
    with sparse_gradients(model):
        for _ in range(3):
            model(EARLY).backward()
            optimizer.step()
        assert torch.equal(weight[5], before[5])  # its decay is deferred
        torch.testing.assert_close(model.tables[0](LATE), before[LATE] * (1 - 0.01 * 0.5) ** 3)
        with torch.no_grad():  # a lookup without gradient applies the decay too
            torch.testing.assert_close(model.tables[0](torch.tensor([9])), before[[9]] * (1 - 0.01 * 0.5) ** 3)
            optimizer.flush()  # a second flush changes nothing
            torch.testing.assert_close(weight[9], before[9] * (1 - 0.01 * 0.5) ** 3)


def test_cleared_gradients_have_no_effect():
    model = Reader()
    before = copy.deepcopy(model.state_dict())
    with sparse_gradients(model):
        for _ in range(2):
            model(EARLY).backward()
            gradients = gradients_of(model.parameters())
            clear_gradients(model.parameters())
        AdamW(groups(model, 0.5), **OPTIONS).step()
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    expected = torch.autograd.grad(model(EARLY), [*model.parameters()])
    torch.testing.assert_close(*map(nn.utils.get_total_norm, (gradients, expected)))


def original_bert(parameters, decay):
    """A function that takes a step of its optimizer without bias correction: ``w -= lr * (m / (sqrt(v) + eps) + decay * w)``."""
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step():
        for p, (first, second) in zip(parameters, moments, strict=True):
            first.mul_(0.9).add_(p.grad, alpha=0.1)
            second.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
            p.sub_(0.01 * (first / (second.sqrt() + 1e-6) + decay * p))
            p.grad = None

    return step


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("skipped", [(), (0, 1, 4)])
def test_skipped_steps_do_not_count(corrected, skipped):
    """As if they had never been there, also the first two, as with a scale of losses that is too large. Gradients are divided.

    Without bias correction, steps are those of the original BERT. Without steps to skip, gradients of the table are sparse.
    """
    model, decay = Reader(), 0.1
    reference = copy.deepcopy(model)
    optimizer, taken = AdamW(groups(model, decay, bias_correction=corrected), **OPTIONS), 0
    reference_step = original_bert([*reference.parameters()], decay)
    if corrected:
        reference_step = torch.optim.AdamW(groups(reference, decay), **OPTIONS).step
    with nullcontext() if skipped else sparse_gradients(model):
        for number, ids in enumerate(batches(6)):
            if number not in skipped:
                reference.zero_grad()
                reference(*ids).backward()
                reference_step()
                taken += 1
            if skipped:
                (model(*ids) * (torch.inf if number in skipped else 4.0)).backward()
                flag, count = torch.tensor(float(number in skipped)), torch.tensor(float(taken))
                optimizer.step(torch.tensor(1.0), count=count, divisor=torch.tensor(4.0), skip=flag)
            else:
                model(*ids).backward()
                optimizer.step()
    for p, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, expected, rtol=1e-5, atol=1e-6)


def is_sparse(model):
    return any("forward" in vars(module) for module in model.modules())


def test_small_frozen_tied_and_switched_off_tables_have_dense_gradients(monkeypatch):
    small, frozen, tied = Reader(rows=LARGE - 1), Reader(), Reader()
    frozen.tables[0].weight.requires_grad_(False)
    tied.linear = nn.Linear(5, ROWS, bias=False)
    tied.linear.weight = tied.tables[0].weight
    for model in (small, frozen, tied):
        with sparse_gradients(model):
            assert not is_sparse(model)
    with sparse_gradients(Reader()) as _, sparse_gradients(model := Reader()):
        assert is_sparse(model)
    monkeypatch.setenv("FROSTLINE_WITHOUT", "sparse_gradients")
    with sparse_gradients(model):
        assert not is_sparse(model)


def test_tables_are_restored_after_an_error():
    model = Reader()
    weight, optimizer = model.tables[0].weight, AdamW(groups(model, 0.5), **OPTIONS)
    before = weight[9].detach().clone()
    with pytest.raises(KeyboardInterrupt), sparse_gradients(model):
        model(batches(1)[0][0] * 0).backward()
        assert weight.grad is None and gradient_of(weight) is not None
        optimizer.step()
        raise KeyboardInterrupt
    torch.testing.assert_close(weight[9], before * (1 - 0.01 * 0.5))
    assert "sparse_gradient" not in vars(weight) and not is_sparse(model)
