"""The training loop, and one run from its specification to its result: start from pretrained weights, train, score, audit.

The loop, :func:`train`, knows neither the model's architecture nor files. Its inputs are a function from rows to logits and the
parameters to train.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.frozen.cut import joint_products
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
    LearnedUnit,
    fit_head,
    forward_function,
    order_generator,
    train_rows,
    validation_rows,
)
from frostline.training.learner import Evaluation, Learner, TrainingRecord, joined
from frostline.training.problem import Forward, Problem
from frostline.training.result import AuditRecord, PhaseAudit, Result, make_result
from frostline.training.run import NO_CHECKPOINTS, Checkpoints, Run, State, StepPlan, generator_seed, phases_of
from frostline.training.settings import TrainingSettings
from frostline.training.start import reinitialized, start_of
from frostline.training.updates import Updates, backward, optimizer_groups


def train(
    forward: Forward,
    learners: Sequence[Learner],
    problem: Problem,
    validation_rows: Rows,
    settings: TrainingSettings,
    *,
    set_mode: Callable[[bool], None],
    micro_batch: int | None = None,
    prefetch: Callable[[Rows], None] | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    patience: int = 0,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> list[TrainingRecord]:
    """Train the parameters of K runs, and set them to their values at the best evaluation. Returns a record of each run.

    Without ``load_best_model_at_end``, they keep their values after the last step. No run influences another one: loss, clipping,
    scores, best evaluation and outcome are computed for each run.

    A run whose loss or gradient is not finite ends before that step, with the outcome ``diverged``. The others continue. Devices
    other than CPUs notice it some steps later (:mod:`frostline.training.updates`).

    Args:
        forward: A function from rows ``[K, B]``, one row of the array for each run, to logits ``[K, B, C]``.
        learners: The runs. All have the same number of training rows.
        problem: Targets, loss and metrics.
        validation_rows: The rows to evaluate on, ``[n]``.
        settings: The training settings.
        set_mode: Sets the model to training mode (True) or evaluation mode (False).
        micro_batch: Compute the gradients of a batch in parts of this many examples of each run; None: the setting's.
        prefetch: Called with the rows ``[K, B]`` of a batch or of its first part, while the device still computes another one.
        on_step: Called after each step with its number and the total number of steps.
        patience: End after this many evaluations in which no run has a new best score; 0: never.
        checkpoints: Keep states of this training, and have the one to continue from.
    """
    steps = StepPlan.of(settings, len(learners[0].rows))
    micro_batch = min(micro_batch or settings.batch_size, settings.per_device_train_batch_size)
    updates = Updates(learners, settings, steps)
    training = _Training(forward, learners, problem, validation_rows, settings, updates, set_mode)
    if (saved := checkpoints.load()) is not None:
        training.load_state(saved)
    set_mode(True)
    for step in range(training.step + 1, steps.total + 1):
        rows = np.stack([learner.next_rows(settings.batch_size) for learner in learners])
        for restraint in updates.restraints:
            restraint.before_forward()
        logits, losses = backward(
            forward,
            rows,
            problem,
            micro_batch=micro_batch,
            scales=updates.loss_scales,
            prefetch=prefetch,
        )
        updates.step(step, losses)
        if not any(learner.active for learner in learners):
            break
        training.step = step
        for n, learner in enumerate(learners):
            learner.add_batch(rows[n], logits[n], step)
        on_step(step, steps.total)
        if step in steps.evaluate_after:
            training.evaluate(epoch=step / steps.per_epoch, last=step == steps.total)
            if patience and not any(learner.active and learner.improved_within(patience) for learner in learners):
                break
        checkpoints.after_step(training.state)
        # After the last batch of an epoch, the rows of the next one are not known.
        if prefetch and step < steps.total and all(len(learner.upcoming) for learner in learners):
            prefetch(np.stack([learner.upcoming[:micro_batch] for learner in learners]))
    training.finish()
    return [learner.record for learner in learners]


@dataclass
class _Training:
    """A training after ``step`` steps. All runs are evaluated together, in ``seconds`` of the wall-clock time since ``begun``."""

    forward: Forward
    learners: Sequence[Learner]
    problem: Problem
    validation_rows: Rows
    settings: TrainingSettings
    updates: Updates
    set_mode: Callable[[bool], None]
    step: int = 0
    seconds: float = 0.0
    begun: float = field(default_factory=perf_counter)

    def state(self) -> State:
        """The state from which :meth:`load_state` continues."""
        self.updates.settle()
        return {
            "step": self.step,
            "runs": [learner.state() for learner in self.learners],
            "updates": self.updates.state(),
            "seconds": [perf_counter() - self.begun, self.seconds],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.step = state["step"]
        for learner, one in zip(self.learners, state["runs"], strict=True):
            learner.load_state(one)
        self.updates.load_state(state["updates"])
        whole, self.seconds = state["seconds"]
        self.begun = perf_counter() - whole

    def evaluate(self, epoch: float, *, last: bool) -> None:
        """Score the validation rows, then set the model to training mode again."""
        self.updates.settle()
        if not any(learner.active for learner in self.learners):
            return
        begun = perf_counter()
        self.updates.flush()
        self.set_mode(False)
        rows, best = self.validation_rows, self.settings.load_best_model_at_end
        logits = self._logits(np.stack([rows] * len(self.learners)))
        for n, learner in enumerate(self.learners):
            if learner.active:
                learner.evaluate(self.problem, logits[n], rows, epoch, keep_best=best, last=last)
        self.set_mode(True)
        self.seconds += perf_counter() - begun

    def finish(self) -> None:
        """After the last step, score some training rows in evaluation mode, and restore the best parameters of all runs."""
        self.set_mode(False)
        self.updates.flush()
        if any(learner.active for learner in self.learners):
            begun = perf_counter()
            rows = np.stack([learner.rows[: self.settings.train_score_rows] for learner in self.learners])
            logits = self._logits(rows)
            for n, learner in enumerate(self.learners):
                if learner.active:
                    learner.finish(self.problem, logits[n], rows[n], self.validation_rows)
            self.seconds += perf_counter() - begun
        seconds = perf_counter() - self.begun
        for learner in self.learners:  # with equal shares of the seconds
            learner.restore_best()
            learner.record.train_seconds = (seconds - self.seconds) / len(self.learners)
            learner.record.evaluation_seconds = self.seconds / len(self.learners)

    def _logits(self, rows: Rows) -> NDArray[np.float32]:  # [K, n] -> [K, n, C]
        return self.problem.logits(self.forward, rows, self.settings.per_device_eval_batch_size)


@contextmanager
def training_session(
    specs: Sequence[Run],
    experiment: Experiment,
    *,
    earlier: Mapping[str, Tensor] = MappingProxyType({}),
) -> Iterator[tuple[list[Learner], ForwardFunction]]:
    """Prepare the model for training these runs as one stack. It begins and ends in evaluation mode.

    Args:
        specs: The runs.
        experiment: Model and data.
        earlier: The parameters that an earlier phase of a single run has trained, by name.

    Yields:
        The runs as learners, and the function from rows to logits.
    """
    experiment = experiment.for_run(specs[0])
    pretrained = experiment.pretrained
    names = specs[0].parameters(pretrained.anatomy)

    def start(number: int) -> Mapping[str, nn.Parameter]:
        return start_values(specs[number], experiment, earlier)

    joint = joint_products(pretrained.anatomy, experiment.head_token)
    with (
        stacked(pretrained.model, names, len(specs), start, batched=experiment.batched, joint=joint) as own,
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
            with LearnedUnit(specs[0], experiment).learning(forward, own) as learned:
                yield learners, learned
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
    LearnedUnit(spec, experiment).to_numbers(parameters)
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
        record.judge(problem, logits, rows)
        if record.outcome != "diverged":
            some = train_rows(experiment, spec)[: spec.train_score_rows]
            record.train_last = problem.scores(fitted.logits(some, "train"), some)
            record.evaluations = [Evaluation(fitted.epochs, fitted.steps, problem.scores(logits, rows), {}, logits)]
            others = {split: of for split, of in experiment.splits.items() if split not in ("train", "validation")}
            scored = {split: fitted.logits(of, split) for split, of in others.items()}
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
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> list[Result]:
    """Train runs that differ only in seed and learning rate as one stack.

    With several runs, the model's own parameters are not trained.

    Args:
        specs: The runs, all with the same :attr:`Run.stack_key`.
        experiment: Model and data.
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
            learners, scored = _train(phases[number], experiment, course, on_step_of_phase, last=last)
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
) -> tuple[Sequence[Learner], Mapping[str, NDArray[np.float32]]]:
    """Train and audit one phase of a stack, from where the phase before it has ended, and add it to the course.

    Returns:
        The runs, and after the ``last`` phase the logits of the other splits than train and validation, ``[K, n, C]``.
    """
    first = specs[0]
    names = first.parameters(experiment.pretrained.anatomy)
    with training_session(specs, experiment, earlier=course.learned) as (learners, forward):
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
    parameters, unit = start_values(spec, experiment, learned), LearnedUnit(spec, experiment)
    experiment.pretrained.model.eval()
    with forward_function(experiment, [spec]) as forward, unit.learning(forward, [parameters]) as in_unit:
        logits: NDArray[np.float32] = score_rows(in_unit, experiment, validation_rows(experiment, spec), [spec])[0]
    return logits
