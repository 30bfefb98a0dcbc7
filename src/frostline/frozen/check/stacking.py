"""Whether several runs of the model at hand can be trained as one stack."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.check.comparison import (
    LAYER_ERRORS,
    Difference,
    first_line,
    gradient_difference,
    largest,
    relative_difference,
    uneven_sum,
)
from frostline.frozen.check.restoring import restored
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.model.anatomy import Anatomy, probe_batch
from frostline.model.packing import Packing, packable
from frostline.model.stacking import stacked
from frostline.model.trace import Batch

LENGTHS = ((23, 17, 9), (5, 30, 11))  # tokens of the examples of two stacked runs

Start = Callable[[int], Mapping[str, nn.Parameter]]  # a run's number -> the model's parameters, with that run's values


def stack_refusal(
    model: PreTrainedModel,
    anatomy: Anatomy,
    names: frozenset[str],
    cut: int | None,
    *,
    packed: bool,
    as_one: bool,
    head_token: HeadTokenPart | None = None,
    batches: Sequence[Batch] | None = None,
) -> str | None:
    """Why runs cannot be trained as one stack; None if they can.

    Two runs with weights and examples of their own are computed in a stack and one by one. Their logits and gradients must
    be equal.

    Args:
        model: A classifier of transformers; left as it was.
        anatomy: Its layers.
        names: The parameters that the runs train.
        cut: The number of lower layers that do not run; None runs all.
        packed: Whether batches are packed.
        as_one: How the stack treats the runs' parameters; see :mod:`frostline.model.stacking`.
        head_token: The part of the last layer that runs for the head's token only.
        batches: A batch for each run, of equally many examples, where a type needs more than tokens.
    """
    batches = batches or [probe_batch(model, lengths, seed=run) for run, lengths in enumerate(LENGTHS)]
    with restored(model), packable(model) if packed else nullcontext() as packing:
        comparison = _Comparison(model, anatomy, names, cut, packing, as_one, head_token, batches)
        try:
            difference = comparison.difference()
        except LAYER_ERRORS as error:
            return f"Its modules cannot compute the examples of several runs together ({first_line(error)})."
    return None if difference.is_small else f"In a stack, {difference}."


@dataclass(frozen=True)
class _Comparison:
    """Runs in a stack against the same runs one by one."""

    model: PreTrainedModel
    anatomy: Anatomy
    names: frozenset[str]
    cut: int | None
    packing: Packing | None
    as_one: bool
    head_token: HeadTokenPart | None
    batches: Sequence[Batch]  # one for each run

    def difference(self) -> Difference:
        """The largest relative difference over all runs."""
        hidden = [self._hidden(batch) for batch in self.batches]
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in self.names)
        trained = {name: p for name, p in self.model.named_parameters() if name in self.names}
        with _own_values(trained) as start:
            one_by_one = self._one_by_one(hidden, start, trained)
            together = self._stacked(hidden, start)
        return largest(
            Difference(
                relative_difference(logits, wanted_logits),
                gradient_difference(list(zip(found, _zeros_for_none(wanted, found), strict=True))),
            )
            for (wanted_logits, wanted), (logits, found) in zip(one_by_one, together, strict=True)
        )

    def _hidden(self, batch: Batch) -> Tensor | None:
        return None if self.cut is None else hidden_states_by_cut(self.model, self.anatomy, batch)[self.cut]

    def _one_by_one(
        self, hidden: Sequence[Tensor | None], start: Start, trained: Mapping[str, nn.Parameter]
    ) -> list[tuple[Tensor, Sequence[Tensor | None]]]:
        """Logits and gradients of each run alone."""
        results: list[tuple[Tensor, Sequence[Tensor | None]]] = []
        with cut_at(self.model, self.anatomy, self.cut, packing=self.packing, head_token=self.head_token) as upper:
            for run, batch in enumerate(self.batches):
                start(run)
                torch.manual_seed(0)
                logits = upper(batch, hidden[run])
                gradients = torch.autograd.grad(uneven_sum(logits), list(trained.values()), allow_unused=True)
                results.append((logits.detach(), gradients))
        return results

    def _stacked(self, hidden: Sequence[Tensor | None], start: Start) -> list[tuple[Tensor, list[Tensor]]]:
        """The same from one forward of the stack."""
        runs = len(self.batches)
        with (
            stacked(self.model, self.names, runs, start, as_one=self.as_one) as parameters,
            cut_at(
                self.model, self.anatomy, self.cut, packing=self.packing, runs=runs, head_token=self.head_token
            ) as upper,
        ):
            torch.manual_seed(0)
            states = [x for x in hidden if x is not None]
            logits = upper(_joined(self.batches, self.model), torch.cat(states, 1) if states else None).chunk(runs)
            torch.stack([uneven_sum(part) for part in logits]).sum().backward()  # type: ignore[no-untyped-call]
        return [
            (part.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in of_run.values()])
            for part, of_run in zip(logits, parameters, strict=True)
        ]


def _zeros_for_none(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, like, strict=True)]


@contextmanager
def _own_values(parameters: Mapping[str, nn.Parameter]) -> Iterator[Start]:
    """A function that gives the parameters values of a run's own; they get the old values back on leaving."""
    before = {name: p.detach().clone() for name, p in parameters.items()}

    def start(run: int) -> Mapping[str, nn.Parameter]:
        generator = torch.Generator().manual_seed(run)
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(before[name] + 0.02 * torch.randn(p.shape, generator=generator).to(p.device))
        return parameters

    try:
        yield start
    finally:
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(before[name])


def _joined(batches: Sequence[Batch], model: PreTrainedModel) -> Batch:
    """The examples of several batches in one."""
    longest = max(batch["input_ids"].shape[1] for batch in batches)
    padding = {"input_ids": model.config.get_text_config().pad_token_id or 0}

    def padded(name: str, x: Tensor) -> Tensor:
        return F.pad(x, (*[0] * (2 * x.dim() - 4), 0, longest - x.shape[1]), value=padding.get(name, 0))

    return {name: torch.cat([padded(name, batch[name]) for batch in batches]) for name in batches[0]}
