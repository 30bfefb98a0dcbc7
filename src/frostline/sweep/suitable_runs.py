"""Which runs suit the model, the task and the number of examples."""

from collections.abc import Collection, Iterable, Sequence

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.kinds import TOKENS
from frostline.data.load import Data
from frostline.model.anatomy import Anatomy
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN
from frostline.statistics.recipe import Recipe
from frostline.sweep.grid import Identity, expand
from frostline.sweep.progress import Progress
from frostline.sweep.settings import Settings
from frostline.training.estimators import estimator_of, most_of_one_class
from frostline.training.experiment import head_of
from frostline.training.forward import last_linear, subset_rows
from frostline.training.run import Run, StepPlan, phases_of


def require_suitable(spec: Run, pretrained: Pretrained, task_type: str) -> None:
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


def lacks_steps(spec: Run, anatomy: Anatomy) -> str | None:
    """Why a run has too few steps for its phases; None if it has enough."""
    phases, steps = len(phases_of(spec, anatomy)), StepPlan.of(spec, spec.train_size).total
    return f"its {phases} phases need as many steps, but a run has {steps}" if steps < phases else None


def require_suitable_runs(runs: Sequence[Run], pretrained: Pretrained, data: Data) -> None:
    """Refuse runs that the model, the task or the number of examples does not allow.

    Raises:
        FrostlineError: There is such a run.
    """
    for run in _one_of_each_size(runs):
        require_suitable(run, pretrained, data.task.task_type)
        if estimator := estimator_of(run.way):
            estimator.require_suitable(run, _train_examples(run, data))


def without_unsuitable_sizes(
    spec: Settings, identity: Identity, pretrained: Pretrained, data: Data, progress: Progress
) -> Settings:
    """The sweep without the train sizes that are too large or too small for a way, with a note for each.

    A way that no size suits keeps them all, so that :func:`require_suitable_runs` refuses it.
    """
    if len(spec.values_of("train_size")) < 2:
        return spec
    runs = list(_one_of_each_size(run for run in expand(spec, identity) if run.recipe.is_way))
    for way in dict.fromkeys(run.recipe for run in runs):
        own = [run for run in runs if run.recipe == way]
        left_out = {run.train_size: why for run in own if (why := _why_unsuitable(run, pretrained, data))}
        if 0 < len(left_out) < len(own):
            spec = _without(spec, way, left_out.keys(), identity.train_rows)
            for size, why in left_out.items():
                progress.note(f"{way} is left out at train size {size:,}: {why}.")
    return spec


def _why_unsuitable(run: Run, pretrained: Pretrained, data: Data) -> str | None:
    """Why a way cannot have the train size of this run; None if it can."""
    estimator = estimator_of(run.way)
    if estimator is None:
        return lacks_steps(run, pretrained.anatomy)
    if estimator.most is None or most_of_one_class(_train_examples(run, data)) <= estimator.most:
        return None
    return f"it is for at most {estimator.most} examples a class"


def _one_of_each_size(runs: Iterable[Run]) -> Iterable[Run]:
    """One run of each value of ``tune`` and each train size."""
    return {(run.recipe, run.train_size): run for run in runs}.values()


def _train_examples(run: Run, data: Data) -> Examples:
    return data.train.take(subset_rows(run, data.train.targets, data.folds))


def _without(spec: Settings, tune: Recipe, sizes: Collection[int], train_rows: int) -> Settings:
    """The sweep without the runs of one value of ``tune`` with these train sizes."""
    parts = []
    for part in spec.grid_values():
        every = part["train_size"] or (train_rows,)
        parts.append({**part, "tune": tuple(one for one in part["tune"] if one != tune), "train_size": every})
        if tune in part["tune"]:
            parts.append({**part, "tune": (tune,), "train_size": tuple(size for size in every if size not in sizes)})
    return spec.with_grids([part for part in parts if part["tune"] and part["train_size"]])
