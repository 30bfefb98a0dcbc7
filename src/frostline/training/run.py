"""One run, from its specification to its result: start from the pretrained weights, train, score, audit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.model.memory import peak_memory
from frostline.training.audit import Audit
from frostline.training.checkpoint import NONE, Checkpoints
from frostline.training.context import RunContext
from frostline.training.course import Course, Phase
from frostline.training.estimators.by_name import estimator_of
from frostline.training.estimators.fitting import fit_run
from frostline.training.forward import forward_function
from frostline.training.learner import Learner, joined
from frostline.training.loop import train
from frostline.training.result import Measured, Result, make_result
from frostline.training.rows import validation_rows
from frostline.training.session import score_rows, set_mode, start_values, training_session
from frostline.training.specification import RunSpec
from frostline.training.ways.phases import phases_of


def run(
    spec: RunSpec,
    context: RunContext,
    *,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints = NONE,
) -> Result:
    """Train and score one run. Afterwards the model has the weights of the best evaluation.

    On a CPU the same specification gives a bitwise identical result. The initial head, the order of the rows and dropout have
    separate random generators. Their seeds depend only on the run's seed, so they are the same for every k.
    """
    if estimator := estimator_of(spec.way):
        return fit_run(spec, context, estimator)
    return run_stacked([spec], context, on_step=on_step, checkpoints=checkpoints)[0]


def run_stacked(
    specs: Sequence[RunSpec],
    context: RunContext,
    *,
    batched: bool | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints = NONE,
) -> list[Result]:
    """Train runs that differ only in seed and learning rate as one stack.

    With several runs, the model's own parameters are not trained.

    Args:
        specs: The runs, all with the same :attr:`RunSpec.stack_key`.
        context: Model and data.
        batched: Compute the runs with batched operations instead of one after the other; by default on all devices except
            CPUs. See :mod:`frostline.model.stacking`.
        on_step: Called after each step with its number and the total number of steps.
        checkpoints: Keep states of these runs, and have the one to continue from, if there is one.

    Returns:
        The result of each run, in order. Seconds are divided equally among the runs; memory is that of the whole stack.
    """
    begun, context = perf_counter(), context.for_run(specs[0])
    phases = list(zip(*(phases_of(spec, context.pretrained.anatomy) for spec in specs), strict=True))
    course = Course(checkpoints)
    with peak_memory(context.machine) as peak:
        for number in range(len(course.finished), len(phases)):
            part = _Part(
                on_step=_progress(on_step, number, len(phases)),
                course=course,
                last=number == len(phases) - 1,
            )
            trained = _train(phases[number], context, part, batched=batched)
            course.add(trained.phase, trained.learners[0].learned)
            if trained.phase.diverged:
                break
    seconds = (perf_counter() - begun) / len(specs)
    results = []
    for n, (spec, learner) in enumerate(zip(specs, trained.learners, strict=True)):
        record = joined([phase.records[n] for phase in course.finished])
        own = {} if record.outcome == "diverged" else {split: logits[n] for split, logits in trained.scored.items()}
        measured = Measured(
            course.audit(n), peak.bytes - context.copies.bytes, seconds, len(specs), course.continued_after
        )
        results.append(replace(make_result(spec, context, record, own, measured), learned=learner.learned))
    return results


def _progress(on_step: Callable[[int, int], None], number: int, parts: int) -> Callable[[int, int], None]:
    """``on_step`` for one of several trainings, counted from 0, that have about equally many steps."""
    return lambda step, total: on_step(number * total + step, parts * total)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What distinguishes one of the trainings of a run.

    Attributes:
        on_step: Called after each step.
        course: The phases before it. It also keeps the states of this one.
        last: Whether this is the last one, after which all splits are scored.
    """

    on_step: Callable[[int, int], None]
    course: Course
    last: bool


@dataclass(frozen=True)
class Trained:
    """The K runs of a stack after one of their phases.

    Attributes:
        phase: Its records and audit.
        learners: The runs.
        scored: Logits of the other splits than train and validation, ``[K, n, C]``.
    """

    phase: Phase
    learners: Sequence[Learner]
    scored: Mapping[str, NDArray[np.float32]]


def _train(specs: Sequence[RunSpec], context: RunContext, part: _Part, *, batched: bool | None) -> Trained:
    """Train, score and audit one stack, from where an earlier phase has ended."""
    first = specs[0]
    names = first.to_train.parameters(context.pretrained.anatomy)
    with training_session(specs, context, batched=batched, earlier=part.course.learned) as (learners, forward):
        audit = Audit(context.pretrained, names, learners)

        def set_audited_mode(training: bool) -> None:
            set_mode(context, first, training=training)
            if training:
                audit.check_modes()

        records = train(
            forward,
            learners,
            context.problem,
            validation_rows(context, first),
            first,
            set_mode=set_audited_mode,
            micro_batch=context.micro_batch(first),
            prefetch=forward.prefetch,
            on_step=part.on_step,
            patience=first.way.patience,
            checkpoints=part.course.of_phase(forward, audit),
        )
        scored: dict[str, NDArray[np.float32]] = {}
        if part.last and any(record.outcome != "diverged" for record in records):
            other_splits = [split for split in context.splits if split not in ("train", "validation")]
            scored = {split: score_rows(forward, context, context.splits[split], specs) for split in other_splits}
        facts = audit.facts(frozen_dropout=first.frozen_dropout)
    return Trained(Phase(records, facts, audit.own_facts()), learners, scored)


def restore(spec: RunSpec, context: RunContext, learned: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Load the ``learned`` parameters of a run into the model.

    Returns:
        Its logits of the validation rows, ``[n, C]``.
    """
    context = context.for_run(spec)
    start_values(spec, context, learned)
    context.pretrained.model.eval()
    with forward_function(context, [spec]) as forward:
        logits: NDArray[np.float32] = score_rows(forward, context, validation_rows(context, spec), [spec])[0]
    return logits
