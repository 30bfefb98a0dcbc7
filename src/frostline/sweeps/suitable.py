"""What the data, the model and the number of examples do not allow, and why."""

from collections.abc import Collection, Iterable

from frostline import FrostlineError
from frostline.data.kinds import TOKENS
from frostline.data.load import Data
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN
from frostline.statistics.recipe import Recipe
from frostline.sweeps.grid import Identity, expand
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import Settings
from frostline.training.estimators import WrongTrainSize, estimator_of
from frostline.training.experiment import head_of
from frostline.training.forward import last_linear, subset_rows
from frostline.training.run import Run, StepPlan, phases_of


def require_suitable(spec: Run, pretrained: Pretrained, task_type: str) -> None:
    """Refuse a run that this model or task does not allow.

    Raises:
        WrongTrainSize: Its examples are too few.
        FrostlineError: The model has fewer layers, lacks a module, or the way is for another type of task.
    """
    way = spec.way
    if way.head_reads != OWN and task_type == TOKENS:
        raise FrostlineError(
            f"{spec.recipe}: head_reads = {way.head_reads!r} makes one vector of a text, but words have tags: leave it out."
        )
    pretrained = pretrained.with_head(head_of(spec, task_type))
    anatomy = pretrained.anatomy
    names = spec.parameters(anatomy)
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
    phases, steps = len(phases_of(spec, anatomy)), StepPlan.of(spec, spec.train_size).total
    if steps < phases:
        reason = f"its {phases} phases need as many steps, but a run has {steps}"
        raise WrongTrainSize(spec, reason, "give more --num-train-epochs or a larger --train-size")
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


def require_suitable_runs(runs: Iterable[Run], pretrained: Pretrained, data: Data) -> None:
    """Refuse runs that the model, the task or the number of examples does not allow.

    Raises:
        WrongTrainSize: There is a run with too many or too few examples.
        FrostlineError: There is another such run.
    """
    for run in {run.kind: run for run in runs}.values():
        require_suitable(run, pretrained, data.task.task_type)
        if estimator := estimator_of(run.way):
            estimator.require_suitable(run, data.train.take(subset_rows(run, data.train.targets, data.folds)))


def without_unsuitable_sizes(
    spec: Settings, identity: Identity, pretrained: Pretrained, data: Data, progress: Progress
) -> Settings:
    """The sweep without the train sizes that are too large or too small for a way, with a note for each.

    A way that no size suits keeps them all, so that :func:`require_suitable_runs` refuses it.
    """
    if len(spec.values_of("train_size")) < 2:
        return spec
    kinds = {run.kind: run for run in expand(spec, identity) if run.recipe.is_way}.values()
    for way in dict.fromkeys(run.recipe for run in kinds):
        own, left_out = [run for run in kinds if run.recipe == way], dict[int, str]()
        for run in own:
            try:
                require_suitable_runs([run], pretrained, data)
            except WrongTrainSize as error:
                left_out[run.train_size] = error.reason
        if 0 < len(left_out) < len(own):
            spec = _without(spec, way, left_out.keys(), identity.train_rows)
            for size, why in left_out.items():
                progress.note(f"{way} is left out at train size {size:,}: {why}.")
    return spec


def _without(spec: Settings, tune: Recipe, sizes: Collection[int], train_rows: int) -> Settings:
    """The sweep without the runs of one value of ``tune`` with these train sizes."""
    parts = []
    for part in spec.grids_alone():
        every, others = part.train_size or (train_rows,), tuple(one for one in part.tune or () if one != tune)
        parts.append(part.model_copy(update={"tune": others, "train_size": every}))
        if part.tune and tune in part.tune:
            fit = tuple(size for size in every if size not in sizes)
            parts.append(part.model_copy(update={"tune": (tune,), "train_size": fit}))
    return spec.with_grids([part for part in parts if part.tune and part.train_size])
