"""Carry a sweep out: run what has no result, over what all runs share, and publish each result as it comes."""

import traceback
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.fast.malloc import memory_reused, release_freed_memory
from frostline.frozen.batches import Rows
from frostline.frozen.cache.loading import load_or_compute
from frostline.frozen.check.exactness import check
from frostline.frozen.check.trial import Check
from frostline.sweep.cache_space import recipe_of
from frostline.sweep.execution.best_weights import UNUSABLE, BestWeights
from frostline.sweep.execution.progress import Progress
from frostline.sweep.execution.stacks import in_stacks, stack_size
from frostline.sweep.execution.workers import run_concurrently, workers_for
from frostline.sweep.forecast.workload import Workload
from frostline.sweep.make_plan import rows_needed
from frostline.sweep.prepare import Prepared
from frostline.training.context import starting_cut
from frostline.training.result import Result
from frostline.training.run import run, run_stacked
from frostline.training.specification import RunSpec

# What a run may end in that is its own failure; whatever else is raised ends the sweep.
FAILURES = (RuntimeError, MemoryError, AssertionError, ArithmeticError, ValueError)


def execute(
    prepared: Prepared, runs: Sequence[RunSpec], progress: Progress, *, weights: BestWeights | None = None
) -> None:
    """Run what is given and has no result, and publish each; what the best have learned goes to ``weights``."""
    context = prepared.context
    context.forward_pass_seconds = 0.0
    missing = [spec for spec in runs if not prepared.store.has(spec.digest)]
    if not missing:
        return
    sharers, workers = sharing(prepared, missing), workers_for(prepared, runs)
    work, forward_pass_work = _work(prepared, missing, rows_needed(context, sharers) if sharers else None, workers)
    progress.start(len(missing), sum(work.values()) + forward_pass_work, seconds=prepared.plan.forecast is not None)
    prepare_hidden_states(prepared, missing, progress, forward_pass_work)
    wanted = prepared.spec.stack
    stacks = list(in_stacks(missing, lambda runs: stack_size(runs, context, wanted, progress.note, workers=workers)))
    context.workers = min(workers, len(stacks))

    def attempt(stack: Sequence[RunSpec], progress: Progress) -> None:
        _attempt(stack, prepared, sum(work[spec.digest] for spec in stack), progress, weights)

    all_cut = all(context.cut(spec) is not None for spec in missing)
    with memory_reused(release_large=all_cut):
        if workers == 1:
            for stack in stacks:
                attempt(stack, progress)
        else:  # the longest first, so that they all end at about the same time
            longest_first = sorted(stacks, key=lambda stack: -sum(work[spec.digest] for spec in stack))
            run_concurrently(longest_first, workers, attempt, _name, progress)


def _work(
    prepared: Prepared, runs: Sequence[RunSpec], rows: Rows | None, workers: int
) -> tuple[dict[str, float], float]:
    """What each run and the pass over ``rows`` take: seconds of the clock where there is a forecast, else operations, of
    which a run's are shared by the ``workers``."""
    forecast = prepared.plan.forecast
    if forecast is not None:
        seconds = {(cell.trainable, cell.train_size): cell.seconds for cell in forecast.cells}
        return {run.digest: seconds[run.trainable, run.train_size] for run in runs}, forecast.forward_pass_seconds
    workload = Workload(prepared.context, prepared.plan.cached)
    forward_pass_work = 0.0 if rows is None else workload.forward_pass_operations(rows)
    return {run.digest: workload.operations(run) / workers for run in runs}, forward_pass_work


def _attempt(
    stack: Sequence[RunSpec], prepared: Prepared, work: float, progress: Progress, weights: BestWeights | None
) -> None:
    """Run what is trained as one, and publish the results, or else why there are none; a stack that fails, in halves."""
    spec, alone = stack[0], len(stack) == 1
    progress.begin(_name(stack))

    def on_step(step: int, total: int) -> None:
        progress.advance(work * step / total)

    failed = None
    try:
        results = (
            [run(spec, prepared.context, on_step=on_step)]
            if alone
            else run_stacked(stack, prepared.context, on_step=on_step)
        )
    except FrostlineError:
        raise
    except FAILURES as error:
        failed = _failure(spec, error)
    if failed and not alone:  # after the error has gone, and with it what it held of the memory
        progress.note(f"{len(stack)} runs of {spec.trainable} failed as one ({failed['reason']}); tried in two halves.")
        half = len(stack) // 2
        for part in (stack[:half], stack[half:]):
            _attempt(part, prepared, work * len(part) / len(stack), progress, weights)
        return
    if failed:
        prepared.store.fail(spec.digest, failed)
        progress.result(failed, spec.trainable)
    else:
        for spec, result in zip(stack, results, strict=True):
            prepared.store.publish(spec.digest, result)
            progress.result(result.facts, spec.trainable)
            if weights:
                _keep_weights(spec, result, weights, progress)
    progress.finish(work)


