"""The rows of a run, and the function from rows to logits."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from frostline.data.splits import subset_indices
from frostline.fast.dropout import Dropout
from frostline.fast.last_layer import head_position
from frostline.fast.optimizer import sparse_gradients
from frostline.fast.switch import enabled, forwards_replaced
from frostline.frozen.cut import UpperModel, cut_at
from frostline.frozen.forward_pass import Rows
from frostline.frozen.readers import Reader, reader_of
from frostline.model.device import memory_ran_out, random_state_restored, release_unused, to_device
from frostline.model.heads import padding_id, pooled
from frostline.model.packing import packable
from frostline.model.terms import MEAN
from frostline.training.experiment import Experiment
from frostline.training.linear_models import ridge
from frostline.training.problem import NUMBERS, Unit
from frostline.training.run import Run, State, frozen, generator_seed


def train_rows(experiment: Experiment, spec: Run) -> Rows:
    """The run's training rows: a nested, stratified subset that is the same for every k."""
    pool = experiment.splits["train"]
    return pool[subset_rows(spec, experiment.problem.targets[pool], experiment.folds)]


def subset_rows(spec: Run, targets: NDArray[Any], folds: Rows | None) -> Rows:
    """The training rows of a run, as positions in the training split.

    Args:
        spec: The run.
        targets: The target of each row of the training split, ``[n]``.
        folds: The fold of each row, ``[n]``; None without folds.
    """
    pool = np.arange(len(targets)) if folds is None or spec.fold is None else np.flatnonzero(folds != spec.fold)
    seed = generator_seed(spec.data_seed if spec.subset == "fixed" else spec.seed, f"subset-{spec.subset}")
    return pool[subset_indices(targets[pool], spec.train_size, seed)]


def subset_key(spec: Run, targets: NDArray[Any], folds: Rows | None) -> Hashable:
    """A key of the training rows of a run: runs with the same key train on the same rows.

    The arguments are those of :func:`subset_rows`.
    """
    pool = len(targets) if folds is None or spec.fold is None else int((folds != spec.fold).sum())
    seed = spec.data_seed if spec.subset == "fixed" else spec.seed
    return spec.fold, spec.train_size, seed if spec.train_size < pool else None


def validation_rows(experiment: Experiment, spec: Run) -> Rows:
    """The rows that the run is scored on: all validation rows, or the rows of its fold."""
    rows = experiment.splits["validation"]
    return rows if experiment.folds is None or spec.fold is None else rows[experiment.folds == spec.fold]


def order_generator(spec: Run) -> torch.Generator:
    """The generator that shuffles the run's training rows in every epoch."""
    return torch.Generator().manual_seed(spec.seed_for("order"))


def shuffled(rows: Rows, order: torch.Generator) -> Rows:
    """The rows in a random order, for one epoch."""
    mixed: Rows = rows[torch.randperm(len(rows), generator=order).numpy()]
    return mixed


def training_batches(experiment: Experiment, spec: Run) -> Iterator[Rows]:
    """The rows that the run computes at a time while it trains, ``[B]`` each, in the order in which it draws them.

    The last epoch is whole, also if the run ends within it.
    """
    rows, order, size = train_rows(experiment, spec), order_generator(spec), spec.per_device_train_batch_size
    for _ in range(math.ceil(spec.num_train_epochs)):
        mixed = shuffled(rows, order)
        yield from (mixed[n : n + size] for n in range(0, len(mixed), size))


