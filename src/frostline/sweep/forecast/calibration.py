"""A few real steps, scored batches and batches of the pass, timed: what turns operations into seconds.

Everything goes through the code of the runs, on the real model and real rows. Hidden states are made up, since none may
be there yet. Nothing stays: the model has its pretrained values again, and no generator that a run draws from is touched.
"""

import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from frostline.fast.malloc import memory_reused
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.forward_pass import prepared_for_forward_pass
from frostline.frozen.selection import StateSelection
from frostline.model.device import Machine
from frostline.model.memory import peak_memory
from frostline.model.tokens import Tokens
from frostline.model.tune import Tune
from frostline.sweep.execution.stacks import stack_size
from frostline.sweep.forecast.operations import BatchTotals, OperationCounter, batch_totals
from frostline.sweep.forecast.workload import PLAIN_BATCH, Outlook, Wanted
from frostline.training.context import RunContext
from frostline.training.rows import shuffled, train_rows
from frostline.training.run import run_stacked
from frostline.training.seeds import generator_seed
from frostline.training.session import training_session
from frostline.training.specification import RunSpec

STEPS = 12  # timed at one k, at most
SHORT = 0.15  # seconds: but as many as take so long, where they are short
SCORED = 4  # batches of evaluation timed at one k, at most
PASSED = 3  # batches of the pass
AROUND = 0.1  # seconds that it takes to begin and end a timed run, about
STEP_BYTES = 12  # of each parameter that a step moves: its gradient, what products read of it, and AdamW's moments
SCORED_BYTES = 8  # while validation is scored: the moments
COPY_BYTES = 4  # the copy that is trained, or that of the best epoch
STILL = 1e-12  # a learning rate that leaves weights about where they are
GUESS = 1.5  # a step takes about so much longer than its operations at the pass's pace


@dataclass(frozen=True)
class Point:
    """What was timed at one value of k: seconds and operations of one step and of one scored batch of one run, of those
    that are trained as one with it."""

    step: tuple[float, float]  # operations, seconds
    scored: tuple[float, float]
    around: float  # seconds of a run beside steps and scoring, with what the first of each takes more, about
    step_bytes: float  # at the peak of a step, for each of its tokens, beside what belongs to parameters
    scored_bytes: float  # the same of a scored batch
    stack: int = 1  # how many runs are trained as one


@dataclass(frozen=True)
class Pace:
    """Seconds by operations: as timed where k was, in between by operations."""

    points: Mapping[Tune, tuple[float, float]]  # operations and seconds of one batch

    def seconds(self, tune: Tune, count: float, operations: float) -> float:
        """Of ``count`` batches with so many operations in all."""
        if not count:
            return 0.0
        each = operations / count
        if tune in self.points:
            return count * self._along(self.points[tune], each)
        layers = sorted(point for k, point in self.points.items() if isinstance(k, int))
        known = layers if len(layers) > 1 else sorted(self.points.values())
        if known[0][0] < each < known[-1][0]:
            operations_of, seconds_of = np.array(known).T
            return count * float(np.interp(each, operations_of, seconds_of))
        return count * self._along(known[0] if each <= known[0][0] else known[-1], each)

    def _along(self, point: tuple[float, float], operations: float) -> float:
        """From the fixed part of a batch, which is what the head alone takes, through the point."""
        fixed = min(self.points[0][1], point[1]) if 0 in self.points else 0.0
        return fixed + (point[1] - fixed) * operations / point[0]


class Timed(dict[Tune, Point]):
    """What was timed, by k."""

    @property
    def steps(self) -> Pace:
        return Pace({k: point.step for k, point in self.items()})

    @property
    def scored(self) -> Pace:
        return Pace({k: point.scored for k, point in self.items()})

    def nearest(self, tune: Tune) -> Point:
        """What was timed at this k, or at the next one; what is no number of layers is like the most of them."""
        if tune in self:
            return self[tune]
        layers = {k: point for k, point in self.items() if isinstance(k, int)}
        if not layers:
            return next(iter(self.values()))
        wanted = tune if isinstance(tune, int) else max(layers)
        return layers[min(layers, key=lambda k: abs(k - wanted))]


