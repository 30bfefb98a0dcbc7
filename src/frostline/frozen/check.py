"""The proof, on the model at hand, that what is shared gives what computing it every time would give.

For every k: the logits and gradients of the uncut, padded model are the truth. Against it stands the model cut,
with hidden states of the same batch; with hidden states that the pass of a sweep made, wrote to disk and read
back; and with everything below the cut disturbed, so that nothing but the kept states can have been used. Tried as
runs would have it: in packed batches before padded ones, the last layer for the head's token before for all. "Relative"
is the largest difference over the largest value.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.fast.last_layer import Narrow, read_at
from frostline.frozen.cut import Upper, cut_at
from frostline.frozen.forward_pass import Need, Pass, PassBatch, looks_up, tokens_at_once
from frostline.frozen.hidden_states import HiddenStates, Recipe, keep
from frostline.model.anatomy import Anatomy, Batch, find_layers, probe_batch
from frostline.model.packing import STEP, Packing, is_packable, packable
from frostline.model.stacking import stacked
from frostline.model.tokens import Tokens
from frostline.model.trainable import parameters_of
from frostline.model.unread import absent, unread

TOLERANCE = 1e-5  # relative, fp32
LENGTHS = (40, 31, 7, 22)  # ragged; the first is made longer where a sliding window is
STACK_LENGTHS = ((23, 17, 9), (5, 30, 11))  # of two stacked runs

# What a layer does with packed or handed-on input is its own code, so whatever it raises is a refusal.
FAILS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError)


@dataclass(frozen=True)
class Check:
    """How far the model cut for ``tuned_layers`` (None: full) is from the uncut one; or why it cannot be cut."""

    tuned_layers: int | None
    path: str | None  # "packed" where that is equal too, else "padded"
    max_logit_difference: float | None
    max_gradient_difference: float | None
    refused: str | None = None
    narrow: Narrow | None = None  # what of the last layer is computed for the head's token only


def check(
    model: nn.Module,
    *,
    tuned_layers: Sequence[int | None] | None = None,
    tune_modules: Sequence[str] | None = None,
    uncut_trains: int | None = None,
    lengths: Sequence[int] | None = None,
    batch: Batch | None = None,
) -> list[Check]:
    """Compare the cut with the uncut model, kept with recomputed states and packed with padded batches.

    Args:
        model: any sequence-classification model of transformers, in fp32; left as it was.
        tuned_layers: the values of k to try; 0 .. L and full (None) by default.
        tune_modules: parts to try as well, by module paths; in their row ``tuned_layers`` are those that must run.
        uncut_trains: the gradients of how many of the last layers are compared where nothing is cut; None: all, which takes
            twice their memory.
        lengths: tokens in each text of the batch made for the test.
        batch: a right-padded batch to use instead, where a type needs more than tokens.

    Returns:
        One row a k; a single refused row when the type cannot be cut at all.

    Raises:
        FrostlineError: this is no model of transformers.
    """
    if not isinstance(model, PreTrainedModel):
        raise FrostlineError(f"{type(model).__name__} is no model of transformers: check a PreTrainedModel.")
    batch = probe_batch(model, lengths or _lengths(model)) if batch is None else batch
    with _left_as_it_was(model):
        try:
            anatomy = find_layers(model, batch)
            _demand_no_memory(model, batch)
            trial = _Trial(model, anatomy, batch)
            ks = [*range(anatomy.count + 1), None] if tuned_layers is None else tuned_layers
            rows = [trial.check(k, anatomy.tuned(uncut_trains if k is None else k)) for k in ks]
            if tune_modules:
                names = parameters_of("named", anatomy, tune_modules)
                rows.append(trial.check(anatomy.depth(names), names))
            return rows
        except FrostlineError as error:
            return [Check(None, None, None, None, str(error))]


def head_reads(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> str:
    """Whose hidden states after the last layer reach the logits: the ``first`` token's, the ``last``'s, or ``all``."""
    lengths = batch["attention_mask"].sum(1)
    model.eval()
    with torch.no_grad():
        kept = _states(model, anatomy, batch)[anatomy.count]
    kept = kept.requires_grad_()
    with cut_at(model, anatomy, anatomy.count) as upper, torch.enable_grad():
        (gradient,) = torch.autograd.grad(_scalar(upper(batch, kept)), kept)
    read = set(gradient[0].abs().sum(1).nonzero()[:, 0].tolist())
    ends = lengths.cumsum(0)
    for name, places in (("first", ends - lengths), ("last", ends - 1)):
        if read <= set(places.tolist()):
            return name
    return "all"


def narrow_of(model: PreTrainedModel, anatomy: Anatomy, batch: Batch, reads: str) -> Narrow | None:
    """Which modules of the last layer matter for the head's token only; None where none does.

    A module can do with that token if, of all its inputs and its output, nothing else has a gradient of the logits.
    """
    if reads == "all":
        return None
    pad = model.config.get_text_config().pad_token_id
    mask = batch["attention_mask"].bool()
    read = torch.zeros_like(mask)
    read[torch.arange(len(mask), device=mask.device), read_at(reads, batch["input_ids"], mask, pad)] = True
    layer = anatomy.layers(model)[-1]
    model.eval()
    with torch.no_grad():
        kept = _states(model, anatomy, batch)[anatomy.count - 1].requires_grad_()
    with cut_at(model, anatomy, anatomy.count - 1) as upper, _watched(layer, mask.shape) as seen, torch.enable_grad():
        try:
            logits = upper(batch, kept)
        except FAILS:
            return None  # the last layer does not run by itself: the check of k = 1 says why
    if not (flat := [x for some in seen.values() for x in some]):
        return None
    given = iter(torch.autograd.grad(_scalar(logits), flat, allow_unused=True))
    gradients = {path: [next(given) for _ in some] for path, some in seen.items()}

    def alone(path: str) -> bool:
        return all(g is None or not g[~read].any() for g in gradients[path])

    found = [path for path in gradients if alone(path)]
    outermost = tuple(path for path in found if not any(path.startswith(f"{other}.") for other in found))
    return Narrow(reads, outermost, pad) if outermost else None


def packs(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether a packed pass may be made: nothing is multiplied below the layers, and after every layer the hidden states
    are those of a plain forward, in fp32."""
    if not (is_packable(model) and looks_up(model, anatomy)):
        return False
    batch = probe_batch(model, _lengths(model))
    tokens = _tokens_of(batch, model)
    made_by = Pass(model, anatomy, Need(tuple(range(anatomy.count + 1)), head=False), "all", packed=True)
    every, lengths = np.arange(len(tokens)), tokens.lengths
    one = PassBatch(every, lengths, lengths, room=2 * int(lengths.sum()), texts=2 * len(tokens))
    with _left_as_it_was(model), torch.no_grad():
        try:
            truth = _states(model, anatomy, batch)
            (found,) = made_by.states(tokens, [one])
        except FAILS:
            return False
    return all(_difference(found[f"tokens-{n}"], wanted[0]) < TOLERANCE for n, wanted in truth.items())


