"""One run, from its specification to its result: start from the pretrained weights, train, score, audit.

The course of a run, or of the K runs of a stack, through its phases.

A checkpoint keeps the records of the finished phases, and the state of the present one with all trained parameters.

A run of an estimator, from its specification to its result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.model.anatomy import count_parameters
from frostline.model.device import peak_memory
from frostline.model.terms import HEAD
from frostline.training.audit import Audit, parameters_by_place
from frostline.training.checkpoint import NONE, Checkpoints, State, Stateful
from frostline.training.estimators.by_name import estimator_of
from frostline.training.estimators.estimators import Estimator, Fitted
from frostline.training.experiment import Experiment
from frostline.training.forward import forward_function
from frostline.training.learner import Evaluation, Learner, TrainingRecord, joined
from frostline.training.loop import train
from frostline.training.result import AuditRecord, PhaseAudit, Result, make_result
from frostline.training.rows import train_rows, validation_rows
from frostline.training.session import score_rows, set_mode, start_values, training_session
from frostline.training.specification import RunSpec
from frostline.training.ways.phases import phases_of


@dataclass(frozen=True)
class Phase:
    """A finished phase. Most runs have one.

    Attributes:
        records: The course of each run.
        audits: The audit of each run.
    """

    records: Sequence[TrainingRecord]
    audits: Sequence[AuditRecord]

    @property
    def diverged(self) -> bool:
        """Whether all runs have diverged."""
        return all(record.outcome == "diverged" for record in self.records)

    def state(self) -> State:
        return {
            "records": [record.state() for record in self.records],
            "audits": [audit.model_dump() for audit in self.audits],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        records = [TrainingRecord.from_state(record) for record in state["records"]]
        return cls(records, [AuditRecord.model_validate(audit) for audit in state["audits"]])


class Course:
    """The finished phases, and where the present one continues.

    Attributes:
        finished: The finished phases.
        learned: What they have trained, by name. The state of the present phase has it too.
        continued_after: The numbers of steps in its phase after which an interrupted training was continued.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints, saved = checkpoints, checkpoints.load() or {}
        self.finished = [Phase.from_state(phase) for phase in saved.get("finished", [])]
        self.learned: Mapping[str, Tensor] = {}
        self.continued_after: list[int] = saved.get("continued_after", [])
        self.present: State | None = saved.get("present")
        if self.present is not None:
            self.continued_after = [*self.continued_after, self.present["training"]["step"]]

    def add(self, phase: Phase, learned: Mapping[str, Tensor]) -> None:
        """Record that a phase has finished. ``learned`` are the parameters that it has trained, by name."""
        self.finished.append(phase)
        self.learned = {name: p.detach().clone() for name, p in learned.items()}  # the model is reset before a phase

    def audit(self, run: int) -> AuditRecord:
        """The audit of a run. With several phases, it has the steps of each phase and the places that it moved."""
        audits = [phase.audits[run] for phase in self.finished]
        if len(audits) == 1:
            return audits[0]
        moved = {place for audit in audits for place in audit.moved}
        update = {
            "tuned_share": sum(audit.tuned_share for audit in audits) / len(audits),
            "moved": [place for place in audits[-1].by_place if place in moved],
            "phases": [
                PhaseAudit(steps=phase.records[run].steps, moved=phase.audits[run].moved) for phase in self.finished
            ],
        }
        return audits[-1].model_copy(update=update)

    def of_phase(self, forward: Stateful, audit: Stateful) -> Checkpoints:
        """The checkpoints of the phase that trains with this forward function and has this audit."""
        return _OfPhase(self, forward, audit)


@dataclass(frozen=True)
class _OfPhase:
    """Keeps the states of a phase together with what came before."""

    course: Course
    forward: Stateful
    audit: Stateful

    def load(self) -> State | None:
        present, self.course.present = self.course.present, None
        if present is None:
            return None
        self.forward.load_state(present["forward"])
        self.audit.load_state(present["audit"])
        training: State = present["training"]
        return training

    def after_step(self, state: Callable[[], State]) -> None:
        self.course.checkpoints.after_step(
            lambda: {
                "finished": [phase.state() for phase in self.course.finished],
                "continued_after": self.course.continued_after,
                "present": {
                    "forward": self.forward.state(),
                    "audit": self.audit.state(),
                    "training": state(),
                },
            }
        )


def fit_run(spec: RunSpec, context: Experiment, estimator: Estimator) -> Result:
    """Fit and score one run."""
    begun = perf_counter()
    with peak_memory(context.machine) as peak:
        fitted = estimator.fit(spec, context)
        trained = perf_counter()
        record = _record(spec, context, fitted)
        scored = {
            split: fitted.logits(rows, split)
            for split, rows in context.splits.items()
            if split not in ("train", "validation") and record.outcome != "diverged"
        }
    ended = perf_counter()
    record = replace(record, train_seconds=trained - begun, evaluation_seconds=ended - trained)
    anatomy = context.pretrained.anatomy
    names = spec.to_train.parameters(anatomy)
    depth, below_head = anatomy.depth(names), {name for name in names if anatomy.places[name] != HEAD}
    audit = AuditRecord(
        parameters=count_parameters(context.pretrained.model),
        trainable_parameters=fitted.parameters,
        tuned_share=1.0 if depth is None else depth / anatomy.count,
        by_place=parameters_by_place(context.pretrained, below_head),
    )
    return make_result(
        *(spec, context, record, scored, audit),
        learned=fitted.learned,
        peak_memory_bytes=peak.bytes,
        run_seconds=ended - begun,
    )


def _record(spec: RunSpec, context: Experiment, fitted: Fitted) -> TrainingRecord:
    """The scores as a training with a single evaluation, after the last step."""
    problem, rows = context.problem, validation_rows(context, spec)
    logits = fitted.logits(rows, "validation")
    record = TrainingRecord(steps=fitted.steps)
    if not problem.is_finite(logits, rows):
        return replace(record, outcome="diverged", reason="its logits of the validation rows are not finite")
    some = train_rows(context, spec)[: spec.train_score_rows]
    record.train_last = problem.scores(fitted.logits(some, "train"), some)
    record.evaluations = [Evaluation(fitted.epochs, fitted.steps, problem.scores(logits, rows), {}, logits)]
    if problem.is_degenerate(logits, rows):
        record.outcome, record.reason = "degenerate", "it predicts the same for every validation row"
    return record


def run(
    spec: RunSpec,
    context: Experiment,
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
    context: Experiment,
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
        result = make_result(
            *(spec, context, record, own, course.audit(n)),
            learned=learner.learned,
            peak_memory_bytes=peak.bytes - context.worker.copies.bytes,
            run_seconds=seconds,
            stacked=len(specs),
            continued_after=course.continued_after,
        )
        results.append(result)
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


def _train(specs: Sequence[RunSpec], context: Experiment, part: _Part, *, batched: bool | None) -> Trained:
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
        audits = audit.records(frozen_dropout=first.frozen_dropout)
    return Trained(Phase(records, audits), learners, scored)


def restore(spec: RunSpec, context: Experiment, learned: Mapping[str, Tensor]) -> NDArray[np.float32]:
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
