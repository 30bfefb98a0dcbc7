"""One run, from its specification to its result: start from the pretrained weights, train, score, audit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.model.memory import peak_memory
from frostline.training.audit import Audit
from frostline.training.context import RunContext
from frostline.training.forward import forward_function
from frostline.training.loop import train
from frostline.training.result import Measured, Result, make_result
from frostline.training.rows import validation_rows
from frostline.training.seeds import generator_seed
from frostline.training.session import score_rows, set_mode, training_session
from frostline.training.specification import RunSpec


def run(
    spec: RunSpec, context: RunContext, *, on_step: Callable[[int, int], None] = lambda step, total: None
) -> Result:
    """Train and score one run. Afterwards the model has the weights of the best evaluation.

    On a CPU the same specification gives a bitwise identical result. The initial head, the order of the rows and dropout have
    separate random generators. Their seeds depend only on the run's seed, so they are the same for every k.
    """
    return run_stacked([spec], context, on_step=on_step)[0]


def run_stacked(
    specs: Sequence[RunSpec],
    context: RunContext,
    *,
    batched: bool | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> list[Result]:
    """Train runs that differ only in seed and learning rate as one stack.

    With several runs, the model's own parameters are not trained.

    Args:
        specs: The runs, all with the same :attr:`RunSpec.stack_key`.
        context: Model and data.
        batched: Compute the runs with batched operations instead of one after the other; by default on all devices except
            CPUs. See :mod:`frostline.model.stacking`.
        on_step: Called after each step with its number and the total number of steps.

    Returns:
        The result of each run, in order. Seconds are divided equally among the runs; memory is that of the whole stack.
    """
    first, begun = specs[0], perf_counter()
    names = first.to_train.parameters(context.pretrained.anatomy)
    with (
        peak_memory(context.machine) as peak,
        training_session(specs, context, batched=batched) as (learners, forward),
    ):
        audit = Audit(context.pretrained, names)

        def set_audited_mode(training: bool) -> None:
            set_mode(context, first, names, training=training)
            if training:
                audit.check_modes()

        records = train(
            forward,
            learners,
            context.problem,
            validation_rows(context, first),
            first,
            set_mode=set_audited_mode,
            on_step=on_step,
        )
        scored: dict[str, NDArray[np.float32]] = {}
        if any(record.outcome != "diverged" for record in records):
            other_splits = [split for split in context.splits if split not in ("train", "validation")]
            scored = {split: score_rows(forward, context, context.splits[split], specs) for split in other_splits}
        facts = audit.facts(frozen_dropout=first.frozen_dropout)
    seconds = (perf_counter() - begun) / len(specs)
    results = []
    for n, (spec, learner, record) in enumerate(zip(specs, learners, records, strict=True)):
        own = {} if record.outcome == "diverged" else {split: logits[n] for split, logits in scored.items()}
        measured = Measured({**facts, **audit.learner_facts(learner)}, peak.bytes, seconds, len(specs))
        results.append(replace(make_result(spec, context, record, own, measured), learned=learner.parameters))
    return results


def restore(spec: RunSpec, context: RunContext, learned: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Load the ``learned`` parameters of a run into the model.

    Returns:
        Its logits of the validation rows, ``[n, C]``.
    """
    names = spec.to_train.parameters(context.pretrained.anatomy)
    parameters = context.pretrained.start_run(names, generator_seed(spec.seed, "head"))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(learned[name])
    context.pretrained.model.eval()
    with forward_function(context, [spec]) as forward:
        logits: NDArray[np.float32] = score_rows(forward, context, validation_rows(context, spec), [spec])[0]
    return logits
