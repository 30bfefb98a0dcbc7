"""Tables of embeddings in training on a CPU: a lookup that tells which rows it reads, and hands in gradients of these alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.gradients import Table
from frostline.machine import Machine
from frostline.replacing import forwards_replaced

LARGE = 4096  # rows from which it pays


@contextmanager
def few_rows(model: nn.Module, machine: Machine) -> Iterator[None]:
    """While the context is open, steps go through those rows of large trained tables that were read so far, and the others
    wait (:class:`frostline.gradients.Table`). On a GPU nothing changes."""
    lookups = [module for module in model.modules() if isinstance(module, nn.Embedding) and _is_plain(module)]
    others = {id(p) for module in {*model.modules()}.difference(lookups) for p in module.parameters(recurse=False)}
    trained = [
        module
        for module in lookups
        if machine.device.type == "cpu" and module.weight.requires_grad and id(module.weight) not in others
    ]
    tables = {weight: Table(weight) for weight in {module.weight for module in trained}}
    with forwards_replaced({module: _forward(module, tables[module.weight]) for module in trained}):
        try:
            yield
        finally:
            for table in tables.values():
                table.close()


def _is_plain(module: nn.Embedding) -> bool:
    return (
        type(module) is nn.Embedding
        and len(module.weight) >= LARGE
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not module.sparse
    )


def _forward(module: nn.Embedding, table: Table) -> Callable[[Tensor], Tensor]:
    def forward(ids: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return F.embedding(ids, module.weight)
        table.reads(ids)
        return _Lookup.apply(module.weight, ids, table, module.padding_idx)  # type: ignore[no-any-return, no-untyped-call]

    return forward


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, table: Table, padding: int | None) -> Tensor:
        ctx.ids, ctx.table, ctx.padding = ids, table, padding
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.table.add(ctx.ids, gradients[0], ctx.padding)
        return None, None, None, None
