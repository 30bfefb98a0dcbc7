"""The operations and the memory of runs, counted and not timed: what searches weigh, queues sort by and forecasts scale with.

An operation is one multiplication or one addition. The forward pass of a layer takes two operations for each token and each
weight of its matrices, and four for each channel and each pair of tokens that attention compares. For a BERT layer this is
T (24 D^2 + 4 D S).

A trained matrix costs three times its forward pass: the forward pass, the gradient of its input and the gradient of its
weights. A frozen matrix above the lowest trained layer costs twice its forward pass, and below it once. Table lookups, norms
and activations are not counted.

In addition to the pretrained values, a run holds the values that it trains and, if it keeps its best epoch, the best values. Its
optimizer holds AdamW's two moments. A training step adds gradients. All of them are fp32. On a CPU, oneDNN compiles kernels for
every number of tokens that it meets in bfloat16, and keeps the last 1,024 of them.

Shapes: B examples in a batch, S padded length, T tokens, D width.
"""

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from torch import nn

from frostline.fast.last_layer import HeadTokenPart
from frostline.fast.optimizer import large_tables
from frostline.frozen.forward_pass import ForwardBatch, Lengths, Rows, StateSelection
from frostline.model.anatomy import Anatomy
from frostline.model.device import Machine
from frostline.model.terms import HEAD, POOLER, layer_place
from frostline.model.ways import Way
from frostline.training.estimators import estimator_of
from frostline.training.experiment import Experiment, starting_cut
from frostline.training.forward import subset_key, train_rows, training_batches, validation_rows
from frostline.training.run import Run, StepPlan, phases_of

COPY_BYTES = 4  # per trained parameter: the values in training, or the best values so far
SCORED_BYTES = 8  # per updated parameter, while examples are scored: AdamW's two moments
STEP_BYTES = 12  # per updated parameter, in a training step: AdamW's two moments and the gradient
COPIES = (2 * COPY_BYTES + STEP_BYTES) // COPY_BYTES  # all of the above, as copies of the trained parameters

KERNEL_BYTES = 560_000  # of a kernel; for layers of width 384 and 768 alike
KERNELS = 5  # for each number of tokens: those of products and of their gradients; measured with MiniLM
KEPT_KERNELS = 1024  # oneDNN's default
ACTIVATIONS = 64  # fp32 numbers that a step holds for each token, layer and unit of width; a high estimate


@dataclass(frozen=True)
class BatchTotals:
    """Sums over some batches. Means have this type too, so the numbers are floats."""

    count: float = 0.0  # batches
    examples: float = 0.0
    tokens: float = 0.0  # without padding
    padded_tokens: float = 0.0  # B S of each batch
    token_pairs: float = 0.0  # that attention compares: B S^2 of each batch

    def __add__(self, other: "BatchTotals") -> "BatchTotals":
        return BatchTotals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "BatchTotals":
        return BatchTotals(*(getattr(self, f.name) * times for f in fields(self)))

    @property
    def mean(self) -> "BatchTotals":
        """The mean batch."""
        return self * (1 / self.count) if self.count else self

    @property
    def padded(self) -> "BatchTotals":
        """The same batches if padding is computed like any other token."""
        return BatchTotals(self.count, self.examples, self.padded_tokens, self.padded_tokens, self.token_pairs)


def batch_totals(lengths: Lengths, size: int) -> BatchTotals:
    """The totals of examples of these ``lengths``, in this order, with ``size`` examples in a batch."""
    if not len(lengths):
        return BatchTotals()
    starts = np.arange(0, len(lengths), size)
    longest = np.maximum.reduceat(lengths, starts).astype(float)
    examples = np.diff([*starts, len(lengths)])
    return BatchTotals(
        count=len(starts),
        examples=len(lengths),
        tokens=float(lengths.sum()),
        padded_tokens=float(examples @ longest),
        token_pairs=float(examples @ (longest * longest)),
    )


