"""Time a few real training steps and scored batches.

Timing uses the code that trains, on the real model and real examples. It restores the pretrained values of the model and uses
no random generator of a run.

Timed points, and the seconds of batches that are interpolated from them.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from frostline.frozen.forward_pass import Rows
from frostline.model.device import memory_ran_out, peak_memory
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweep.execution.stacks import stack_size
from frostline.sweep.work.operations import BatchTotals, batch_totals
from frostline.sweep.work.workload import COPY_BYTES, TimingCase
from frostline.training.experiment import Experiment
from frostline.training.gradients import backward
from frostline.training.rows import shuffled, train_rows
from frostline.training.run import run_stacked
from frostline.training.seeds import generator_seed
from frostline.training.session import set_mode, training_session
from frostline.training.specification import RunSpec


@dataclass(frozen=True)
class Point:
    """A training step and a scored batch that were timed at one k, for one run of a stack."""

    step: tuple[float, float]  # operations and seconds
    scored: tuple[float, float]  # operations and seconds
    overhead_seconds: float  # of a run besides steps and scoring, including the extra time of the first step and batch
    step_bytes: float  # peak memory of a step per token, without what depends on the number of parameters
    scored_bytes: float  # the same for a scored batch
    stack: int = 1  # runs in the timed stack


@dataclass(frozen=True)
class Pace:
    """Seconds as a function of operations: measured for a k that was timed, interpolated for any other k."""

    points: Mapping[Recipe, tuple[float, float]]  # operations and seconds of one batch, by k

    def seconds(self, tune: Recipe, count: float, operations: float) -> float:
        """Seconds of ``count`` batches with ``operations`` in total."""
        if not count:
            return 0.0
        each = operations / count
        if tune in self.points:
            return count * self._along(self.points[tune], each)
        layers = sorted(point for one, point in self.points.items() if one.k is not None)
        known = layers if len(layers) > 1 else sorted(self.points.values())
        if known[0][0] < each < known[-1][0]:
            operations_of, seconds_of = np.array(known).T
            return count * float(np.interp(each, operations_of, seconds_of))
        return count * self._along(known[0] if each <= known[0][0] else known[-1], each)

    def _along(self, point: tuple[float, float], operations: float) -> float:
        """Seconds on the line through ``point`` that starts at the fixed time of a batch, which is its time at k = 0."""
        fixed = min(self.points[HEAD_ONLY][1], point[1]) if HEAD_ONLY in self.points else 0.0
        return fixed + (point[1] - fixed) * operations / point[0]


class TimedPoints(dict[Recipe, Point]):
    """The timed points by k."""

    @property
    def steps(self) -> Pace:
        return Pace({k: point.step for k, point in self.items()})

    @property
    def scored(self) -> Pace:
        return Pace({k: point.scored for k, point in self.items()})

    def nearest(self, tune: Recipe) -> Point:
        """The point of this k, or else of the nearest timed k; ``full`` and ``named`` count as the largest k."""
        if tune in self:
            return self[tune]
        layers = {one.k: point for one, point in self.items() if one.k is not None}
        if not layers:
            return next(iter(self.values()))
        wanted = max(layers) if tune.k is None else tune.k
        return layers[min(layers, key=lambda k: abs(k - wanted))]


MAX_STEPS = 12  # that are timed at one k
SHORT_SECONDS = 0.15  # more than MAX_STEPS are timed if together they take less than this
MAX_SCORED_BATCHES = 4  # that are timed at one k
TINY = 1e-12  # a learning rate that hardly changes the weights
SLOWDOWN = 1.5  # how much longer a step takes, approximately, than its operations at the speed of the forward pass


@dataclass(frozen=True)
class TimedSteps:
    """Timed training steps of a stack."""

    steps: list[tuple[Rows, float]]  # the batch and the seconds of every step but the first
    overhead_seconds: float  # of a run besides steps and scoring, including the extra time of the first step


@dataclass(frozen=True)
class TimedScoring:
    """Timed batches of evaluation."""

    pace: tuple[float, float]  # operations and seconds of the mean scored batch
    overhead_seconds: float  # the extra time of the first batch
    bytes: float  # peak memory per token


@dataclass(frozen=True)
class Timer:
    """Times training steps and scored batches with the code that trains."""

    context: Experiment
    speed: float  # operations per second, to estimate how long timing takes
    idle: int  # bytes in use before training
    memory: bool = True  # whether the memory of a step is measured
    stack: int | str = 1
    workers: int = 1

    def points(self, cases: Sequence[TimingCase], budget: float) -> TimedPoints:
        """Time these cases in about ``budget`` seconds in total; leave out those without memory or without a finite loss."""
        found: dict[Recipe, Point | None] = {}
        for case in cases:
            self.context.pretrained.restore()  # so that no memory of the last case is counted
            try:
                found[case.spec.recipe] = self._point(case, budget / len(cases))
            except (RuntimeError, MemoryError) as error:
                if not memory_ran_out(error):
                    raise
                found[case.spec.recipe] = None  # the run itself reports it
        return TimedPoints({k: point for k, point in found.items() if point is not None})

    def _point(self, case: TimingCase, budget: float) -> Point | None:
        """Time steps and scored batches for about ``budget`` seconds, at least one of each."""
        step, scored = estimated_seconds(case, self.speed)
        size = stack_size(case.stackable, self.context, self.stack, lambda sentence: None, workers=self.workers)
        runs = case.stackable[:size]
        self.context.pretrained.restore()
        most = max(MAX_STEPS, int(SHORT_SECONDS / (step * len(runs))))
        timed = self._steps(case, runs, int(np.clip(0.6 * budget / (step * len(runs)), 1, most)))
        seconds_per_operation = [seconds / self._operations(case, rows) for rows, seconds in timed.steps]
        if not seconds_per_operation:  # the loss was not finite
            return None
        operations, _ = case.operations
        batches = int(np.clip(0.4 * budget / (scored * len(runs)), 1, MAX_SCORED_BATCHES))
        scoring = self._scored(case, runs, batches)
        return Point(
            step=(operations, operations * statistics.median(seconds_per_operation)),
            scored=scoring.pace,
            overhead_seconds=timed.overhead_seconds + scoring.overhead_seconds,
            step_bytes=self._step_bytes(case, runs) if self.memory else 0.0,
            scored_bytes=scoring.bytes,
            stack=len(runs),
        )

    def _step_bytes(self, case: TimingCase, runs: Sequence[RunSpec]) -> float:
        """Peak memory per token of the gradients of the batch with the most tokens, without what depends on the parameters."""
        specs = [run.model_copy(update={"way": run.way.in_one_training}) for run in runs]
        context, rows = self.context.for_run(specs[0]), np.stack([case.heaviest] * len(runs))
        with peak_memory(context.machine) as peak, training_session(specs, self.context) as (_, forward):
            set_mode(context, specs[0], training=True)
            backward(forward, rows, range(len(runs)), context.problem)
        return max(0.0, peak.bytes - self._held(case, runs)) / self._batch_totals(rows.ravel()).tokens

    def _held(self, case: TimingCase, runs: Sequence[RunSpec]) -> int:
        """Bytes in use with the values that these runs train."""
        return self.idle + COPY_BYTES * len(runs) * case.trained_parameters

    def _operations(self, case: TimingCase, rows: Rows) -> float:
        """Operations of a step on rows ``[K, B]``."""
        return sum(case.counter.training(case.names, self._batch_totals(some), case.cut) for some in rows)

    def _batch_totals(self, rows: Rows) -> BatchTotals:
        """The totals of one batch of these rows, with padding unless batches are packed."""
        totals = batch_totals(self.context.tokens.lengths[rows], len(rows))
        return totals if self.context.packed else totals.padded

    def _steps(self, case: TimingCase, runs: Sequence[RunSpec], count: int) -> TimedSteps:
        """Train a stack for ``count`` steps after a warm-up step, on rows that the sweep trains on."""
        spec, context = case.spec, self.context
        micro_batch = min(spec.per_device_train_batch_size, spec.train_size)
        parts = min(spec.gradient_accumulation_steps, math.ceil(spec.train_size / micro_batch))
        size = parts * micro_batch
        rows = np.random.default_rng(0).choice(train_rows(context, spec), (1 + count) * size)
        splits = {"train": rows, "validation": context.splits["validation"][:1]}
        sample = replace(context, folds=None, splits=splits).with_worker(at_a_time=1)
        short = spec.model_copy(
            update={
                **{"train_size": len(rows), "num_train_epochs": 1.0},
                **{"per_device_train_batch_size": micro_batch, "gradient_accumulation_steps": parts},
                **{"evaluations_per_epoch": 1, "train_score_rows": 1, "warmup_steps": 0.0},
                **{"learning_rate": TINY, "head_learning_rate": TINY, "way": spec.way.in_one_training},
            }
        )
        specs = [short.model_copy(update={"seed": run.seed}) for run in runs]
        orders = []
        for spec in specs:  # each run shuffles its rows in this order
            order = torch.Generator().manual_seed(generator_seed(spec.seed, "order"))
            orders.append(shuffled(train_rows(sample, spec), order))
        batches = [np.stack([rows[n : n + size] for rows in orders]) for n in range(0, len(rows), size)]
        ends: list[float] = []
        results = run_stacked(specs, sample, on_step=lambda step, total: ends.append(context.machine.time()))
        cost = results[0].facts["cost"]
        seconds = [later - earlier for earlier, later in pairwise(ends)]
        in_steps = len(ends) * statistics.median(seconds) if seconds else 0.0
        return TimedSteps(
            list(zip(batches[1:], seconds, strict=False)),
            max(0.0, cost["run_seconds"] - cost["evaluation_seconds"] - in_steps / len(runs)),
        )

    def _scored(self, case: TimingCase, runs: Sequence[RunSpec], count: int) -> TimedScoring:
        """Score ``count`` batches, spread over all lengths, after a warm-up batch."""
        size, rows = case.spec.per_device_eval_batch_size, self.context.splits["validation"]
        rows = rows[np.argsort(self.context.tokens.lengths[rows], kind="stable")]
        positions = evenly_spaced(max(1, len(rows) // size), count)
        timed: list[tuple[float, float]] = []  # operations and seconds of each batch
        tokens = 1.0
        with peak_memory(self.context.machine) as peak, training_session(runs, self.context) as (_, forward):
            for position in [positions[0], *positions]:
                some = rows[size * position :][:size]
                begun = self.context.machine.time()
                self.context.problem.logits(forward, np.stack([some] * len(runs)), size)
                seconds = self.context.machine.time() - begun
                operations = len(runs) * case.counter.forward(self._batch_totals(some), case.cut or 0)
                timed.append((operations, seconds))
                chunk = self.context.largest_chunk(self.context.tokens.lengths[some], case.cut)
                tokens = max(tokens, len(runs) * chunk)
        (_, first), *others = timed
        seconds_per_operation = sum(seconds for _, seconds in others) / sum(operations for operations, _ in others)
        _, operations = case.operations
        return TimedScoring(
            (operations, operations * seconds_per_operation),
            max(0.0, first - others[0][1]) / len(runs),
            max(0.0, peak.bytes - self._held(case, runs)) / tokens,
        )


def estimated_seconds(case: TimingCase, speed: float) -> tuple[float, float]:
    """Estimated seconds of a step and of a scored batch. Each takes at least a few milliseconds."""
    step, scored = (SLOWDOWN * operations / speed + 0.004 for operations in case.operations)
    return step, scored


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """``wanted`` of the indices below ``count``, evenly spaced."""
    wanted = min(count, wanted)
    return sorted({int((n + 0.5) * count / wanted) for n in range(wanted)})
