"""The function from rows to logits: it runs the model from the cut on, for training and scoring.

Gradient checkpointing: keep only the inputs of layers, and compute each layer a second time in the backward pass.

The results are bitwise identical on a CPU, because the second computation repeats the first. It therefore starts from the same
state of all random generators, and reads the same positions in the packed batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from frostline.fast.dropout import Dropout
from frostline.fast.optimizer import sparse_gradients
from frostline.fast.switch import enabled, forwards_replaced
from frostline.frozen.cut import UpperModel, cut_at
from frostline.frozen.forward_pass import Rows
from frostline.frozen.readers import AheadReader, Part, Reader, reader_of
from frostline.model.device import memory_ran_out, random_state_restored, release_unused, to_device
from frostline.model.packing import packable
from frostline.model.pretrained import Pretrained
from frostline.training.checkpoint import State
from frostline.training.experiment import Experiment
from frostline.training.specification import RunSpec


@contextmanager
def checkpointed(layers: Sequence[nn.Module], upper: UpperModel, dropout: Dropout | None) -> Iterator[None]:
    """While the context is open, forward passes with gradients keep only the inputs of these layers.

    Args:
        layers: Layers of the model.
        upper: Runs them.
        dropout: Draws their dropout masks; None: torch's generators do.
    """
    with forwards_replaced({layer: _forward(layer.forward, upper, dropout) for layer in layers}):
        yield


def _forward(forward: Callable[..., Any], upper: UpperModel, dropout: Dropout | None) -> Callable[..., Any]:
    def checkpointed_forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        positions, masks = upper.positions(), dropout.state() if dropout else []

        @contextmanager
        def as_before() -> Iterator[None]:
            with upper.at_positions(positions), dropout.from_state(masks) if dropout else nullcontext():
                yield

        return checkpoint(
            forward, *args, use_reentrant=False, context_fn=lambda: (nullcontext(), as_before()), **kwargs
        )

    return checkpointed_forward


@dataclass(frozen=True)
class ForwardFunction:
    """The function from rows to logits, and the state of the random generators of its dropout."""

    context: Experiment
    upper: UpperModel
    cut: int | None
    dropout: Dropout | None
    reader: Reader | None  # of cached hidden states; None if the whole model runs

    def __call__(self, rows: Rows) -> Tensor:
        """Logits ``[K, B, C]`` of rows ``[K, B]``. Without gradients, they are computed in chunks that fit into memory."""
        if torch.is_grad_enabled():
            return self._logits(rows)
        chunks = self.context.scoring_chunks(self.context.tokens.lengths[rows], self.cut)
        return torch.cat([self._scored(rows[:, chunk]) for chunk in chunks], 1)

    @property
    def prefetch(self) -> Callable[[Rows], None] | None:
        """Begins to copy the hidden states of rows ``[K, B]`` to the device; None if that would not save time."""
        reader = self.reader
        return (lambda rows: reader.prefetch(rows.ravel())) if isinstance(reader, AheadReader) else None

    def state(self) -> State:
        """The state of the generators of our own dropout and of torch."""
        device = self.context.machine.device
        return {
            "dropout": self.dropout.state() if self.dropout else None,
            "torch": torch.get_rng_state(),
            "device": None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Draw the masks that follow on this state."""
        device = self.context.machine.device
        if self.dropout:
            self.dropout.load_state(state["dropout"])
        torch.set_rng_state(state["torch"])
        if device.type != "cpu":
            torch.get_device_module(device).set_rng_state(state["device"])

    def _scored(self, rows: Rows) -> Tensor:
        """The logits of a chunk. If memory runs out, they are computed in smaller ones, as are those of all later batches."""
        try:
            return self._logits(rows)
        except (RuntimeError, MemoryError) as error:
            if rows.shape[1] == 1 or not memory_ran_out(error):
                raise
        release_unused(self.context.machine.device)  # outside of the except block, where the error would hold memory
        self.context.score_smaller_chunks(self.context.tokens.lengths[rows], self.cut)
        return self(rows)

    def _logits(self, rows: Rows) -> Tensor:
        device = self.context.machine.device
        inputs, hidden = self._inputs(rows.ravel())
        lengths = inputs["attention_mask"].sum(1)  # on the host
        batch = {name: to_device(x, device) for name, x in inputs.items()}
        with self.context.machine.autocast():
            logits = self.upper(batch, hidden, lengths=lengths)
        return self.context.problem.by_row(logits, rows)

    def _inputs(self, rows: Rows) -> tuple[dict[str, Tensor], Tensor | None]:
        """The model's inputs for rows ``[B]``, on the host, and the cached hidden states that replace the layers below the cut.

        The hidden states are on the device.
        """
        context = self.context
        one_token = context.reads_one_token(self.cut)
        batch = (
            context.tokens.one_token(rows, last=context.head_reads == "last")
            if one_token
            else context.tokens.batch(rows)
        )
        return batch, None if self.reader is None else self.reader.read(rows)


@contextmanager
def forward_function(context: Experiment, specs: Sequence[RunSpec]) -> Iterator[ForwardFunction]:
    """The function from rows of the pool, ``[K, B]``, to logits ``[K, B, C]``, for K runs with the same cut.

    On a CPU, the dropout masks of each run depend only on the seed of that run. On a GPU, and in layers that do not use
    ``nn.Dropout``, the masks of all K runs depend on the seed of the first run.
    """
    pretrained, runs = context.pretrained, len(specs)
    seeds = [spec.seed_for("dropout") for spec in specs]
    dropout = Dropout(*seeds) if context.machine.device.type == "cpu" and enabled("dropout") else None
    sparse = runs == 1 and not context.worker.as_trainer and not specs[0].way.dense
    sparse = sparse and context.machine.precision != "float16"  # steps with scaled losses need dense gradients
    cut = context.cut(specs[0])
    with (
        packable(pretrained.model) if context.packed else nullcontext() as packing,
        sparse_gradients(pretrained.model) if sparse else nullcontext(),
        dropout.replacing_dropout(pretrained.model) if dropout else nullcontext(),
        cut_at(
            pretrained.model, pretrained.anatomy, cut, packing=packing, runs=runs, head_token=context.head_token
        ) as upper,
        checkpointed(_running_layers(pretrained, cut), upper, dropout)
        if specs[0].gradient_checkpointing
        else nullcontext(),
        random_state_restored(context.machine.device),  # for dropout without nn.Dropout
        _reader(context, cut) as reader,
    ):
        torch.manual_seed(seeds[0])
        if packing:
            packing.dropout = dropout
        yield ForwardFunction(context, upper, cut, dropout, reader)


@contextmanager
def _reader(context: Experiment, cut: int | None) -> Iterator[Reader | None]:
    """Reads the hidden states after ``cut`` layers. In the end, no copy of them is on its way."""
    states, lengths = context.states, context.tokens.lengths
    if cut is None or states is None:
        yield None
        return
    part = Part.head(states, lengths) if context.reads_one_token(cut) else Part.tokens(states, cut, lengths)
    reader = reader_of(part, context.machine.device, context.worker.copies)
    with closing(reader) if isinstance(reader, AheadReader) else nullcontext():
        yield reader


def _running_layers(pretrained: Pretrained, cut: int | None) -> Sequence[nn.Module]:
    return pretrained.anatomy.layers(pretrained.model)[cut or 0 :]