def random_batch_totals(lengths: Lengths, size: int) -> BatchTotals:
    """The totals of batches of examples in random order, as in training. The order is always the same."""
    return batch_totals(np.random.default_rng(0).permutation(lengths), size)


def forward_totals(batch: ForwardBatch) -> BatchTotals:
    """The totals of a batch of the forward pass over the frozen layers, with the copies of examples that fill it up."""
    padded = batch.padded_lengths
    if batch.capacity:
        return BatchTotals(1, batch.examples, batch.capacity, float(padded.sum()), float((padded**2).sum()))
    length = int(padded[0])
    tokens = batch.examples * length
    return BatchTotals(1, batch.examples, tokens, tokens, tokens * length)


@dataclass(frozen=True)
class Matrices:
    """The matrices of a model with one head, which count its operations.

    Attributes:
        anatomy: The model's layers.
        sizes: The number of weights in each matrix, by parameter name. Embedding tables are not multiplied, so they are left out.
        parameters: The number of weights in each parameter, by name.
        head_token: The part of the last layer that runs for one token of each example.
        large: Large embedding tables. A step updates only the few rows of them that it has read.
    """

    anatomy: Anatomy
    sizes: Mapping[str, int]
    parameters: Mapping[str, int]
    head_token: HeadTokenPart | None = None
    large: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: nn.Module, anatomy: Anatomy, head_token: HeadTokenPart | None = None) -> "Matrices":
        """Those of ``model``."""
        tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
        parameters = dict(model.named_parameters())
        sizes = {name: p.numel() for name, p in parameters.items() if p.dim() > 1 and name not in tables}
        large = frozenset(f"{path}.weight" for path in large_tables(model))
        return cls(anatomy, sizes, {name: p.numel() for name, p in parameters.items()}, head_token, large)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The number of weights in the matrices of each layer."""
        return tuple(self._weights(layer_place(n)) for n in range(self.anatomy.count))

    @cached_property
    def head(self) -> int:
        """The number of weights in the matrices of pooler and head."""
        return self._weights(POOLER) + self._weights(HEAD)

    def forward(self, batches: BatchTotals, start: int = 0, stop: int | None = None) -> float:
        """Operations of a forward pass from layer ``start`` to before layer ``stop``; None: to the logits."""
        head = 2.0 * self.head * batches.examples if stop is None else 0.0
        return head + sum(
            sum(self._layer(n, batches)) for n in range(start, self.anatomy.count if stop is None else stop)
        )

    def training(self, names: Set[str], batches: BatchTotals, cut: int | None) -> float:
        """Operations of training steps that train the parameters ``names``; layers below ``cut`` do not run."""
        depth = self.anatomy.depth(names)
        lowest = 0 if depth is None else self.anatomy.count - depth
        total = 6.0 * self.head * batches.examples
        for n in range(cut or 0, self.anatomy.count):
            linear, attention = self._layer(n, batches)
            if n < lowest:
                total += linear + attention
            else:
                share = self._weights(layer_place(n), names) / max(1, self.layers[n])
                total += linear * (2 + share) + 3 * attention
        return total

    def trained_parameters(self, names: Set[str]) -> int:
        """The number of weights in the parameters ``names``."""
        return sum(self.parameters[name] for name in names)

    def updated_parameters(self, names: Set[str]) -> int:
        """The number of weights that every training step updates: all but the large embedding tables."""
        return self.trained_parameters(names - self.large)

    @cached_property
    def _head_token_weights(self) -> int:
        """The number of weights of the last layer that are multiplied with one token of each example only."""
        last = f"{self.anatomy.path}.{self.anatomy.count - 1}"
        paths = [f"{last}.{path}." for path in self.head_token.modules] if self.head_token else []
        return sum(size for name, size in self.sizes.items() if any(name.startswith(path) for path in paths))

    def _weights(self, place: str, names: Set[str] | None = None) -> int:
        return sum(
            size
            for name, size in self.sizes.items()
            if self.anatomy.places[name] == place and (names is None or name in names)
        )

    def _layer(self, number: int, batches: BatchTotals) -> tuple[float, float]:
        """Operations of the matrices of one layer, and of its attention."""
        weights, width = self.layers[number], self.anatomy.width
        if self.head_token is None or number < self.anatomy.count - 1:
            return 2.0 * weights * batches.tokens, 4.0 * width * batches.token_pairs
        head_token = self._head_token_weights
        linear = 2.0 * ((weights - head_token) * batches.tokens + head_token * batches.examples)
        return linear, 4.0 * width * batches.tokens  # one token attends to all of its example


@dataclass(frozen=True)
class RunBatches:
    """The batches of one run."""

    steps: BatchTotals  # of all training steps
    scored: BatchTotals  # of all scored batches
    scorings: int  # how often metrics are computed
    longest: int  # the most tokens that are trained together
    longest_scored: int  # the most tokens that are scored together


class CostModel:
    """The cost of runs that start from the hidden states ``cached``."""

    def __init__(self, experiment: Experiment, cached: StateSelection) -> None:
        self.experiment, self.cached, self.anatomy = experiment, cached, experiment.pretrained.anatomy
        self.matrices = Matrices.of(experiment.pretrained.model, self.anatomy, experiment.head_token)
        self._by_head = {experiment.pretrained.head: self.matrices}
        self._targets = experiment.problem.targets[experiment.splits["train"]]
        self._lengths: dict[Hashable, Lengths] = {}
        self._operations: dict[str, float] = {}
        self._batch_sizes: dict[Hashable, frozenset[int]] = {}

    def matrices_of(self, spec: Run) -> Matrices:
        """The matrices of the model with the head that a run trains."""
        experiment = self.experiment.for_run(spec)
        pretrained = experiment.pretrained
        if pretrained.head not in self._by_head:
            self._by_head[pretrained.head] = Matrices.of(pretrained.model, pretrained.anatomy, experiment.head_token)
        return self._by_head[pretrained.head]

    def names(self, spec: Run) -> frozenset[str]:
        """The names of the parameters that a run trains, in the model with its head."""
        return spec.parameters(self.matrices_of(spec).anatomy)

    def lengths(self, spec: Run) -> Lengths:
        """The number of tokens in each training example of a run."""
        key = self._rows_key(spec)
        if key not in self._lengths:
            self._lengths[key] = self.experiment.tokens.lengths[train_rows(self.experiment, spec)]
        return self._lengths[key]

    def batch_sizes(self, spec: Run) -> frozenset[int]:
        """How many tokens the batches have that the run trains on."""
        key = (self._rows_key(spec), spec.seed, spec.num_train_epochs, spec.per_device_train_batch_size)
        if key not in self._batch_sizes:
            self._batch_sizes[key] = frozenset(map(self.computed_tokens, training_batches(self.experiment, spec)))
        return self._batch_sizes[key]

    def batches(self, spec: Run) -> RunBatches:
        """The batches of a run."""
        lengths = self.lengths(spec)
        steps, times = self.steps(spec, lengths)
        size, in_order = spec.per_device_eval_batch_size, self.experiment.worker.as_trainer

        def batched(some: Lengths) -> BatchTotals:
            return batch_totals(some if in_order else np.sort(some), size)

        parts = {name: batched(some) for name, some in self.scored_lengths(spec).items()}
        phases = len(phases_of(spec, self.anatomy))  # each one scores some training rows at its end
        scored = parts.pop("validation") * times + batched(lengths[: spec.train_score_rows]) * phases
        scored, scorings = sum(parts.values(), scored), 2 * times + phases + len(parts)
        all_scored = (lengths, *self.scored_lengths(spec).values())
        longest_scored = max(
            self.experiment.largest_chunk(np.sort(some)[-size:], self.cut(spec)) for some in all_scored
        )
        if not self.experiment.packed:
            steps, scored = steps.padded, scored.padded
        return RunBatches(steps, scored, scorings, max(self.batch_sizes(spec)), longest_scored)

    def cut(self, spec: Run) -> int | None:
        """After how many layers a run starts from cached hidden states; None runs the whole model."""
        return starting_cut(self.cached, self.anatomy, spec)

    def operations(self, spec: Run) -> float:
        """Operations of a whole run."""
        if spec.digest not in self._operations:
            self._operations[spec.digest] = self._count(spec)
        return self._operations[spec.digest]

    def _count(self, spec: Run) -> float:
        if estimator := estimator_of(spec.way):
            epoch = random_batch_totals(self.lengths(spec), spec.batch_size)
            whole = self.matrices.training(Way().parameters(self.anatomy), epoch, None)
            return estimator.operations(spec, self.experiment, whole)
        work, cut = self.batches(spec), self.cut(spec)
        return self.training_operations(spec, work) + self.matrices_of(spec).forward(work.scored, cut or 0)

    def training_operations(self, spec: Run, work: RunBatches) -> float:
        """Operations of all training steps of a run. Its phases have equal parts of the steps."""
        phases = phases_of(spec, self.anatomy)
        steps, counter = work.steps * (1 / len(phases)), self.matrices_of(spec)
        return sum(counter.training(self.names(phase), steps, self.cut(phase)) for phase in phases)

    def forward_pass_operations(self, rows: Rows) -> float:
        """Operations of the forward pass over the frozen layers for these rows, with the copies that fill up its batches."""
        return sum(
            self.batch_operations(batch)
            for batch in self.experiment.forward_pass(self.cached).batches(self.experiment.tokens.lengths, rows)
        )

    def batch_operations(self, batch: ForwardBatch) -> float:
        """Operations of one batch of the forward pass over the frozen layers."""
        return self.matrices.forward(forward_totals(batch), stop=self.cached.depth(self.anatomy.count))

    def memory_bound(self, run: Run) -> int:
        """An upper bound of the bytes that one process needs for a run.

        A forecast measures activations. This bound must be known before anything is timed, so it estimates them from above. It
        also counts the pretrained values, as if a fork did not share them.
        """
        anatomy, work = self.anatomy, self.batches(run)
        parameters = self.matrices_of(run).trained_parameters(self.names(run))
        tokens = max(work.longest, work.longest_scored)
        return int(COPY_BYTES * ((COPIES + 1) * parameters + ACTIVATIONS * tokens * anatomy.count * anatomy.width))

    def computed_tokens(self, rows: Rows) -> int:
        """The number of computed tokens of a batch of rows ``[B]``."""
        return self.experiment.computed_tokens(self.experiment.tokens.lengths[rows])

    def _rows_key(self, spec: Run) -> Hashable:
        """Runs with the same key train on the same rows."""
        return subset_key(spec, self._targets, self.experiment.folds)

    def steps(self, spec: Run, lengths: Lengths) -> tuple[BatchTotals, int]:
        """The totals of all training steps of a run, and how often it is scored on validation in all its phases."""
        epoch = random_batch_totals(lengths, spec.batch_size)
        steps = StepPlan.of(spec, len(lengths))
        phases = [StepPlan.of(phase, len(lengths)) for phase in phases_of(spec, self.anatomy)]
        return epoch * (steps.total / steps.per_epoch), sum(len(phase.evaluate_after) for phase in phases)

    def scored_lengths(self, spec: Run) -> dict[str, Lengths]:
        """The number of tokens in each example of the splits that a run is scored on."""
        lengths = self.experiment.tokens.lengths
        rows = {**self.experiment.splits, "validation": validation_rows(self.experiment, spec)}
        return {name: lengths[some] for name, some in rows.items() if name != "train"}


def kernel_bytes(machine: Machine, sizes: int) -> int:
    """An estimate of the bytes that a process holds for oneDNN's kernels.

    Args:
        machine: What trains.
        sizes: How many different numbers of tokens its batches have, approximately.
    """
    if machine.device.type != "cpu" or machine.precision != "bfloat16":
        return 0
    return KERNEL_BYTES * min(KEPT_KERNELS, KERNELS * sizes)
