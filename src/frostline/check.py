"""The proof, on the model at hand, that what is shared gives what computing it every time would give.

For every k: the logits and gradients of the uncut, padded model are the truth. Against it stand the model
cut with hidden states kept by the pass that sweeps use (written to disk and read back), the same in packed
batches, and the same with everything below the cut disturbed, so that nothing but the kept states can
have been used. "Relative" is the largest difference over the largest value.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.cut import Upper, cut_at
from frostline.errors import FrostlineError
from frostline.hidden import HiddenStates, Need, Recipe, keep
from frostline.layers import Anatomy, Batch, find_layers, probe_batch
from frostline.packing import Packing, packable
from frostline.tokens import Tokens

TOLERANCE = 1e-5  # relative, fp32
FAILS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError)
LENGTHS = (40, 31, 7, 22)  # ragged; a sliding window is exceeded where it is shorter than the longest


@dataclass(frozen=True)
class Check:
    """How far the model cut for ``tuned_layers`` (None: full) is from the uncut one; or why it cannot be cut."""

    tuned_layers: int | None
    path: str | None  # "packed" or "padded": the faster that is equal
    max_logit_difference: float | None
    max_gradient_difference: float | None
    refused: str | None = None


def check(
    model: nn.Module,
    *,
    tuned_layers: Sequence[int | None] | None = None,
    lengths: Sequence[int] | None = None,
    batch: Batch | None = None,
) -> list[Check]:
    """Compare the cut with the uncut model, kept with recomputed states and packed with padded batches.

    Args:
        model: any sequence-classification model of transformers, in fp32; left as it was.
        tuned_layers: the values of k to try; 0 .. L and full (None) by default.
        lengths: tokens in each text of the batch made for the test.
        batch: a right-padded batch to use instead, where a type needs more than tokens.

    Returns:
        One row a k; a single refused row when the type cannot be cut at all.
    """
    assert isinstance(model, PreTrainedModel)
    batch = probe_batch(model, lengths or _lengths(model)) if batch is None else batch
    modes = {module: module.training for module in model.modules()}
    wants = {p: p.requires_grad for p in model.parameters()}
    model.eval()
    try:
        anatomy = find_layers(model, batch)
        _demand_no_memory(model, batch)
        reads = head_reads(model, anatomy, batch)
        ks = [*range(anatomy.count + 1), None] if tuned_layers is None else tuned_layers
        return [_check_one(model, anatomy, reads, batch, k) for k in ks]
    except FrostlineError as error:
        return [Check(None, None, None, None, str(error))]
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, want in wants.items():
            parameter.requires_grad_(want)
        model.zero_grad(set_to_none=True)


def _lengths(model: PreTrainedModel) -> Sequence[int]:
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "window_size")]
    window = max((w for w in windows if isinstance(w, int)), default=0)
    longest = min(max(LENGTHS[0], window + 8), getattr(config, "max_position_embeddings", None) or 512, 600)
    return (longest, *(n for n in LENGTHS[1:] if n < longest))


def head_reads(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> str:
    """Which hidden states after the last layer reach the logits: those of the ``first`` token, the ``last``, or ``all``."""
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


def _last_alone(batch: Batch) -> dict[str, Tensor]:
    """The last row of a batch without its padding."""
    length = int(batch["attention_mask"][-1].sum())
    return {name: x[-1:, :length] if x.dim() >= 2 else x[-1:] for name, x in batch.items()}


def _demand_no_memory(model: PreTrainedModel, batch: Batch) -> None:
    """Refuse a model whose forward is not a function of its input alone."""
    with torch.no_grad():
        before = model(**batch).logits
        model(**_last_alone(batch))
        gap = _difference(model(**batch).logits, before)
    if not gap < TOLERANCE:
        raise FrostlineError(
            f"A model of type {model.config.model_type!r} cannot be cut: the same batch gives other logits (by {gap:.1e}) "
            "after a shorter one, or each time. Choose another model."
        )


def _states(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> dict[int, Tensor]:
    """Hidden states of all cuts from one plain forward of this very batch: cut -> ``[1, T, D]``."""
    seen: dict[int, Tensor] = {}
    mask = batch["attention_mask"].bool()
    with cut_at(model, anatomy, None, tap=lambda n, hidden: seen.__setitem__(n, hidden[mask][None])) as whole:
        whole(batch)
    return seen


def _scalar(logits: Tensor) -> Tensor:
    """A fixed, uneven sum of the logits, so that every one of them has a gradient of its own."""
    weights = torch.linspace(0.5, 1.5, logits.numel(), device=logits.device).view_as(logits)
    return (logits * weights).sum()


def _check_one(model: PreTrainedModel, anatomy: Anatomy, reads: str, batch: Batch, k: int | None) -> Check:
    names = anatomy.tuned(k)
    trained = {name: p for name, p in model.named_parameters() if name in names}
    for name, p in model.named_parameters():
        p.requires_grad_(name in names)

    truth = _result(model, trained, lambda: model(**batch).logits)
    cut = None if k is None or k == anatomy.count else anatomy.count - k
    with torch.no_grad():
        same_batch = _states(model, anatomy, batch)[cut] if cut is not None else None
    with tempfile.TemporaryDirectory(prefix="frostline-check-") as folder:
        stored = None if cut is None else _stored(model, anatomy, reads, batch, cut, Path(folder))
        try:
            gaps = {"padded": _compare(model, anatomy, None, cut, trained, truth, batch, same_batch, stored, reads)}
        except FAILS as error:
            return Check(
                k,
                None,
                None,
                None,
                "The layers below the cut hand on more than hidden states, and without it the code above fails "
                f"({_first_line(error)}).",
            )
        with packable(model) as packing:
            if packing:
                try:
                    gap = _compare(model, anatomy, packing, cut, trained, truth, batch, same_batch, stored, reads)
                except FAILS:
                    gap = (float("inf"), float("inf"))  # its layers do not take packed batches
                if packing.calls or cut == anatomy.count:
                    gaps["packed"] = gap
    path = "packed" if "packed" in gaps and max(gaps["packed"]) < TOLERANCE else "padded"
    logit, gradient = gaps[path]
    if not max(logit, gradient) < TOLERANCE:  # not a number is refused, too
        return Check(k, None, logit, gradient, _reason(model, anatomy, batch, truth[0], (logit, gradient)))
    return Check(k, path, logit, gradient)


def _compare(
    model: PreTrainedModel,
    anatomy: Anatomy,
    packing: Packing | None,
    cut: int | None,
    trained: Mapping[str, nn.Parameter],
    truth: "Result",
    batch: Batch,
    same_batch: Tensor | None,
    stored: tuple[HiddenStates, Tokens] | None,
    reads: str,
) -> tuple[float, float]:
    """The largest differences of logits and gradients: states of this batch, states from disk, all below disturbed."""
    with cut_at(model, anatomy, cut, packing=packing) as upper:
        gap = _gap(truth, _result(model, trained, lambda: upper(batch, same_batch)))
        if cut is not None:
            gap = _worse(gap, _gap(truth, _result(model, trained, _reader(upper, batch, stored, cut, reads))))
            with _disturbed(model, anatomy, cut):
                gap = _worse(gap, _gap(truth, _result(model, trained, lambda: upper(batch, same_batch))))
    return gap


def _reason(model: PreTrainedModel, anatomy: Anatomy, batch: Batch, truth: Tensor, gap: tuple[float, float]) -> str:
    """Why cut and uncut differ, as far as a test can tell."""
    differs = f"logits differ by {gap[0]:.1e}, gradients by {gap[1]:.1e}, relative"
    parent, _, own = anatomy.path.rpartition(".")
    beside = [
        name
        for name, m in model.get_submodule(parent).named_children()
        if isinstance(m, nn.ModuleList) and len(m) == anatomy.count and name != own
    ]
    if beside:
        return f"Its layers are spread over parallel lists of modules ({', '.join([own, *beside])}); {differs}."
    with torch.no_grad():
        company = _difference(model(**_last_alone(batch)).logits, truth[-1:])
    if not company < TOLERANCE:
        return f"What it computes for a text depends on the padding beside it (by {company:.1e}); {differs}."
    return f"Something of the layers below the cut other than the hidden states reaches the logits; {differs}."


Result = tuple[Tensor, Mapping[str, Tensor | None]]


def _result(model: nn.Module, trained: Mapping[str, nn.Parameter], forward: Callable[[], Tensor]) -> Result:
    torch.manual_seed(0)  # for types that draw random numbers even in eval mode
    logits = forward()
    gradients = torch.autograd.grad(_scalar(logits), list(trained.values()), allow_unused=True)
    return logits.detach(), dict(zip(trained, gradients, strict=True))


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def _gap(truth: Result, other: Result) -> tuple[float, float]:
    """Relative differences of logits, and of all gradients together."""
    largest, worst = 0.0, 0.0
    for name, a in truth[1].items():
        b = other[1][name]
        zero = torch.zeros(())
        a, b = (zero if x is None else x for x in (a, b))
        largest = max(largest, float(a.abs().max()))
        gap = float((a - b).abs().max())
        worst = max(worst, gap if gap == gap else float("inf"))
    return _difference(other[0], truth[0]), worst / largest if largest else worst


def _worse(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), max(a[1], b[1])


def _stored(
    model: PreTrainedModel, anatomy: Anatomy, reads: str, batch: Batch, cut: int, folder: Path
) -> tuple[HiddenStates, Tokens]:
    """The states of the batch's rows, as a sweep keeps them: own pass, written, read back."""
    mask = batch["attention_mask"].bool().cpu()
    inputs = {
        name: x.cpu()[mask].numpy().astype(np.int32)
        for name, x in batch.items()
        if x.shape[:2] == mask.shape and name != "attention_mask"
    }
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    pad = model.config.get_text_config().pad_token_id or 0
    tokens = Tokens(inputs, offsets, {"input_ids": pad}, np.zeros(len(mask), np.int32))
    need = need_for((cut,), anatomy, reads)
    recipe = Recipe("check", "", "", "", "", 0, "", "", "", head_reads=reads)
    rows = np.arange(len(tokens))
    return keep(model, anatomy, tokens, rows, need, recipe, autocast=nullcontext, folder=folder), tokens


