"""One run, from its specification to its result: start from the pretrained weights, train, score, audit."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import count_parameters, set_train_mode
from frostline.model.device import peak_memory
from frostline.model.stacking import stacked
from frostline.model.terms import HEAD
from frostline.training.audit import Audit, parameters_by_place
from frostline.training.estimators import Estimator, estimator_of
from frostline.training.experiment import Experiment
from frostline.training.forward import (
    ForwardFunction,
    fit_head,
    forward_function,
    order_generator,
    train_rows,
    validation_rows,
)
from frostline.training.learner import Evaluation, Learner, TrainingRecord, joined
from frostline.training.loop import train
from frostline.training.problem import Forward
from frostline.training.result import AuditRecord, PhaseAudit, Result, make_result
from frostline.training.run import NO_CHECKPOINTS, Checkpoints, Run, State, generator_seed, phases_of
from frostline.training.start import reinitialized, start_of
from frostline.training.updates import optimizer_groups


@contextmanager
def training_session(
    specs: Sequence[Run],
    experiment: Experiment,
    *,
    batched: bool | None = None,
    earlier: Mapping[str, Tensor] = MappingProxyType({}),
) -> Iterator[tuple[list[Learner], ForwardFunction]]:
    """Prepare the model for training these runs as one stack. It begins and ends in evaluation mode.

    Args:
        specs: The runs.
        experiment: Model and data.
        batched: See :func:`frostline.training.train.run_stacked`.
        earlier: The parameters that an earlier phase of a single run has trained, by name.

    Yields:
        The runs as learners, and the function from rows to logits.
    """
    experiment = experiment.for_run(specs[0])
    pretrained = experiment.pretrained
    names = specs[0].parameters(pretrained.anatomy)

    def start(number: int) -> Mapping[str, nn.Parameter]:
        return start_values(specs[number], experiment, earlier)

    batched = experiment.machine.device.type != "cpu" if batched is None else batched
    with (
        nullcontext([start(0)])
        if len(specs) == 1
        else stacked(pretrained.model, names, len(specs), start, batched=batched) as own,
        forward_function(experiment, specs) as forward,
    ):
        pretrained.model.eval()
        try:
            learners = []
            for spec, parameters in zip(specs, own, strict=True):
                trained, restraints = start_of(spec, pretrained, parameters)
                groups = optimizer_groups(spec, pretrained.anatomy, trained)
                rows, order = train_rows(experiment, spec), order_generator(spec)
                learners.append(Learner(trained, groups, rows, order, parameters, restraints))
            yield learners, forward
        finally:
            pretrained.model.eval()


def start_values(
    spec: Run, experiment: Experiment, earlier: Mapping[str, Tensor] = MappingProxyType({})
) -> dict[str, nn.Parameter]:
    """Set the model to the values that a run starts from. Returns the parameters that it changes, by name.

    ``earlier`` are the parameters that an earlier phase of the run has trained.
    """
    pretrained = experiment.pretrained
    names, new = spec.parameters(pretrained.anatomy), reinitialized(spec, pretrained.anatomy)
    parameters = pretrained.start_run(names, generator_seed(spec.seed, "head"), new)
    if not earlier:
        fit_head(spec, experiment)
    with torch.no_grad():
        for name, value in earlier.items():
            parameters[name].copy_(value)
    return parameters


def set_mode(experiment: Experiment, spec: Run, *, training: bool) -> None:
    """Set the model of a run, with the head of the run, to training mode or to evaluation mode."""
    pretrained = experiment.for_run(spec).pretrained
    model = pretrained.model
    if not training:
        model.eval()
    elif spec.frozen_dropout:
        model.train()
    else:
        set_train_mode(model, pretrained.anatomy, spec.parameters(pretrained.anatomy))


def score_rows(forward: Forward, experiment: Experiment, rows: Rows, specs: Sequence[Run]) -> NDArray[np.float32]:
    """Logits of the same rows ``[n]`` by each of the K runs, ``[K, n, C]``."""
    rows = np.stack([rows] * len(specs))
    return experiment.problem.logits(forward, rows, specs[0].per_device_eval_batch_size)


def profile_step(specs: Sequence[Run], experiment: Experiment, *, steps: int = 4) -> tuple[float, int]:
    """Train these runs as one stack for a few steps, on their longest examples.

    Returns:
        Seconds of the fastest step, infinite if fewer than two steps completed; and peak memory in bytes.
    """
    first, lengths = specs[0], experiment.problem.lengths
    experiment = experiment.for_run(first)

    def longest(rows: Rows, count: int) -> Rows:  # repeats rows if there are fewer
        return np.resize(rows[np.argsort(-lengths[rows], kind="stable")], count)

    ends: list[float] = []
    scored = validation_rows(experiment, first)
    with peak_memory(experiment.machine) as peak, training_session(specs, experiment) as (learners, forward):
        train(
            forward,
            [replace(one, rows=longest(one.rows, steps * first.batch_size)) for one in learners],
            experiment.problem,
            longest(scored, min(len(scored), first.per_device_eval_batch_size)),
            # With two evaluations, peak memory includes the copy of the best parameters.
            first.model_copy(update={"num_train_epochs": 1.0, "evaluations_per_epoch": 2}),
            set_mode=lambda training: set_mode(experiment, first, training=training),
            prefetch=forward.prefetch,
            on_step=lambda step, total: ends.append(experiment.machine.time()),
        )
    gaps = [after - before for before, after in pairwise(ends)]
    return min(gaps, default=math.inf), peak.bytes  # no gaps if the loss is not finite


class Course(Checkpoints):
    """The phases of a run or of a stack: the finished ones, and where the present one continues. Most runs have one phase.

    Attributes:
        finished: Records and audits of the finished phases, those of each run.
        learned: What they have trained, by name. The state of the present phase has it too.
        continued_after: The numbers of steps in its phase after which an interrupted training was continued.
        parts: What else changes in the present phase, besides the runs and their optimizer.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints, saved = checkpoints, checkpoints.load() or {}
        self.finished = [
            (
                [TrainingRecord.from_state(record) for record in phase["records"]],
                [AuditRecord.model_validate(audit) for audit in phase["audits"]],
            )
            for phase in saved.get("finished", [])
        ]
        self.learned: Mapping[str, Tensor] = {}
        self.continued_after: list[int] = saved.get("continued_after", [])
        self.parts: Mapping[str, ForwardFunction | Audit] = {}
        self._present: State | None = saved.get("present")
        if self._present is not None:
            self.continued_after = [*self.continued_after, self._present["training"]["step"]]

    def load(self) -> State | None:
        """The state of the present phase, from which its training continues."""
        present, self._present = self._present, None
        if present is None:
            return None
        for name, part in self.parts.items():
            part.load_state(present[name])
        training: State = present["training"]
        return training

    def after_step(self, state: Callable[[], State]) -> None:
        """Keep the state of the present phase together with what came before."""
        self._checkpoints.after_step(
            lambda: {
                "finished": [
                    {
                        "records": [record.state() for record in records],
                        "audits": [audit.model_dump() for audit in audits],
                    }
                    for records, audits in self.finished
                ],
                "continued_after": self.continued_after,
                "present": {**{name: part.state() for name, part in self.parts.items()}, "training": state()},
            }
        )

    def audit(self, run: int) -> AuditRecord:
        """The audit of a run. With several phases, it has the steps of each phase and the places that it moved."""
        audits = [of_runs[run] for _, of_runs in self.finished]
        if len(audits) == 1:
            return audits[0]
        moved = {place for audit in audits for place in audit.moved}
        update = {
            "tuned_share": sum(audit.tuned_share for audit in audits) / len(audits),
            "moved": [place for place in audits[-1].by_place if place in moved],
            "phases": [
                PhaseAudit(steps=records[run].steps, moved=audits[run].moved) for records, audits in self.finished
            ],
        }
        return audits[-1].model_copy(update=update)


