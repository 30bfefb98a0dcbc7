"""A forecast of what a sweep takes: the operations of everything that is to be done, at the pace that was calibrated."""

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from frostline.frozen.cache.loading import missing_rows
from frostline.frozen.cache.recipe import cache_folder
from frostline.model.trainable import Trainable
from frostline.sweep.cache_space import nearest_existing, recipe_of
from frostline.sweep.execution.execute import sharing
from frostline.sweep.execution.workers import in_each, workers_for
from frostline.sweep.forecast.calibration import (
    SCORED_BYTES,
    Calibration,
    calibrate,
    calibrate_plain,
    disk_rate,
    forward_pass_rate,
)
from frostline.sweep.forecast.pace import Timed
from frostline.sweep.forecast.record import Cell, Forecast
from frostline.sweep.forecast.timer import COPY_BYTES, SLOWDOWN, STEP_BYTES
from frostline.sweep.forecast.workload import Load, Workload
from frostline.sweep.make_plan import rows_needed
from frostline.sweep.prepare import Prepared
from frostline.training.specification import RunSpec

PLAN_SECONDS = 10.0  # that a plan may spend on timing
SHARE = 0.02  # of its own time that a sweep may spend on it
MOST_SECONDS = 30.0  # and no more


def make_forecast(prepared: Prepared, runs: Sequence[RunSpec], *, plain: bool = False) -> Forecast | None:
    """What those of ``runs`` take that have no result; the cuts are proven already, and nothing is left behind.

    ``plain`` is for a plan: what plain transformers would take is timed too. Without it no more is spent than a small
    share of what the runs take, and None is given where that is too little to time anything.
    """
    missing = [run for run in runs if not prepared.store.has(run.digest)]
    if not missing:
        return Forecast((), 0.0, 0.0)
    begun, context, cached = perf_counter(), prepared.context, prepared.plan.cached
    workload = Workload(context, cached)
    shared = sharing(prepared, missing)
    rows = rows_needed(context, shared or missing)
    recipe = recipe_of(prepared.pretrained, context.machine, context.forward_pass(cached))
    to_pass = missing_rows(context.tokens, rows, cached, recipe) if shared else rows[:0]
    rate = forward_pass_rate(workload, to_pass if len(to_pass) else missing_rows(context.tokens, rows, cached))
    forward_pass_operations = workload.forward_pass_operations(to_pass)
    guess = SLOWDOWN * (forward_pass_operations + sum(workload.operations(run) for run in missing)) / rate
    budget = PLAN_SECONDS if plain else min(MOST_SECONDS, SHARE * guess) - (perf_counter() - begun)
    wanted, workers = workload.wanted(missing), workers_for(prepared, runs)
    at_once = min(workers, len(missing))
    timed = partial(calibrate, workload, wanted, rate / workers, budget=budget, ends=plain, workers=workers)
    each = in_each(workers, partial(timed, stack=prepared.spec.stack))  # all at the same time, as in the sweep
    known = sorted(filter(None, each), key=lambda one: sum(seconds for _, seconds in one.cut.steps.points.values()))
    if not known:
        return None
    found = known[len(known) // 2]
    by_plain = calibrate_plain(workload, wanted, rate) if plain else None
    forward_pass_seconds = forward_pass_operations / rate
    if len(to_pass):
        written = cached.bytes(len(to_pass), int(context.tokens.lengths[to_pass].sum()), workload.anatomy.width)
        forward_pass_seconds += written / disk_rate(nearest_existing(cache_folder()))
    return Forecast(
        cells=tuple(_cells(workload, found, by_plain, missing, at_once)),
        workers=at_once,
        forward_pass_seconds=forward_pass_seconds,
        calibration_seconds=perf_counter() - begun,
        remarks=tuple(_remarks(workload, missing)),
    )


def _cells(
    workload: Workload, found: Calibration, by_plain: Timed | None, runs: Sequence[RunSpec], workers: int
) -> Iterator[Cell]:
    matrices, anatomy = workload.matrices, workload.anatomy
    most = max(matrices.trained_parameters(run.to_train.parameters(anatomy)) for run in runs)
    cells: dict[tuple[str, int], list[RunSpec]] = {}
    for run in runs:
        cells.setdefault((run.trainable, run.train_size), []).append(run)
    for (trainable, size), alike in cells.items():
        spec, loads = alike[0], [workload.load(run) for run in alike]
        times = [_seconds(workload, found, spec, load) for load in loads]
        training, evaluation = (float(np.mean(each)) / workers for each in zip(*times, strict=True))
        near = found.cut.nearest(spec.tune)
        together = min(near.stack, len(alike))  # their memory is that of all
        copied, moved = (
            together * count(spec.to_train.parameters(anatomy))
            for count in (matrices.trained_parameters, matrices.updated_parameters)
        )
        keeps_best = spec.load_best_model_at_end and spec.evaluations_per_epoch
        best = copied if keeps_best else 0
        yield Cell(
            trainable=trainable,
            train_size=size,
            runs=len(alike),
            training_seconds=training,
            evaluation_seconds=evaluation,
            seconds=training + evaluation + near.around / workers,
            memory_bytes=found.memory_bytes
            + COPY_BYTES * (most + best)  # of all that was trained by then there are copies
            + max(
                STEP_BYTES * moved + near.step_bytes * together * max(load.longest for load in loads),
                SCORED_BYTES * moved + near.scored_bytes * together * max(load.longest_scored for load in loads),
            ),
            trainer_seconds=_plain_seconds(workload, by_plain, found.scoring_seconds, spec) if by_plain else None,
            timed=spec.tune in found.cut,
        )


def _seconds(workload: Workload, found: Calibration, spec: RunSpec, load: Load) -> tuple[float, float]:
    """Of a run's steps, and of its scoring."""
    matrices, cut = workload.matrices, workload.cut(spec)
    steps = matrices.training(spec.to_train.parameters(workload.anatomy), load.steps, cut)
    scored = matrices.forward(load.scored, cut or 0)
    return (
        found.cut.steps.seconds(spec.tune, load.steps.count, steps),
        found.cut.scored.seconds(spec.tune, load.scored.count, scored) + load.scorings * found.scoring_seconds,
    )


def _plain_seconds(workload: Workload, timed: Timed, scoring_seconds: float, spec: RunSpec) -> float:
    """Of one run by plain transformers: every layer of every padded batch, in fp32."""
    load, matrices = workload.plain_load(spec), workload.plain
    steps = matrices.training(spec.to_train.parameters(workload.anatomy), load.steps, None)
    return (
        timed.steps.seconds(spec.tune, load.steps.count, steps)
        + timed.scored.seconds(spec.tune, load.scored.count, matrices.forward(load.scored))
        + load.scorings * scoring_seconds
    )


def _remarks(workload: Workload, runs: Sequence[RunSpec]) -> Iterator[str]:
    """Where freezing saves little or nothing, with how much."""
    by_tune = {run.tune: run for run in runs}
    whole = sum(workload.operations(run) for run in runs)
    if "all" in by_tune:
        share = sum(workload.operations(run) for run in runs if run.tune == "all") / whole
        yield (
            "Full trains everything: nothing below it is frozen, so kept hidden states cannot help it. It is "
            f"{100 * share:.0f} % of all operations of the runs."
        )
    if "named" in by_tune:
        yield _of_named_parts(workload, by_tune["named"])


def _of_named_parts(workload: Workload, spec: RunSpec) -> str:
    matrices, anatomy, step = workload.matrices, workload.anatomy, workload.load(spec).steps.mean
    names = spec.to_train.parameters(anatomy)
    full = matrices.training(Trainable("all").parameters(anatomy), step, None)
    saved = 1 - matrices.training(names, step, workload.cut(spec)) / full
    size = matrices.trained_parameters(names)
    k = min(
        range(anatomy.count + 1),
        key=lambda k: abs(matrices.trained_parameters(Trainable(k).parameters(anatomy)) - size),
    )
    instead = 1 - matrices.training(Trainable(k).parameters(anatomy), step, anatomy.count - k) / full
    said = f"Named parts: freezing all else saves {100 * saved:.0f} % of the operations of a step of full"
    if instead - saved < 0.02:
        return f"{said}."
    layer = "last layer" if k == 1 else f"last {k} layers" if k else "head alone"
    return f"{said}; the {layer}, nearest in parameters, would save {100 * instead:.0f} %."
