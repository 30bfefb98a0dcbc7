"""What the runs of a sweep and the pass they share have to do, counted in batches and operations; nothing is timed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frostline.frozen.batches import ForwardBatch, Lengths, Rows
from frostline.frozen.selection import StateSelection
from frostline.sweep.forecast.operations import (
    BatchTotals,
    OperationCounter,
    batch_totals,
    forward_totals,
    random_batch_totals,
    sorted_batch_totals,
)
from frostline.training.context import RunContext, starting_cut
from frostline.training.rows import train_rows, validation_rows
from frostline.training.specification import RunSpec
from frostline.training.steps import StepPlan

PLAIN_BATCH = 8  # per_device_eval_batch_size of TrainingArguments


@dataclass(frozen=True)
class Load:
    """What one run has to do."""

    steps: BatchTotals
    scored: BatchTotals
    scorings: int  # how often metrics are worked out
    longest: int  # tokens of its largest step, or about
    longest_scored: int  # the most tokens that it scores at once


@dataclass(frozen=True)
class Wanted:
    """A run of some k with what its time hangs on: the mean step and the mean scored batch, as the sweep has them."""

    spec: RunSpec
    names: frozenset[str]
    cut: int | None
    step: BatchTotals
    batch: BatchTotals
    alike: tuple[RunSpec, ...]  # all runs that differ from it in seed and learning rate alone, itself among them

    def operations(self, matrices: OperationCounter) -> tuple[float, float]:
        """Of the step, and of the scored batch."""
        return matrices.training(self.names, self.step, self.cut), matrices.forward(self.batch, self.cut or 0)


class Workload:
    """Everything that runs with these hidden states ``cached`` will do."""

    def __init__(self, context: RunContext, cached: StateSelection) -> None:
        self.context, self.cached, self.anatomy = context, cached, context.pretrained.anatomy
        self.matrices = OperationCounter.of(context.pretrained.model, self.anatomy, context.head_token)
        self.plain = OperationCounter.of(context.pretrained.model, self.anatomy)  # as plain transformers computes
        self._lengths: dict[tuple[int, int, int | None], Lengths] = {}

    def lengths(self, spec: RunSpec) -> Lengths:
        """Tokens in each of a run's training texts."""
        key = (spec.data_seed if spec.subset == "fixed" else spec.seed, spec.train_size, spec.fold)
        if key not in self._lengths:
            self._lengths[key] = self.context.tokens.lengths[train_rows(self.context, spec)]
        return self._lengths[key]

    def load(self, spec: RunSpec) -> Load:
        """What a run has to do."""
        lengths = self.lengths(spec)
        steps, times = self._steps(spec, lengths)
        size = spec.per_device_eval_batch_size
        parts = {name: sorted_batch_totals(some, size) for name, some in self._splits(spec).items()}
        scored = parts.pop("validation") * times + sorted_batch_totals(lengths[: spec.train_score_rows], size)
        scored, scorings = sum(parts.values(), scored), 2 * times + 1 + len(parts)
        batch = spec.per_device_train_batch_size
        longest = max(self.context.computed_tokens(lengths[n : n + batch]) for n in range(0, len(lengths), batch))
        all_scored = (lengths, *self._splits(spec).values())
        longest_scored = max(self.context.largest_chunk(np.sort(some)[-size:], self.cut(spec)) for some in all_scored)
        if not self.context.packed:
            steps, scored = steps.padded, scored.padded
        return Load(steps, scored, scorings, longest, longest_scored)

    def plain_load(self, spec: RunSpec) -> Load:
        """The same by plain transformers: padding is computed, and eight texts are scored at a time, as they come."""
        steps, times = self._steps(spec, self.lengths(spec))
        parts = {name: batch_totals(some, PLAIN_BATCH).padded for name, some in self._splits(spec).items()}
        scored = sum(parts.values(), parts.pop("validation") * times)
        return Load(steps.padded, scored, times + len(parts), 0, 0)

    def cut(self, spec: RunSpec) -> int | None:
        return starting_cut(self.cached, self.anatomy, spec)

    def operations(self, spec: RunSpec) -> float:
        """Of a whole run."""
        load, cut = self.load(spec), self.cut(spec)
        names = spec.to_train.parameters(self.anatomy)
        return self.matrices.training(names, load.steps, cut) + self.matrices.forward(load.scored, cut or 0)

    def forward_pass_operations(self, rows: Rows) -> float:
        """Of the pass over these rows, with all that fills its batches up."""
        return sum(
            self.batch_operations(batch)
            for batch in self.context.forward_pass(self.cached).batches(self.context.tokens.lengths, rows)
        )

    def batch_operations(self, batch: ForwardBatch) -> float:
        """Operations of one batch of the pass."""
        return self.matrices.forward(forward_totals(batch), stop=self.cached.depth(self.anatomy.count))

    def wanted(self, runs: Sequence[RunSpec]) -> list[Wanted]:
        """For each k its largest run."""
        largest = {run.tune: run for run in sorted(runs, key=lambda run: (run.train_size, -run.seed))}
        kinds: dict[str, list[RunSpec]] = {}
        for run in runs:
            kinds.setdefault(run.stack_key, []).append(run)
        return [self._wanted(spec, kinds[spec.stack_key]) for spec in largest.values()]

    def _wanted(self, spec: RunSpec, alike: Sequence[RunSpec]) -> Wanted:
        load, names = self.load(spec), spec.to_train.parameters(self.anatomy)
        return Wanted(spec, names, self.cut(spec), load.steps.mean, load.scored.mean, tuple(alike))

    def _steps(self, spec: RunSpec, lengths: Lengths) -> tuple[BatchTotals, int]:
        """All steps of a run, and how often it scores validation."""
        epoch = random_batch_totals(lengths, spec.per_device_train_batch_size)
        steps = StepPlan.of(spec, len(lengths))
        return epoch * (steps.total / steps.per_epoch), len(steps.evaluate_after)

    def _splits(self, spec: RunSpec) -> dict[str, Lengths]:
        """Tokens in each text of what a run is scored on."""
        lengths = self.context.tokens.lengths
        rows = {**self.context.splits, "validation": validation_rows(self.context, spec)}
        return {name: lengths[some] for name, some in rows.items() if name != "train"}
