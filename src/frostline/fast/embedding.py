"""Tables of embeddings in training on a CPU: a lookup that tells which rows it reads, and hands in gradients of these alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.fast.forwards import forwards_replaced
from frostline.fast.gradients import Table

LARGE = 4096  # rows from which it pays


@contextmanager
def few_rows(model: nn.Module) -> Iterator[None]:
    """While the context is open, steps go through those rows of large trained tables that were read so far, and the others
    wait (:class:`frostline.fast.gradients.Table`). On a GPU nothing changes.

    Lookups see every row as it is to be. Whoever reads the table itself has to do so from the first step on, as what a
    model computes at every step does; a copy is to be made after ``AdamW.settle``.
    """
    lookups = [module for module in large_tables(model).values() if module.weight.requires_grad]
    tables = {weight: Table(weight) for weight in {module.weight for module in lookups}}
    with ExitStack() as stack:
        for table in tables.values():
            stack.callback(table.close)
        stack.enter_context(forwards_replaced({module: _forward(module, tables[module.weight]) for module in lookups}))
        yield


def large_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """Modules by path that look rows up in a large table, whose weight nobody uses who does anything else with it."""
    found = {
        path: module for path, module in model.named_modules() if isinstance(module, nn.Embedding) and _is_plain(module)
    }
    others = {
        id(p) for module in {*model.modules()}.difference(found.values()) for p in module.parameters(recurse=False)
    }
    return {path: module for path, module in found.items() if id(module.weight) not in others}


def _is_plain(module: nn.Embedding) -> bool:
    return (
        type(module) is nn.Embedding
        and len(module.weight) >= LARGE
        and module.weight.device.type == "cpu"
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not module.sparse
    )


def _forward(module: nn.Embedding, table: Table) -> Callable[[Tensor], Tensor]:
    def forward(ids: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            table.settle()
            return F.embedding(ids, module.weight)
        table.meet(ids)
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
