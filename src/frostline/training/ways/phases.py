"""A run as several trainings, one after the other. Each starts from the best state of the one before."""

from frostline.model.anatomy import Anatomy
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.training.specification import RunSpec
from frostline.training.steps import StepPlan
from frostline.training.ways.way import Way


def trainings_of(spec: RunSpec, anatomy: Anatomy) -> list[RunSpec]:
    """Everything that a run computes from hidden states: its phases, and the fit of its head."""
    return [*phases_of(spec, anatomy), *[frozen(spec)] * (spec.way.order == "head-first")]


def frozen(spec: RunSpec) -> RunSpec:
    """The run with all layers frozen, to read what the head reads."""
    return spec.model_copy(update={"recipe": HEAD_ONLY, "way": Way(head_reads=spec.way.head_reads)})


def phases_of(spec: RunSpec, anatomy: Anatomy) -> list[RunSpec]:
    """The trainings of a run, which are one except for gradual unfreezing.

    Gradual unfreezing (ULMFiT: Howard and Ruder 2018, arXiv:1801.06146) trains the head, then the head and the last layer, and
    so on. Its phases have equal parts of the run's steps, except for remainders, and learning-rate schedules of their own. Only
    the first phase warms up, for at most half of its steps.
    """
    if spec.way.order != "gradual":
        return [spec]
    deepest = anatomy.count if spec.way.tune.k is None else spec.way.tune.k
    unfrozen = [*map(Recipe, range(deepest + 1)), *[FULL] * (spec.way.tune == FULL)]
    whole = StepPlan.of(spec, spec.train_size)
    ends = [whole.total * number // len(unfrozen) for number in range(len(unfrozen) + 1)]
    return [
        spec.model_copy(
            update={
                "way": spec.way.model_copy(update={"tune": tune, "order": "at-once"}),
                "num_train_epochs": (end - begin) / whole.per_epoch,
                "warmup_steps": 0.0 if begin else float(min(whole.warmup, (end - begin) // 2)),
                "phase": number,
            }
        )
        for number, (tune, begin, end) in enumerate(zip(unfrozen, ends[:-1], ends[1:], strict=True), 1)
    ]
