"""How much memory of a GPU the copies of hidden states may take while a stack trains."""

from collections.abc import Sequence

import torch

from frostline.model.memory import memory_limit
from frostline.sweep.prepare import Prepared
from frostline.sweep.work.workload import Workload
from frostline.training.specification import RunSpec


def limit_copies(stack: Sequence[RunSpec], prepared: Prepared) -> None:
    """Limit the copies to what the training of this stack leaves free. Only CUDA GPUs have copies."""
    context = prepared.context
    device = context.machine.device
    if device.type == "cuda":
        context.copies.keep_within(memory_limit(device) - int(_needed(stack, prepared)))


def _needed(stack: Sequence[RunSpec], prepared: Prepared) -> float:
    """Bytes that the device needs without copies: as forecast, or else an upper bound."""
    spec, forecast, context = stack[0], prepared.plan.forecast, prepared.context
    for cell in forecast.cells if forecast else ():
        if (cell.trainable, cell.train_size) == (spec.trainable, spec.train_size) and len(stack) <= cell.stack:
            return cell.memory_bytes
    in_use = torch.cuda.memory_allocated(context.machine.device) - context.copies.bytes
    return in_use + len(stack) * Workload(context, prepared.plan.cached).memory_bound(spec)
