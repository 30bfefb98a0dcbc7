"""What tests of frozen layers share: random tokens, forward passes, a cache folder, hidden states by cut, a recorded stream."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from frostline.frozen.cache import CacheKey
from frostline.frozen.cut import cut_at
from frostline.frozen.exactness import find_head_reads, find_head_token_part
from frostline.frozen.forward_pass import ForwardPass, StateSelection
from frostline.frozen.hidden_states import HiddenStates, load_or_compute
from frostline.model.anatomy import Anatomy, find_layers, probe_batch
from frostline.model.device import Machine
from frostline.model.packing import Packing, packable
from frostline.model.tokens import Tokens
from frostline.model.weights import is_unread
from small_models import FIRST_WORD


def random_tokens(lengths: Sequence[int], *, seed: int = 0) -> Tokens:
    """Random examples of these lengths."""
    ids = np.random.default_rng(seed).integers(FIRST_WORD, 300, sum(lengths)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens({"input_ids": ids}, offsets, {"input_ids": 0}, np.zeros(len(lengths), np.int32))


def ragged_tokens(count: int = 40, *, seed: int = 0, longest: int = 40) -> Tokens:
    """Random examples of 2 to ``longest`` tokens."""
    return random_tokens(np.random.default_rng(seed).integers(2, longest + 1, count).tolist(), seed=seed)


def pass_over(
    model: Any, *, packed: bool = True, precision: str = "float32", selection: StateSelection | None = None
) -> ForwardPass:
    """The forward pass of a sweep. By default it computes the hidden states at two cuts and of the head's token."""
    anatomy, batch = find_layers(model), probe_batch(model)
    reads = find_head_reads(model, anatomy, batch)
    selection = selection or StateSelection((1, anatomy.count - 1), head=reads != "all")
    head_token = find_head_token_part(model, anatomy, batch, reads)
    return ForwardPass(model, anatomy, selection, reads, packed, machine(precision).autocast, head_token)


def bytes_by_row(forward_pass: ForwardPass, tokens: Tokens, rows: Any) -> dict[int, list[bytes]]:
    """The bytes of each row's hidden states."""
    found, batches = {}, forward_pass.batches(tokens.lengths, np.asarray(rows, np.int64))
    for batch, (states, _) in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
        parts = {name: x.split(batch.lengths.tolist() if "tokens" in name else 1) for name, x in states.items()}
        for n, row in enumerate(batch.rows.tolist()):
            found[row] = [part[n].float().contiguous().numpy().tobytes() for part in parts.values()]
    return found


def machine(precision: str) -> Machine:
    return Machine(torch.device("cpu"), precision)


ALL = StateSelection((1, 2, 4), head=True)
RECIPE = CacheKey("m", "w", "float32", {"device": "cpu", "threads": 1}, "first")


