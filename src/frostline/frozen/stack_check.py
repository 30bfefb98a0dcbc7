"""Check whether several runs of a model can be trained as one stack."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

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
from frostline.model.packing import Packing, packable
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
    """Why runs cannot be trained as one stack; None if they can.

    Two runs with different weights and different examples are computed as a stack and one after the other. Their logits
    and gradients must be equal.

    Args:
        model: A classifier of transformers. It is not changed.
        anatomy: Its layers.
        names: The parameters that the runs train.
        cut: The number of lower layers that do not run; None runs all.
        packed: Whether batches are packed.
        batched: How the stack treats the runs' parameters; see :mod:`frostline.model.stacking`.
        head_token: The part of the last layer that runs for the head's token only.
        batches: One batch for each run, all with the same number of examples, for a model type that needs more inputs than
            tokens.
    """
    batches = batches or [probe_batch(model, lengths, seed=run) for run, lengths in enumerate(LENGTHS)]
    with restored(model), packable(model) if packed else nullcontext() as packing:
        comparison = _StackComparison(model, anatomy, names, cut, packing, batched, head_token, batches)
        try:
            difference = comparison.difference()
        except LAYER_ERRORS as error:
            return f"Its modules cannot compute the examples of several runs together ({first_line(error)})."
    return None if difference.is_small else f"In a stack, {difference}."


@dataclass(frozen=True)
class _StackComparison:
    """Compares runs in a stack with the same runs one after the other."""

    model: PreTrainedModel
    anatomy: Anatomy
    names: frozenset[str]
    cut: int | None
    packing: Packing | None
    batched: bool
    head_token: HeadTokenPart | None
    batches: Sequence[Batch]  # one for each run

    def difference(self) -> Difference:
        """The largest relative difference over all runs."""
        hidden = [self._hidden(batch) for batch in self.batches]
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in self.names)
        trained = {name: p for name, p in self.model.named_parameters() if name in self.names}
        with _different_values(trained) as start:
            separate = self._separate(hidden, start, trained)
            stacked_results = self._stacked(hidden, start)
        return largest(
            Difference(
                relative_difference(logits, expected_logits),
                gradient_difference(list(zip(actual, _zeros_for_none(expected, actual), strict=True))),
            )
            for (expected_logits, expected), (logits, actual) in zip(separate, stacked_results, strict=True)
        )

    def _hidden(self, batch: Batch) -> Tensor | None:
        return None if self.cut is None else hidden_states_by_cut(self.model, self.anatomy, batch)[self.cut]

    def _separate(
        self, hidden: Sequence[Tensor | None], start: Start, trained: Mapping[str, nn.Parameter]
    ) -> list[tuple[Tensor, Sequence[Tensor | None]]]:
        """Logits and gradients of each run, computed separately."""
        results: list[tuple[Tensor, Sequence[Tensor | None]]] = []
        with cut_at(self.model, self.anatomy, self.cut, packing=self.packing, head_token=self.head_token) as upper:
            for run, batch in enumerate(self.batches):
                start(run)
                torch.manual_seed(0)
                logits = upper(batch, hidden[run])
                gradients = torch.autograd.grad(weighted_sum(logits), list(trained.values()), allow_unused=True)
                results.append((logits.detach(), gradients))
        return results

    def _stacked(self, hidden: Sequence[Tensor | None], start: Start) -> list[tuple[Tensor, list[Tensor]]]:
        """Logits and gradients of each run, from one forward pass of the stack."""
        runs = len(self.batches)
        with (
            stacked(self.model, self.names, runs, start, batched=self.batched) as parameters,
            cut_at(
                self.model, self.anatomy, self.cut, packing=self.packing, runs=runs, head_token=self.head_token
            ) as upper,
        ):
            torch.manual_seed(0)
            states = [x for x in hidden if x is not None]
            joined = upper(_joined(self.batches, self.model), torch.cat(states, 1) if states else None)
            logits = torch.split(joined, self._outputs(len(joined)))
            torch.stack([weighted_sum(part) for part in logits]).sum().backward()  # type: ignore[no-untyped-call]
        return [
            (part.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in of_run.values()])
            for part, of_run in zip(logits, parameters, strict=True)
        ]

    def _outputs(self, total: int) -> list[int]:
        """How many of the ``total`` rows of logits each run has: one for each example, or one for each real token."""
        examples = [len(batch["attention_mask"]) for batch in self.batches]
        tokens = [int(batch["attention_mask"].sum()) for batch in self.batches]
        return examples if sum(examples) == total else tokens


def _zeros_for_none(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, like, strict=True)]


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
