"""Forecast the time and memory of a sweep: the work of all missing runs, at the speed that calibration measured.

The forecast of runs of estimators, from their operations alone: they are not timed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from time import perf_counter

import numpy as np

from frostline.frozen.forward_pass import Rows
from frostline.frozen.hidden_states import cache_folder, missing_rows
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import FULL, NAMED, Recipe
from frostline.sweep.cache_space import nearest_existing, recipe_of
from frostline.sweep.execution.execute import runs_from_cache
from frostline.sweep.execution.workers import run_in_each_worker, workers_for
from frostline.sweep.forecast.calibration import Calibration, calibrate, calibrate_plain, disk_speed, forward_pass_speed
from frostline.sweep.forecast.timer import SLOWDOWN, TimedPoints
from frostline.sweep.make_plan import rows_needed
from frostline.sweep.prepare import Prepared
from frostline.sweep.results.forecast_record import Cell, Forecast
from frostline.sweep.work.workload import COPY_BYTES, SCORED_BYTES, STEP_BYTES, RunWork, Workload, kernel_bytes
from frostline.training.specification import RunSpec


def estimated_cells(
    workload: Workload, runs: Sequence[RunSpec], speed: float, idle: float, *, plain: bool
) -> Iterator[Cell]:
    """The forecast of each estimator and training-set size.

    Args:
        workload: The workload of the sweep.
        runs: The runs without a result, all of estimators.
        speed: Operations per second of all workers together.
        idle: Bytes in use before training.
        plain: Whether the same seconds count for plain transformers, which runs estimators, too.
    """
    cells: dict[tuple[Recipe, int], list[RunSpec]] = {}
    for run in runs:
        cells.setdefault((run.recipe, run.train_size), []).append(run)
    for (recipe, size), in_cell in cells.items():
        spec = in_cell[0]
        seconds = float(np.mean([workload.operations(run) for run in in_cell])) / speed
        trained = workload.matrices.trained_parameters(workload.names(spec))
        yield Cell(
            recipe=recipe,
            train_size=size,
            runs=len(in_cell),
            training_seconds=seconds,
            evaluation_seconds=0.0,
            seconds=seconds,
            memory_bytes=idle + (STEP_BYTES + COPY_BYTES) * trained,
            trainer_seconds=seconds if plain else None,
            timed=False,
            stack=1,
        )


PLAN_SECONDS = 10.0  # that a plan may spend on timing
TIMING_SHARE = 0.02  # of its own time that a sweep may spend on timing
MAX_SECONDS = 30.0  # that a sweep may spend on timing


def make_forecast(prepared: Prepared, runs: Sequence[RunSpec], *, plain: bool = False) -> Forecast | None:
    """Forecast the time and memory of those of ``runs`` that have no result. The exactness check must have passed before.

    Args:
        prepared: The sweep. Its model and its random generators are left as they were.
        runs: The requested runs.
        plain: For a plan: also time plain transformers, and use the time budget of a plan. Otherwise timing takes only a small
            share of the time of the runs.

    Returns:
        None if the budget is too small to time anything.
    """
    missing = prepared.missing(runs)
    if not missing:
        return Forecast((), 0.0, 0.0)
    begun, context, cached = perf_counter(), prepared.context, prepared.plan.cached
    workload = Workload(context, cached)
    from_cache = runs_from_cache(prepared, missing)
    rows = rows_needed(context, from_cache or missing)
    recipe = recipe_of(prepared.pretrained, context.machine, context.forward_pass(cached))
    uncached = missing_rows(context.tokens, rows, cached, recipe) if from_cache else rows[:0]
    speed = forward_pass_speed(workload, uncached if len(uncached) else missing_rows(context.tokens, rows, cached))
    operations = workload.forward_pass_operations(uncached) + sum(workload.operations(run) for run in missing)
    rough_seconds = SLOWDOWN * operations / speed
    budget = PLAN_SECONDS if plain else min(MAX_SECONDS, TIMING_SHARE * rough_seconds) - (perf_counter() - begun)
    in_loop = [run for run in missing if run.way.in_loop]
    cases, workers = workload.timing_cases(in_loop), workers_for(prepared, runs)
    concurrent, processes = min(workers, len(missing)), min(prepared.plan.device.processes, len(missing))
    others = [run for run in missing if not run.way.in_loop]
    estimated = partial(estimated_cells, workload, others, speed / SLOWDOWN)
    if not in_loop:
        forward_pass_seconds = _forward_pass_seconds(workload, uncached, speed)
        cells = tuple(estimated(0.0, plain=False))
        return Forecast(cells, forward_pass_seconds, perf_counter() - begun, concurrent, processes=processes)
    timed = partial(calibrate, workload, cases, speed / workers, budget=budget, ends=plain, workers=workers)
    # all workers time at the same moment, because they slow each other down in the sweep, too
    each = run_in_each_worker(workers, partial(timed, stack=prepared.spec.stack))
    known = sorted(filter(None, each), key=lambda one: sum(seconds for _, seconds in one.points.steps.points.values()))
    if not known:
        return None
    calibration = known[len(known) // 2]  # the median
    fits = prepared.pretrained.stream is None  # otherwise Trainer could not train it
    plain_points = calibrate_plain(workload, cases, speed) if plain and fits else None
    return Forecast(
        cells=(
            *_cells(workload, calibration, plain_points, in_loop, concurrent),
            *estimated(calibration.memory_bytes, plain=plain_points is not None),
        ),
        workers=concurrent,
        forward_pass_seconds=_forward_pass_seconds(workload, uncached, speed),
        calibration_seconds=perf_counter() - begun,
        remarks=tuple(_remarks(workload, missing)),
        processes=processes,
    )


def _forward_pass_seconds(workload: Workload, uncached: Rows, speed: float) -> float:
    """Seconds to compute the hidden states that are not cached, and to write them."""
    seconds = workload.forward_pass_operations(uncached) / speed
    if len(uncached):
        tokens = int(workload.context.tokens.lengths[uncached].sum())
        written = workload.cached.bytes(len(uncached), tokens, workload.anatomy.width)
        seconds += written / disk_speed(nearest_existing(cache_folder()))
    return seconds


def _cells(
    workload: Workload,
    calibration: Calibration,
    plain_points: TimedPoints | None,
    runs: Sequence[RunSpec],
    workers: int,
) -> Iterator[Cell]:
    """The forecast of each k and training-set size."""
    largest = max(workload.counter(run).trained_parameters(workload.names(run)) for run in runs)
    sizes = frozenset().union(*map(workload.batch_sizes, runs))
    kernels = kernel_bytes(workload.context.machine, ceil(len(sizes) / workers))
    cells: dict[tuple[Recipe, int], list[RunSpec]] = {}
    for run in runs:
        cells.setdefault((run.recipe, run.train_size), []).append(run)
    for (recipe, size), in_cell in cells.items():
        spec, works = in_cell[0], [workload.run_work(run) for run in in_cell]
        times = [_seconds(workload, calibration, spec, work) for work in works]
        training, evaluation = (float(np.mean(each)) / workers for each in zip(*times, strict=True))
        near = calibration.points.nearest(spec.recipe)
        stack, counter = min(near.stack, len(in_cell)), workload.counter(spec)
        trained, updated = (
            stack * count(workload.names(spec)) for count in (counter.trained_parameters, counter.updated_parameters)
        )
        keeps_best = spec.load_best_model_at_end and spec.evaluations_per_epoch
        best = trained if keeps_best else 0
        yield Cell(
            recipe=recipe,
            train_size=size,
            runs=len(in_cell),
            training_seconds=training,
            evaluation_seconds=evaluation,
            seconds=training + evaluation + near.overhead_seconds / workers,
            memory_bytes=calibration.memory_bytes
            + kernels
            + COPY_BYTES * (largest + best)  # an upper bound: the copies of an earlier, larger run may still be held
            + max(
                STEP_BYTES * updated + near.step_bytes * stack * max(work.longest for work in works),
                SCORED_BYTES * updated + near.scored_bytes * stack * max(work.longest_scored for work in works),
            ),
            trainer_seconds=_plain_seconds(workload, plain_points, calibration.scoring_seconds, spec)
            if plain_points
            else None,
            timed=spec.recipe in calibration.points,
            stack=stack,
        )


def _seconds(workload: Workload, calibration: Calibration, spec: RunSpec, work: RunWork) -> tuple[float, float]:
    """Seconds of the training steps of a run, and of its evaluation."""
    steps = workload.training_operations(spec, work)
    scored = workload.counter(spec).forward(work.scored, workload.cut(spec) or 0)
    points = calibration.points
    return (
        points.steps.seconds(spec.recipe, work.steps.count, steps),
        points.scored.seconds(spec.recipe, work.scored.count, scored) + work.scorings * calibration.scoring_seconds,
    )


def _plain_seconds(workload: Workload, points: TimedPoints, scoring_seconds: float, spec: RunSpec) -> float:
    """Seconds of a run with plain transformers: every layer of every padded batch, in float32."""
    work, counter = workload.plain_run_work(spec), replace(workload.counter(spec), head_token=None)
    steps = counter.training(workload.names(spec), work.steps, None)
    return (
        points.steps.seconds(spec.recipe, work.steps.count, steps)
        + points.scored.seconds(spec.recipe, work.scored.count, counter.forward(work.scored))
        + work.scorings * scoring_seconds
    )


def _remarks(workload: Workload, runs: Sequence[RunSpec]) -> Iterator[str]:
    """Sentences about runs for which freezing saves little or nothing."""
    by_tune = {run.recipe: run for run in runs}
    whole = sum(workload.operations(run) for run in runs)
    if FULL in by_tune:
        share = sum(workload.operations(run) for run in runs if run.recipe == FULL) / whole
        yield (
            "Full fine-tuning freezes nothing, so cached hidden states do not speed it up. It accounts for "
            f"{100 * share:.0f} % of the operations of all runs."
        )
    if NAMED in by_tune:
        yield _remark_on_named_parts(workload, by_tune[NAMED])


def _remark_on_named_parts(workload: Workload, spec: RunSpec) -> str:
    """What named parts save, and what the last layers with about as many parameters would save if that is more."""
    matrices, anatomy, step = workload.matrices, workload.anatomy, workload.run_work(spec).steps.mean
    names = spec.to_train.parameters(anatomy)
    full = matrices.training(Trainable(FULL).parameters(anatomy), step, None)
    saved = 1 - matrices.training(names, step, workload.cut(spec)) / full
    size = matrices.trained_parameters(names)
    k = min(
        range(anatomy.count + 1),
        key=lambda k: abs(matrices.trained_parameters(Trainable(Recipe(k)).parameters(anatomy)) - size),
    )
    instead = 1 - matrices.training(Trainable(Recipe(k)).parameters(anatomy), step, anatomy.count - k) / full
    remark = f"Named parts: a training step takes {100 * saved:.0f} % fewer operations than full fine-tuning"
    if instead - saved < 0.02:
        return f"{remark}."
    layers = f"last {k} layers, which have" if k > 1 else f"{'last layer' if k else 'classifier head alone'}, which has"
    return f"{remark}; with the {layers} about as many parameters, it would take {100 * instead:.0f} % fewer."
