"""Find the token that the classifier head reads, and the modules of the last layer that can run for that token only.

Both follow from the gradients of the logits, so the code knows no architecture by name.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart, head_position
from frostline.fast.switch import enabled
from frostline.frozen.check.differences import LAYER_ERRORS, weighted_sum
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.model.anatomy import Anatomy
from frostline.model.trace import Batch
from frostline.model.with_head import padding_id


def find_head_reads(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> str:
    """Which tokens' hidden states after the last layer the logits depend on: ``first``, ``last`` or ``all``."""
    lengths = batch["attention_mask"].sum(1)
    model.eval()
    hidden = hidden_states_by_cut(model, anatomy, batch)[anatomy.count].requires_grad_()
    with cut_at(model, anatomy, anatomy.count) as upper, torch.enable_grad():
        (gradient,) = torch.autograd.grad(weighted_sum(upper(batch, hidden)), hidden)
    read = set(gradient[0].abs().sum(1).nonzero()[:, 0].tolist())
    ends = lengths.cumsum(0)
    for name, positions in (("first", ends - lengths), ("last", ends - 1)):
        if read <= set(positions.tolist()):
            return name
    return "all"


def find_head_token_part(
    model: PreTrainedModel, anatomy: Anatomy, batch: Batch, head_reads: str
) -> HeadTokenPart | None:
    """The modules of the last layer that can run for the head's token only; None if there are none.

    A module can, if the gradient of the logits is zero at all other tokens, for each of its inputs and for its output.
    """
    if head_reads == "all" or not enabled("last_layer"):
        return None
    pad = padding_id(model)
    mask = batch["attention_mask"].bool()
    read = torch.zeros_like(mask)
    read[torch.arange(len(mask), device=mask.device), head_position(head_reads, batch["input_ids"], mask, pad)] = True
    layer = anatomy.layers(model)[-1]
    model.eval()
    hidden = hidden_states_by_cut(model, anatomy, batch)[anatomy.count - 1].requires_grad_()
    with (
        cut_at(model, anatomy, anatomy.count - 1) as upper,
        _recorded(layer, mask.shape) as record,
        torch.enable_grad(),
    ):
        try:
            logits = upper(batch, hidden)
        except LAYER_ERRORS:
            return None  # the last layer fails without the layers below; the check of k = 1 reports the reason
    tensors = [x for of_module in record.values() for x in of_module]
    if not tensors:
        return None
    found = iter(torch.autograd.grad(weighted_sum(logits), tensors, allow_unused=True))
    gradients = {path: [next(found) for _ in of_module] for path, of_module in record.items()}
    narrow = [path for path, of_module in gradients.items() if all(g is None or not g[~read].any() for g in of_module)]
    outermost = tuple(path for path in narrow if not any(path.startswith(f"{other}.") for other in narrow))
    return HeadTokenPart(head_reads, outermost, pad) if outermost else None


@contextmanager
def _recorded(layer: nn.Module, grid: torch.Size) -> Iterator[dict[str, list[Tensor]]]:
    """Record inputs and output of each module in ``layer`` that runs once and maps vectors per token to vectors per token."""
    record: dict[str, list[Tensor]] = {}
    unsuitable: set[str] = set()

    def per_token(x: Any) -> bool:
        return isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 2 and x.shape[:2] == grid

    def hooks_for(path: str) -> tuple[Any, Any]:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if path in record or not all(per_token(x) for x in (*args, *kwargs.values())):
                unsuitable.add(path)
                return None
            # copies, because other modules may read the same tensor and would add to its gradient
            copies = {id(x): x.clone() for x in (*args, *kwargs.values())}
            record[path] = [x for x in copies.values() if x.requires_grad]
            return tuple(copies[id(x)] for x in args), {name: copies[id(x)] for name, x in kwargs.items()}

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
            if path in unsuitable or not per_token(out) or not out.requires_grad:
                unsuitable.add(path)
                return None
            record[path].append(out := out.clone())
            return out

        return before, after

    with ExitStack() as hooks:
        for path, module in layer.named_modules():
            if path:
                before, after = hooks_for(path)
                hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield record
    for path in unsuitable:
        record.pop(path, None)
