"""A few real training steps and scored batches, timed.

Timing runs through the code that trains, on the real model and real examples. Afterwards the model has its pretrained values
again, and no random generator of a run was used."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter

import numpy as np
import torch

from frostline.frozen.batches import Rows
from frostline.model.memory import peak_memory
from frostline.model.tune import Tune
from frostline.sweep.execution.stacks import stack_size
from frostline.sweep.forecast.operations import BatchTotals, OperationCounter, batch_totals
from frostline.sweep.forecast.pace import Point, Timed
from frostline.sweep.forecast.workload import Wanted
from frostline.training.context import RunContext
from frostline.training.rows import shuffled, train_rows
from frostline.training.run import run_stacked
from frostline.training.seeds import generator_seed
from frostline.training.session import training_session
from frostline.training.specification import RunSpec

STEPS = 12  # timed at one k, at most
SHORT = 0.15  # seconds: if steps are short, as many as take this long
SCORED = 4  # batches of evaluation timed at one k, at most
STEP_BYTES = 12  # per updated parameter: gradient, copy for products, AdamW's moments
COPY_BYTES = 4  # per trained parameter: the copy that is trained, or that of the best epoch
TINY = 1e-12  # a learning rate that hardly changes weights
SLOWDOWN = 1.5  # a step takes about this much longer than its operations at the rate of the forward pass


@dataclass(frozen=True)
class TimedSteps:
    """Timed training steps of a stack."""

    batches: list[Rows]  # [K, B] each
    steps: list[tuple[Rows, float]]  # all but the first, with their seconds
    around: float  # seconds of the run besides steps and scoring, including the extra time of the first step
    peak: int  # bytes


@dataclass(frozen=True)
class TimedScoring:
    """Timed batches of evaluation."""

    pace: tuple[float, float]  # operations of the mean scored batch, and its seconds
    around: float  # extra seconds of the first batch
    bytes: float  # per token, at the peak


@dataclass(frozen=True)
class Timer:
    """Times training steps and scored batches through the code that trains."""

    context: RunContext
    matrices: OperationCounter
    rate: float
    idle: int  # bytes in use before
    stack: int | str = 1
    workers: int = 1

    def points(self, wanted: Sequence[Wanted], budget: float) -> Timed:
        """Time each of these in about ``budget`` seconds; leave out those that fail or have no finite loss."""
        found: dict[Tune, Point | None] = {}
        for one in wanted:
            self.context.pretrained.restore()  # so that memory is that of this run only
            try:
                found[one.spec.tune] = self._point(one, budget / len(wanted))
            except (RuntimeError, MemoryError):  # too large for this machine; the run itself reports it
                found[one.spec.tune] = None
        return Timed({k: point for k, point in found.items() if point is not None})

    def _point(self, one: Wanted, budget: float) -> Point | None:
        """Time steps and scored batches for about ``budget`` seconds, at least one of each."""
        step, scored = estimated_seconds(one, self.matrices, self.rate)
        size = stack_size(one.alike, self.context, self.stack, lambda sentence: None, workers=self.workers)
        runs = one.alike[:size]
        self.context.pretrained.restore()
        most = max(STEPS, int(SHORT / (step * len(runs))))
        seen = self._steps(one, runs, int(np.clip(0.6 * budget / (step * len(runs)), 1, most)))
        paces = [seconds / self._operations(one, rows) for rows, seconds in seen.steps]
        if not paces:  # its loss was not finite
            return None
        operations, _ = one.operations(self.matrices)
        tokens = max(self._work(rows.ravel()).tokens for rows in seen.batches)
        copied, moved = (
            len(runs) * count(one.names)
            for count in (self.matrices.trained_parameters, self.matrices.updated_parameters)
        )
        scoring = self._scored(one, runs, int(np.clip(0.4 * budget / (scored * len(runs)), 1, SCORED)))
        return Point(
            step=(operations, operations * statistics.median(paces)),
            scored=scoring.pace,
            around=seen.around + scoring.around,
            step_bytes=max(0.0, seen.peak - self.idle - STEP_BYTES * moved - COPY_BYTES * copied) / tokens,
            scored_bytes=scoring.bytes,
            stack=len(runs),
        )

    def _operations(self, one: Wanted, rows: Rows) -> float:
        """Operations of a step on rows ``[K, B]``."""
        return sum(self.matrices.training(one.names, self._work(some), one.cut) for some in rows)

    def _work(self, rows: Rows) -> BatchTotals:
        """The totals of one batch of these rows, padded or packed as it is computed."""
        work = batch_totals(self.context.tokens.lengths[rows], len(rows))
        return work if self.context.packed else work.padded

    def _steps(self, one: Wanted, runs: Sequence[RunSpec], count: int) -> "TimedSteps":
        """Train a stack for ``count`` steps after a warm-up step, on rows that the sweep trains on."""
        spec, context = one.spec, self.context
        size = min(spec.per_device_train_batch_size, spec.train_size)
        rows = np.random.default_rng(0).choice(train_rows(context, spec), (1 + count) * size)
        sample = replace(
            context, folds=None, workers=1, splits={"train": rows, "validation": context.splits["validation"][:1]}
        )
        short = spec.model_copy(
            update={
                **{"train_size": len(rows), "per_device_train_batch_size": size, "num_train_epochs": 1.0},
                **{"evaluations_per_epoch": 1, "train_score_rows": 1, "warmup_steps": 0.0},
                **{"learning_rate": TINY, "head_learning_rate": TINY},
            }
        )
        specs = [short.model_copy(update={"seed": run.seed}) for run in runs]
        drawn = []
        for spec in specs:  # as each run shuffles them
            order = torch.Generator().manual_seed(generator_seed(spec.seed, "order"))
            drawn.append(shuffled(train_rows(sample, spec), order))
        batches = [np.stack([rows[n : n + size] for rows in drawn]) for n in range(0, len(rows), size)]
        clock: list[float] = []
        results = run_stacked(specs, sample, on_step=lambda step, total: clock.append(perf_counter()))
        cost = results[0].facts["cost"]
        taken = [later - earlier for earlier, later in pairwise(clock)]
        steps = len(clock) * statistics.median(taken) if taken else 0.0
        return TimedSteps(
            batches,
            list(zip(batches[1:], taken, strict=False)),
            max(0.0, cost["run_seconds"] - cost["evaluation_seconds"] - steps / len(runs)),
            cost["peak_memory_bytes"],
        )

    def _scored(self, one: Wanted, runs: Sequence[RunSpec], count: int) -> "TimedScoring":
        """Score ``count`` batches, spread over all lengths, after a warm-up batch."""
        size, rows = one.spec.per_device_eval_batch_size, self.context.splits["validation"]
        rows = rows[np.argsort(self.context.tokens.lengths[rows], kind="stable")]
        positions = evenly_spaced(max(1, len(rows) // size), count)
        done: list[tuple[float, float]] = []  # operations and seconds
        tokens = 1.0
        with peak_memory(self.context.machine) as peak, training_session(runs, self.context) as (_, forward):
            for position in [positions[0], *positions]:
                some = rows[size * position :][:size]
                begun = perf_counter()
                self.context.problem.logits(forward, np.stack([some] * len(runs)), size)
                seconds = perf_counter() - begun
                done.append((len(runs) * self.matrices.forward(self._work(some), one.cut or 0), seconds))
                tokens = max(tokens, len(runs) * self.context.largest_chunk(self.context.tokens.lengths[some], one.cut))
        (_, first), *others = done
        pace = sum(seconds for _, seconds in others) / sum(operations for operations, _ in others)
        _, operations = one.operations(self.matrices)
        held = self.idle + COPY_BYTES * len(runs) * self.matrices.trained_parameters(one.names)
        return TimedScoring(
            (operations, operations * pace),
            max(0.0, first - others[0][1]) / len(runs),
            max(0.0, peak.bytes - held) / tokens,
        )


def estimated_seconds(one: Wanted, matrices: OperationCounter, rate: float) -> tuple[float, float]:
    """Estimated seconds of a step and of a scored batch; a few milliseconds are always spent."""
    step, scored = (SLOWDOWN * operations / rate + 0.004 for operations in one.operations(matrices))
    return step, scored


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """``wanted`` of ``count`` indices, evenly spaced."""
    wanted = min(count, wanted)
    return sorted({int((n + 0.5) * count / wanted) for n in range(wanted)})
