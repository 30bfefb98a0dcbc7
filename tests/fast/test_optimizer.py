"""Optimizer steps, gradient norms and clipping, compared with torch's own functions on dense gradients.

- Sparse gradients of large tables, compared with torch's embeddings and AdamW, which update all rows.
"""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.fast.optimizer import (
    LARGE,
    AdamW,
    SparseGradient,
    clear_gradients,
    clip,
    gradient_of,
    sparse_gradients,
    total_norm,
)

SHAPES = [(40, 24), (24,), (7, 130), (1, 1)]
TABLE = 2  # the parameter with a sparse gradient
READ = torch.tensor([5, 0, 3])  # the rows of the table that were read


def parameters_of(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]


def with_gradients(parameters, seed, scale=1.0):
    """Set a gradient of each parameter, for the table one of three rows. Returns the same gradients as dense tensors."""
    draw = torch.Generator().manual_seed(seed)
    dense = [torch.randn(shape, generator=draw) * scale for shape in SHAPES]
    rows = dense[TABLE][READ]
    dense[TABLE] = torch.zeros(SHAPES[TABLE]).index_copy(0, READ, rows)
    for parameter, gradient in zip(parameters, dense, strict=True):
        sparse = vars(parameter).get("sparse_gradient")
        if sparse is None:
            parameter.grad = gradient.clone()
        else:
            sparse.read(READ)
            sparse.add(READ, rows, None)
    return dense


def groups(parameters):
    return [
        {"params": [p for p in parameters if (p.dim() > 1) == decays], "lr": 0.01, "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_steps_equal_those_of_torch(sparse, limit):
    parameters, reference = parameters_of(), parameters_of()
    if sparse:
        SparseGradient(parameters[TABLE])
    options = {"betas": (0.9, 0.99), "eps": 1e-6}
    optimizer = AdamW(groups(parameters), **options)
    reference_optimizer = torch.optim.AdamW(groups(reference), **options, fused=True)
    for step in range(5):
        for parameter, gradient in zip(reference, with_gradients(parameters, step), strict=True):
            parameter.grad = gradient
        norm = total_norm(parameters)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference, limit))
        clip(parameters, limit, norm)
        optimizer.step()
        reference_optimizer.step()
        optimizer.flush()
        for p, q in zip(parameters, reference, strict=True):
            torch.testing.assert_close(p, q)
            assert sparse or torch.equal(p, q)
            assert gradient_of(p) is None


@pytest.mark.parametrize(
    "clear", [clear_gradients, lambda parameters: AdamW(groups(parameters), betas=(0.9, 0.9), eps=1).zero_grad()]
)
def test_cleared_gradients_have_no_effect(clear):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    clear(parameters)
    assert all(gradient_of(p) is None for p in parameters)
    before = [p.detach().clone() for p in parameters]
    AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6).step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(1e-3, 1e3))
def test_the_norm_of_clipped_gradients_is_at_most_the_limit(seed, limit, scale):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, seed, scale)
    norm = float(total_norm(parameters))
    clip(parameters, limit, torch.tensor(norm))
    assert float(total_norm(parameters)) == pytest.approx(min(norm, limit), rel=1e-4)


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_one_value_that_is_not_finite_makes_the_norm_not_finite(number, wrong):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    gradient_of(parameters[number]).view(-1)[0] = wrong
    assert not torch.isfinite(total_norm(parameters))


def original_bert(parameters):
    """A function that takes a step of its optimizer without bias correction: ``w -= lr * (m / (sqrt(v) + eps) + decay * w)``."""
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(gradients):
        for parameter, gradient, (first, second) in zip(parameters, gradients, moments, strict=True):
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            decay = 0.1 if parameter.dim() > 1 else 0.0
            parameter.sub_(0.01 * (first / (second.sqrt() + 1e-6) + decay * parameter))

    return step


def usual(parameters):
    """A function that takes a step of torch's AdamW."""
    optimizer = torch.optim.AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6)

    def step(gradients):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return step


def uncorrected(parameters):
    return AdamW([{**group, "bias_correction": False} for group in groups(parameters)], betas=(0.9, 0.99), eps=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_without_bias_correction_steps_are_those_of_the_original_bert(sparse):
    parameters, reference = parameters_of(), parameters_of()
    if sparse:
        SparseGradient(parameters[TABLE])
    optimizer, reference_step = uncorrected(parameters), original_bert(reference)
    for step in range(5):
        reference_step(with_gradients(parameters, step))
        optimizer.step()
    optimizer.flush()
    for parameter, expected in zip(parameters, reference, strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("corrected", [True, False])
def test_skipped_steps_do_not_count(corrected):
    """As if they had never been there, also the first two, as with a scale of losses that is too large."""
    parameters, reference = parameters_of(), parameters_of()
    optimizer = AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6) if corrected else uncorrected(parameters)
    reference_step, taken = usual(reference) if corrected else original_bert(reference), 0
    for step, skipped in enumerate([True, True, False, False, True, False]):
        gradients = with_gradients(parameters, step, torch.inf if skipped else 1.0)
        if not skipped:
            reference_step(gradients)
            taken += 1
        optimizer.step_unless(torch.tensor(float(skipped)), None, torch.tensor(float(taken)))
        for parameter, expected in zip(parameters, reference, strict=True):
            torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


ROWS = LARGE + 17
OPTIONS = {"betas": (0.9, 0.99), "eps": 1e-6}


class Reader(nn.Module):
    """A model that looks up rows of one table, with ``tables`` embedding modules that share it."""

    def __init__(self, padding=None, tables=1):
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList(nn.Embedding(ROWS, 5, padding_idx=padding) for _ in range(tables))
        for table in self.tables[1:]:
            table.weight = self.tables[0].weight
        self.linear = nn.Linear(5, 3)

    def forward(self, *ids):
        read = [table(x) for table, x in zip(self.tables, ids, strict=True)]
        return self.linear(torch.cat([x.mean(-2) for x in read])).square().sum()


def batches(steps, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 60 + 40 * n, (4, 7), generator=draw) for n in range(steps)]


