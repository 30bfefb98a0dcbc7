"""The columns of a table of results, mapped to ours by their usual names."""

from collections.abc import Mapping

from frostline import FrostlineError
from frostline.data.table import Table
from frostline.data.wording import did_you_mean, listed, quoted
from frostline.statistics.metrics import METRICS, canonical_name

# Our column: its usual names. The first one that the table has is used.
NAMES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "value", "validation_best", "result"),
    "trainable": ("trainable",),
    "tuned_layers": ("tuned_layers", "k", "unfrozen_layers", "tuned"),
    "frozen_layers": ("frozen_layers", "frozen"),
    "full": ("full", "tune_embeddings"),
    "layers": ("layers", "num_hidden_layers", "of_layers"),
    "seed": ("seed", "trial", "random_seed"),
    "model": ("model", "model_name"),
    "task": ("task", "dataset"),
    "metric": ("metric",),
    "train_size": ("train_size", "n", "examples", "train_examples"),
    "learning_rate": ("learning_rate", "lr", "rate"),
    "outcome": ("outcome",),
    "status": ("status",),
    "train_last": ("train_last", "train_score"),
    "trainable_parameters": ("trainable_parameters",),
    "train_seconds": ("train_seconds", "seconds", "train_runtime"),
    "cache_seconds": ("cache_seconds",),
    "concurrent_runs": ("concurrent_runs",),
    "peak_memory_bytes": ("peak_memory_bytes",),
    "chance": ("chance",),
}
NEEDED = ("score", "seed")
TUNED_LAYERS = {"trainable", "tuned_layers", "frozen_layers", "full"}  # one of them is needed


def find_columns(table: Table, named: Mapping[str, str], constants: Mapping[str, str]) -> dict[str, str]:
    """The columns of the table by our names.

    Args:
        table: The table.
        named: Columns that the user named, by our names.
        constants: Our columns for which the user gave one value for all rows.

    Raises:
        FrostlineError: A named column does not exist, or a needed one is not found.
    """
    _check_names(table, named, constants)
    lower = {name.lower(): name for name in table.columns if name not in named.values()}
    found = {ours: next((lower[name] for name in names if name in lower), None) for ours, names in NAMES.items()}
    chosen = {ours: theirs for ours, theirs in {**found, **named}.items() if theirs and ours not in constants}
    if "score" not in chosen:
        scores = [name for name in table.columns if canonical_name(name.lower()) in METRICS]
        if len(scores) == 1:
            chosen["score"] = scores[0]
        elif scores:
            raise FrostlineError(
                f"{table.name}: the score could be {listed(scores)}; choose one with --columns score={scores[0]}."
            )
    known = chosen.keys() | constants.keys()
    missing = [name for name in NEEDED if name not in known]
    if not TUNED_LAYERS & known:
        missing.append("tuned_layers")
    if missing:
        raise FrostlineError(
            f"{table.name}: none of its columns ({listed(table.columns)}) is known as {', '.join(missing)}; name the column "
            f"with --columns {missing[0]}=COLUMN, or give one value for all rows with --set {missing[0]}=VALUE."
        )
    return chosen


def _check_names(table: Table, named: Mapping[str, str], constants: Mapping[str, str]) -> None:
    for ours in (*named, *constants):
        if ours not in NAMES:
            raise FrostlineError(
                f"There is no column {quoted(ours)}{did_you_mean(ours, NAMES)} to name: choose from {', '.join(NAMES)}."
            )
    for ours, theirs in named.items():
        if theirs not in table.columns:
            raise FrostlineError(
                f"{table.name}: there is no column {quoted(theirs)}{did_you_mean(theirs, table.columns)}, which --columns "
                f"names for {ours}; the table has {listed(table.columns)}."
            )