@contextmanager
def _watched(layer: nn.Module, grid: torch.Size) -> Iterator[dict[str, list[Tensor]]]:
    """What goes into and comes out of each module that runs once and knows nothing but one vector a token."""
    seen: dict[str, list[Tensor]] = {}
    others: set[str] = set()

    def per_token(x: Any) -> bool:
        return isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 2 and x.shape[:2] == grid

    def watch(path: str) -> tuple[Any, Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if path in seen or not all(per_token(x) for x in (*args, *kwargs.values())):
                others.add(path)
                return None
            # a copy has a gradient of its own, whoever else reads it
            new = {id(x): x.clone() for x in (*args, *kwargs.values())}
            seen[path] = [x for x in new.values() if x.requires_grad]
            return tuple(new[id(x)] for x in args), {name: new[id(x)] for name, x in kwargs.items()}

        def leave(module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
            if path in others or not per_token(out) or not out.requires_grad:
                others.add(path)
                return None
            seen[path].append(out := out.clone())
            return out

        return enter, leave

    with ExitStack() as hooks:
        for path, module in layer.named_modules():
            if path:
                enter, leave = watch(path)
                hooks.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        yield seen
    for path in others:
        seen.pop(path, None)


def stack_refusal(
    model: PreTrainedModel,
    anatomy: Anatomy,
    names: frozenset[str],
    cut: int | None,
    *,
    packed: bool,
    as_one: bool,
    narrow: Narrow | None = None,
    batches: Sequence[Batch] | None = None,
) -> str | None:
    """Why runs that train the parameters ``names`` above ``cut`` cannot be trained as one; None where they can.

    Two runs with weights and texts of their own: logits and gradients of the stack against those of each run alone.
    ``batches`` are theirs, of as many texts each, where a type needs more than tokens.
    """
    batches = batches or [probe_batch(model, lengths, seed=n) for n, lengths in enumerate(STACK_LENGTHS)]
    with _left_as_it_was(model), packable(model) if packed else nullcontext() as packing:
        try:
            gap = _stack_gap(model, anatomy, names, cut, packing, as_one, narrow, batches)
        except FAILS as error:
            return f"Its modules do not take the rows of several runs ({_first_line(error)})."
    return None if _equal(gap) else f"Stacked, logits differ by {gap[0]:.1e}, gradients by {gap[1]:.1e}, relative."


def _stack_gap(
    model: PreTrainedModel,
    anatomy: Anatomy,
    names: frozenset[str],
    cut: int | None,
    packing: Packing | None,
    as_one: bool,
    narrow: Narrow | None,
    batches: Sequence[Batch],
) -> "Gap":
    """The largest relative differences of logits and of gradients, over all runs."""
    with torch.no_grad():
        kept = [None if cut is None else _states(model, anatomy, batch)[cut] for batch in batches]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    trained = {name: p for name, p in model.named_parameters() if name in names}
    alone = []
    with _moved(trained) as start:
        with cut_at(model, anatomy, cut, packing=packing, narrow=narrow) as upper:
            for run, batch in enumerate(batches):
                start(run)
                torch.manual_seed(0)
                logits = upper(batch, kept[run])
                gradients = torch.autograd.grad(_scalar(logits), list(trained.values()), allow_unused=True)
                alone.append((logits.detach(), gradients))
        with (
            stacked(model, names, len(batches), start, as_one=as_one) as own,
            cut_at(model, anatomy, cut, packing=packing, runs=len(batches), narrow=narrow) as upper,
        ):
            torch.manual_seed(0)
            states = [x for x in kept if x is not None]
            together = upper(_joined(batches, model), torch.cat(states, 1) if states else None)
            parts = together.chunk(len(batches))
            torch.stack([_scalar(part) for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
    gaps = []
    for (logits, gradients), part, mine in zip(alone, parts, own, strict=True):
        pairs = [(x, torch.zeros_like(x) if g is None else g) for x, g in zip(_gradients(mine), gradients, strict=True)]
        largest = max(float(g.abs().max()) for _, g in pairs)
        worst = max((float((x - g).abs().max()) for x, g in pairs), key=_nan_is_large)
        gaps.append((_difference(part.detach(), logits), worst / largest if largest else worst))
    return max((a for a, _ in gaps), key=_nan_is_large), max((b for _, b in gaps), key=_nan_is_large)


def _gradients(parameters: Mapping[str, Tensor]) -> Iterator[Tensor]:
    for parameter in parameters.values():
        yield torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@contextmanager
def _moved(parameters: Mapping[str, nn.Parameter]) -> Iterator[Callable[[int], Mapping[str, nn.Parameter]]]:
    """A function that gives the parameters values of a run's own; the old ones are put back on leaving."""
    before = {name: p.detach().clone() for name, p in parameters.items()}

    def start(run: int) -> Mapping[str, nn.Parameter]:
        draw = torch.Generator().manual_seed(run)
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(before[name] + 0.02 * torch.randn(p.shape, generator=draw).to(p.device))
        return parameters

    try:
        yield start
    finally:
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(before[name])


def _joined(batches: Sequence[Batch], model: PreTrainedModel) -> Batch:
    """The texts of several batches in one."""
    longest = max(batch["input_ids"].shape[1] for batch in batches)
    pads = {"input_ids": model.config.get_text_config().pad_token_id or 0}

    def padded(name: str, x: Tensor) -> Tensor:
        return F.pad(x, (*[0] * (2 * x.dim() - 4), 0, longest - x.shape[1]), value=pads.get(name, 0))

    return {name: torch.cat([padded(name, batch[name]) for batch in batches]) for name in batches[0]}


def need_for(cuts: Sequence[int], anatomy: Anatomy, reads: str) -> Need:
    """What to keep for these cuts: at L one token a row will do when the head looks at one only."""
    one = reads != "all" and anatomy.count in cuts
    return Need(tuple(sorted(c for c in set(cuts) if not (one and c == anatomy.count))), one)


class _Trial:
    """One model and one batch, compared for one k after the other."""

    def __init__(self, model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> None:
        self.model, self.anatomy, self.batch = model, anatomy, batch
        self.reads = head_reads(model, anatomy, batch)
        self.narrow = narrow_of(model, anatomy, batch, self.reads)
        with torch.no_grad():
            self.states = _states(model, anatomy, batch)

    def check(self, k: int | None, names: frozenset[str]) -> Check:
        """Of the parameters ``names``, none of which lies below the last ``k`` layers."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)
        self.trained = {name: p for name, p in self.model.named_parameters() if name in names}
        self.truth = self.result(lambda: self.model(**self.batch).logits)
        # The embeddings' output is not kept: it costs nothing to compute again.
        self.cut = None if k is None or k == self.anatomy.count else self.anatomy.count - k
        for path, narrow in product(("packed", "padded"), dict.fromkeys((self.narrow, None))):
            try:
                gap = self.compare(path, narrow)
            except FAILS as error:
                gap, refused = FAR, f"{HANDS_ON_MORE} ({_first_line(error)})."
            else:
                refused = ""
            if _equal(gap):
                return Check(k, path, *gap, narrow=narrow)
        return Check(k, None, None, None, refused) if refused else Check(k, None, *gap, refused=self.reason(gap))

    def compare(self, path: str, narrow: Narrow | None) -> "Gap":
        """The largest differences: states of this batch, states from disk, everything below disturbed; infinite where the
        layers do not take packed batches."""
        packed = path == "packed"
        if packed and not is_packable(self.model):
            return FAR
        with ExitStack() as opened:
            stored = None if self.cut is None else opened.enter_context(self.stored(self.cut, narrow, packed=packed))
            packing = opened.enter_context(packable(self.model)) if packed else None
            upper = opened.enter_context(cut_at(self.model, self.anatomy, self.cut, packing=packing, narrow=narrow))
            same = None if self.cut is None else self.states[self.cut]
            gaps = [self.gap(lambda: upper(self.batch, same))]
            if self.cut is not None and stored is not None:
                gaps.append(self.gap(lambda: self.from_disk(upper, *stored)))
                with _disturbed(self.model, self.anatomy, self.cut):
                    gaps.append(self.gap(lambda: upper(self.batch, same)))
            if packing and not packing.calls and self.cut != self.anatomy.count:
                return FAR
        logits, gradients = zip(*gaps, strict=True)
        return max(logits, key=_nan_is_large), max(gradients, key=_nan_is_large)

    def result(self, forward: Callable[[], Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Logits, and the gradients of what is trained."""
        torch.manual_seed(0)  # for types that draw random numbers even in eval mode
        logits = forward()
        given = torch.autograd.grad(_scalar(logits), list(self.trained.values()), allow_unused=True)
        gradients = [torch.zeros(()) if gradient is None else gradient for gradient in given]
        return logits.detach(), dict(zip(self.trained, gradients, strict=True))

    def gap(self, forward: Callable[[], Tensor]) -> "Gap":
        """Relative differences from the truth, of the logits and of all gradients together."""
        logits, gradients = self.result(forward)
        largest = max(float(g.abs().max()) for g in self.truth[1].values())
        worst = max((float((gradients[n] - g).abs().max()) for n, g in self.truth[1].items()), key=_nan_is_large)
        return _difference(logits, self.truth[0]), worst / largest if largest else worst

    @contextmanager
    def stored(self, cut: int, narrow: Narrow | None, *, packed: bool) -> Iterator[tuple[HiddenStates, Tokens]]:
        """The states of the batch's rows as a sweep keeps them: a pass of its own, written, read back."""
        tokens = _tokens_of(self.batch, self.model)
        need = need_for((cut,), self.anatomy, self.reads)
        recipe = Recipe("check", "", "", "", "", 0, "", "", "", head_reads=self.reads)
        packed = packed and looks_up(self.model, self.anatomy)
        few = 2 * int((tokens.lengths + STEP).sum())  # the rest of a whole batch would be filling
        few = min(few, tokens_at_once(self.model.device, self.anatomy))
        made_by = Pass(self.model, self.anatomy, need, self.reads, packed, narrow=narrow, most=few)
        with tempfile.TemporaryDirectory(prefix="frostline-check-") as folder:
            yield keep(made_by, tokens, np.arange(len(tokens)), recipe, folder=Path(folder)), tokens

    def from_disk(self, upper: Upper, states: HiddenStates, tokens: Tokens) -> Tensor:
        """Logits by the stored states, as a run reads them."""
        assert self.cut is not None
        rows, device = np.arange(len(tokens)), self.batch["input_ids"].device
        if states.need.head:
            one = tokens.one_token(rows, last=self.reads == "last")
            return upper({name: x.to(device) for name, x in one.items()}, states.head(rows).to(device))
        return upper(self.batch, states.tokens(self.cut, rows).to(device))

    def reason(self, gap: "Gap") -> str:
        """Why cut and uncut differ, as far as a test can tell."""
        differs = f"logits differ by {gap[0]:.1e}, gradients by {gap[1]:.1e}, relative"
        with torch.no_grad():
            company = _difference(self.model(**_last_alone(self.batch)).logits, self.truth[0][-1:])
        if not company < TOLERANCE:
            return f"What it computes for a text depends on the padding beside it (by {company:.1e}); {differs}."
        return f"Something of the layers below the cut other than the hidden states reaches the logits; {differs}."


Gap = tuple[float, float]  # relative differences of logits and of gradients
FAR = (float("inf"), float("inf"))
HANDS_ON_MORE = "The layers below the cut hand on more than hidden states, and without it the code above fails"


def _lengths(model: PreTrainedModel) -> Sequence[int]:
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "window_size")]
    window = max((w for w in windows if isinstance(w, int)), default=0)
    longest = min(max(LENGTHS[0], window + 8), getattr(config, "max_position_embeddings", None) or 512, 600)
    return (longest, *(n for n in LENGTHS[1:] if n < longest))


@contextmanager
def _left_as_it_was(model: PreTrainedModel) -> Iterator[None]:
    """Eval mode inside; modes, what wants gradients and torch's generator are put back."""
    modes = {module: module.training for module in model.modules()}
    wants = {p: p.requires_grad for p in model.parameters()}
    model.eval()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, want in wants.items():
            parameter.requires_grad_(want)


def _demand_no_memory(model: PreTrainedModel, batch: Batch) -> None:
    """Refuse a model whose forward is not a function of its input alone."""
    with torch.no_grad():
        before = model(**batch).logits
        model(**_last_alone(batch))
        gap = _difference(model(**batch).logits, before)
    if not gap < TOLERANCE:
        raise FrostlineError(
            f"A model of type {model.config.model_type!r} cannot be cut: the same batch gives other logits "
            f"(by {gap:.1e}) after a shorter one, or each time. Choose another model."
        )


def _last_alone(batch: Batch) -> dict[str, Tensor]:
    """The last row of a batch without its padding."""
    length = int(batch["attention_mask"][-1].sum())
    return {name: x[-1:, :length] if x.dim() >= 2 else x[-1:] for name, x in batch.items()}


def _states(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> dict[int, Tensor]:
    """Hidden states of all cuts from one plain forward of this very batch: cut -> ``[1, T, D]``."""
    seen: dict[int, Tensor] = {}
    mask = batch["attention_mask"].bool()
    with cut_at(model, anatomy, None, tap=lambda n, hidden: seen.__setitem__(n, hidden[mask][None])) as whole:
        whole(batch)
    return seen


def _tokens_of(batch: Batch, model: PreTrainedModel) -> Tokens:
    """The texts of a batch as a table."""
    mask = batch["attention_mask"].bool().cpu()
    inputs = {
        name: x.cpu()[mask].numpy().astype(np.int32)
        for name, x in batch.items()
        if x.shape[:2] == mask.shape and name != "attention_mask"
    }
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    padding = {"input_ids": model.config.get_text_config().pad_token_id or 0}
    return Tokens(inputs, offsets, padding, np.zeros(len(mask), np.int32))


def _scalar(logits: Tensor) -> Tensor:
    """A fixed, uneven sum of the logits, so that every one of them has a gradient of its own."""
    weights = torch.linspace(0.5, 1.5, logits.numel(), device=logits.device).view_as(logits)
    return (logits * weights).sum()


@contextmanager
def _disturbed(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> Iterator[None]:
    """All below the cut made wrong: its weights are not there, and what the first layer is given is something else."""
    call = anatomy.calls[0]

    def noise(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        given[call.hidden] = 7.0 - given[call.hidden]
        return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

    hook = anatomy.layers(model)[0].register_forward_pre_hook(noise, with_kwargs=True)
    try:
        with absent(unread(model, anatomy, cut)):
            yield
    finally:
        hook.remove()


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def _equal(gap: "Gap") -> bool:
    """Whether both differences are small; not a number is not."""
    return all(difference < TOLERANCE for difference in gap)


def _nan_is_large(value: float) -> float:
    return value if value == value else float("inf")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