def checkpointed(forward: Callable[..., Any], upper: UpperModel, dropout: Dropout | None) -> Callable[..., Any]:
    """The forward of a layer, which keeps only its inputs if it computes gradients.

    Args:
        forward: The layer's own.
        upper: Runs the layer.
        dropout: Draws its dropout masks; None: torch's generators do.
    """

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

    experiment: Experiment
    upper: UpperModel
    cut: int | None
    dropout: Dropout | None
    reader: Reader | None  # of cached hidden states; None if the whole model runs
    unit: Unit = NUMBERS  # of what the head predicts

    def __call__(self, rows: Rows) -> Tensor:
        """Logits ``[K, B, C]`` of rows ``[K, B]``. Without gradients, they are computed in chunks that fit into memory."""
        if torch.is_grad_enabled():
            return self._logits(rows)
        chunks = self.experiment.scoring_chunks(self.experiment.tokens.lengths[rows], self.cut)
        return torch.cat([self._scored(rows[:, chunk]) for chunk in chunks], 1)

    @property
    def prefetch(self) -> Callable[[Rows], None] | None:
        """Begins to copy the hidden states of rows ``[K, B]`` to the device; None if that would not save time."""
        reader = self.reader
        return (lambda rows: reader.prefetch(rows.ravel())) if reader and reader.stream else None

    def state(self) -> State:
        """The state of the generators of our own dropout and of torch."""
        device = self.experiment.machine.device
        return {
            "dropout": self.dropout.state() if self.dropout else None,
            "torch": torch.get_rng_state(),
            "device": None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Draw the masks that follow on this state."""
        device = self.experiment.machine.device
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
        release_unused(self.experiment.machine.device)  # outside of the except block, where the error would hold memory
        self.experiment.score_smaller_chunks(self.experiment.tokens.lengths[rows], self.cut)
        return self(rows)

    def _logits(self, rows: Rows) -> Tensor:
        device = self.experiment.machine.device
        inputs, hidden = self._inputs(rows.ravel())
        lengths = inputs["attention_mask"].sum(1)  # on the host
        batch = {name: to_device(x, device) for name, x in inputs.items()}
        with self.experiment.machine.autocast():
            logits = self.upper(batch, hidden, lengths=lengths)
        return self.unit.number(self.experiment.problem.by_row(logits, rows))

    def _inputs(self, rows: Rows) -> tuple[dict[str, Tensor], Tensor | None]:
        """The model's inputs for rows ``[B]``, on the host, and the cached hidden states that replace the layers below the cut.

        The hidden states are on the device.
        """
        experiment = self.experiment
        one_token = experiment.reads_one_token(self.cut)
        batch = (
            experiment.tokens.one_token(rows, last=experiment.head_reads == "last")
            if one_token
            else experiment.tokens.batch(rows)
        )
        return batch, None if self.reader is None else self.reader.read(rows)


@contextmanager
def forward_function(experiment: Experiment, specs: Sequence[Run]) -> Iterator[ForwardFunction]:
    """The function from rows of the pool, ``[K, B]``, to logits ``[K, B, C]``, for K runs with the same cut.

    On a CPU, the dropout masks of each run depend on the seed of that run and on the shape of the batch. On a GPU, and in
    layers that do not use ``nn.Dropout``, the masks of all K runs depend on the seed of the first run.
    """
    pretrained, runs = experiment.pretrained, len(specs)
    seeds = [spec.seed_for("dropout") for spec in specs]
    dropout = Dropout(*seeds) if experiment.machine.device.type == "cpu" and enabled("dropout") else None
    # not with a pull towards pretrained values, which also moves rows of embeddings that were not read
    sparse = runs == 1 and not experiment.worker.as_trainer and not specs[0].way.towards_pretrained
    sparse = sparse and experiment.machine.precision != "float16"  # steps with scaled losses need dense gradients
    cut = experiment.cut(specs[0])
    layers = pretrained.anatomy.layers(pretrained.model)[cut or 0 :] if specs[0].gradient_checkpointing else ()
    with (
        packable(pretrained.model) if experiment.packed else nullcontext() as packing,
        sparse_gradients(pretrained.model) if sparse else nullcontext(),
        dropout.replacing_dropout(pretrained.model) if dropout else nullcontext(),
        cut_at(
            pretrained.model, pretrained.anatomy, cut, packing=packing, runs=runs, head_token=experiment.head_token
        ) as upper,
        forwards_replaced({layer: checkpointed(layer.forward, upper, dropout) for layer in layers}),
        random_state_restored(experiment.machine.device),  # for dropout without nn.Dropout
        _reader(experiment, cut) as reader,
    ):
        torch.manual_seed(seeds[0])
        if packing:
            packing.dropout = dropout
        yield ForwardFunction(experiment, upper, cut, dropout, reader)


@contextmanager
def _reader(experiment: Experiment, cut: int | None) -> Iterator[Reader | None]:
    """Reads the hidden states after ``cut`` layers. In the end, no copy of them is on its way."""
    if cut is None or experiment.states is None:
        yield None
        return
    name = "head" if experiment.reads_one_token(cut) else f"tokens-{cut}"
    with closing(reader_of(experiment.states, name, experiment.machine.device, experiment.worker.copies)) as reader:
        yield reader


class LearnedUnit:
    """The unit in which a run learns numbers: that of its problem, if it trains a new head that ends in a linear module.

    The model always has the weights that predict numbers, except within :meth:`learning`.
    """

    def __init__(self, spec: Run, experiment: Experiment) -> None:
        pretrained, unit = experiment.pretrained, experiment.problem.unit
        path = experiment.last_linear if unit != NUMBERS else None
        self._weight, self._bias = f"{path}.weight", f"{path}.bias"
        if path is None or self._weight not in pretrained.new & spec.parameters(pretrained.anatomy):
            unit = NUMBERS
        self.unit = unit if self._bias in pretrained.new else unit.without_centre

    @torch.no_grad()
    def to_numbers(self, parameters: Mapping[str, Tensor]) -> None:
        """Let a head that predicts in the unit predict numbers of the table."""
        if self.unit != NUMBERS:
            parameters[self._weight].mul_(self.unit.scale)
            if self._bias in parameters:
                parameters[self._bias].mul_(self.unit.scale).add_(self.unit.centre)

    @contextmanager
    def learning(self, forward: ForwardFunction, runs: Sequence[Mapping[str, Tensor]]) -> Iterator[ForwardFunction]:
        """While the context is open, the heads of these runs predict in the unit, and the function still gives numbers."""
        with torch.no_grad():
            for parameters in runs if self.unit != NUMBERS else ():
                if self._bias in parameters:
                    parameters[self._bias].sub_(self.unit.centre).div_(self.unit.scale)
                parameters[self._weight].div_(self.unit.scale)
        try:
            yield replace(forward, unit=self.unit)
        finally:
            for parameters in runs:
                self.to_numbers(parameters)


def fit_head(spec: Run, experiment: Experiment) -> None:
    """Fit the last linear module of the head on the run's training rows, if the way of the run begins with that.

    The model must have the values that the run starts from. The logits then are those of the fitted probe; a head without a
    bias leaves out the probe's.
    """
    if spec.way.order != "head-first":
        return
    path, rows = experiment.last_linear, train_rows(experiment, spec)
    assert path is not None
    head = experiment.pretrained.model.get_submodule(path)
    assert isinstance(head, nn.Linear)
    features = _inputs_of(head, spec, experiment, rows)
    targets = experiment.problem.targets[rows]
    outputs = head.out_features
    together = experiment.examples_of(rows, "train").together()
    model, *_ = ridge(features, targets, 0 if outputs == 1 else outputs, together)  # 0 classes: a number to predict
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(model.weights.T))
        if head.bias is not None:
            head.bias.copy_(torch.from_numpy(model.bias))


def _inputs_of(head: nn.Linear, spec: Run, experiment: Experiment, rows: np.ndarray) -> np.ndarray:
    """What the module reads for each of these rows, ``[n, D]``, in evaluation mode."""
    size = spec.per_device_eval_batch_size
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
        read = args[0].detach().float().cpu()
        if read.dim() == 3:  # the head runs for every token, and the model then takes the logits of one, or their mean
            done = sum(map(len, seen))
            read = _of_texts(read, experiment, rows[done : done + len(read)])
        seen.append(read)

    hook = head.register_forward_hook(keep)
    experiment.pretrained.model.eval()
    try:
        with torch.no_grad(), forward_function(experiment, [frozen(spec)]) as forward:
            for n in range(0, len(rows), size):
                forward(rows[None, n : n + size])
    finally:
        hook.remove()
    features: np.ndarray = torch.cat(seen).flatten(1).numpy()
    return features


def _of_texts(read: Tensor, experiment: Experiment, rows: Rows) -> Tensor:
    """``[B, D]``: what counts of these vectors of all tokens, ``[B, S, D]``, or of the one that is cached, ``[B, 1, D]``."""
    if read.shape[1] == 1:
        return read[:, 0]
    batch = experiment.tokens.batch(rows)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    if experiment.head_reads == "all":
        return pooled(read, mask, MEAN)
    at = head_position(experiment.head_reads, ids, mask, padding_id(experiment.pretrained.model))
    return read[torch.arange(len(read)), at]