def fit_run(spec: Run, experiment: Experiment, estimator: Estimator) -> Result:
    """Fit and score one run, as a training with a single evaluation after the last step."""
    begun, problem, rows = perf_counter(), experiment.problem, validation_rows(experiment, spec)
    with peak_memory(experiment.machine) as peak:
        fitted = estimator.fit(spec, experiment)
        trained = perf_counter()
        logits = fitted.logits(rows, "validation")
        record, scored = TrainingRecord(steps=fitted.steps), dict[str, NDArray[np.float32]]()
        if problem.is_finite(logits, rows):
            some = train_rows(experiment, spec)[: spec.train_score_rows]
            record.train_last = problem.scores(fitted.logits(some, "train"), some)
            record.evaluations = [Evaluation(fitted.epochs, fitted.steps, problem.scores(logits, rows), {}, logits)]
            if problem.is_degenerate(logits, rows):
                record.outcome, record.reason = "degenerate", "it predicts the same for every validation row"
            others = {split: of for split, of in experiment.splits.items() if split not in ("train", "validation")}
            scored = {split: fitted.logits(of, split) for split, of in others.items()}
        else:
            record.outcome, record.reason = "diverged", "its logits of the validation rows are not finite"
    ended = perf_counter()
    record.train_seconds, record.evaluation_seconds = trained - begun, ended - trained
    anatomy = experiment.pretrained.anatomy
    names = spec.parameters(anatomy)
    depth, below_head = anatomy.depth(names), {name for name in names if anatomy.places[name] != HEAD}
    audit = AuditRecord(
        parameters=count_parameters(experiment.pretrained.model),
        trainable_parameters=fitted.parameters,
        tuned_share=1.0 if depth is None else depth / anatomy.count,
        by_place=parameters_by_place(experiment.pretrained, below_head),
    )
    return make_result(
        *(spec, experiment, record, scored, audit),
        learned=fitted.learned,
        peak_memory_bytes=peak.bytes,
        run_seconds=ended - begun,
    )