@dataclass(frozen=True)
class Calibration:
    """How fast this machine runs this sweep."""

    cut: Timed
    scoring_seconds: float  # working out the metrics once, of all validation rows
    memory_bytes: float  # in use before


def pace_of_pass(outlook: Outlook, rows: Rows) -> float:
    """Operations a second of a few batches of the pass over ``rows``."""
    context, pretrained, tokens = outlook.context, outlook.context.pretrained, outlook.context.tokens
    pretrained.load_weights(None)
    pretrained.restore()
    need = outlook.kept if outlook.kept.cuts or outlook.kept.head else StateSelection((), head=True)
    made_by, rates = context.forward_pass(need), []
    batches = made_by.batches(tokens.lengths, rows)
    chosen = [batches[n] for n in _spread(len(batches), PASSED)]
    with prepared_for_forward_pass(pretrained.model, context.machine):
        for batch in [chosen[0], *chosen]:
            begun = perf_counter()
            for states in made_by.hidden_states(tokens, [batch]):
                for array in states.values():
                    array.float().cpu()
            rates.append(outlook.of_pass(batch) / (perf_counter() - begun))
    return statistics.median(rates[1:])  # the first warms up


def disk_rate(folder: Path) -> float:
    """Bytes a second that reach the disk below ``folder``; the file has no name and is gone afterwards."""
    block = np.random.default_rng(0).bytes(1 << 24)
    with tempfile.TemporaryFile(dir=folder) as file:
        begun = perf_counter()
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return len(block) / (perf_counter() - begun)


def calibrate(
    outlook: Outlook,
    wanted: Sequence[Wanted],
    rate: float,
    *,
    budget: float,
    ends: bool,
    stack: int | str = 1,
    workers: int = 1,
) -> Calibration | None:
    """Time as many of the ``wanted`` as ``budget`` seconds allow; None where they do not even allow the deepest, or where no
    loss is finite.

    ``rate``, operations a second of the pass, is what the time that timing takes is guessed from. ``ends``: time the
    shallowest, the deepest, full and named parts whatever they take. ``stack``: how many runs a sweep trains as one, as its
    specification says; ``workers``: between how many they are shared out.
    """
    context, need, matrices = outlook.context, outlook.kept, outlook.matrices
    chosen = _affordable(wanted, matrices, rate, budget, at_least=_ends(wanted) if ends else [])
    if _ends(wanted)[0] not in chosen:  # from what is shallow alone nobody knows what is deep
        return None
    idle = _idle(context)
    made_up = _MadeUp(need, context.tokens, outlook.anatomy.width) if need.cuts or need.head else None
    with memory_reused(release_large=all(one.cut is not None for one in wanted)):
        points = _Timer(replace(context, states=made_up), matrices, rate, idle, stack, workers).points(chosen, budget)
        scoring = _scoring_seconds(context)
    context.pretrained.restore()
    return Calibration(points, scoring, idle) if points else None


def plainly(outlook: Outlook, wanted: Sequence[Wanted], rate: float) -> Timed:
    """The cheapest and the dearest k as plain transformers computes them: padded, uncut and in fp32."""
    context = outlook.context
    machine = Machine(context.machine.device, "float32")
    uncut = replace(context, machine=machine, packed=False, narrow=None, states=None, plain=True)
    timer = _Timer(uncut, outlook.plain, rate / 2, _idle(context))
    with memory_reused():
        points = timer.points([_plain(one) for one in _plain_ends(wanted)], 0.0)
    context.pretrained.restore()
    return points


