"""The ways that the command line knows by name."""

import re
from collections.abc import Iterable, Mapping

from frostline import FrostlineError
from frostline.data.wording import did_you_mean
from frostline.statistics.recipe import FULL, HEAD_ONLY, NAMED, Recipe
from frostline.statistics.run_result import ALTERNATIVES
from frostline.training.ways.way import Way

DEFAULT_WAYS = "last-2,lora-2,llrd,lp-ft,gradual,reinit-2,full"  # of a comparison
DEFAULT_RATES: Mapping[str, tuple[float, ...]] = {  # of a comparison: as many for what trains only a head
    "learning_rate": (2e-5, 5e-5, 1e-4),
    "head_learning_rate": (1e-3, 3e-3, 1e-2),
}
LORA_RANK, LORA_RATES = 8, 10.0  # LoRA is trained at ten times the learning rates of whole matrices
NAMED_WAYS: Mapping[str, Way] = {
    "lora-all": Way(tune=FULL, low_rank=LORA_RANK, rate_factor=LORA_RATES),
    "llrd": Way(layer_decay=0.9),
    "gradual": Way(order="gradual"),
    "lp-ft": Way(order="head-first"),
    "bitfit": Way(only="biases", rate_factor=10.0),
    "norms": Way(only="norms", rate_factor=10.0),
    "l2-sp": Way(towards_pretrained=0.01),
    "mixout": Way(mixout=0.7),
    "uncorrected": Way(bias_correction=False),
    "mean-pooled": Way(head_reads="mean"),
    "bilstm": Way(tune=HEAD_ONLY, lstm_width=768),
    "bilstm-4": Way(tune=HEAD_ONLY, lstm_width=768, lstm_states=4),
    "probe": Way(estimator="probe"),
    "words": Way(estimator="words"),
    "setfit": Way(estimator="setfit"),
}
NUMBERED_WAYS = (
    "spectrum",
    "lora",
    "lora-like",
    "first",
    "middle",
    "spread",
    "random",
    "gradual",
    "llrd",
    "lp-ft",
    "reinit",
    "transferred",
    "mean-pooled",
)
EXAMPLES = (*NAMED_WAYS, *(f"{kind}-{25 if kind == 'spectrum' else 2}" for kind in NUMBERED_WAYS))  # one of each kind
NONE_TOO = ("transferred", "mean-pooled")  # may have 0 as their number


def way_named(name: str, own: Mapping[str, Way]) -> Way | None:
    """The way that a value of the grid stands for; None for k, full fine-tuning and named modules.

    Args:
        name: A value of the grid.
        own: The ways that the user defined, which come first.

    Raises:
        FrostlineError: No way has this name.
    """
    if not Recipe(name).is_way:
        return None
    way = own.get(name) or NAMED_WAYS.get(name) or _numbered(name)
    if way is None:
        known = [*own, *EXAMPLES, "full", "head", "last-2", NAMED]
        hint = did_you_mean(name, known) or f": choose from {', '.join(known)}"
        raise FrostlineError(f"There is no way to tune called {name!r}{hint}.")
    return way


def require_free(names: Iterable[str]) -> None:
    """Refuse names of own ways that mean something else already.

    Raises:
        FrostlineError: A name is that of k, full fine-tuning, named parts or a model that trains no layer, or has other letters.
    """
    for name in names:
        if not re.fullmatch("[a-z][a-z0-9-]*", name):
            raise FrostlineError(f"[way.{name}] is no name: use small letters, digits and -, beginning with a letter.")
        if name in ALTERNATIVES or not Recipe(name).is_way:
            raise FrostlineError(f"[way.{name}] has a name that means something else already: choose another one.")


def _numbered(name: str) -> Way | None:
    """The way whose name ends with a number of layers, such as ``lora-2``; None if there is none."""
    kind, _, digits = name.rpartition("-")
    if kind not in NUMBERED_WAYS or not digits.isdecimal():
        return None
    count = int(digits)
    if digits != str(count) or (not count and kind not in NONE_TOO):
        return None
    match kind:
        case "spectrum":
            return Way(signal_share=count / 100) if count <= 100 else None
        case "lora":
            return Way(tune=Recipe(count), low_rank=LORA_RANK, rate_factor=LORA_RATES)
        case "lora-like":
            return Way(low_rank=f"last {count}", rate_factor=LORA_RATES)
        case "first" | "middle" | "spread" | "random":
            return Way(tune=Recipe(count), layers=kind)
        case "reinit":
            return Way(reinitialized=count)
        case "transferred":
            return Way(transferred=count)
        case _:
            return NAMED_WAYS[kind].model_copy(update={"tune": Recipe(count)})
