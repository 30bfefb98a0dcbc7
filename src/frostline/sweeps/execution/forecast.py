"""Forecast the time and memory of a sweep: a few real steps are timed, and scaled by layers and tokens to all missing runs.

Timing uses the code that trains, on the real model and real examples. It restores the pretrained values of the model and uses
no random generator of a run.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from frostline.fast.switch import memory_reused
from frostline.frozen.cache import cache_folder
from frostline.frozen.forward_pass import Rows, StateSelection
from frostline.frozen.hidden_states import HiddenStates, missing_rows
from frostline.model.device import Machine, memory_ran_out, peak_memory
from frostline.model.streaming import stream_of
from frostline.model.tokens import Tokens
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweeps.execution.execute import runs_from_cache
from frostline.sweeps.execution.stacks import stack_size
from frostline.sweeps.execution.workers import run_in_each_worker, workers_for
from frostline.sweeps.operations import (
    COPY_BYTES,
    SCORED_BYTES,
    STEP_BYTES,
    Batches,
    CostModel,
    RunBatches,
    kernel_bytes,
)
from frostline.sweeps.plan import Plan, nearest_existing, recipe_of, rows_needed
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from frostline.training.experiment import Experiment, Worker
from frostline.training.forward import shuffled, train_rows, training_batches
from frostline.training.run import Run, by_kind, generator_seed
from frostline.training.train import run_stacked, set_mode, training_session
from frostline.training.updates import backward

PLAN_SECONDS = 10.0  # that a plan may spend on timing
TIMING_SHARE = 0.02  # of its own time that a sweep may spend on timing
MAX_SECONDS = 30.0  # that a sweep may spend on timing
MAX_STEPS = 12  # that are timed at one k
SHORT_SECONDS = 0.15  # more than MAX_STEPS are timed if together they take less than this
MAX_SCORED_BATCHES = 4  # that are timed at one k
MEASURED_STEPS = (
    4  # at least: a warm-up, one that is timed, and one for memory, which has the most tokens and counts twice
)
OVERHEAD_SECONDS = 0.1  # to begin and end a timed run, approximately
TIMED_BATCHES = 3  # of the forward pass over the frozen layers
TINY = 1e-12  # a learning rate that hardly changes the weights
SLOWDOWN = 1.5  # how much longer a step takes, approximately, than its operations at the speed of the forward pass
PLAIN = {
    "per_device_eval_batch_size": 8,
    "precision": "float32",
    "train_score_rows": 0,
}  # defaults of TrainingArguments

Pace = tuple[float, float]  # operations and seconds of one batch


@dataclass(frozen=True)
class Timed:
    """A training step and a scored batch that were timed at one k, for one run of a stack."""

    step: Pace
    scored: Pace
    overhead_seconds: float  # of a run besides steps and scoring, including the extra time of the first step and batch
    step_bytes: float  # peak memory of a step per token, without what depends on the number of parameters
    scored_bytes: float  # the same for a scored batch
    stack: int  # runs in the timed stack


@dataclass(frozen=True)
class Timings:
    """How fast this machine runs this sweep."""

    timed: Mapping[Recipe, Timed]
    scoring_seconds: float  # to compute the metrics of all validation examples once
    memory_bytes: float  # in use before training

    def seconds(self, costs: CostModel, spec: Run, work: RunBatches) -> float:
        """Seconds of the training steps of a run and of its evaluation."""
        steps, scored = {k: one.step for k, one in self.timed.items()}, {k: one.scored for k, one in self.timed.items()}
        training = seconds_of(steps, spec.recipe, work.steps.count, costs.training(spec, work.steps))
        evaluation = seconds_of(scored, spec.recipe, work.scored.count, costs.scoring(spec, work.scored))
        return training + evaluation + work.scorings * self.scoring_seconds

    def nearest(self, recipe: Recipe) -> Timed:
        """What was timed for this recipe, or else at the nearest k; ``full`` and ``named`` count as the largest k."""
        if recipe in self.timed:
            return self.timed[recipe]
        layers = {one.k: timed for one, timed in self.timed.items() if one.k is not None}
        if not layers:
            return next(iter(self.timed.values()))
        wanted = max(layers) if recipe.k is None else recipe.k
        return layers[min(layers, key=lambda k: abs(k - wanted))]


def seconds_of(timed: Mapping[Recipe, Pace], recipe: Recipe, count: float, operations: float) -> float:
    """Seconds of ``count`` batches with ``operations`` in total: measured if this recipe was timed, else interpolated.

    The time of a batch at k = 0 is fixed: beyond what was timed, only the rest grows with the operations.
    """
    if not count:
        return 0.0
    each, fixed = operations / count, timed[HEAD_ONLY][1] if HEAD_ONLY in timed else 0.0
    layers = sorted(point for one, point in timed.items() if one.k is not None)
    known = layers if len(layers) > 1 else sorted(timed.values())
    if recipe not in timed and known[0][0] < each < known[-1][0]:
        return count * float(np.interp(each, *np.array(known).T))
    at, seconds = timed[recipe] if recipe in timed else known[0] if each <= known[0][0] else known[-1]
    fixed = min(fixed, seconds)
    return count * (fixed + (seconds - fixed) * each / at)


def make_forecast(
    plan: Plan, runs: Sequence[Run], missing: Sequence[Run], progress: Progress, *, plain: bool = False
) -> Forecast | None:
    """Run the exactness check, and forecast the time and memory of runs.

    Args:
        plan: The sweep. Its model and its random generators are left as they were.
        runs: The requested runs, which the number of workers depends on.
        missing: Those that have no result.
        progress: Shows what is under way.
        plain: For a plan: also time plain transformers, and use the time budget of a plan. Otherwise timing takes only a small
            share of the time of the runs.

    Returns:
        None if the budget is too small to time anything.
    """
    if not missing:
        return Forecast((), 0.0)
    progress.begin("checking that the model can be cut")
    plan.check_cuts()
    progress.begin("timing a few steps")
    begun, experiment, cached = perf_counter(), plan.experiment, plan.cached
    costs, from_cache = plan.cost_model, runs_from_cache(plan, missing)
    rows = rows_needed(experiment, from_cache or missing)
    recipe = recipe_of(plan.experiment.pretrained, experiment.machine, experiment.forward_pass(cached))
    uncached = missing_rows(experiment.tokens, rows, cached, recipe) if from_cache else rows[:0]
    speed = _forward_pass_speed(costs, uncached if len(uncached) else missing_rows(experiment.tokens, rows, cached))
    in_pass = costs.forward_pass(uncached)
    rough_seconds = SLOWDOWN * (in_pass + sum(map(costs.operations, missing))) / speed
    budget = PLAN_SECONDS if plain else min(MAX_SECONDS, TIMING_SHARE * rough_seconds) - (perf_counter() - begun)
    in_loop, others = ([run for run in missing if run.way.in_loop == loop] for loop in (True, False))
    workers = workers_for(plan, runs)
    concurrent = min(workers, len(missing))
    cells, timings, trainer = list[KindForecast](), Timings({}, 0.0, 0.0), None
    if in_loop:
        stack = plan.spec.stack
        time = partial(take_timings, costs, in_loop, speed / workers, budget, ends=plain, stack=stack, workers=workers)
        # all workers time at the same moment, because they slow each other down in the sweep, too
        each = sorted(
            filter(None, run_in_each_worker(workers, time)),
            key=lambda one: sum(timed.step[1] for timed in one.timed.values()),
        )
        if not each:
            return None
        timings = each[len(each) // 2]  # the median
        if plain and plan.experiment.pretrained.stream is None:  # otherwise Trainer could not train it
            trainer = _time_plain(experiment, in_loop, speed / 2, timings)
        cells = list(_cells(costs, timings, trainer, in_loop, concurrent))
    cells += _cells_of_estimators(costs, others, speed / SLOWDOWN, timings.memory_bytes, plain=trainer is not None)
    pass_seconds = in_pass / speed
    if len(uncached):
        tokens = int(experiment.tokens.lengths[uncached].sum())
        written = cached.bytes(len(uncached), tokens, costs.anatomy.width)
        pass_seconds += written / disk_speed(nearest_existing(cache_folder()))
    return Forecast(
        cells=tuple(cells),
        workers=concurrent,
        forward_pass_seconds=pass_seconds,
        processes=min(plan.processes, len(missing)),
    )


def _forward_pass_speed(costs: CostModel, rows: Rows) -> float:
    """Operations per second of the forward pass over the frozen layers, measured on a few batches of ``rows``."""
    experiment, pretrained, tokens = costs.experiment, costs.experiment.pretrained, costs.experiment.tokens
    pretrained.restore()
    need = costs.cached if costs.cached.cuts or costs.cached.head else StateSelection((), head=True)
    forward_pass, speeds = experiment.forward_pass(need), []
    batches = forward_pass.batches(tokens.lengths, rows)
    chosen = [batches[n] for n in _evenly_spaced(len(batches), TIMED_BATCHES)]
    stream, depth = stream_of(forward_pass.model), forward_pass.depth
    timed = depth if stream is None else min(1, depth)  # layers: of a streamed model, the first one
    names = stream.in_layers(forward_pass.anatomy, range(timed)) if stream else []
    share = timed / depth if depth else 1.0
    with (
        memory_reused(),
        stream.loaded(names) if stream else nullcontext(),
        forward_pass.layers(tokens, None, timed) as compute,
    ):
        for batch in [chosen[0], *chosen]:
            begun = perf_counter()
            for array in compute(batch, None)[0].values():
                array.float().cpu()
            speeds.append(share * costs.forward_batch(batch) / (perf_counter() - begun))
    return statistics.median(speeds[1:])  # the first is a warm-up


def disk_speed(folder: Path) -> float:
    """Bytes per second written to the disk of ``folder``, measured with an unnamed temporary file."""
    block = np.random.default_rng(0).bytes(1 << 24)
    with tempfile.TemporaryFile(dir=folder) as file:
        begun = perf_counter()
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return len(block) / (perf_counter() - begun)


def take_timings(
    costs: CostModel,
    runs: Sequence[Run],
    speed: float,
    budget: float,
    *,
    ends: bool,
    stack: int | str,
    workers: int,
) -> Timings | None:
    """Time steps of the largest run of as many k as fit into ``budget``.

    Args:
        costs: The costs of the runs.
        runs: The runs, all trained in the loop.
        speed: Operations per second of the forward pass, to estimate how long timing takes.
        budget: Seconds for timing.
        ends: Time the smallest k, the largest k, full fine-tuning and named parts even if they exceed the budget.
        stack: The setting ``stack``.
        workers: The number of processes that share the runs.

    Returns:
        None if the budget does not allow the largest k, or if no loss is finite.
    """
    experiment, need = costs.experiment, costs.cached
    experiment.worker.copies.keep_within(0)  # so that they do not count as memory in use
    largest = {run.recipe: run for run in _smallest_first(runs)}
    layers = sorted((one for one in largest if one.k is not None), key=lambda one: one.k or 0)
    first = [*layers[-1:], *layers[: len(layers) > 1], *(one for one in largest if one.k is None)]
    rest = sorted(largest.keys() - {*first}, key=lambda k: costs.operations(largest[k]))
    chosen, spent = list[Run](), 0.0
    for k in (*first, *rest):
        step, scored = _rough_seconds(costs, largest[k], speed)
        least = OVERHEAD_SECONDS + MEASURED_STEPS * step + 2 * scored
        if (ends and k in first) or spent + least <= budget:
            chosen.append(largest[k])
            spent += least
    if largest[first[0]] not in chosen:  # a small k alone does not predict a large one
        return None
    idle = _idle_bytes(experiment)
    states = RandomStates(need, experiment.tokens, costs.anatomy.width) if need.cuts or need.head else None
    timer = Timer(CostModel(experiment.with_worker(states=states), need), speed, idle, stack=stack, workers=workers)
    with memory_reused(release_large=all(costs.cut(run) is not None for run in largest.values())):
        timed = timer.time(chosen, runs, budget)
        scoring = _scoring_seconds(experiment)
    experiment.pretrained.restore()
    return Timings(timed, scoring, idle) if timed else None


def _time_plain(
    experiment: Experiment, runs: Sequence[Run], speed: float, own: Timings
) -> Callable[[Run], float | None]:
    """Time the cheapest and the dearest k with plain transformers: padded, with all layers, in float32, scored unsorted.

    Returns:
        A function from a run to its seconds; None if nothing could be timed.
    """
    plain = replace(experiment, machine=Machine(experiment.machine.device, "float32"), worker=Worker(as_trainer=True))
    costs = CostModel(plain, StateSelection((), head=False))
    largest = {run.recipe: run.model_copy(update=PLAIN) for run in _smallest_first(runs)}
    by_cost = sorted(largest.values(), key=costs.operations)
    chosen = by_cost if len(by_cost) < 3 else [by_cost[0], by_cost[-1]]
    with memory_reused():
        timed = Timer(costs, speed, _idle_bytes(experiment)).time(chosen, chosen, 0.0)
    experiment.pretrained.restore()
    timings = replace(own, timed=timed)

    def seconds(run: Run) -> float | None:
        as_plain = run.model_copy(update=PLAIN)
        return timings.seconds(costs, as_plain, costs.batches(as_plain)) if timed else None

    return seconds


def _smallest_first(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.train_size, -run.seed))


def _rough_seconds(costs: CostModel, run: Run, speed: float) -> tuple[float, float]:
    """Estimated seconds of a step and of a scored batch. Each takes at least a few milliseconds."""
    step, scored = (SLOWDOWN * operations / speed + 0.004 for operations in _mean_operations(costs, run))
    return step, scored


def _mean_operations(costs: CostModel, run: Run) -> tuple[float, float]:
    """Operations of the mean training step of a run, and of its mean scored batch."""
    work, whole = costs.batches(run), in_one_training(run)
    return costs.training(whole, work.steps.mean), costs.scoring(whole, work.scored.mean)


def in_one_training(run: Run) -> Run:
    """The run without phases, to time its steps."""
    way = run.way.model_copy(update={"order": "at-once", "patience": 0})
    return run.model_copy(update={"way": way})


def _idle_bytes(experiment: Experiment) -> int:
    """Bytes in use before training."""
    experiment.pretrained.restore()
    with peak_memory(experiment.machine) as idle:
        pass
    return idle.bytes


def _scoring_seconds(experiment: Experiment) -> float:
    """Seconds to compute the metrics of all validation examples once."""
    rows = experiment.splits["validation"]
    shape = (len(rows), *experiment.problem.predictions_per_row, experiment.pretrained.model.config.num_labels)
    logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    seconds = []
    for _ in range(3):
        begun = perf_counter()
        experiment.problem.scores(logits, rows)
        seconds.append(perf_counter() - begun)
    return statistics.median(seconds)


def _evenly_spaced(count: int, wanted: int) -> list[int]:
    """``wanted`` of the indices below ``count``, evenly spaced."""
    wanted = min(count, wanted)
    return sorted({int((n + 0.5) * count / wanted) for n in range(wanted)})


class RandomStates(HiddenStates):
    """Random hidden states of the right shape and scale. They replace hidden states that are not cached yet."""

    seconds = 0.0  # nothing was computed

    def __init__(self, need: StateSelection, tokens: Tokens, width: int) -> None:
        self.selection, self.lengths, self._width = need, tokens.lengths, width
        self._any = torch.zeros(0, width)

    def read(self, name: str, rows: Rows) -> Tensor:
        count = int(self.counts(name, rows).sum())
        if count > len(self._any):
            self._any = torch.randn(2 * count, self._width, generator=torch.Generator().manual_seed(0))
        return self._any[:count].clone()


@dataclass(frozen=True)
class Timer:
    """Times training steps and scored batches with the code that trains."""

    costs: CostModel
    speed: float  # operations per second, to estimate how long timing takes
    idle: int  # bytes in use before training
    stack: int | str = 1
    workers: int = 1

    @property
    def experiment(self) -> Experiment:
        return self.costs.experiment

    def time(self, chosen: Sequence[Run], runs: Sequence[Run], budget: float) -> dict[Recipe, Timed]:
        """Time ``chosen`` ones of all ``runs`` in about ``budget`` seconds; leave out those without memory or a finite loss."""
        found: dict[Recipe, Timed] = {}
        for spec in chosen:
            self.experiment.pretrained.restore()  # so that no memory of the last one is counted
            stackable = [run for run in runs if run.stack_key == spec.stack_key]
            try:
                timed = self._time(spec, stackable, budget / len(chosen))
            except (RuntimeError, MemoryError) as error:
                if not memory_ran_out(error):
                    raise
                continue  # the run itself reports it
            if timed is not None:
                found[spec.recipe] = timed
        return found

    def _time(self, spec: Run, stackable: Sequence[Run], budget: float) -> Timed | None:
        """Time steps and scored batches for about ``budget`` seconds, at least one of each; None if no loss was finite."""
        step, scored = _rough_seconds(self.costs, spec, self.speed)
        size = stack_size(stackable, self.experiment, self.stack, lambda sentence: None, workers=self.workers)
        runs = stackable[:size]
        self.experiment.pretrained.restore()
        most = max(MAX_STEPS, int(SHORT_SECONDS / (step * len(runs))))
        steps, overhead = self._steps(spec, runs, int(np.clip(0.6 * budget / (step * len(runs)), 1, most)))
        if not steps:
            return None
        operations, of_scored = _mean_operations(self.costs, spec)
        batches = int(np.clip(0.4 * budget / (scored * len(runs)), 1, MAX_SCORED_BATCHES))
        pace, first_batch, scored_bytes = self._scored(spec, runs, batches)
        return Timed(
            step=(operations, operations * statistics.median(steps)),
            scored=(of_scored, of_scored * pace),
            overhead_seconds=overhead + first_batch,
            step_bytes=self._step_bytes(spec, runs, stackable),
            scored_bytes=scored_bytes,
            stack=len(runs),
        )

    def _steps(self, spec: Run, runs: Sequence[Run], count: int) -> tuple[list[float], float]:
        """Train a stack for ``count`` steps after a warm-up step, on rows that the sweep trains on.

        Returns:
            Seconds per operation of each step but the first, and the seconds of a run besides steps and scoring, including the
            extra time of the first step.
        """
        experiment, costs = self.experiment, self.costs
        micro_batch = min(spec.per_device_train_batch_size, spec.train_size)
        parts = min(spec.gradient_accumulation_steps, ceil(spec.train_size / micro_batch))
        size = parts * micro_batch
        rows = np.random.default_rng(0).choice(train_rows(experiment, spec), (1 + count) * size)
        splits = {"train": rows, "validation": experiment.splits["validation"][:1]}
        sample = replace(experiment, folds=None, splits=splits).with_worker(at_a_time=1)
        short = in_one_training(spec).model_copy(
            update={
                **{"train_size": len(rows), "num_train_epochs": 1.0},
                **{"per_device_train_batch_size": micro_batch, "gradient_accumulation_steps": parts},
                **{"evaluations_per_epoch": 1, "train_score_rows": 1, "warmup_steps": 0.0},
                **{"learning_rate": TINY, "head_learning_rate": TINY},
            }
        )
        specs = [short.model_copy(update={"seed": run.seed}) for run in runs]
        orders = []
        for one in specs:  # each run shuffles its rows in this order
            order = torch.Generator().manual_seed(generator_seed(one.seed, "order"))
            orders.append(shuffled(train_rows(sample, one), order))
        ends: list[float] = []
        results = run_stacked(specs, sample, on_step=lambda step, total: ends.append(experiment.machine.time()))
        seconds = [later - earlier for earlier, later in pairwise(ends)]
        paces = []
        for n, taken in enumerate(seconds, 1):
            batches = [self._batch(order[n * size : (n + 1) * size]) for order in orders]
            paces.append(taken / sum(costs.training(short, batch) for batch in batches))
        cost = results[0].record.cost
        in_steps = len(ends) * statistics.median(seconds) if seconds else 0.0
        return paces, max(0.0, cost.run_seconds - cost.evaluation_seconds - in_steps / len(runs))

    def _scored(self, spec: Run, runs: Sequence[Run], count: int) -> tuple[float, float, float]:
        """Score ``count`` batches, spread over all lengths, after a warm-up batch.

        Returns:
            Seconds per operation, the extra seconds of the first batch for each run, and the peak memory per token.
        """
        experiment, size, rows = self.experiment, spec.per_device_eval_batch_size, self.experiment.splits["validation"]
        rows = rows[np.argsort(experiment.tokens.lengths[rows], kind="stable")]
        positions = _evenly_spaced(max(1, len(rows) // size), count)
        cut = self.costs.cut(spec)
        timed: list[Pace] = []
        tokens = 1.0
        with peak_memory(experiment.machine) as peak, training_session(runs, experiment) as (_, forward):
            for position in [positions[0], *positions]:
                some = rows[size * position :][:size]
                begun = experiment.machine.time()
                experiment.problem.logits(forward, np.stack([some] * len(runs)), size)
                seconds = experiment.machine.time() - begun
                timed.append((len(runs) * self.costs.scoring(spec, self._batch(some)), seconds))
                tokens = max(tokens, len(runs) * experiment.largest_chunk(experiment.tokens.lengths[some], cut))
        (_, first), *others = timed
        pace = sum(seconds for _, seconds in others) / sum(operations for operations, _ in others)
        return pace, max(0.0, first - others[0][1]) / len(runs), max(0.0, peak.bytes - self._held(spec, runs)) / tokens

    def _step_bytes(self, spec: Run, runs: Sequence[Run], stackable: Sequence[Run]) -> float:
        """Peak memory per token of the gradients of the batch with the most tokens, without what depends on the parameters."""
        longest = max(stackable, key=lambda run: max(self.costs.batch_sizes(run)))
        heaviest = max(training_batches(self.experiment, longest), key=self.costs.computed_tokens)
        specs = [in_one_training(run) for run in runs]
        experiment, rows = self.experiment.for_run(specs[0]), np.stack([heaviest] * len(runs))
        with peak_memory(experiment.machine) as peak, training_session(specs, self.experiment) as (_, forward):
            set_mode(experiment, specs[0], training=True)
            backward(forward, rows, experiment.problem)
        return max(0.0, peak.bytes - self._held(spec, runs)) / self.costs.computed_tokens(rows.ravel())

    def _held(self, spec: Run, runs: Sequence[Run]) -> int:
        """Bytes in use with the values that these runs train."""
        return self.idle + COPY_BYTES * len(runs) * self.costs.trained_parameters(spec)

    def _batch(self, rows: Rows) -> Batches:
        """One batch of these rows."""
        return Batches.of(self.experiment.tokens.lengths[rows], len(rows))


def _cells(
    costs: CostModel,
    timings: Timings,
    trainer: Callable[[Run], float | None] | None,
    runs: Sequence[Run],
    workers: int,
) -> Iterator[KindForecast]:
    """The forecast of each k and training-set size."""
    largest = max(costs.trained_parameters(run) for run in runs)
    sizes = frozenset().union(*map(costs.batch_sizes, runs))
    kernels = kernel_bytes(costs.experiment.machine, ceil(len(sizes) / workers))
    for (recipe, size, epochs), in_cell in by_kind(runs).items():
        spec, works = in_cell[0], [costs.batches(run) for run in in_cell]
        near = timings.nearest(recipe)
        stack = min(near.stack, len(in_cell))
        trained, updated = stack * costs.trained_parameters(spec), stack * costs.updated_parameters(spec)
        best = trained if spec.load_best_model_at_end and spec.evaluations_per_epoch else 0
        alone = near.overhead_seconds + float(np.mean([timings.seconds(costs, spec, work) for work in works]))
        yield KindForecast(
            recipe=recipe,
            train_size=size,
            runs=len(in_cell),
            seconds=alone / workers,
            memory_bytes=timings.memory_bytes
            + kernels
            + COPY_BYTES * (largest + best)  # an upper bound: the copies of an earlier, larger run may still be held
            + max(
                STEP_BYTES * updated + near.step_bytes * stack * max(work.longest for work in works),
                SCORED_BYTES * updated + near.scored_bytes * stack * max(work.longest_scored for work in works),
            ),
            trainer_seconds=trainer(spec) if trainer else None,
            timed=recipe in timings.timed,
            stack=stack,
            num_train_epochs=epochs,
        )


def _cells_of_estimators(
    costs: CostModel, runs: Sequence[Run], speed: float, idle: float, *, plain: bool
) -> Iterator[KindForecast]:
    """The forecast of each estimator and training-set size, from operations alone: they are not timed.

    With ``plain``, the same seconds count for plain transformers, which runs estimators, too.
    """
    for (recipe, size, epochs), in_cell in by_kind(runs).items():
        seconds = float(np.mean([costs.operations(run) for run in in_cell])) / speed
        memory = idle + (STEP_BYTES + COPY_BYTES) * costs.trained_parameters(in_cell[0])
        trainer = seconds if plain else None
        yield KindForecast(recipe, size, len(in_cell), seconds, memory, trainer, timed=False, num_train_epochs=epochs)
