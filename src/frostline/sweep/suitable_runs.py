"""Which runs of a grid suit the model and the data."""

from collections.abc import Iterable, Sequence

from frostline.data.examples import Examples
from frostline.data.load import Data
from frostline.model.pretrained import Pretrained
from frostline.statistics.tune import Tune
from frostline.sweep.plan import Identity, expand
from frostline.sweep.progress import Progress
from frostline.sweep.specification import SweepSpec
from frostline.training.estimators.by_name import estimator_of
from frostline.training.estimators.estimator import most_of_one_class
from frostline.training.rows import subset_rows
from frostline.training.specification import RunSpec
from frostline.training.ways.suitable import require_suitable


def require_suitable_runs(runs: Sequence[RunSpec], pretrained: Pretrained, data: Data) -> None:
    """Refuse runs that the model, the task or the number of examples does not allow.

    Raises:
        FrostlineError: There is such a run.
    """
    for run in _one_of_each_size(runs):
        require_suitable(run, pretrained, data.task.task_type)
        if estimator := estimator_of(run.way):
            estimator.require_suitable(run, _train_examples(run, data))


def without_large_sizes(spec: SweepSpec, identity: Identity, data: Data, progress: Progress) -> SweepSpec:
    """The sweep without the train sizes that are too large for a way, with a note for each such way.

    A way that every size is too large for keeps them all, so that :func:`require_suitable_runs` refuses it.
    """
    estimators = {tune: estimator_of(spec.way_of(tune)) for tune in spec.values_of("tune")}
    limits = {tune: one.most for tune, one in estimators.items() if one and one.most is not None}
    if not limits:
        return spec
    runs = list(_one_of_each_size(run for run in expand(spec, identity) if run.tune in limits))
    for tune, most in limits.items():
        counts = {run.train_size: most_of_one_class(_train_examples(run, data)) for run in runs if run.tune == tune}
        large = sorted(size for size, count in counts.items() if count > most)
        if 0 < len(large) < len(counts):
            spec = _without(spec, tune, large, identity.train_rows)
            sizes = ", ".join(f"{size:,}" for size in large)
            progress.note(f"{tune} is for at most {most} examples a class, so it is left out at train size {sizes}.")
    return spec


def _one_of_each_size(runs: Iterable[RunSpec]) -> Iterable[RunSpec]:
    """One run of each value of ``tune`` and each train size."""
    return {(run.tune, run.train_size): run for run in runs}.values()


def _train_examples(run: RunSpec, data: Data) -> Examples:
    return data.train.take(subset_rows(run, data.train.targets, data.folds))


def _without(spec: SweepSpec, tune: Tune, sizes: Sequence[int], train_rows: int) -> SweepSpec:
    """The sweep without the runs of one value of ``tune`` with these train sizes."""
    parts = []
    for part in spec.grid_values():
        every = part["train_size"] or (train_rows,)
        parts.append({**part, "tune": tuple(one for one in part["tune"] if one != tune), "train_size": every})
        if tune in part["tune"]:
            parts.append({**part, "tune": (tune,), "train_size": tuple(size for size in every if size not in sizes)})
    return spec.with_grids([part for part in parts if part["tune"] and part["train_size"]])