def _idle(context: RunContext) -> int:
    """Bytes in use before anything is trained."""
    context.pretrained.restore()
    with peak_memory(context.machine) as idle:
        pass
    return idle.bytes


def _affordable(
    wanted: Sequence[Wanted], matrices: OperationCounter, rate: float, budget: float, at_least: Sequence[Wanted]
) -> list[Wanted]:
    """The ends, full and named parts, then others from the cheapest on: ``at_least`` these, and what fits into the budget."""
    ends = _ends(wanted)
    others = sorted((one for one in wanted if one not in ends), key=lambda one: one.operations(matrices))
    chosen: list[Wanted] = []
    spent = 0.0
    for one in [*ends, *others]:
        steps, scored = _guess(one, matrices, rate)
        least = AROUND + 2 * steps + 2 * scored
        if one in at_least or spent + least <= budget:
            chosen.append(one)
            spent += least
    return chosen


def _ends(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The deepest and the shallowest number of layers, full, and named parts."""
    layers = sorted((one for one in wanted if isinstance(one.spec.tune, int)), key=lambda one: int(one.spec.tune))
    ends = layers[-1:] + layers[: len(layers) > 1]
    return ends + [one for one in wanted if not isinstance(one.spec.tune, int)]


def _plain_ends(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The cheapest and the dearest to plain transformers, for which every layer runs whatever k is."""
    by_tune = {one.spec.tune: one for one in wanted}
    layers = sorted(k for k in by_tune if isinstance(k, int))
    dearest: Tune = "all" if "all" in by_tune else layers[-1] if layers else "named"
    return [by_tune[k] for k in dict.fromkeys([*layers[:1], dearest])]


def _plain(one: Wanted) -> Wanted:
    """The same, as plain transformers computes it: padded, all layers, scored eight at a time."""
    spec = one.spec.model_copy(update={"per_device_eval_batch_size": PLAIN_BATCH, "precision": "float32"})
    share = PLAIN_BATCH / one.spec.per_device_eval_batch_size
    return replace(one, spec=spec, cut=None, step=one.step.padded, batch=one.batch.padded * share, alike=(spec,))


def _guess(one: Wanted, matrices: OperationCounter, rate: float) -> tuple[float, float]:
    """About how long a step and a scored batch take; a few milliseconds are always spent."""
    step, scored = (GUESS * operations / rate + 0.004 for operations in one.operations(matrices))
    return step, scored


@dataclass(frozen=True)
class _Timer:
    context: RunContext
    matrices: OperationCounter
    rate: float
    idle: int  # bytes in use before
    stack: int | str = 1
    workers: int = 1

    def points(self, wanted: Sequence[Wanted], budget: float) -> Timed:
        """Time each of these, in about so many seconds in all; those that end in an error or in no number are left out."""
        found: dict[Tune, Point | None] = {}
        for one in wanted:
            self.context.pretrained.restore()  # so that memory is that of this run
            try:
                found[one.spec.tune] = self._point(one, budget / len(wanted))
            except (RuntimeError, MemoryError):  # too large for this machine: the run itself will say so
                found[one.spec.tune] = None
        return Timed({k: point for k, point in found.items() if point is not None})

    def _point(self, one: Wanted, budget: float) -> Point | None:
        """Time steps and scored batches for about so many seconds, but at least one of each."""
        step, scored = _guess(one, self.matrices, self.rate)
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
        """Of a step on rows ``[K, B]``."""
        return sum(self.matrices.training(one.names, self._work(some), one.cut) for some in rows)

    def _work(self, rows: Rows) -> BatchTotals:
        """One batch of these rows, as it is computed."""
        work = batch_totals(self.context.tokens.lengths[rows], len(rows))
        return work if self.context.packed else work.padded

    def _steps(self, one: Wanted, runs: Sequence[RunSpec], count: int) -> "_Seen":
        """Runs as one of so many steps, and one before them that warms up, on rows drawn from those that the sweep
        trains."""
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
                **{"learning_rate": STILL, "head_learning_rate": STILL},
            }
        )
        specs = [short.model_copy(update={"seed": run.seed}) for run in runs]
        drawn = []
        for spec in specs:  # as each run will draw them
            order = torch.Generator().manual_seed(generator_seed(spec.seed, "order"))
            drawn.append(shuffled(train_rows(sample, spec), order))
        batches = [np.stack([rows[n : n + size] for rows in drawn]) for n in range(0, len(rows), size)]
        clock: list[float] = []
        results = run_stacked(specs, sample, on_step=lambda step, total: clock.append(perf_counter()))
        cost = results[0].facts["cost"]
        taken = [later - earlier for earlier, later in pairwise(clock)]
        steps = len(clock) * statistics.median(taken) if taken else 0.0
        return _Seen(
            batches,
            list(zip(batches[1:], taken, strict=False)),
            max(0.0, cost["run_seconds"] - cost["evaluation_seconds"] - steps / len(runs)),
            cost["peak_memory_bytes"],
        )

    def _scored(self, one: Wanted, runs: Sequence[RunSpec], count: int) -> "_Scoring":
        """BatchTotals that are spread over all lengths, and one before them that warms up."""
        size, rows = one.spec.per_device_eval_batch_size, self.context.splits["validation"]
        rows = rows[np.argsort(self.context.tokens.lengths[rows], kind="stable")]
        places = _spread(max(1, len(rows) // size), count)
        done: list[tuple[float, float]] = []  # operations and seconds
        tokens = 1.0
        with peak_memory(self.context.machine) as peak, training_session(runs, self.context) as (_, forward):
            for place in [places[0], *places]:
                some = rows[size * place :][:size]
                begun = perf_counter()
                self.context.problem.logits(forward, np.stack([some] * len(runs)), size)
                seconds = perf_counter() - begun
                done.append((len(runs) * self.matrices.forward(self._work(some), one.cut or 0), seconds))
                tokens = max(tokens, len(runs) * self.context.largest_chunk(self.context.tokens.lengths[some], one.cut))
        (_, first), *others = done
        pace = sum(seconds for _, seconds in others) / sum(operations for operations, _ in others)
        _, operations = one.operations(self.matrices)
        held = self.idle + COPY_BYTES * len(runs) * self.matrices.trained_parameters(one.names)
        return _Scoring(
            (operations, operations * pace),
            max(0.0, first - others[0][1]) / len(runs),
            max(0.0, peak.bytes - held) / tokens,
        )


@dataclass(frozen=True)
class _Scoring:
    pace: tuple[float, float]  # operations of the mean scored batch, and its seconds
    around: float  # seconds of a run that its first batch takes more than the same one later
    bytes: float  # a token, at the peak


@dataclass(frozen=True)
class _Seen:
    batches: list[Rows]  # [K, B] each
    steps: list[tuple[Rows, float]]  # all but the first, with their seconds
    around: float  # seconds of the run beside steps and scoring, with what the first step takes more than others
    peak: int


def _scoring_seconds(context: RunContext) -> float:
    """Of working out the metrics of all validation rows once."""
    rows = context.splits["validation"]
    outputs = context.pretrained.model.config.num_labels
    logits = np.random.default_rng(0).normal(size=(len(rows), outputs)).astype(np.float32)
    taken = []
    for _ in range(3):
        begun = perf_counter()
        context.problem.scores(logits, rows)
        taken.append(perf_counter() - begun)
    return statistics.median(taken)


def _spread(count: int, wanted: int) -> list[int]:
    """``wanted`` of ``count`` places, evenly spread."""
    wanted = min(count, wanted)
    return sorted({int((n + 0.5) * count / wanted) for n in range(wanted)})


class _MadeUp(HiddenStates):
    """Hidden states of any row, of the right shape and scale but no meaning."""

    seconds = 0.0  # there was no pass

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