def _name(stack: Sequence[RunSpec]) -> str:
    first = stack[0]
    return f"{first.trainable}, " + (f"seed {first.seed}" if len(stack) == 1 else f"{len(stack)} runs as one")


def _keep_weights(spec: RunSpec, result: Result, weights: BestWeights, progress: Progress) -> None:
    if result.facts["outcome"] != "ok" or result.facts["validation_best"] is None:
        return
    try:
        weights.offer(spec, result.facts["validation_best"], result.learned)
    except UNUSABLE as error:
        progress.note(
            f"What {spec.trainable}, seed {spec.seed} learned cannot be kept ({error}); it can be trained again."
        )


def prepare_hidden_states(prepared: Prepared, runs: Sequence[RunSpec], progress: Progress, work: float = 0.0) -> None:
    """Have the cuts proven, and the hidden states of all rows that these runs read at hand, by a pass of so much work."""
    check_cuts(prepared)
    if sharers := sharing(prepared, runs):
        rows, states = rows_needed(prepared.context, sharers), prepared.context.states
        if states is not None and states.selection == prepared.plan.cached:
            if states.has(rows):
                return
            rows = np.union1d(rows, states.rows)
        _keep(prepared, rows, progress, work)


def sharing(prepared: Prepared, runs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those of the runs that take up kept states."""
    return [spec for spec in runs if starting_cut(prepared.plan.cached, prepared.pretrained.anatomy, spec) is not None]


def check_cuts(prepared: Prepared) -> list[Check]:
    """Prove on this very model, in fp32, that the cuts of this sweep are exact; choose packed or padded batches.

    Raises:
        FrostlineError: they are not.
    """
    if prepared.checks is not None:
        return prepared.checks
    pretrained, context = prepared.pretrained, prepared.context
    ks = {spec.tune for spec in prepared.plan.runs if isinstance(spec.tune, int)}
    ends = {min(ks), max(ks)} if ks else set()
    all_cut = len(sharing(prepared, prepared.plan.runs)) == len(prepared.plan.runs)
    rows = check(  # full runs every layer; without it the same paths are chosen, so that a sweep can grow by it
        pretrained.model,
        tuned_layers=[*sorted(ends), None],
        tune_modules=prepared.spec.tune_modules,
        uncut_trains=max(ends) if ends and all_cut else None,
    )
    release_freed_memory()
    refused = next((row for row in rows if row.refused), None)
    if refused:
        raise FrostlineError(
            f"The model {pretrained.name} cannot be swept exactly (k = {refused.tuned_layers}): {refused.refused} "
            "`frostline check` tells more; choose another model."
        )
    context.packed = all(row.path == "packed" for row in rows)
    as_checked = all(row.head_token and row.path == rows[0].path for row in rows)
    context.head_token = rows[0].head_token if as_checked else None
    prepared.checks = rows
    return rows


def _keep(prepared: Prepared, rows: Rows, progress: Progress, work: float) -> None:
    context, pretrained, cached = prepared.context, prepared.pretrained, prepared.plan.cached
    progress.begin("hidden states")
    pretrained.restore()  # a second call on the same sweep finds the model as the last run left it
    passed = 0

    def advance(more: int) -> None:
        nonlocal passed
        passed += more
        progress.advance(work * passed / len(rows))

    made_by = context.forward_pass(cached)
    recipe, begun = recipe_of(pretrained, context.machine, made_by), perf_counter()
    with memory_reused():
        context.states = load_or_compute(made_by, context.tokens, rows, recipe, progress=advance, warn=progress.note)
    context.forward_pass_seconds = perf_counter() - begun
    progress.finish(work)


def _failure(spec: RunSpec, error: BaseException) -> dict[str, Any]:
    first = next(iter(str(error).strip().splitlines()), "")
    return {
        "digest": spec.digest,
        "spec": spec.model_dump(mode="json"),
        "status": "failed",
        "reason": f"{type(error).__name__}: {first}",
        "traceback": traceback.format_exc(),
    }
