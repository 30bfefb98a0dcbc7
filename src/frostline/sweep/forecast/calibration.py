"""How fast this machine runs a sweep: the calibration of a forecast."""

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from frostline.fast.malloc import memory_reused
from frostline.frozen.batches import Rows
from frostline.frozen.selection import StateSelection
from frostline.model.device import Machine
from frostline.model.memory import peak_memory
from frostline.model.tune import Tune
from frostline.sweep.forecast.operations import OperationCounter
from frostline.sweep.forecast.pace import Timed
from frostline.sweep.forecast.random_states import RandomStates
from frostline.sweep.forecast.timer import Timer, estimated_seconds, evenly_spaced
from frostline.sweep.forecast.workload import PLAIN_BATCH, Wanted, Workload
from frostline.training.context import RunContext

PASSED = 3  # batches of the forward pass that are timed
AROUND = 0.1  # seconds to begin and end a timed run, about
SCORED_BYTES = 8  # per updated parameter while validation is scored: AdamW's moments


@dataclass(frozen=True)
class Calibration:
    """How fast this machine runs this sweep."""

    cut: Timed
    scoring_seconds: float  # of computing the metrics of all validation examples once
    memory_bytes: float  # in use before training


def forward_pass_rate(workload: Workload, rows: Rows) -> float:
    """Operations per second of a few batches of the forward pass over the frozen layers of ``rows``."""
    context, pretrained, tokens = workload.context, workload.context.pretrained, workload.context.tokens
    pretrained.restore()
    need = workload.cached if workload.cached.cuts or workload.cached.head else StateSelection((), head=True)
    forward_pass, rates = context.forward_pass(need), []
    batches = forward_pass.batches(tokens.lengths, rows)
    chosen = [batches[n] for n in evenly_spaced(len(batches), PASSED)]
    with memory_reused():
        for batch in [chosen[0], *chosen]:
            begun = perf_counter()
            for states in forward_pass.hidden_states(tokens, [batch]):
                for array in states.values():
                    array.float().cpu()
            rates.append(workload.batch_operations(batch) / (perf_counter() - begun))
    return statistics.median(rates[1:])  # the first is a warm-up


def disk_rate(folder: Path) -> float:
    """Bytes per second written to the disk of ``folder``, measured with an unnamed temporary file."""
    block = np.random.default_rng(0).bytes(1 << 24)
    with tempfile.TemporaryFile(dir=folder) as file:
        begun = perf_counter()
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return len(block) / (perf_counter() - begun)


def calibrate(
    workload: Workload,
    wanted: Sequence[Wanted],
    rate: float,
    *,
    budget: float,
    ends: bool,
    stack: int | str = 1,
    workers: int = 1,
) -> Calibration | None:
    """Time as many of the ``wanted`` values of k as ``budget`` seconds allow.

    Args:
        workload: The workload of the sweep.
        wanted: What can be timed.
        rate: Operations per second of the forward pass, to estimate how long timing takes.
        budget: Seconds.
        ends: Time the smallest and the largest k, full and named modules in any case.
        stack: The specification's ``stack``.
        workers: The number of processes that share the runs.

    Returns:
        None if the budget does not allow the largest k, or if no loss is finite.
    """
    context, need, matrices = workload.context, workload.cached, workload.matrices
    chosen = _affordable(wanted, matrices, rate, budget, at_least=_ends(wanted) if ends else [])
    if _ends(wanted)[0] not in chosen:  # a small k alone does not predict a large one
        return None
    idle = _idle(context)
    made_up = RandomStates(need, context.tokens, workload.anatomy.width) if need.cuts or need.head else None
    with memory_reused(release_large=all(one.cut is not None for one in wanted)):
        points = Timer(replace(context, states=made_up), matrices, rate, idle, stack, workers).points(chosen, budget)
        scoring = _scoring_seconds(context)
    context.pretrained.restore()
    return Calibration(points, scoring, idle) if points else None


def calibrate_plain(workload: Workload, wanted: Sequence[Wanted], rate: float) -> Timed:
    """Time the cheapest and the most expensive k as plain transformers computes them: padded, uncut, in float32."""
    context = workload.context
    machine = Machine(context.machine.device, "float32")
    uncut = replace(context, machine=machine, packed=False, head_token=None, states=None, plain=True)
    timer = Timer(uncut, workload.plain, rate / 2, _idle(context))
    with memory_reused():
        points = timer.points([_plain(one) for one in _plain_ends(wanted)], 0.0)
    context.pretrained.restore()
    return points


def _idle(context: RunContext) -> int:
    """Bytes in use before training."""
    context.pretrained.restore()
    with peak_memory(context.machine) as idle:
        pass
    return idle.bytes


def _affordable(
    wanted: Sequence[Wanted], matrices: OperationCounter, rate: float, budget: float, at_least: Sequence[Wanted]
) -> list[Wanted]:
    """What to time: ``at_least`` these, and as much as fits into the budget, the ends first, then the cheapest."""
    ends = _ends(wanted)
    others = sorted((one for one in wanted if one not in ends), key=lambda one: one.operations(matrices))
    chosen: list[Wanted] = []
    spent = 0.0
    for one in [*ends, *others]:
        steps, scored = estimated_seconds(one, matrices, rate)
        least = AROUND + 2 * steps + 2 * scored
        if one in at_least or spent + least <= budget:
            chosen.append(one)
            spent += least
    return chosen


def _ends(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The largest and the smallest k, full, and named modules."""
    layers = sorted((one for one in wanted if isinstance(one.spec.tune, int)), key=lambda one: int(one.spec.tune))
    ends = layers[-1:] + layers[: len(layers) > 1]
    return ends + [one for one in wanted if not isinstance(one.spec.tune, int)]


def _plain_ends(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The cheapest and the most expensive for plain transformers, which runs every layer at every k."""
    by_tune = {one.spec.tune: one for one in wanted}
    layers = sorted(k for k in by_tune if isinstance(k, int))
    dearest: Tune = "all" if "all" in by_tune else layers[-1] if layers else "named"
    return [by_tune[k] for k in dict.fromkeys([*layers[:1], dearest])]


def _plain(one: Wanted) -> Wanted:
    """The same as plain transformers computes it: padded, all layers, eight examples per evaluation batch."""
    spec = one.spec.model_copy(update={"per_device_eval_batch_size": PLAIN_BATCH, "precision": "float32"})
    share = PLAIN_BATCH / one.spec.per_device_eval_batch_size
    return replace(one, spec=spec, cut=None, step=one.step.padded, batch=one.batch.padded * share, alike=(spec,))


def _scoring_seconds(context: RunContext) -> float:
    """Seconds of computing the metrics of all validation examples once."""
    rows = context.splits["validation"]
    outputs = context.pretrained.model.config.num_labels
    logits = np.random.default_rng(0).normal(size=(len(rows), outputs)).astype(np.float32)
    taken = []
    for _ in range(3):
        begun = perf_counter()
        context.problem.scores(logits, rows)
        taken.append(perf_counter() - begun)
    return statistics.median(taken)
