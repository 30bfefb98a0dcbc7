"""Calibrate a forecast: measure how fast this machine runs a sweep.

Random hidden states for timing.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from frostline.fast.switch import memory_reused
from frostline.frozen.forward_pass import Computed, ForwardBatch, ForwardPass, Rows, StateSelection
from frostline.frozen.hidden_states import HiddenStates
from frostline.model.device import Machine, peak_memory
from frostline.model.streaming import stream_of
from frostline.model.tokens import Tokens
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweep.forecast.timer import TimedPoints, Timer, estimated_seconds, evenly_spaced
from frostline.sweep.work.workload import PLAIN_BATCH, TimingCase, Workload
from frostline.training.experiment import Experiment, Worker


class RandomStates(HiddenStates):
    """Random hidden states of the right shape and scale. They replace hidden states that are not cached yet."""

    seconds = 0.0  # nothing was computed

    def __init__(self, need: StateSelection, tokens: Tokens, width: int) -> None:
        self.selection, self._lengths, self._width = need, tokens.lengths, width
        self._any = torch.zeros(0, width)

    def tokens(self, cut: int, rows: Rows) -> Tensor:
        return self._some(int(self._lengths[rows].sum()))

    def head(self, rows: Rows) -> Tensor:
        return self._some(len(rows))

    def _some(self, count: int) -> Tensor:
        if count > len(self._any):
            self._any = torch.randn(2 * count, self._width, generator=torch.Generator().manual_seed(0))
        return self._any[:count].clone()[None]


TIMED_BATCHES = 3  # of the forward pass over the frozen layers
MEASURED_STEPS = (
    4  # at least: a warm-up, one that is timed, and one for memory, which counts twice: it has the most tokens
)
OVERHEAD_SECONDS = 0.1  # to begin and end a timed run, approximately


@dataclass(frozen=True)
class Calibration:
    """How fast this machine runs this sweep."""

    points: TimedPoints
    scoring_seconds: float  # to compute the metrics of all validation examples once
    memory_bytes: float  # in use before training


def forward_pass_speed(workload: Workload, rows: Rows) -> float:
    """Operations per second of the forward pass over the frozen layers, measured on a few batches of ``rows``."""
    context, pretrained, tokens = workload.context, workload.context.pretrained, workload.context.tokens
    pretrained.restore()
    need = workload.cached if workload.cached.cuts or workload.cached.head else StateSelection((), head=True)
    forward_pass, speeds = context.forward_pass(need), []
    batches = forward_pass.batches(tokens.lengths, rows)
    chosen = [batches[n] for n in evenly_spaced(len(batches), TIMED_BATCHES)]
    with memory_reused(), _first_layers(forward_pass, tokens) as (compute, share):
        for batch in [chosen[0], *chosen]:
            begun = perf_counter()
            for array in compute(batch, None).selected.values():
                array.float().cpu()
            speeds.append(share * workload.batch_operations(batch) / (perf_counter() - begun))
    return statistics.median(speeds[1:])  # the first is a warm-up


@contextmanager
def _first_layers(
    forward_pass: ForwardPass, tokens: Tokens
) -> Iterator[tuple[Callable[[ForwardBatch, None], Computed], float]]:
    """A function that runs the layers to time, and their share of all that run: of a streamed model, the first one."""
    stream, depth = stream_of(forward_pass.model), forward_pass.depth
    timed = depth if stream is None else min(1, depth)
    names = stream.in_layers(forward_pass.anatomy, range(timed)) if stream else []
    with stream.loaded(names) if stream else nullcontext(), forward_pass.layers(tokens, None, timed) as compute:
        yield compute, timed / depth if depth else 1.0


def disk_speed(folder: Path) -> float:
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
    cases: Sequence[TimingCase],
    speed: float,
    *,
    budget: float,
    ends: bool,
    stack: int | str = 1,
    workers: int = 1,
) -> Calibration | None:
    """Time as many of the ``cases`` as fit into ``budget``.

    Args:
        workload: The workload of the sweep.
        cases: One case for each k.
        speed: Operations per second of the forward pass, to estimate how long timing takes.
        budget: Seconds for timing.
        ends: Time the smallest k, the largest k, full fine-tuning and named parts even if they exceed the budget.
        stack: The specification's ``stack``.
        workers: The number of processes that share the runs.

    Returns:
        None if the budget does not allow the largest k, or if no loss is finite.
    """
    context, need = workload.context, workload.cached
    context.worker.copies.keep_within(0)  # so that they do not count as memory in use
    chosen = _affordable(cases, speed, budget, always=_ends(cases) if ends else [])
    if _ends(cases)[0] not in chosen:  # a small k alone does not predict a large one
        return None
    idle = _idle_bytes(context)
    random_states = RandomStates(need, context.tokens, workload.anatomy.width) if need.cuts or need.head else None
    with memory_reused(release_large=all(one.cut is not None for one in cases)):
        timer = Timer(context.with_worker(states=random_states), speed, idle, stack=stack, workers=workers)
        points = timer.points(chosen, budget)
        scoring = _scoring_seconds(context)
    context.pretrained.restore()
    return Calibration(points, scoring, idle) if points else None


def calibrate_plain(workload: Workload, cases: Sequence[TimingCase], speed: float) -> TimedPoints:
    """Time the cheapest and the most expensive k with plain transformers: padded, with all layers, in float32."""
    context = workload.context
    machine = Machine(context.machine.device, "float32")
    uncut = replace(context, machine=machine, worker=Worker(as_trainer=True))
    timer = Timer(uncut, speed / 2, _idle_bytes(context), memory=False)
    with memory_reused():
        points = timer.points([_plain(one) for one in _plain_ends(cases)], 0.0)
    context.pretrained.restore()
    return points


def _idle_bytes(context: Experiment) -> int:
    """Bytes in use before training."""
    context.pretrained.restore()
    with peak_memory(context.machine) as idle:
        pass
    return idle.bytes


def _affordable(
    cases: Sequence[TimingCase],
    speed: float,
    budget: float,
    always: Sequence[TimingCase],
) -> list[TimingCase]:
    """The cases to time: those in ``always``, and others while they fit into the budget, the ends first, then the cheapest."""
    ends = _ends(cases)
    others = sorted((one for one in cases if one not in ends), key=lambda one: one.operations)
    chosen: list[TimingCase] = []
    spent = 0.0
    for one in [*ends, *others]:
        step, scored = estimated_seconds(one, speed)
        least = OVERHEAD_SECONDS + MEASURED_STEPS * step + 2 * scored
        if one in always or spent + least <= budget:
            chosen.append(one)
            spent += least
    return chosen


def _ends(cases: Sequence[TimingCase]) -> list[TimingCase]:
    """The largest k, the smallest k, full fine-tuning and named parts, in this order."""
    layers = sorted((one for one in cases if one.spec.recipe.k is not None), key=lambda one: one.spec.recipe.k or 0)
    ends = layers[-1:] + layers[: len(layers) > 1]
    return ends + [one for one in cases if one.spec.recipe.k is None]


def _plain_ends(cases: Sequence[TimingCase]) -> list[TimingCase]:
    """The cheapest and the most expensive case for plain transformers, which runs every layer at every k."""
    by_tune = {one.spec.recipe: one for one in cases}
    layers = sorted((one for one in by_tune if one.k is not None), key=lambda one: one.k or 0)
    most_expensive: Recipe = FULL if FULL in by_tune else layers[-1] if layers else [*by_tune][-1]
    return [by_tune[k] for k in dict.fromkeys([*layers[:1], most_expensive])]


def _plain(case: TimingCase) -> TimingCase:
    """The same case for plain transformers: padded, all layers, eight examples per evaluation batch."""
    spec = case.spec.model_copy(update={"per_device_eval_batch_size": PLAIN_BATCH, "precision": "float32"})
    scored_batch = case.scored_batch.padded * (PLAIN_BATCH / case.spec.per_device_eval_batch_size)
    return replace(
        case,
        spec=spec,
        counter=replace(case.counter, head_token=None),
        cut=None,
        step=case.step.padded,
        scored_batch=scored_batch,
        stackable=(spec,),
    )


def _scoring_seconds(context: Experiment) -> float:
    """Seconds to compute the metrics of all validation examples once."""
    rows = context.splits["validation"]
    shape = (len(rows), *context.problem.predictions_per_row, context.pretrained.model.config.num_labels)
    logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    seconds = []
    for _ in range(3):
        begun = perf_counter()
        context.problem.scores(logits, rows)
        seconds.append(perf_counter() - begun)
    return statistics.median(seconds)
