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
    "evaluations_per_epoch": 0,  # a best epoch, chosen on the rows that it is judged by, costs scorings and flatters
}


def find(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Look for the smallest k that is enough, training as little as that takes; gives the answer.

    Takes the settings of :class:`frostline.Sweep` but for ``tune``, ``tune_modules`` and ``grid``, with one train size; those in
    ``DEFAULTS`` have other defaults. ``learning_rate`` are the rates that may be tried,
    ``head_learning_rate`` those of the head alone (every other k has the first), ``seeds`` the most of any k. ``budget``:
    seconds of training, or a text as in 90s, 10min, 2h; by default what four full fine-tunings take. ``max_k``:
    train no more layers than these; the deepest then stands for full. ``exhaustive``: train the whole grid. The same call
    again goes on where it stopped, and Ctrl-C leaves the best answer so far.

    Raises:
        FrostlineError: whatever a user can put right.
    """
    for name in CHOSEN_BY_SEARCH:
        if settings.get(name) is not None:
            raise FrostlineError(f"A search chooses {name} itself: leave it out, or run `frostline sweep`.")
    if isinstance(budget, str):
        budget = parse_duration(budget)
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    if max_k is not None and max_k < 1:
        raise FrostlineError(f"max_k cannot be {max_k}: give 1 or more; of the head alone there is nothing to choose.")
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
