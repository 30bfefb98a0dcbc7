"""The predictions of models that train no layer, in the folder of the search that fitted them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.files import ARRAY_BYTES, read_inside, replace_file, require_inside, seal_arrays, unseal_arrays
from frostline.statistics.alternatives import ALTERNATIVES

FILE = "alternatives.safetensors"
TEST = "test "  # begins the names of predictions for the test rows

Logits = NDArray[np.float32]


def write_alternatives(out: Path, validation: Mapping[str, Logits], test: Mapping[str, Logits]) -> None:
    """Write the predictions by name, each for all rows of a split, ``[rows, C]``; NaN where a row was not scored."""
    values = {**validation, **{f"{TEST}{name}": one for name, one in test.items()}}
    replace_file(out / FILE, seal_arrays({name: one.astype(np.float32) for name, one in values.items()}), inside=out)


def read_alternatives(out: Path, prefix: str = "") -> dict[str, Logits]:
    """The predictions by name, in the order of ``ALTERNATIVES``; empty if no search has fitted such models.

    Args:
        out: The folder of the search.
        prefix: ``TEST`` for those of the test rows; by default those of the validation rows.

    Raises:
        FrostlineError: The file is damaged.
    """
    path = out / FILE
    require_inside(path, out)
    if not path.exists():
        return {}
    try:
        found = unseal_arrays(read_inside(path, out, ARRAY_BYTES))  # not in the order in which they were written
    except (OSError, ValueError, SafetensorError) as error:
        raise FrostlineError(
            f"{path} is damaged ({error}): run the command of the search again to write it."
        ) from error
    return {name: found[prefix + name] for name in ALTERNATIVES if prefix + name in found}