def run(
    spec: Run,
    experiment: Experiment,
    *,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> Result:
    """Train and score one run. Afterwards the model has the weights of the best evaluation.

    On a CPU the same specification gives a bitwise identical result. The initial head, the order of the rows and dropout have
    separate random generators. Their seeds depend only on the run's seed, so they are the same for every k.
    """
    if estimator := estimator_of(spec.way):
        return fit_run(spec, experiment, estimator)
    return run_stacked([spec], experiment, on_step=on_step, checkpoints=checkpoints)[0]


def run_stacked(
    specs: Sequence[Run],
    experiment: Experiment,
    *,
    batched: bool | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> list[Result]:
    """Train runs that differ only in seed and learning rate as one stack.

    With several runs, the model's own parameters are not trained.

    Args:
        specs: The runs, all with the same :attr:`Run.stack_key`.
        experiment: Model and data.
        batched: Compute the runs with batched operations instead of one after the other; by default on all devices except
            CPUs. See :mod:`frostline.model.stacking`.
        on_step: Called after each step with its number and the total number of steps.
        checkpoints: Keep states of these runs, and have the one to continue from, if there is one.

    Returns:
        The result of each run, in order. Seconds are divided equally among the runs; memory is that of the whole stack.
    """
    begun, experiment = perf_counter(), experiment.for_run(specs[0])
    phases = list(zip(*(phases_of(spec, experiment.pretrained.anatomy) for spec in specs), strict=True))
    course = Course(checkpoints)
    with peak_memory(experiment.machine) as peak:
        for number in range(len(course.finished), len(phases)):

            def on_step_of_phase(step: int, total: int, number: int = number) -> None:  # all have about as many steps
                on_step(number * total + step, len(phases) * total)

            last = number == len(phases) - 1
            learners, scored = _train(
                phases[number],
                experiment,
                course,
                on_step_of_phase,
                last=last,
                batched=batched,
            )
            if all(learner.record.outcome == "diverged" for learner in learners):
                break
    seconds = (perf_counter() - begun) / len(specs)
    results = []
    for n, (spec, learner) in enumerate(zip(specs, learners, strict=True)):
        record = joined([records[n] for records, _ in course.finished])
        own = {} if record.outcome == "diverged" else {split: logits[n] for split, logits in scored.items()}
        result = make_result(
            *(spec, experiment, record, own, course.audit(n)),
            learned=learner.learned,
            peak_memory_bytes=peak.bytes - experiment.worker.copies.bytes,
            run_seconds=seconds,
            stacked=len(specs),
            continued_after=course.continued_after,
        )
        results.append(result)
    return results


def _train(
    specs: Sequence[Run],
    experiment: Experiment,
    course: Course,
    on_step: Callable[[int, int], None],
    *,
    last: bool,
    batched: bool | None,
) -> tuple[Sequence[Learner], Mapping[str, NDArray[np.float32]]]:
    """Train and audit one phase of a stack, from where the phase before it has ended, and add it to the course.

    Returns:
        The runs, and after the ``last`` phase the logits of the other splits than train and validation, ``[K, n, C]``.
    """
    first = specs[0]
    names = first.parameters(experiment.pretrained.anatomy)
    with training_session(specs, experiment, batched=batched, earlier=course.learned) as (learners, forward):
        audit = Audit(experiment.pretrained, names, learners)
        course.parts = {"forward": forward, "audit": audit}

        def set_audited_mode(training: bool) -> None:
            set_mode(experiment, first, training=training)
            if training:
                audit.check_modes()

        records = train(
            forward,
            learners,
            experiment.problem,
            validation_rows(experiment, first),
            first,
            set_mode=set_audited_mode,
            micro_batch=experiment.micro_batch(first),
            prefetch=forward.prefetch,
            on_step=on_step,
            patience=first.way.patience,
            checkpoints=course,
        )
        scored: dict[str, NDArray[np.float32]] = {}
        if last and any(record.outcome != "diverged" for record in records):
            other_splits = [split for split in experiment.splits if split not in ("train", "validation")]
            scored = {split: score_rows(forward, experiment, experiment.splits[split], specs) for split in other_splits}
        course.finished.append((records, audit.records(frozen_dropout=first.frozen_dropout)))
    # copies, because the model is reset before the next phase
    course.learned = {name: p.detach().clone() for name, p in learners[0].learned.items()}
    return learners, scored


def restore(spec: Run, experiment: Experiment, learned: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Load the ``learned`` parameters of a run into the model.

    Returns:
        Its logits of the validation rows, ``[n, C]``.
    """
    experiment = experiment.for_run(spec)
    start_values(spec, experiment, learned)
    experiment.pretrained.model.eval()
    with forward_function(experiment, [spec]) as forward:
        logits: NDArray[np.float32] = score_rows(forward, experiment, validation_rows(experiment, spec), [spec])[0]
    return logits
