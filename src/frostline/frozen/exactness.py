"""The exactness checks: the cut model computes the same logits and gradients as the uncut model for every k, and so do stacks.

The reference is the uncut model with padded batches. That it is the one which transformers loads is checked by
:func:`difference_from_transformers`. The cut model must match it in three comparisons:

1. with hidden states of the same batch;
2. with hidden states that a forward pass computed, wrote to disk and read back, as a sweep does;
3. with NaN in the weights below the cut and a wrong input to the first layer. The model can then use only the hidden
   states.

The comparisons run first with packed batches, and with padded ones if packed batches differ. For each of the two, the last
layer first runs for the head's token only, and then for all tokens if that differs. Which token the head reads, and which
modules of the last layer can run for it alone, follows from the gradients of the logits.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from frostline import FrostlineError
from frostline.data.wording import first_line
from frostline.fast.last_layer import HeadTokenPart, head_position
from frostline.fast.switch import enabled
from frostline.frozen.cut import UpperModel, cut_at, hidden_states_by_cut, joint_products
from frostline.frozen.forward_pass import (
    ForwardPass,
    StateSelection,
    embeddings_are_lookups,
    selection_for,
    tokens_per_batch,
)
from frostline.frozen.hidden_states import HiddenStates, computed_states
from frostline.model.anatomy import LONGEST, Anatomy, Batch, find_layers, module_of, position_limit, probe_batch
from frostline.model.device import random_state_restored
from frostline.model.heads import Head, padding_id, real_logits
from frostline.model.model_files import quiet_loading, runs_own_code
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.model.packing import is_packable, packable
from frostline.model.pretrained import Pretrained
from frostline.model.stacking import Start, stacked
from frostline.model.terms import EMBEDDINGS, HEAD
from frostline.model.tokens import TYPES, Tokens, encode, padding_fill, suited, vocabulary_tables
from frostline.model.ways import Way
from frostline.model.weights import unread
from frostline.statistics.recipe import FULL, Recipe


@contextmanager
def restored(model: PreTrainedModel) -> Iterator[None]:
    """Set the model to eval mode. On exit, restore training modes, ``requires_grad`` and torch's random state."""
    modes = {module: module.training for module in model.modules()}
    requires_grad = {parameter: parameter.requires_grad for parameter in model.parameters()}
    model.eval()
    try:
        with random_state_restored(model.device):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, required in requires_grad.items():
            parameter.requires_grad_(required)


TOLERANCE = 1e-5  # relative, fp32

# The layers of a model run on packed, skipped and stacked inputs. If one of them raises an error, the model is refused.
LAYER_ERRORS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError)


Results = tuple[Tensor, Sequence[Tensor]]  # logits, and the gradient of each trained parameter


def results_of(forward: Callable[[], Tensor], trained: Sequence[nn.Parameter]) -> Results:
    """The logits that ``forward`` computes, and the gradients of these parameters."""
    torch.manual_seed(0)  # some model types draw random numbers even in eval mode
    logits = forward()
    found = torch.autograd.grad(weighted_sum(logits), trained, allow_unused=True)
    gradients = [p.new_zeros(()) if gradient is None else gradient for p, gradient in zip(trained, found, strict=True)]
    return logits.detach(), gradients


