"""``frostline.find``: the k to tune, with as little training as possible."""

from typing import Any

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.files import make_folder
from frostline.data.parsing import parse_duration
from frostline.search.defaults import DEFAULTS
from frostline.search.search import Search
from frostline.statistics.tune import FULL, Tune
from frostline.sweep.prepare import prepare
from frostline.sweep.progress import Progress, suitable_progress
from frostline.sweep.specification import CHOSEN_BY_SEARCH


def find(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Search for what to tune, with few runs.

    Ctrl-C interrupts the search and writes the best answer so far. The same call continues it.

    Args:
        budget: Wall-clock seconds of training, or a text such as ``90s``, ``10min`` or ``2h``. By default it is the larger
            of four full fine-tunings and two minutes.
        max_k: The largest k to train. It then replaces full fine-tuning as the reference.
        exhaustive: Train the whole grid.
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :class:`frostline.Sweep`, except ``tune``, ``tune_modules`` and ``grid``, with one train
            size. ``learning_rate`` lists the learning rates to try for k > 0, ``head_learning_rate`` those for k = 0. ``seeds``
            is the largest number of seeds of any k. :data:`frostline.search.defaults.DEFAULTS` has the defaults that differ.

    Returns:
        The answer, as in ``answer.json``.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    for name in CHOSEN_BY_SEARCH:
        if settings.get(name) is not None:
            raise FrostlineError(f"A search chooses {name} itself: leave it out, or run `frostline sweep`.")
    if isinstance(budget, str):
        budget = parse_duration(budget)
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    if max_k is not None and max_k < 1:
        raise FrostlineError(f"max_k cannot be {max_k}: give 1 or more.")
    given = {**DEFAULTS, **settings, "tune": 0}
    sweep = Sweep(**given)
    if sweep.spec.train_size and len(sweep.spec.train_size) > 1:
        raise FrostlineError(
            "A search has one train size: give one --train-size, or run `frostline sweep` for several."
        )
    shown = progress or suitable_progress()
    try:
        prepared = prepare(
            sweep.spec, sweep.sources, shown, tunes=lambda layers: _values_of_tune(layers, max_k), probes=True
        )
        make_folder(prepared.store.out)
        for note in prepared.plan.notes:
            shown.note(note)
        if max_k is None and FULL not in prepared.requested.tune:
            shown.note(
                f"The search compares k = 0 to {prepared.requested.tune[-1]}, as many layers as fit into memory beside their "
                "optimizer. Full fine-tuning cannot be streamed."
            )
        return Search.start(prepared, shown, budget).run(exhaustive=exhaustive)
    finally:
        shown.close()


def _values_of_tune(layers: int, max_k: int | None) -> tuple[Tune, ...]:
    """Every k that a search may train, the reference last."""
    if max_k is None:
        return (*range(layers + 1), FULL)
    if max_k > layers:
        raise FrostlineError(f"max_k = {max_k} is more than the {layers} layers of the model: give at most {layers}.")
    return tuple(range(max_k + 1))
