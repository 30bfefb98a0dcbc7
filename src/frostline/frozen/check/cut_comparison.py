"""Compare the cut model with the uncut model on one batch, for one k after another.

The reference is the uncut model with padded batches. The cut model must match it in three comparisons:

1. with hidden states of the same batch;
2. with hidden states that a forward pass computed, wrote to disk and read back, as a sweep does;
3. with NaN in the weights below the cut and a wrong input to the first layer. The model can then use only the hidden
   states.

The comparisons run first with packed batches, and with padded ones if packed batches differ. For each of the two, the last
layer first runs for the head's token only, and then for all tokens if that differs.

Replace the weights below a cut by NaN. If any result depends on them, it becomes NaN.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.data.wording import first_line
from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.batches import tokens_per_batch
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.cache.loading import CacheKey, load_or_compute
from frostline.frozen.check.batches import last_example_alone, table_of
from frostline.frozen.check.differences import (
    LAYER_ERRORS,
    NOT_COMPARED,
    TOLERANCE,
    Difference,
    gradient_difference,
    largest,
    relative_difference,
    weighted_sum,
)
from frostline.frozen.check.head_token import find_head_reads, find_head_token_part
from frostline.frozen.cut import UpperModel, cut_at, hidden_states_by_cut
from frostline.frozen.forward_pass import ForwardPass, embeddings_are_lookups
from frostline.frozen.selection import selection_for
from frostline.model.anatomy import Anatomy
from frostline.model.outputs import real_logits
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.model.packing import is_packable, packable
from frostline.model.places import EMBEDDINGS
from frostline.model.tokens import Tokens
from frostline.model.trace import Batch
from frostline.model.vocabulary import vocabulary_tables
from frostline.statistics.recipe import Recipe


def weights_below(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> dict[str, nn.Parameter]:
    """The parameters of the layers below the cut and the embedding tables of the vocabulary, by name."""
    tables = {f"{path}.weight" for path in vocabulary_tables(model)}
    lower = tuple(f"{anatomy.path}.{number}." for number in range(cut))
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith(lower) or (name in tables and anatomy.places[name] == EMBEDDINGS)
    }


@contextmanager
def replaced_by_nan(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """While the context is open, every element of these parameters is NaN. Nothing is copied."""
    before = {parameter: parameter.data for parameter in parameters}
    for parameter, data in before.items():
        parameter.data = torch.full((), torch.nan, dtype=data.dtype, device=data.device).expand(data.shape)
    try:
        yield
    finally:
        for parameter, data in before.items():
            parameter.data = data


# The layers of a model run on packed, skipped and stacked inputs. If one of them raises an error, the model is refused.


@dataclass(frozen=True)
class Check:
    """The result of the check for one k: the differences from the uncut model, or why the model cannot be cut.

    Attributes:
        tuned_layers: k. None if the model cannot be cut for any k.
        batches: ``packed`` if packed batches pass the check, else ``padded``; None if the model is refused.
        max_logit_difference: The largest difference of the logits, relative to the largest logit.
        max_gradient_difference: The largest difference of the gradients, relative to the largest gradient.
        refused: Why the model cannot be cut for this k; None if it can.
        head_token: The part of the last layer that can run for the head's token only.
    """

    tuned_layers: Recipe | None
    batches: str | None
    max_logit_difference: float | None
    max_gradient_difference: float | None
    refused: str | None = None
    head_token: HeadTokenPart | None = None


class CutComparison:
    """Compares the cut model with the uncut model on one batch."""

    def __init__(self, model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> None:
        self.model, self.anatomy, self.batch = model, anatomy, batch
        self.head_reads = find_head_reads(model, anatomy, batch)
        self.head_token = find_head_token_part(model, anatomy, batch, self.head_reads)
        self.hidden = hidden_states_by_cut(model, anatomy, batch)
        self.cut: int | None = None
        self.trained: dict[str, nn.Parameter] = {}

    def check(self, k: Recipe, names: frozenset[str]) -> Check:
        """Check the cut for k. ``names`` are the trained parameters; none of them may be below the last k layers."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)
        self.trained = {name: p for name, p in self.model.named_parameters() if name in names}
        mask = self.batch["attention_mask"]
        self.reference = self.results(lambda: real_logits(self.model(**self.batch).logits, mask))
        # With k = L nothing is cut: the output of the embeddings is not cached, because it is cheap to compute.
        self.cut = self.anatomy.count - k.k if k.k is not None and k.k < self.anatomy.count else None
        for batches, head_token in product(("packed", "padded"), dict.fromkeys((self.head_token, None))):
            failure = None
            try:
                difference = self.compare(batches, head_token)
            except LAYER_ERRORS as error:
                failure = first_line(error)
            else:
                if difference.is_small:
                    return Check(k, batches, *difference, head_token=head_token)
        if failure:
            reason = f"Layers above the cut need more from the layers below than hidden states and fail ({failure})."
            return Check(k, None, None, None, reason)
        return Check(k, None, *difference, refused=self.reason(difference))

    def compare(self, batches: str, head_token: HeadTokenPart | None) -> Difference:
        """The largest difference in the three comparisons; infinite if the layers cannot run packed batches."""
        packed = batches == "packed"
        if packed and not is_packable(self.model):
            return NOT_COMPARED
        with ExitStack() as opened:
            cached = (
                None if self.cut is None else opened.enter_context(self.cached(self.cut, head_token, packed=packed))
            )
            packing = opened.enter_context(packable(self.model)) if packed else None
            upper = opened.enter_context(
                cut_at(self.model, self.anatomy, self.cut, packing=packing, head_token=head_token)
            )
            hidden = None if self.cut is None else self.hidden[self.cut]
            differences = [self.difference(lambda: upper(self.batch, hidden))]
            if self.cut is not None and cached is not None:
                differences.append(self.difference(lambda: self.from_cache(upper, *cached)))
                with _wrong_below(self.model, self.anatomy, self.cut):
                    differences.append(self.difference(lambda: upper(self.batch, hidden)))
            if packing and not packing.calls and self.cut != self.anatomy.count:
                return NOT_COMPARED
        return largest(differences)

    def results(self, forward: Callable[[], Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Logits and the gradients of the trained parameters."""
        torch.manual_seed(0)  # some model types draw random numbers even in eval mode
        logits = forward()
        found = torch.autograd.grad(weighted_sum(logits), list(self.trained.values()), allow_unused=True)
        gradients = [torch.zeros(()) if gradient is None else gradient for gradient in found]
        return logits.detach(), dict(zip(self.trained, gradients, strict=True))

    def difference(self, forward: Callable[[], Tensor]) -> Difference:
        """The differences of logits and gradients from the reference."""
        logits, gradients = self.results(forward)
        expected_logits, expected = self.reference
        pairs = [(gradients[name], gradient) for name, gradient in expected.items()]
        return Difference(relative_difference(logits, expected_logits), gradient_difference(pairs))

    @contextmanager
    def cached(
        self, cut: int, head_token: HeadTokenPart | None, *, packed: bool
    ) -> Iterator[tuple[HiddenStates, Tokens]]:
        """The hidden states of the batch as a sweep caches them: computed by a forward pass, written to disk, read back."""
        tokens = table_of(self.batch, self.model)
        selection = selection_for((cut,), self.anatomy, self.head_reads)
        recipe = CacheKey("check", "", "", "", "", 0, "", "", "", head_reads=self.head_reads)
        packed = packed and embeddings_are_lookups(self.model, self.anatomy)
        enough = 2 * int((tokens.lengths + LENGTH_MULTIPLE).sum())  # a larger batch would only hold more copies
        forward_pass = ForwardPass(
            self.model,
            self.anatomy,
            selection,
            self.head_reads,
            packed,
            head_token=head_token,
            max_tokens=min(enough, tokens_per_batch(self.model.device, self.anatomy)),
        )
        with tempfile.TemporaryDirectory(prefix="frostline-check-") as folder:
            yield load_or_compute(forward_pass, tokens, np.arange(len(tokens)), recipe, folder=Path(folder)), tokens

    def from_cache(self, upper: UpperModel, states: HiddenStates, tokens: Tokens) -> Tensor:
        """Logits from cached hidden states, read as in a run."""
        assert self.cut is not None
        rows, device = np.arange(len(tokens)), self.batch["input_ids"].device
        if states.selection.head:
            one_token = tokens.one_token(rows, last=self.head_reads == "last")
            return upper({name: x.to(device) for name, x in one_token.items()}, states.head(rows).to(device))
        return upper(self.batch, states.tokens(self.cut, rows).to(device))

    def reason(self, difference: Difference) -> str:
        """Why the cut model differs from the uncut one: because of padding, or for an unknown reason."""
        with torch.no_grad():
            last = last_example_alone(self.batch)
            alone = real_logits(self.model(**last).logits, last["attention_mask"])
        by_padding = relative_difference(alone, self.reference[0][-len(alone) :])
        if not by_padding < TOLERANCE:
            return f"Its output for an example depends on the padding in the batch (by {by_padding:.1e}); {difference}."
        return f"Something other than the hidden states passes from below the cut to the logits; {difference}."


@contextmanager
def _wrong_below(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> Iterator[None]:
    """While the context is open, all weights below the cut are NaN and the first layer gets a wrong input."""
    call = anatomy.calls[0]

    def change_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        given[call.hidden] = 7.0 - given[call.hidden]
        return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

    hook = anatomy.layers(model)[0].register_forward_pre_hook(change_input, with_kwargs=True)
    try:
        with replaced_by_nan(weights_below(model, anatomy, cut).values()):
            yield
    finally:
        hook.remove()
