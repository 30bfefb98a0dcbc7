"""The work of runs and of the forward pass that they share, counted in batches and operations. Nothing is timed.

The memory that a run needs for the parameters that it trains, and that a process needs for oneDNN's kernels.

In addition to the pretrained values, a run holds the values that it trains and, if it keeps its best epoch, the best values. Its
optimizer holds AdamW's two moments. A training step adds gradients. All of them are fp32. Activations are not counted here.

On a CPU, oneDNN compiles kernels for every number of tokens that it meets in bfloat16, and keeps the last 1,024 of them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.frozen.forward_pass import ForwardBatch, Lengths, Rows, StateSelection
from frostline.model.device import Machine
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import FULL
from frostline.sweep.work.operations import (
    BatchTotals,
    OperationCounter,
    batch_totals,
    forward_totals,
    random_batch_totals,
    sorted_batch_totals,
)
from frostline.training.estimators.by_name import estimator_of
from frostline.training.experiment import Experiment, starting_cut
from frostline.training.rows import subset_key, train_rows, training_batches, validation_rows
from frostline.training.specification import RunSpec
from frostline.training.steps import StepPlan
from frostline.training.ways.phases import phases_of

COPY_BYTES = 4  # per trained parameter: the values in training, or the best values so far
SCORED_BYTES = 8  # per updated parameter, while examples are scored: AdamW's two moments
STEP_BYTES = 12  # per updated parameter, in a training step: AdamW's two moments and the gradient
COPIES = (2 * COPY_BYTES + STEP_BYTES) // COPY_BYTES  # all of the above, as copies of the trained parameters

KERNEL_BYTES = 560_000  # of a kernel; for layers of width 384 and 768 alike
KERNELS = 5  # for each number of tokens: those of products and of their gradients; measured with MiniLM
KEPT_KERNELS = 1024  # oneDNN's default


def kernel_bytes(machine: Machine, sizes: int) -> int:
    """An estimate of the bytes that a process holds for oneDNN's kernels.

    Args:
        machine: What trains.
        sizes: How many different numbers of tokens its batches have, approximately.
    """
    if machine.device.type != "cpu" or machine.precision != "bfloat16":
        return 0
    return KERNEL_BYTES * min(KEPT_KERNELS, KERNELS * sizes)


ACTIVATIONS = 64  # fp32 numbers that a step holds for each token, layer and unit of width; a high estimate
PLAIN_BATCH = 8  # per_device_eval_batch_size of TrainingArguments


@dataclass(frozen=True)
class RunWork:
    """The work of one run."""

    steps: BatchTotals  # of all training steps
    scored: BatchTotals  # of all scored batches
    scorings: int  # how often metrics are computed
    longest: int  # the most tokens that are trained together
    longest_scored: int  # the most tokens that are scored together


@dataclass(frozen=True)
class TimingCase:
    """A run that the forecast can time as an example of its k."""

    spec: RunSpec
    counter: OperationCounter  # of the model with the head that it trains
    names: frozenset[str]  # of the parameters that it trains
    cut: int | None
    step: BatchTotals  # the mean training step in this sweep
    scored_batch: BatchTotals  # the mean scored batch in this sweep
    stackable: tuple[RunSpec, ...]  # this run and all that differ from it only in seed and learning rate
    heaviest: Rows  # the rows of the batch with the most tokens that one of them trains on

    @property
    def operations(self) -> tuple[float, float]:
        """Operations of the training step, and of the scored batch."""
        step = self.counter.training(self.names, self.step, self.cut)
        return step, self.counter.forward(self.scored_batch, self.cut or 0)

    @property
    def trained_parameters(self) -> int:
        """The number of weights that it trains."""
        return self.counter.trained_parameters(self.names)


class Workload:
    """The work of runs that start from the hidden states ``cached``."""

    def __init__(self, context: Experiment, cached: StateSelection) -> None:
        self.context, self.cached, self.anatomy = context, cached, context.pretrained.anatomy
        self.matrices = OperationCounter.of(context.pretrained.model, self.anatomy, context.head_token)
        self._by_head = {context.pretrained.head: self.matrices}
        self._targets = context.problem.targets[context.splits["train"]]
        self._lengths: dict[Hashable, Lengths] = {}
        self._batch_sizes: dict[Hashable, frozenset[int]] = {}

    def counter(self, spec: RunSpec) -> OperationCounter:
        """Counts the operations of the model with the head that a run trains."""
        context = self.context.for_run(spec)
        pretrained = context.pretrained
        if pretrained.head not in self._by_head:
            counter = OperationCounter.of(pretrained.model, pretrained.anatomy, context.head_token)
            self._by_head[pretrained.head] = counter
        return self._by_head[pretrained.head]

    def names(self, spec: RunSpec) -> frozenset[str]:
        """The names of the parameters that a run trains, in the model with its head."""
        return spec.to_train.parameters(self.counter(spec).anatomy)

    def lengths(self, spec: RunSpec) -> Lengths:
        """The number of tokens in each training example of a run."""
        key = self._rows_key(spec)
        if key not in self._lengths:
            self._lengths[key] = self.context.tokens.lengths[train_rows(self.context, spec)]
        return self._lengths[key]

    def batch_sizes(self, spec: RunSpec) -> frozenset[int]:
        """How many tokens the batches have that the run trains on."""
        key = (self._rows_key(spec), spec.seed, spec.num_train_epochs, spec.per_device_train_batch_size)
        if key not in self._batch_sizes:
            self._batch_sizes[key] = frozenset(map(self._computed_tokens, training_batches(self.context, spec)))
        return self._batch_sizes[key]

    def run_work(self, spec: RunSpec) -> RunWork:
        """The work of a run."""
        lengths = self.lengths(spec)
        steps, times = self._steps(spec, lengths)
        size = spec.per_device_eval_batch_size
        parts = {name: sorted_batch_totals(some, size) for name, some in self._splits(spec).items()}
        phases = len(phases_of(spec, self.anatomy))  # each one scores some training rows at its end
        scored = parts.pop("validation") * times + sorted_batch_totals(lengths[: spec.train_score_rows], size) * phases
        scored, scorings = sum(parts.values(), scored), 2 * times + phases + len(parts)
        all_scored = (lengths, *self._splits(spec).values())
        longest_scored = max(self.context.largest_chunk(np.sort(some)[-size:], self.cut(spec)) for some in all_scored)
        if not self.context.packed:
            steps, scored = steps.padded, scored.padded
        return RunWork(steps, scored, scorings, max(self.batch_sizes(spec)), longest_scored)

    def plain_run_work(self, spec: RunSpec) -> RunWork:
        """The work of a run with plain transformers: padding is computed, and examples are scored eight at a time, unsorted."""
        steps, times = self._steps(spec, self.lengths(spec))
        parts = {name: batch_totals(some, PLAIN_BATCH).padded for name, some in self._splits(spec).items()}
        scored = sum(parts.values(), parts.pop("validation") * times)
        return RunWork(steps.padded, scored, times + len(parts), 0, 0)

    def cut(self, spec: RunSpec) -> int | None:
        """After how many layers a run starts from cached hidden states; None runs the whole model."""
        return starting_cut(self.cached, self.anatomy, spec)

    def operations(self, spec: RunSpec) -> float:
        """Operations of a whole run."""
        if estimator := estimator_of(spec.way):
            epoch = random_batch_totals(self.lengths(spec), spec.batch_size)
            whole = self.matrices.training(Trainable(FULL).parameters(self.anatomy), epoch, None)
            return estimator.operations(spec, self.context, whole)
        work, cut = self.run_work(spec), self.cut(spec)
        return self.training_operations(spec, work) + self.counter(spec).forward(work.scored, cut or 0)

    def training_operations(self, spec: RunSpec, work: RunWork) -> float:
        """Operations of all training steps of a run. Its phases have equal parts of the steps."""
        phases = phases_of(spec, self.anatomy)
        steps, counter = work.steps * (1 / len(phases)), self.counter(spec)
        return sum(counter.training(self.names(phase), steps, self.cut(phase)) for phase in phases)

    def forward_pass_operations(self, rows: Rows) -> float:
        """Operations of the forward pass over the frozen layers for these rows, with the copies that fill up its batches."""
        return sum(
            self.batch_operations(batch)
            for batch in self.context.forward_pass(self.cached).batches(self.context.tokens.lengths, rows)
        )

    def batch_operations(self, batch: ForwardBatch) -> float:
        """Operations of one batch of the forward pass over the frozen layers."""
        return self.matrices.forward(forward_totals(batch), stop=self.cached.depth(self.anatomy.count))

    def memory_bound(self, run: RunSpec) -> int:
        """An upper bound of the bytes that one process needs for a run.

        A forecast measures activations. This bound must be known before anything is timed, so it estimates them from above. It
        also counts the pretrained values, as if a fork did not share them.
        """
        anatomy, work = self.anatomy, self.run_work(run)
        parameters = self.counter(run).trained_parameters(self.names(run))
        tokens = max(work.longest, work.longest_scored)
        return int(COPY_BYTES * ((COPIES + 1) * parameters + ACTIVATIONS * tokens * anatomy.count * anatomy.width))

    def timing_cases(self, runs: Sequence[RunSpec]) -> list[TimingCase]:
        """For each k the run with the most training examples."""
        largest = {run.recipe: run for run in sorted(runs, key=lambda run: (run.train_size, -run.seed))}
        stackable: dict[str, list[RunSpec]] = {}
        for run in runs:
            stackable.setdefault(run.stack_key, []).append(run)
        return [self._timing_case(spec, stackable[spec.stack_key]) for spec in largest.values()]

    def _timing_case(self, spec: RunSpec, stackable: Sequence[RunSpec]) -> TimingCase:
        work = self.run_work(spec)
        longest = max(stackable, key=lambda run: max(self.batch_sizes(run)))
        heaviest = max(training_batches(self.context, longest), key=self._computed_tokens)
        return TimingCase(
            spec=spec,
            counter=self.counter(spec),
            names=self.names(spec),
            cut=self.cut(spec),
            step=work.steps.mean,
            scored_batch=work.scored.mean,
            stackable=tuple(stackable),
            heaviest=heaviest,
        )

    def _computed_tokens(self, rows: Rows) -> int:
        """The number of computed tokens of a batch of rows ``[B]``."""
        return self.context.computed_tokens(self.context.tokens.lengths[rows])

    def _rows_key(self, spec: RunSpec) -> Hashable:
        """Runs with the same key train on the same rows."""
        return subset_key(spec, self._targets, self.context.folds)

    def _steps(self, spec: RunSpec, lengths: Lengths) -> tuple[BatchTotals, int]:
        """The totals of all training steps of a run, and how often it is scored on validation in all its phases."""
        epoch = random_batch_totals(lengths, spec.batch_size)
        steps = StepPlan.of(spec, len(lengths))
        phases = [StepPlan.of(phase, len(lengths)) for phase in phases_of(spec, self.anatomy)]
        return epoch * (steps.total / steps.per_epoch), sum(len(phase.evaluate_after) for phase in phases)

    def _splits(self, spec: RunSpec) -> dict[str, Lengths]:
        """The number of tokens in each example of the splits that a run is scored on."""
        lengths = self.context.tokens.lengths
        rows = {**self.context.splits, "validation": validation_rows(self.context, spec)}
        return {name: lengths[some] for name, some in rows.items() if name != "train"}
