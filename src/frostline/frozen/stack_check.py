"""Check whether several runs of a model can be trained as one stack."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.data.wording import first_line
from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.frozen.exactness import (
    LAYER_ERRORS,
    Difference,
    gradient_difference,
    largest,
    relative_difference,
    restored,
    weighted_sum,
)
from frostline.model.anatomy import Anatomy, Batch, probe_batch
from frostline.model.packing import packable
from frostline.model.stacking import Start, stacked
from frostline.model.tokens import padding_fill

LENGTHS = ((23, 17, 9), (5, 30, 11))  # tokens of the examples of two stacked runs


def stack_refusal(
    model: PreTrainedModel,
    anatomy: Anatomy,
    names: frozenset[str],
    cut: int | None,
    *,
    packed: bool,
    batched: bool,
    head_token: HeadTokenPart | None = None,
    batches: Sequence[Batch] | None = None,
) -> str | None:
    """Why runs that train the parameters ``names`` above a ``cut`` cannot be trained as one stack; None if they can.

    Two runs with different weights and different examples are computed as a stack and one after the other. Their logits
    and gradients must be equal. The model is not changed. ``packed``, ``batched`` and ``head_token`` are those of the training
    (:mod:`frostline.model.stacking`). ``batches``, one for each run, are for a model type that needs more inputs than tokens.
    """
    batches = batches or [probe_batch(model, lengths, seed=run) for run, lengths in enumerate(LENGTHS)]
    separate: list[tuple[Tensor, Sequence[Tensor | None]]] = []  # logits and gradients of each run
    with restored(model), packable(model) if packed else nullcontext() as packing:
        try:
            hidden = [None if cut is None else hidden_states_by_cut(model, anatomy, batch)[cut] for batch in batches]
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name in names)
            trained = {name: p for name, p in model.named_parameters() if name in names}
            with _different_values(trained) as start:
                with cut_at(model, anatomy, cut, packing=packing, head_token=head_token) as upper:
                    for run, batch in enumerate(batches):
                        start(run)
                        torch.manual_seed(0)
                        logits = upper(batch, hidden[run])
                        own = torch.autograd.grad(weighted_sum(logits), list(trained.values()), allow_unused=True)
                        separate.append((logits.detach(), own))
                with (
                    stacked(model, names, len(batches), start, batched=batched) as parameters,
                    cut_at(model, anatomy, cut, packing=packing, runs=len(batches), head_token=head_token) as upper,
                ):
                    torch.manual_seed(0)
                    states = [x for x in hidden if x is not None]
                    joined = upper(_joined(batches, model), torch.cat(states, 1) if states else None)
                    # one row of logits for each example, or one for each real token
                    examples = [len(batch["attention_mask"]) for batch in batches]
                    tokens = [int(batch["attention_mask"].sum()) for batch in batches]
                    parts = torch.split(joined, examples if sum(examples) == len(joined) else tokens)
                    torch.stack([weighted_sum(part) for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
            differences = []
            for (expected, gradients), part, of_run in zip(separate, parts, parameters, strict=True):
                found = [torch.zeros_like(p) if p.grad is None else p.grad for p in of_run.values()]
                pairs = [(x, torch.zeros_like(x) if g is None else g) for x, g in zip(found, gradients, strict=True)]
                differences.append(Difference(relative_difference(part.detach(), expected), gradient_difference(pairs)))
        except LAYER_ERRORS as error:
            return f"Its modules cannot compute the examples of several runs together ({first_line(error)})."
    difference = largest(differences)
    return None if difference.is_small else f"In a stack, {difference}."


@contextmanager
def _different_values(parameters: Mapping[str, nn.Parameter]) -> Iterator[Start]:
    """Gives a function that sets the parameters to different values for each run. On exit, the old values are restored."""
    before = {name: p.detach().clone() for name, p in parameters.items()}

    def start(run: int) -> Mapping[str, nn.Parameter]:
        with torch.no_grad():
            for number, (name, p) in enumerate(parameters.items()):
                generator = torch.Generator(p.device).manual_seed(1000 * run + number)
                p.copy_(before[name] + 0.02 * torch.randn(p.shape, generator=generator, device=p.device))
        return parameters

    try:
        yield start
    finally:
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(before[name])


def _joined(batches: Sequence[Batch], model: PreTrainedModel) -> Batch:
    """One batch with the examples of all ``batches``, padded to the same length."""
    longest = max(batch["input_ids"].shape[1] for batch in batches)
    padding = {"input_ids": padding_fill(model)}

    def padded(name: str, x: Tensor) -> Tensor:
        return F.pad(x, (*[0] * (2 * x.dim() - 4), 0, longest - x.shape[1]), value=padding.get(name, 0))

    return {name: torch.cat([padded(name, batch[name]) for batch in batches]) for name in batches[0]}