def need_for(cuts: Sequence[int], anatomy: Anatomy, reads: str) -> Need:
    """What to keep for these cuts: at L one token a row will do when the head looks at one only."""
    one = reads != "all" and anatomy.count in cuts
    return Need(tuple(sorted(c for c in set(cuts) if not (one and c == anatomy.count))), one)


def _reader(
    upper: Upper, batch: Batch, stored: "tuple[HiddenStates, Tokens] | None", cut: int, reads: str
) -> Callable[[], Tensor]:
    assert stored is not None
    states, tokens = stored
    rows = np.arange(len(tokens))
    device = batch["input_ids"].device
    if states.need.head and cut not in states.need.cuts:
        one = tokens.one_token(rows, last=reads == "last")
        return lambda: upper({n: x.to(device) for n, x in one.items()}, states.head(rows).to(device))
    return lambda: upper(batch, states.tokens(cut, rows).to(device))


@contextmanager
def _disturbed(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> Iterator[None]:
    """All below the cut made wrong: the weights of its layers, and what the first of them is given."""
    first = anatomy.layers(model)[0]
    call = anatomy.calls[0]
    lower = [p for layer in anatomy.layers(model)[:cut] for p in layer.parameters()]
    before = [p.detach().clone() for p in lower]

    def noise(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        given: dict[int | str, object] = dict([*enumerate(args), *kwargs.items()])
        hidden = given[call.hidden]
        assert isinstance(hidden, Tensor)
        given[call.hidden] = torch.full_like(hidden, 7.0) - hidden
        return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

    hook = first.register_forward_pre_hook(noise, with_kwargs=True)
    try:
        with torch.no_grad():
            for p in lower:
                p.mul_(-1.5).add_(0.25)
        yield
    finally:
        hook.remove()
        with torch.no_grad():
            for p, old in zip(lower, before, strict=True):
                p.copy_(old)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
