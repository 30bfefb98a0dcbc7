"""Large tables of which few rows are read, against torch's own embeddings and AdamW, which goes through all."""

import copy

import pytest
import torch
from torch import nn

from frostline.fast.optimizer import AdamW, clear_gradients, clip, total_norm
from frostline.fast.sparse_gradients import LARGE, sparse_gradients

ROWS = LARGE + 17
HOW = {"betas": (0.9, 0.99), "eps": 1e-6}


class Reader(nn.Module):
    """Reads one table as often as it is told."""

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


def groups(model, decay):
    return [{"params": [*model.parameters()], "lr": 0.01, "weight_decay": decay}]


def assert_taught_alike(model, steps, decay, *, limit=0.1, settled=True):
    """With tables as few rows of large ones; and a copy of it with torch's own, after the same steps."""
    other = copy.deepcopy(model)
    mine, theirs = AdamW(groups(model, decay), **HOW), torch.optim.AdamW(groups(other, decay), **HOW, fused=True)
    with sparse_gradients(model):
        for ids in steps:
            ids = ids if isinstance(ids, tuple) else (ids,)
            model(*ids).backward()
            norm = total_norm([*model.parameters()])
            clip([*model.parameters()], limit, norm)
            mine.step()
            other(*ids).backward()
            torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(other.parameters(), limit))
            theirs.step()
            theirs.zero_grad()
        if settled:
            mine.flush()
            torch.testing.assert_close(model.tables[0].weight, other.tables[0].weight, rtol=1e-5, atol=1e-6)
    return model, other


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("settled", [True, False])
def test_steps_are_those_of_the_whole_table(padding, decay, settled):
    started = Reader(padding)
    before = started.tables[0].weight.detach().clone()
    mine, theirs = assert_taught_alike(started, batches(6), decay, settled=settled)
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    unread = torch.arange(ROWS) >= 260
    after = mine.tables[0].weight
    torch.testing.assert_close(after[unread], before[unread] * (1 - 0.01 * decay) ** 6)
    assert not torch.equal(after[~unread], before[~unread] * (1 - 0.01 * decay) ** 6)


def test_without_decay_and_clipping_it_is_equal_to_the_last_bit():
    mine, theirs = assert_taught_alike(Reader(), batches(6), 0.0, limit=1e6)
    assert all(torch.equal(one, other) for one, other in zip(mine.parameters(), theirs.parameters(), strict=True))


def test_rows_that_are_read_late_have_had_their_decay():
    model = Reader()
    weight = model.tables[0].weight
    before = weight.detach().clone()
    early, late = torch.tensor([[1, 2]]), torch.tensor([[5, 6]])
    optimizer = AdamW(groups(model, 0.5), **HOW)
    with sparse_gradients(model):
        for _ in range(3):
            model(early).backward()
            optimizer.step()
        assert torch.equal(weight[5], before[5])  # it waits
        read = model.tables[0](late)
        torch.testing.assert_close(read, before[late] * (1 - 0.01 * 0.5) ** 3)
        with torch.no_grad():  # by a lookup alone
            torch.testing.assert_close(model.tables[0](torch.tensor([9])), before[[9]] * (1 - 0.01 * 0.5) ** 3)
            optimizer.flush()  # once more does nothing
            torch.testing.assert_close(weight[9], before[9] * (1 - 0.01 * 0.5) ** 3)


def test_a_table_that_is_read_twice_in_a_step():
    one, two = batches(2)
    assert_taught_alike(Reader(tables=2), [(one, two), (two + 200, one), (one, one)], 0.5)


def test_a_table_that_somebody_reads_as_a_whole():
    class Whole(Reader):
        def forward(self, ids):
            return super().forward(ids) + self.tables[0].weight.square().mean()

    assert_taught_alike(Whole(), batches(4), 0.5)


def test_what_is_dropped_leaves_no_trace():
    model, ids = Reader(), batches(1)[0]
    before, optimizer = model.tables[0].weight.detach().clone(), AdamW(groups(model, 0.5), **HOW)
    with sparse_gradients(model):
        for _ in range(2):
            model(ids).backward()
            norm = total_norm([*model.parameters()])
            clear_gradients(model.parameters())
        assert total_norm([*model.parameters()]) == 0
        optimizer.step()
    assert torch.equal(model.tables[0].weight, before)
    torch.testing.assert_close(norm, nn.utils.get_total_norm(torch.autograd.grad(model(ids), [*model.parameters()])))


def test_small_tables_frozen_ones_and_those_of_others_are_left_alone():
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


def test_it_is_closed_when_something_goes_wrong():
    model = Reader()
    optimizer = AdamW(groups(model, 0.5), **HOW)
    before = model.tables[0].weight[9].detach().clone()
    with pytest.raises(KeyboardInterrupt), sparse_gradients(model):
        model(batches(1)[0] * 0).backward()
        optimizer.step()
        raise KeyboardInterrupt
    torch.testing.assert_close(model.tables[0].weight[9], before * (1 - 0.01 * 0.5))
    assert "sparse_gradient" not in vars(model.tables[0].weight) and "forward" not in vars(model.tables[0])


def test_switched_off_no_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "sparse_gradients")
    model = Reader()
    with sparse_gradients(model):
        assert "sparse_gradient" not in vars(model.tables[0].weight) and "forward" not in vars(model.tables[0])
