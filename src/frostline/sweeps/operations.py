"""The cost of runs, known before anything is timed: what searches weigh, queues sort by and forecasts scale with.

The price of a run is a count of layers and tokens. A token that passes a layer takes two operations for each parameter of the
layer, and four for each channel and each token of its example, with which attention compares it. An example takes two for each
parameter of the head; a BiLSTM and a head for tags take them for each token. What is trained takes three times that: the forward
pass, the gradient of its input and the gradient of its parameters. A frozen layer above the lowest trained one takes it twice.
Embeddings and activations are not priced. Padding is only priced in the forward pass over the frozen layers.

In addition to the pretrained values, a run holds the values that it trains and, if it keeps its best epoch, the best values. Its
optimizer holds AdamW's two moments. A training step adds gradients. All of them are fp32. On a CPU, oneDNN compiles kernels for
every number of tokens that it meets in bfloat16, and keeps the last 1,024 of them.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Set
from dataclasses import astuple, dataclass
from math import ceil
from typing import Self

import numpy as np

from frostline.data.kinds import TOKENS
from frostline.fast.optimizer import large_tables
from frostline.frozen.forward_pass import ForwardBatch, Lengths, Rows, StateSelection
from frostline.model.device import Machine
from frostline.model.terms import HEAD, POOLER, HeadKind, layer_place
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
class Batches:
    """Sums over some batches. Means have this type too, so the numbers are floats."""

    count: float = 0.0  # batches
    examples: float = 0.0
    tokens: float = 0.0  # without padding
    pairs: float = 0.0  # of tokens of one example, which attention compares

    @classmethod
    def of(cls, lengths: Lengths, size: int) -> Self:
        """Batches of ``size`` examples of these ``lengths``."""
        return cls(ceil(len(lengths) / size), len(lengths), float(lengths.sum()), float((lengths**2).sum()))

    def __add__(self, other: "Batches") -> "Batches":
        return Batches(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> "Batches":
        return Batches(*(times * one for one in astuple(self)))

    @property
    def mean(self) -> "Batches":
        """The mean batch."""
        return self * (1 / self.count) if self.count else self


@dataclass(frozen=True)
class RunBatches:
    """The batches of one run."""

    steps: Batches  # of all training steps
    scored: Batches
    scorings: int  # how often metrics are computed
    longest: int  # the most tokens that are trained together
    longest_scored: int  # the most tokens that are scored together


class CostModel:
    """The cost of runs that start from the hidden states ``cached``."""

    def __init__(self, experiment: Experiment, cached: StateSelection) -> None:
        self.experiment, self.cached, self.anatomy = experiment, cached, experiment.pretrained.anatomy
        self._targets = experiment.problem.targets[experiment.splits["train"]]
        self._sizes: dict[HeadKind, Mapping[str, int]] = {}
        self._lengths: dict[Hashable, Lengths] = {}
        self._operations: dict[str, float] = {}
        self._batch_sizes: dict[Hashable, frozenset[int]] = {}

    def operations(self, spec: Run) -> float:
        """Operations of a whole run."""
        if spec.digest not in self._operations:
            self._operations[spec.digest] = self._count(spec)
        return self._operations[spec.digest]

    def _count(self, spec: Run) -> float:
        if estimator := estimator_of(spec.way):
            epoch = Batches.of(self.lengths(spec), spec.batch_size)
            whole = self._price(self.experiment, epoch, 0, trained=Way().parameters(self.anatomy))
            return estimator.operations(spec, self.experiment, whole)
        work = self.batches(spec)
        return self.training(spec, work.steps) + self.scoring(spec, work.scored)

    def training(self, spec: Run, steps: Batches) -> float:
        """Operations of these training steps of a run. Its phases have equal parts of them."""
        phases, experiment = phases_of(spec, self.anatomy), self.experiment.for_run(spec)
        part = steps * (1 / len(phases))
        return sum(self._price(experiment, part, self.cut(one) or 0, trained=self.names(one)) for one in phases)

    def scoring(self, spec: Run, batches: Batches) -> float:
        """Operations of scoring these batches with the model of a run."""
        return self._price(self.experiment.for_run(spec), batches, self.cut(spec) or 0)

    def predicting(self, rows: Rows, batch_size: int) -> float:
        """Operations of predicting these rows with the whole model as transformers runs it: every layer for every token."""
        batches = Batches.of(self.experiment.tokens.lengths[rows], batch_size)
        return self._price(self.experiment, batches, 0, every_token=True)

    def forward_pass(self, rows: Rows) -> float:
        """Operations of the forward pass over the frozen layers for these rows."""
        batches = self.experiment.forward_pass(self.cached).batches(self.experiment.tokens.lengths, rows)
        return sum(map(self.forward_batch, batches))

    def forward_batch(self, batch: ForwardBatch) -> float:
        """Operations of one batch of it, also for what fills the batch up: of a few rows, that is most of it."""
        own = Batches.of(batch.lengths, len(batch.rows))
        price = self._price(self.experiment, own, 0, self.cached.depth(self.anatomy.count))
        return price * batch.computed_tokens / own.tokens

    def _price(
        self,
        experiment: Experiment,
        batches: Batches,
        start: int,
        stop: int | None = None,
        trained: Set[str] = frozenset(),
        *,
        every_token: bool = False,
    ) -> float:
        """Operations of the layers from ``start`` to before ``stop``; None: to the logits, with the head.

        The last layer computes the token that the head reads, or ``every_token``.
        ``trained`` are the names of the parameters that are trained, without which it is a forward pass.
        """
        anatomy, sizes = experiment.pretrained.anatomy, self._sizes_of(experiment)
        head_token = None if every_token else experiment.head_token
        all_of, trained_of = Counter[str](), Counter[str]()
        for name, size in sizes.items():
            all_of[anatomy.places[name]] += size
            trained_of[anatomy.places[name]] += size * (name in trained)
        depth = anatomy.depth(trained) if trained else 0
        lowest = 0 if depth is None else anatomy.count - depth
        last = anatomy.count - 1
        once = [f"{anatomy.path}.{last}.{path}." for path in head_token.modules] if head_token else []
        of_one_token = sum(size for name, size in sizes.items() if name.startswith(tuple(once)))
        total = 0.0
        for n in range(start, anatomy.count if stop is None else stop):
            parameters, of_one = all_of[layer_place(n)], of_one_token if n == last else 0
            passes = 1.0 if n < lowest else 2.0 + trained_of[layer_place(n)] / max(1, parameters)
            compared = batches.tokens if of_one else batches.pairs  # one token is compared with all of its example
            linear = (parameters - of_one) * batches.tokens + of_one * batches.examples
            total += passes * (linear + 2 * anatomy.width * compared)
        if stop is None:
            of_tokens = experiment.pretrained.head.lstm_width or experiment.problem.task_type == TOKENS
            read = batches.tokens if of_tokens else batches.examples
            total += (3 if trained else 1) * (all_of[POOLER] * batches.examples + all_of[HEAD] * read)
        return 2.0 * total

    def _sizes_of(self, experiment: Experiment) -> Mapping[str, int]:
        """The number of weights in each parameter of the model of an experiment, by name."""
        pretrained = experiment.pretrained
        if pretrained.head not in self._sizes:
            self._sizes[pretrained.head] = {name: p.numel() for name, p in pretrained.model.named_parameters()}
        return self._sizes[pretrained.head]

    def names(self, spec: Run) -> frozenset[str]:
        """The names of the parameters that a run trains, in the model with its head."""
        return spec.parameters(self.experiment.for_run(spec).pretrained.anatomy)

    def trained_parameters(self, spec: Run) -> int:
        """The number of weights that a run trains."""
        sizes = self._sizes_of(self.experiment.for_run(spec))
        return sum(sizes[name] for name in self.names(spec))

    def updated_parameters(self, spec: Run) -> int:
        """The number of weights that every step updates. Of large embedding tables it updates only the few rows it has read."""
        experiment = self.experiment.for_run(spec)
        sizes, tables = self._sizes_of(experiment), large_tables(experiment.pretrained.model)
        return sum(sizes[name] for name in self.names(spec) - {f"{path}.weight" for path in tables})

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
        """The batches of a run. Every phase is scored on validation and, at its end, on some training rows."""
        lengths, tokens, size = self.lengths(spec), self.experiment.tokens.lengths, spec.per_device_eval_batch_size
        whole = StepPlan.of(spec, len(lengths))
        phases = [StepPlan.of(phase, len(lengths)) for phase in phases_of(spec, self.anatomy)]
        times = sum(len(phase.evaluate_after) for phase in phases)
        splits = {**self.experiment.splits, "validation": validation_rows(self.experiment, spec)}
        others = {name: tokens[rows] for name, rows in splits.items() if name != "train"}
        scored = Batches.of(lengths[: spec.train_score_rows], size) * len(phases)
        for name, some in others.items():
            scored += Batches.of(some, size) * (times if name == "validation" else 1)
        longest_scored = max(
            self.experiment.largest_chunk(np.sort(some)[-size:], self.cut(spec)) for some in (lengths, *others.values())
        )
        return RunBatches(
            steps=Batches.of(lengths, spec.batch_size) * (whole.total / whole.per_epoch),
            scored=scored,
            scorings=2 * times + len(phases) + len(others) - 1,
            longest=max(self.batch_sizes(spec)),
            longest_scored=longest_scored,
        )

    def cut(self, spec: Run) -> int | None:
        """After how many layers a run starts from cached hidden states; None runs the whole model."""
        return starting_cut(self.cached, self.anatomy, spec)

    def memory_bound(self, run: Run) -> int:
        """An upper bound of the bytes that one process needs for a run.

        A forecast measures activations. This bound must be known before anything is timed, so it estimates them from above. It
        also counts the pretrained values, as if a fork did not share them.
        """
        anatomy, work = self.anatomy, self.batches(run)
        tokens = max(work.longest, work.longest_scored)
        activations = ACTIVATIONS * tokens * anatomy.count * anatomy.width
        return int(COPY_BYTES * ((COPIES + 1) * self.trained_parameters(run) + activations))

    def computed_tokens(self, rows: Rows) -> int:
        """The number of computed tokens of a batch of rows ``[B]``."""
        return self.experiment.computed_tokens(self.experiment.tokens.lengths[rows])

    def _rows_key(self, spec: Run) -> Hashable:
        """Runs with the same key train on the same rows."""
        return subset_key(spec, self._targets, self.experiment.folds)


def kernel_bytes(machine: Machine, sizes: int) -> int:
    """An estimate of the bytes that a process holds for oneDNN's kernels.

    Args:
        machine: What trains.
        sizes: How many different numbers of tokens its batches have, approximately.
    """
    if machine.device.type != "cpu" or machine.precision != "bfloat16":
        return 0
    return KERNEL_BYTES * min(KEPT_KERNELS, KERNELS * sizes)