def differences(actual: Results, expected: Results) -> Tensor:
    """``[2]``: the largest difference of the logits and that of all gradients together. NaN if a result is NaN.

    Each is divided by the largest absolute value that is expected; that of gradients is absolute if all of these are zero.
    """
    pairs = list(zip(actual[1], expected[1], strict=True))
    worst = torch.stack([(one - other).abs().max() for one, other in pairs]).max()
    scale = torch.stack([other.abs().max() for _, other in pairs]).max()
    return torch.tensor([relative_difference(actual[0], expected[0]), float(worst / scale if scale else worst)])


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference of two tensors, divided by the largest absolute value of ``expected``."""
    return float((actual - expected).abs().max() / expected.abs().max())


def weighted_sum(logits: Tensor) -> Tensor:
    """A sum with fixed weights, different for every logit, so that swapped logits change the gradients."""
    weights = torch.linspace(0.5, 1.5, logits.numel(), device=logits.device).view_as(logits)
    return (logits * weights).sum()


def _in_words(found: Tensor) -> str:
    return f"logits differ by {found[0]:.1e} and gradients by {found[1]:.1e}, relative to the largest value"


LENGTHS = (40, 31, 7, 22)  # tokens of each example; check_lengths makes the first longer than a sliding window
MAX_LENGTH = 600  # tokens of one example


def check_lengths(model: PreTrainedModel) -> Sequence[int]:
    """Lengths of the examples in tokens, all different.

    The first example is longer than every sliding window, unless the model accepts no input that long.
    """
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "window_size")]
    window = max((w for w in windows if isinstance(w, int)), default=0)
    longest = min(max(LENGTHS[0], window + 8), position_limit(model) or LONGEST, MAX_LENGTH)
    return (longest, *(n for n in LENGTHS[1:] if n < longest))


def last_example_alone(batch: Batch) -> dict[str, Tensor]:
    """A batch with only the last example, without padding."""
    length = int(batch["attention_mask"][-1].sum())
    return {name: x[-1:, :length] if x.dim() >= 2 else x[-1:] for name, x in batch.items()}


def table_of(batch: Batch, model: PreTrainedModel) -> Tokens:
    """The examples of a batch as a token table, without padding."""
    mask = batch["attention_mask"].bool().cpu()
    inputs = {
        name: x.cpu()[mask].numpy().astype(np.int32)
        for name, x in batch.items()
        if x.shape[:2] == mask.shape and name != "attention_mask"
    }
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    padding = {"input_ids": padding_fill(model)}
    return Tokens(inputs, offsets, padding, np.zeros(len(mask), np.int32))


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


def find_last_linear(model: PreTrainedModel, anatomy: Anatomy) -> str | None:
    """The path of the linear module of the head whose outputs become the logits; None if the head does not end in one.

    The model may take the outputs of one token, or their mean: twice the outputs plus 1 then are twice the logits plus 1.
    """
    paths = {module_of(name): None for name, place in anatomy.places.items() if place == HEAD}
    linear = {path: one for path in paths if isinstance(one := model.get_submodule(path), nn.Linear)}
    found = [path for path, one in linear.items() if one.out_features == model.config.num_labels]
    if isinstance(getattr(model, "head", None), Head):
        return found[-1]
    batch = probe_batch(model)
    shape = 1, int(batch["attention_mask"].sum()), anatomy.width
    hidden = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(model.device, model.dtype)
    with restored(model), torch.no_grad(), cut_at(model, anatomy, anatomy.count) as upper:
        logits = upper(batch, hidden)
        for path in reversed(found):
            hook = linear[path].register_forward_hook(lambda module, args, out: 2 * out + 1)
            try:
                difference = relative_difference(upper(batch, hidden), 2 * logits + 1)
            finally:
                hook.remove()
            if difference < TOLERANCE:
                return path
    return None


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


@contextmanager
def wrong_below(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> Iterator[None]:
    """While the context is open, all weights below the cut are NaN and the first layer gets a wrong input.

    These weights are those of the layers below, and the embedding tables of the vocabulary. None is copied.
    """
    call = anatomy.calls[0]
    tables = {f"{path}.weight" for path in vocabulary_tables(model)}
    lower = tuple(f"{anatomy.path}.{number}." for number in range(cut))
    before = {
        parameter: parameter.data
        for name, parameter in model.named_parameters()
        if name.startswith(lower) or (name in tables and anatomy.places[name] == EMBEDDINGS)
    }

    def change_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        given[call.hidden] = 7.0 - given[call.hidden]
        return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

    hook = anatomy.layers(model)[0].register_forward_pre_hook(change_input, with_kwargs=True)
    try:
        for parameter, data in before.items():
            parameter.data = unread(data.shape, data.device, data.dtype)
        yield
    finally:
        hook.remove()
        for parameter, data in before.items():
            parameter.data = data


@dataclass(frozen=True)
class Check:
    """The result of the check for one k: the differences from the uncut model, or why the model cannot be cut.

    Attributes:
        recipe: What was trained, such as ``last 2``. None if the model cannot be cut for any k.
        batches: ``packed`` if packed batches pass the check, else ``padded``; None if the model is refused.
        max_logit_difference: The largest difference of the logits, relative to the largest logit.
        max_gradient_difference: The largest difference of the gradients, relative to the largest gradient.
        refused: Why the model cannot be cut for this k; None if it can.
        head_token: The part of the last layer that can run for the head's token only.
    """

    recipe: Recipe | None
    batches: str | None = None
    max_logit_difference: float | None = None
    max_gradient_difference: float | None = None
    refused: str | None = None
    head_token: HeadTokenPart | None = None


class CutComparison:
    """Compares the cut model with the uncut model on one batch."""

    def __init__(self, model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> None:
        self.model, self.anatomy, self.batch = model, anatomy, batch
        self.head_reads = find_head_reads(model, anatomy, batch)
        self.head_token = find_head_token_part(model, anatomy, batch, self.head_reads)
        self.hidden = hidden_states_by_cut(model, anatomy, batch)

    def check(self, k: Recipe, names: frozenset[str]) -> Check:
        """Check the cut for k. ``names`` are the trained parameters; none of them may be below the last k layers."""
        trained = only_trained(self.model, names)
        mask = self.batch["attention_mask"]
        reference = results_of(lambda: real_logits(self.model(**self.batch).logits, mask), trained)
        # With k = L nothing is cut: the output of the embeddings is not cached, because it is cheap to compute.
        cut = self.anatomy.count - k.k if k.k is not None and k.k < self.anatomy.count else None

        def difference(forward: Callable[[], Tensor]) -> Tensor:
            return differences(results_of(forward, trained), reference)

        failure, found = "", torch.full((2,), torch.inf)
        for batches, head_token in product(("packed", "padded"), dict.fromkeys((self.head_token, None))):
            try:
                found, failure = self.compare(cut, difference, head_token, packed=batches == "packed"), ""
            except LAYER_ERRORS as error:
                failure = first_line(error)
            else:
                if (found < TOLERANCE).all():
                    return Check(k, batches, float(found[0]), float(found[1]), head_token=head_token)
        if failure:
            reason = f"Layers above the cut need more from the layers below than hidden states and fail ({failure})."
            return Check(k, refused=reason)
        return Check(k, None, float(found[0]), float(found[1]), self.reason(found, reference[0]))

    def compare(
        self,
        cut: int | None,
        difference: Callable[[Callable[[], Tensor]], Tensor],
        head_token: HeadTokenPart | None,
        *,
        packed: bool,
    ) -> Tensor:
        """The largest ``difference`` in the three comparisons, ``[2]``; infinite if the layers cannot run packed batches."""
        model, anatomy = self.model, self.anatomy
        unpackable = torch.full((2,), torch.inf)
        if packed and not is_packable(model):
            return unpackable
        with ExitStack() as opened:
            if cut is not None:  # before the model is cut
                selection = selection_for((cut,), anatomy, self.head_reads)
                on_disk = _states_on_disk(
                    model, anatomy, self.batch, selection, self.head_reads, head_token, packed=packed
                )
                states, tokens = opened.enter_context(on_disk)
            packing = opened.enter_context(packable(model)) if packed else None
            upper = opened.enter_context(cut_at(model, anatomy, cut, packing=packing, head_token=head_token))
            if cut is None:
                found = [difference(lambda: upper(self.batch))]
            else:
                found = [difference(lambda: upper(self.batch, self.hidden[cut]))]
                found.append(difference(lambda: self.from_cache(upper, cut, states, tokens)))
                with wrong_below(model, anatomy, cut):
                    found.append(difference(lambda: upper(self.batch, self.hidden[cut])))
            if packing and not packing.calls and cut != anatomy.count:
                return unpackable
        return torch.stack(found).amax(0)

    def from_cache(self, upper: UpperModel, cut: int, states: HiddenStates, tokens: Tokens) -> Tensor:
        """Logits from cached hidden states, read as in a run."""
        rows, device = np.arange(len(tokens)), self.model.device
        if states.selection.head:
            one_token = tokens.one_token(rows, last=self.head_reads == "last")
            return upper({name: x.to(device) for name, x in one_token.items()}, states.head(rows).to(device))
        return upper(self.batch, states.tokens(cut, rows).to(device))

    def reason(self, found: Tensor, logits: Tensor) -> str:
        """Why the cut model differs from the uncut one: because of padding, or for an unknown reason."""
        with torch.no_grad():
            last = last_example_alone(self.batch)
            alone = real_logits(self.model(**last).logits, last["attention_mask"])
        by_padding = relative_difference(alone, logits[-len(alone) :])
        if not by_padding < TOLERANCE:
            return f"Its output for an example depends on the padding in the batch (by {by_padding:.1e}); {_in_words(found)}."
        return f"Something other than the hidden states passes from below the cut to the logits; {_in_words(found)}."


def only_trained(model: PreTrainedModel, names: frozenset[str]) -> list[nn.Parameter]:
    """Make exactly these parameters trainable, and return them."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@contextmanager
