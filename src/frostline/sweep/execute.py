"""Carry a sweep out: run what has no result, over what all runs share, and publish each result as it comes."""

import traceback
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch

from frostline.checking import Check, check
from frostline.errors import FrostlineError
from frostline.hidden import Recipe, Rows, keep
from frostline.machine import Machine, settled_memory
from frostline.pretrained import Pretrained
from frostline.progress import Progress
from frostline.run import cut_of, run
from frostline.specification import RunSpec
from frostline.sweep.outlook import Outlook
from frostline.sweep.prepare import Prepared, rows_needed


def execute(prepared: Prepared, runs: Sequence[RunSpec], progress: Progress) -> None:
    """Run what is given and has no result, and publish each."""
    bench = prepared.bench
    missing = [spec for spec in runs if not prepared.store.has(spec.digest)]
    if not missing:
        return
    sharers = sharing(prepared, missing)
    work, pass_work = _work(prepared, missing, rows_needed(bench, sharers) if sharers else None)
    progress.start(len(missing), sum(work.values()) + pass_work, seconds=prepared.plan.forecast is not None)
    make_ready(prepared, missing, progress, pass_work)
    bench.cache_seconds /= max(1, len(sharers))
    with settled_memory():
        for spec in missing:
            progress.begin(f"{spec.trainable}, seed {spec.seed}")
            _attempt(spec, prepared, work[spec.digest], progress)
            progress.finish(work[spec.digest])


def _work(prepared: Prepared, runs: Sequence[RunSpec], rows: Rows | None) -> tuple[dict[str, float], float]:
    """What each run and the pass over ``rows`` take: seconds where there is a forecast, else operations."""
    forecast = prepared.plan.forecast
    if forecast is not None:
        seconds = {(cell.trainable, cell.train_size): cell.seconds for cell in forecast.cells}
        return {run.digest: seconds[run.trainable, run.train_size] for run in runs}, forecast.pass_seconds
    outlook = Outlook(prepared.bench, prepared.plan.kept)
    pass_work = 0.0 if rows is None else outlook.pass_operations(rows)
    return {run.digest: outlook.operations(run) for run in runs}, pass_work


def _attempt(spec: RunSpec, prepared: Prepared, work: float, progress: Progress) -> None:
    """Run, and publish the result, or else why there is none."""

    def on_step(step: int, total: int) -> None:
        progress.advance(work * step / total)

    try:
        result = run(spec, prepared.bench, on_step=on_step)
    except FrostlineError:
        raise
    except (RuntimeError, MemoryError, AssertionError, ArithmeticError, ValueError) as error:
        facts = _failure(spec, error)
        prepared.store.fail(spec.digest, facts)
    else:
        facts = result.facts
        prepared.store.publish(spec.digest, result)
    progress.result(facts, spec.trainable)


def make_ready(prepared: Prepared, runs: Sequence[RunSpec], progress: Progress, work: float = 0.0) -> None:
    """Have the cuts proven, and the hidden states of all rows that these runs read at hand, by a pass of so much work."""
    cut_check(prepared)
    if sharers := sharing(prepared, runs):
        _keep(prepared, rows_needed(prepared.bench, sharers), progress, work)


def sharing(prepared: Prepared, runs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those of the runs that take up kept states."""
    return [spec for spec in runs if cut_of(prepared.plan.kept, prepared.pretrained.anatomy, spec) is not None]


def cut_check(prepared: Prepared) -> list[Check]:
    """Prove on this very model, in fp32, that the cuts of this sweep are exact; choose packed or padded batches.

    Raises:
        FrostlineError: they are not.
    """
    if prepared.checks is not None:
        return prepared.checks
    pretrained, bench = prepared.pretrained, prepared.bench
    ks = {spec.tune for spec in prepared.plan.runs if isinstance(spec.tune, int)}
    ends = {min(ks), max(ks)} if ks else set()
    rows = check(  # full runs every layer
        pretrained.model, tuned_layers=[*sorted(ends), None], tune_modules=prepared.spec.tune_modules
    )
    refused = next((row for row in rows if row.refused), None)
    if refused:
        raise FrostlineError(
            f"The model {pretrained.name} cannot be swept exactly (k = {refused.tuned_layers}): {refused.refused} "
            "`frostline check` tells more; choose another model."
        )
    bench.packed = all(row.path == "packed" for row in rows)
    prepared.checks = rows
    return rows


def _keep(prepared: Prepared, rows: Rows, progress: Progress, work: float) -> None:
    bench, pretrained, kept = prepared.bench, prepared.pretrained, prepared.plan.kept
    progress.begin("hidden states")
    pretrained.restore()  # a second call on the same sweep finds the model as the last run left it
    passed = 0

    def advance(more: int) -> None:
        nonlocal passed
        passed += more
        progress.advance(work * passed / len(rows))

    begun = perf_counter()
    bench.states = keep(
        pretrained.model,
        pretrained.anatomy,
        bench.tokens,
        rows,
        kept,
        recipe_of(pretrained, bench.machine, bench.reads),
        autocast=bench.machine.autocast,
        progress=advance,
        warn=progress.note,
    )
    bench.pass_seconds = perf_counter() - begun
    bench.cache_seconds = bench.states.seconds
    progress.finish(work)


def recipe_of(pretrained: Pretrained, machine: Machine, reads: str) -> Recipe:
    """What determines this model's hidden states on this machine."""
    facts = machine.facts()
    return Recipe(
        model=pretrained.name,
        weights=pretrained.weights,
        precision=machine.precision,
        attention=str(pretrained.model.config._attn_implementation),
        device=str(facts["device_name"]),
        threads=torch.get_num_threads(),
        instructions=str(facts["instructions"]),
        torch=str(facts["torch"]),
        transformers=str(facts["transformers"]),
        head_reads=reads,
    )


def _failure(spec: RunSpec, error: BaseException) -> dict[str, Any]:
    first = next(iter(str(error).strip().splitlines()), "")
    return {
        "digest": spec.digest,
        "spec": spec.model_dump(mode="json"),
        "status": "failed",
        "reason": f"{type(error).__name__}: {first}",
        "traceback": traceback.format_exc(),
    }