def table_groups(model, decay):
    return [{"params": [*model.parameters()], "lr": 0.01, "weight_decay": decay}]


def assert_same_steps(model, steps, decay, *, limit=0.1, flush=True):
    """Train a model with sparse gradients and a copy of it with torch's AdamW, and compare norms and tables.

    Returns:
        The model and the copy.
    """
    reference = copy.deepcopy(model)
    optimizer = AdamW(table_groups(model, decay), **OPTIONS)
    reference_optimizer = torch.optim.AdamW(table_groups(reference, decay), **OPTIONS, fused=True)
    with sparse_gradients(model):
        for ids in steps:
            ids = ids if isinstance(ids, tuple) else (ids,)
            model(*ids).backward()
            norm = total_norm([*model.parameters()])
            clip([*model.parameters()], limit, norm)
            optimizer.step()
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


def test_without_decay_and_clipping_steps_are_bitwise_identical():
    model, reference = assert_same_steps(Reader(), batches(6), 0.0, limit=1e6)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), reference.parameters(), strict=True))


def test_deferred_decay_is_applied_to_rows_that_are_read_late():
    model = Reader()
    weight = model.tables[0].weight
    before = weight.detach().clone()
    early, late = torch.tensor([[1, 2]]), torch.tensor([[5, 6]])
    optimizer = AdamW(table_groups(model, 0.5), **OPTIONS)
    with sparse_gradients(model):
        for _ in range(3):
            model(early).backward()
            optimizer.step()
        assert torch.equal(weight[5], before[5])  # its decay is deferred
        read = model.tables[0](late)
        torch.testing.assert_close(read, before[late] * (1 - 0.01 * 0.5) ** 3)
        with torch.no_grad():  # a lookup without gradient applies the decay too
            torch.testing.assert_close(model.tables[0](torch.tensor([9])), before[[9]] * (1 - 0.01 * 0.5) ** 3)
            optimizer.flush()  # a second flush changes nothing
            torch.testing.assert_close(weight[9], before[9] * (1 - 0.01 * 0.5) ** 3)


def test_a_table_that_is_read_twice_in_a_step():
    one, two = batches(2)
    assert_same_steps(Reader(tables=2), [(one, two), (two + 200, one), (one, one)], 0.5)


def test_a_table_that_is_read_without_a_lookup():
    class WithPenalty(Reader):
        def forward(self, ids):
            return super().forward(ids) + self.tables[0].weight.square().mean()

    assert_same_steps(WithPenalty(), batches(4), 0.5)


def test_cleared_gradients_of_tables_have_no_effect():
    model, ids = Reader(), batches(1)[0]
    before, optimizer = model.tables[0].weight.detach().clone(), AdamW(table_groups(model, 0.5), **OPTIONS)
    with sparse_gradients(model):
        for _ in range(2):
            model(ids).backward()
            norm = total_norm([*model.parameters()])
            clear_gradients(model.parameters())
        assert total_norm([*model.parameters()]) == 0
        optimizer.step()
    assert torch.equal(model.tables[0].weight, before)
    torch.testing.assert_close(norm, nn.utils.get_total_norm(torch.autograd.grad(model(ids), [*model.parameters()])))


def test_small_frozen_and_tied_tables_have_dense_gradients():
    small, frozen, tied = nn.Embedding(LARGE - 1, 3), Reader(), Reader()
    frozen.tables[0].weight.requires_grad_(False)
    tied.linear = nn.Linear(5, ROWS, bias=False)
    tied.linear.weight = tied.tables[0].weight
    for model in (small, frozen, tied):
        with sparse_gradients(model):
            assert not any(
                "forward" in vars(module) or "sparse_gradient" in vars(p)
                for module in model.modules()
                for p in module.parameters()
            )


def test_tables_are_restored_after_an_error():
    model = Reader()
    optimizer = AdamW(table_groups(model, 0.5), **OPTIONS)
    before = model.tables[0].weight[9].detach().clone()
    with pytest.raises(KeyboardInterrupt), sparse_gradients(model):
        model(batches(1)[0] * 0).backward()
        optimizer.step()
        raise KeyboardInterrupt
    torch.testing.assert_close(model.tables[0].weight[9], before * (1 - 0.01 * 0.5))
    assert "sparse_gradient" not in vars(model.tables[0].weight) and "forward" not in vars(model.tables[0])


def test_switched_off_tables_have_dense_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "sparse_gradients")
    model = Reader()
    with sparse_gradients(model):
        assert "sparse_gradient" not in vars(model.tables[0].weight) and "forward" not in vars(model.tables[0])