def _states_on_disk(
    model: PreTrainedModel,
    anatomy: Anatomy,
    batch: Batch,
    selection: StateSelection,
    head_reads: str,
    head_token: HeadTokenPart | None = None,
    *,
    packed: bool,
) -> Iterator[tuple[HiddenStates, Tokens]]:
    """The hidden states of a batch as a sweep caches them: computed by a forward pass, written to disk, read back."""
    tokens = table_of(batch, model)
    enough = 2 * int((tokens.lengths + LENGTH_MULTIPLE).sum())  # a larger batch would only hold more copies
    forward_pass = ForwardPass(
        model,
        anatomy,
        selection,
        head_reads,
        packed and embeddings_are_lookups(model, anatomy),
        head_token=head_token,
        max_tokens=min(enough, tokens_per_batch(model.device, anatomy)),
    )
    with tempfile.TemporaryDirectory(prefix="frostline-check-") as folder:
        yield computed_states(Path(folder), forward_pass, tokens, np.arange(len(tokens))), tokens


def packed_pass_is_exact(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether the forward pass may use packed batches.

    The embeddings must not contain a matrix product. In float32, the hidden states after every layer must be those of
    a padded batch.
    """
    if not (is_packable(model) and embeddings_are_lookups(model, anatomy)):
        return False
    batch = probe_batch(model, check_lengths(model))
    selection = StateSelection(tuple(range(anatomy.count + 1)), head=False)
    with restored(model):
        try:
            padded = hidden_states_by_cut(model, anatomy, batch)
            with _states_on_disk(model, anatomy, batch, selection, "all", packed=True) as (states, tokens):
                rows = np.arange(len(tokens))
                packed = {n: states.tokens(n, rows).to(model.device) for n in padded}
        except LAYER_ERRORS:
            return False
    return all(relative_difference(packed[n], expected) < TOLERANCE for n, expected in padded.items())


TEXTS = ("The first of these texts is the longest one, in 2024!", "A second text", "third")


def check(
    model: nn.Module,
    *,
    tune: Sequence[int | str] | None = None,
    tune_modules: Sequence[str] | None = None,
    max_uncut_layers: int | None = None,
    batch: Batch | None = None,
) -> list[Check]:
    """Compare the cut model with the uncut model, with cached hidden states and with packed batches.

    Args:
        model: Any sequence or token classification model of transformers, in float32. It is not changed.
        tune: The values of k to check; by default 0 .. L and ``full`` (full fine-tuning).
        tune_modules: Module paths of named parts to check, too. The ``recipe`` of their result is the number of layers
            that must run for them.
        max_uncut_layers: For ``full``, compare only the gradients of this many last layers. None compares the gradients of all
            parameters, which needs twice the memory of the model.
        batch: A right-padded batch to compare on, for a model type that needs more inputs than tokens. By default random tokens.

    Returns:
        One result for each k. A model type that cannot be cut at all has a single result without k.

    Raises:
        FrostlineError: The model is not a model of transformers.
    """
    if not isinstance(model, PreTrainedModel):
        raise FrostlineError(f"{type(model).__name__} is not a model of transformers: check a PreTrainedModel.")
    batch = probe_batch(model, check_lengths(model)) if batch is None else batch
    with restored(model):
        try:
            anatomy = find_layers(model, batch)
            with torch.no_grad():
                before = model(**batch).logits
                model(**last_example_alone(batch))
                difference = relative_difference(model(**batch).logits, before)
            if not difference < TOLERANCE:
                raise FrostlineError(
                    f"A model of type {model.config.model_type!r} cannot be cut: the same batch gives different logits "
                    f"(by {difference:.1e}) when it is repeated after a shorter one. Choose another model."
                )
            comparison = CutComparison(model, anatomy, batch)
            checks = []
            for recipe in map(Recipe, [*range(anatomy.count + 1), FULL] if tune is None else tune):
                trained = Recipe(max_uncut_layers) if recipe == FULL and max_uncut_layers is not None else recipe
                checks.append(comparison.check(recipe, Way(tune=trained).parameters(anatomy)))
            if tune_modules:
                names = Way(modules=tuple(tune_modules)).parameters(anatomy)
                depth = anatomy.depth(names)
                checks.append(comparison.check(FULL if depth is None else Recipe(depth), names))
            return checks
        except FrostlineError as error:
            return [Check(None, refused=str(error))]


def difference_from_transformers(pretrained: Pretrained) -> float:
    """The largest relative difference of the hidden states of a few texts from those of transformers.

    There the folder is loaded with ``from_pretrained`` alone, and each text is read by itself.
    """
    folder, longest = pretrained.folder, pretrained.max_length
    trusted = {"trust_remote_code": runs_own_code(pretrained.model) or runs_own_code(pretrained.tokenizer)}
    plain = AutoTokenizer.from_pretrained(folder, **trusted)
    with quiet_loading():
        reference = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **trusted).eval()
    tokens = encode(pretrained.tokenizer, TEXTS, None, longest)
    tokens = suited(tokens, pretrained.model, pretrained.tokenizer)
    differences = []
    with restored(pretrained.model):
        for n, text in enumerate(TEXTS):
            given = plain(text, truncation=True, max_length=longest, return_tensors="pt")
            if tokens.zeroed_types:  # transformers alone cannot read them
                del given[TYPES]
            ours = _hidden_states(pretrained.model.base_model, tokens.batch(np.array([n])))
            expected = _hidden_states(reference, given)
            differences += [relative_difference(*both) for both in zip(ours, expected, strict=True)]
    return float(torch.tensor(differences).max())  # NaN if one is


def _hidden_states(base: nn.Module, inputs: Batch) -> tuple[Tensor, ...]:
    """The hidden states before and after every layer, and the output."""
    torch.manual_seed(0)  # some model types draw random numbers even in eval mode
    with torch.no_grad():
        out = base(**inputs, output_hidden_states=True)
    return *(getattr(out, "hidden_states", None) or ()), out[0]


STACK_LENGTHS = ((23, 17, 9), (5, 30, 11))  # tokens of the examples of two stacked runs


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
    batches = batches or [probe_batch(model, lengths, seed=run) for run, lengths in enumerate(STACK_LENGTHS)]
    joint = joint_products(anatomy, head_token)
    with restored(model), packable(model) if packed else nullcontext() as packing:
        try:
            hidden = [None if cut is None else hidden_states_by_cut(model, anatomy, batch)[cut] for batch in batches]
            trained = only_trained(model, names)
            with _different_values({name: p for name, p in model.named_parameters() if name in names}) as start:
                separate: list[Results] = []
                with cut_at(model, anatomy, cut, packing=packing, head_token=head_token) as upper:
                    for run, batch in enumerate(batches):
                        start(run)
                        separate.append(results_of(partial(upper, batch, hidden[run]), trained))
                with (
                    stacked(model, names, len(batches), start, batched=batched, joint=joint) as parameters,
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
            found = []
            for expected, part, of_run in zip(separate, parts, parameters, strict=True):
                gradients = [p.new_zeros(()) if p.grad is None else p.grad for p in of_run.values()]
                found.append(differences((part.detach(), gradients), expected))
        except LAYER_ERRORS as error:
            return f"Its modules cannot compute the examples of several runs together ({first_line(error)})."
    difference = torch.stack(found).amax(0)
    return None if (difference < TOLERANCE).all() else f"In a stack, {_in_words(difference)}."


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