class Cache:
    """Calls ``load_or_compute`` for one folder, and records progress and warnings of the last call."""

    def __init__(self, folder: Path, model: Any, anatomy: Anatomy) -> None:
        self.folder, self.model, self.anatomy = folder, model, anatomy
        self.progress: list[int] = []
        self.warnings: list[str] = []

    def load(
        self,
        tokens: Tokens,
        rows: Any,
        selection: StateSelection = ALL,
        *,
        batch_tokens: int | None = None,
        **recipe: Any,
    ) -> HiddenStates:
        self.progress, self.warnings = [], []
        key = dataclasses.replace(RECIPE, **recipe)
        forward_pass = ForwardPass(
            self.model, self.anatomy, selection, key.head_reads, key.packed, max_tokens=batch_tokens or 512
        )
        return load_or_compute(
            forward_pass,
            tokens,
            np.asarray(rows, np.int64),
            key,
            folder=self.folder,
            progress=self.progress.append,
            warn=self.warnings.append,
        )

    @property
    def computed(self) -> int:
        """The number of examples that the last call computed. Its first progress report counts cached examples."""
        return sum(self.progress[1:])

    @property
    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*/*.safetensors"))


def state_bytes(states: HiddenStates, rows: Iterable[int]) -> list[list[bytes]]:
    """The bytes of each row's hidden states, at every cut and of the head's token."""
    return [
        [states.tokens(cut, np.array([row])).numpy().tobytes() for cut in states.selection.cuts]
        + [states.head(np.array([row])).numpy().tobytes()] * states.selection.head
        for row in rows
    ]


def bytes_of(shard: Path) -> dict[str, bytes]:
    """The content of a shard by name, without the seconds that it took."""
    return {name: x.numpy().tobytes() for name, x in load_file(shard).items() if name != "seconds"}


LAYERS = 4  # of a small model


@contextmanager
def packing_for(model: Any, batches: str) -> Iterator[Packing | None]:
    """The packing of ``model`` if ``batches`` is "packed"; None if it is "padded"."""
    with packable(model) if batches == "packed" else nullcontext() as packing:
        assert batches == "padded" or packing
        yield packing


def states_by_cut(
    model: Any, anatomy: Anatomy, batch: Mapping[str, Tensor], packing: Packing | None = None
) -> dict[int, Tensor]:
    """Hidden states of the batch after 0 .. L layers, ``[1, T, D]`` each, from a forward pass over the same batch."""
    seen: dict[int, Tensor] = {}
    mask = batch["attention_mask"].bool()

    def tap(cut: int, hidden: Tensor) -> None:
        seen[cut] = hidden[:, : int(mask.sum())] if packing else hidden[mask][None]

    with torch.no_grad(), cut_at(model, anatomy, None, packing=packing, tap=tap) as whole:
        whole(batch)
    return seen


def train_only(model: Any, names: Set[str]) -> dict[str, Tensor]:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return {name: p for name, p in model.named_parameters() if name in names}


def loss_of(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)) % 3)


def logits_and_gradients(logits: Tensor, trained: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    gradients = torch.autograd.grad(loss_of(logits), list(trained.values()))
    return logits.detach(), dict(zip(trained, gradients, strict=True))


def largest_difference(actual: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest difference, relative to the largest expected value."""
    pairs: Sequence[tuple[Tensor, Tensor]] = list(zip(actual, expected, strict=True))
    return float(max((a - b).detach().abs().max() for a, b in pairs) / max(b.detach().abs().max() for _, b in pairs))


def layers_in_memory(model: Any, anatomy: Anatomy | None) -> tuple[list[tuple[int, ...]], list[Tensor]]:
    """The layers that are in memory when a linear module runs, without repetitions; and the weights of the lower layers."""
    assert anatomy is not None
    layers, present = anatomy.layers(model), list[tuple[int, ...]]()

    def look(module: Any, args: Any) -> None:
        found = tuple(n for n, layer in enumerate(layers) if not any(map(is_unread, layer.parameters())))
        present.extend([found] * (present[-1:] != [found]))

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(look)
    return present, [p for layer in layers[:-1] for p in layer.parameters()]


class RecordedStream:
    """Copies at once.

    Attributes:
        events: ``send``, ``receive`` and ``finish``, in order; a copy with its number, counted from 0.
        sent: All tensors that were sent.
        in_flight: The numbers of the copies that were neither received nor waited for.
    """

    def __init__(self, device: object = None) -> None:
        self.events: list[tuple[str, int]] = []
        self.sent: list[Tensor] = []
        self.in_flight: set[int] = set()

    def send(self, x: Tensor) -> tuple[int, Tensor]:
        number = len(self.sent)
        self.sent.append(x)
        self.in_flight.add(number)
        self.events.append(("send", number))
        return number, x.clone()

    def receive(self, sent: tuple[int, Tensor]) -> Tensor:
        number, copy = sent
        self.in_flight.remove(number)
        self.events.append(("receive", number))
        return copy

    def finish(self) -> None:
        self.in_flight.clear()
        self.events.append(("finish", len(self.sent)))
