"""``frostline.find``: the smallest k that reaches the target, with as little training as possible."""

from typing import Any

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.files import make_folder
from frostline.data.parsing import parse_duration
from frostline.model.tune import Tune
from frostline.search.running import Search
from frostline.sweep.execution.progress import Progress, suitable_progress
from frostline.sweep.prepare import prepare
from frostline.sweep.specification import CHOSEN_BY_SEARCH
from frostline.training.specification import HEAD_LEARNING_RATE

DEFAULTS = {
    "learning_rate": (5e-5, 1e-4, 2e-4),  # that may be tried
    "head_learning_rate": (
        HEAD_LEARNING_RATE,
        3e-3,
        1e-2,
        3e-2,
    ),  # the first beside layers, all where the head is trained alone
    "seeds": 5,  # of any k, at most
    "folds": "auto",
    "evaluations_per_epoch": 0,  # choosing the best epoch on the validation rows costs time and flatters the score
}


def find(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Search for the smallest k that reaches the target, with few runs.

    The same call continues an interrupted search. Ctrl-C leaves the best answer so far.

    Args:
        budget: Wall-clock seconds of training, or a text such as ``90s``, ``10min`` or ``2h``. The default is the time of four
            full fine-tunings.
        max_k: The most layers to train. This k then takes the place of full fine-tuning.
        exhaustive: Train the whole grid.
        progress: Where progress is reported.
        settings: The settings of :class:`frostline.Sweep`, except ``tune``, ``tune_modules`` and ``grid``, with one training-set
            size. ``DEFAULTS`` lists other defaults. ``learning_rate`` gives the learning rates that may be tried,
            ``head_learning_rate`` those of k = 0, and ``seeds`` the most seeds of any k.

    Returns:
        The answer, as in ``answer.json``.

    Raises:
        FrostlineError: A setting or a file is wrong, in a way that a user can correct.
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
            sweep.spec, sweep.sources, shown, tunes=lambda layers: _candidates(layers, max_k), probes=True
        )
        tunes = _candidates(prepared.identity.layers, max_k)
        make_folder(prepared.store.out)
        for note in prepared.plan.notes:
            shown.note(note)
        return Search(prepared, sweep.spec.model_copy(update={"tune": tunes}), shown, budget).carry_out(
            exhaustive=exhaustive
        )
    finally:
        shown.close()


def _candidates(layers: int, max_k: int | None) -> tuple[Tune, ...]:
    if max_k is None:
        return (*range(layers + 1), "all")
    if max_k > layers:
        raise FrostlineError(f"max_k = {max_k} is more than the {layers} layers of the model: give at most {layers}.")
    return tuple(range(max_k + 1))
