"""``frostline.find``: the k to tune, with as little training as possible."""

from contextlib import nullcontext
from typing import Any

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.files import make_folder
from frostline.data.wording import parse_duration
from frostline.fast.switch import objects_frozen
from frostline.search.defaults import DEFAULTS
from frostline.search.plan import SearchPlan
from frostline.search.search import Search
from frostline.statistics.answer import Answer
from frostline.statistics.tune import FULL, Tune
from frostline.sweep import slurm
from frostline.sweep.execution.cuts import check_cuts
from frostline.sweep.execution.ray_tasks import Ray, driver_on, package
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.progress import Progress, suitable_progress
from frostline.sweep.settings import CHOSEN_BY_SEARCH


def find(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    processes: int | None = None,
    ray: Ray | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Answer:
    """Search for what to tune, with few runs.

    Ctrl-C interrupts the search and writes the best answer so far. The same call continues it.

    Args:
        budget: Wall-clock seconds of training, or a text such as ``90s``, ``10min`` or ``2h``. By default it is the larger
            of four full fine-tunings and two minutes.
        max_k: The largest k to train. It then replaces full fine-tuning as the reference.
        exhaustive: Train the whole grid.
        processes: How many processes train the runs: this one, and others that call :func:`frostline.work`. A step then has
            runs for all of them. By default it is the number of GPUs of this machine, or 1. With Ray: how many tasks train at the
            same time, by default all that fit into the cluster.
        ray: Train the runs as tasks of Ray instead of here.
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :class:`frostline.Sweep`, except ``tune``, ``tune_modules`` and ``grid``, with one train
            size. ``learning_rate`` lists the learning rates to try for k > 0, ``head_learning_rate`` those for k = 0. ``seeds``
            is the largest number of seeds of any k. :data:`frostline.search.defaults.DEFAULTS` has the defaults that differ.

    Returns:
        The answer, as in ``answer.json``.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    seconds = _checked_budget(budget, processes)
    sweep, shown = _grid(max_k, settings), progress or suitable_progress()
    if ray is not None:
        package()
    try:
        prepared = _prepare(sweep, max_k, shown)
        make_folder(prepared.store.out, inside=prepared.store.out)
        with nullcontext() if ray is None else driver_on(prepared, shown, ray) as driver:
            search = Search.start(prepared, shown, seconds, processes=processes, ray=driver)
            with search.others:
                return search.run(exhaustive=exhaustive)
    finally:
        shown.close()


def plan(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    processes: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SearchPlan:
    """Plan a search: its first steps, its budget, and their time and memory. Nothing is trained or written.

    A few training steps are timed, which takes about ten seconds.

    Args:
        budget: As for :func:`find`.
        max_k: As for :func:`find`.
        exhaustive: As for :func:`find`.
        processes: As for :func:`find`.
        progress: Shows progress; by default on the terminal.
        **settings: As for :func:`find`.

    Raises:
        FrostlineError: The same errors that :func:`find` raises before the first run.
    """
    seconds = _checked_budget(budget, processes)
    sweep, shown = _grid(max_k, settings), progress or suitable_progress()
    try:
        search = Search.without_probes(_prepare(sweep, max_k, shown), shown, seconds, processes)
        with objects_frozen():
            return SearchPlan.of(search, exhaustive=exhaustive)
    finally:
        shown.close()


def submit(
    script: str,
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> str:
    """Write the first step of a search into its folder, and submit the script of a SLURM job array that does the search.

    Args:
        script: The script, of which one task calls :func:`find` with these arguments.
        budget: As for :func:`find`.
        max_k: As for :func:`find`.
        exhaustive: As for :func:`find`.
        progress: Shows progress; by default on the terminal.
        **settings: As for :func:`find`.

    Returns:
        The number of the job.

    Raises:
        FrostlineError: As for :func:`find`. Or sbatch is not there or refuses the script.
    """
    seconds = _checked_budget(budget)
    sweep, shown = _grid(max_k, settings), progress or suitable_progress()
    try:
        prepared = _prepare(sweep, max_k, shown)
        shown.begin("checking that the model can be cut")
        check_cuts(prepared)
        make_folder(prepared.store.out, inside=prepared.store.out)
        Search.plan(prepared, shown, seconds, exhaustive=exhaustive)
    finally:
        shown.close()
    return slurm.submit(sweep.out, script)


def _checked_budget(budget: float | str | None, processes: int | None = None) -> float | None:
    """A budget in seconds; an impossible budget or number of processes is refused."""
    if processes is not None and processes < 1:
        raise FrostlineError(f"processes cannot be {processes}: give 1 or more.")
    if isinstance(budget, str):
        budget = parse_duration(budget)
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    return budget


def _grid(max_k: int | None, settings: dict[str, Any]) -> Sweep:
    """The sweep of all runs that the search may train, before the layers of the model are known."""
    for name in CHOSEN_BY_SEARCH:
        if settings.get(name) is not None:
            raise FrostlineError(f"A search chooses {name} itself: leave it out, or run `frostline sweep`.")
    if max_k is not None and max_k < 1:
        raise FrostlineError(f"max_k cannot be {max_k}: give 1 or more.")
    sweep = Sweep(**{**DEFAULTS, **settings, "tune": 0})
    if sweep.spec.train_size and len(sweep.spec.train_size) > 1:
        raise FrostlineError(
            "A search has one train size: give one --train-size, or run `frostline sweep` for several."
        )
    return sweep


def _prepare(sweep: Sweep, max_k: int | None, progress: Progress) -> Prepared:
    """Load the model and the data, and show what the user should know of them."""
    prepared = prepare(
        sweep.spec, sweep.sources, progress, tunes=lambda layers: _values_of_tune(layers, max_k), probes=True
    )
    for note in prepared.plan.notes:
        progress.note(note)
    if max_k is None and FULL not in prepared.requested.tune:
        progress.note(
            f"The search compares k = 0 to {prepared.requested.tune[-1]}, as many layers as fit into memory beside their "
            "optimizer. Full fine-tuning cannot be streamed."
        )
    return prepared


def _values_of_tune(layers: int, max_k: int | None) -> tuple[Tune, ...]:
    """Every k that a search may train, the reference last."""
    if max_k is None:
        return (*range(layers + 1), FULL)
    if max_k > layers:
        raise FrostlineError(f"max_k = {max_k} is more than the {layers} layers of the model: give at most {layers}.")
    return tuple(range(max_k + 1))
