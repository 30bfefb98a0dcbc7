"""Which ways suit a model and a task."""

from frostline import FrostlineError
from frostline.data.kinds import TOKENS
from frostline.model.anatomy import Anatomy
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN
from frostline.training.experiment import head_of
from frostline.training.specification import RunSpec
from frostline.training.steps import StepPlan
from frostline.training.ways.head import last_linear
from frostline.training.ways.phases import phases_of


def require_suitable(spec: RunSpec, pretrained: Pretrained, task_type: str) -> None:
    """Refuse a run that this model or task does not allow.

    Raises:
        FrostlineError: The model has fewer layers, lacks a module, or the way is for another type of task.
    """
    way = spec.way
    if way.head_reads != OWN and task_type == TOKENS:
        raise FrostlineError(
            f"{spec.recipe}: head_reads = {way.head_reads!r} makes one vector of a text, but words have tags: leave it out."
        )
    pretrained = pretrained.with_head(head_of(spec, task_type))
    anatomy = pretrained.anatomy
    names = spec.to_train.parameters(anatomy)
    layers = max(way.reinitialized, way.transferred or 0, way.low_rank_like)
    if layers > anatomy.count:
        raise FrostlineError(
            f"{spec.recipe}: {layers} layers were requested, but the model has {anatomy.count}: give at most that many."
        )
    if way.patience and not (spec.evaluations_per_epoch and spec.load_best_model_at_end):
        raise FrostlineError(
            f"{spec.recipe}: patience needs evaluations to wait for, of which the best one counts: leave out "
            "--evaluations-per-epoch 0 and --no-load-best-model-at-end."
        )
    if why := lacks_steps(spec, anatomy):
        raise FrostlineError(
            f"{spec.recipe} cannot have {spec.train_size} examples: {why}; give more --num-train-epochs or a larger "
            "--train-size."
        )
    if way.order == "head-first":
        if task_type == TOKENS:
            raise FrostlineError(
                f"{spec.recipe}: the head is fitted on one vector for each text, but words have tags: leave it out."
            )
        last_linear(pretrained.model, anatomy)
    of_layers = {name for name in names if anatomy.places[name].startswith("layer")}
    if way.only != "all" and not of_layers:
        raise FrostlineError(f"{spec.recipe}: the layers of {pretrained.name} have no {way.only}: choose another way.")
    if way.low_rank and not of_layers & anatomy.matrices:
        raise FrostlineError(
            f"{spec.recipe}: the layers of {pretrained.name} have no linear modules: choose another way."
        )


def lacks_steps(spec: RunSpec, anatomy: Anatomy) -> str | None:
    """Why a run has too few steps for its phases; None if it has enough."""
    phases, steps = len(phases_of(spec, anatomy)), StepPlan.of(spec, spec.train_size).total
    return f"its {phases} phases need as many steps, but a run has {steps}" if steps < phases else None
