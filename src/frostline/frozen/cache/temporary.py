"""Hidden states of new texts, which no later command reads. They are on the disk of the cache, but not in it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import CANNOT_WRITE
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.cache.loading import missing_rows
from frostline.frozen.cache.recipe import cache_folder
from frostline.frozen.cache.shard import Shard
from frostline.frozen.cache.writing import write_shard
from frostline.frozen.forward_pass import ForwardPass
from frostline.model.tokens import Tokens


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on the disk of the cache. It is removed when the context closes.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, suffix=".part") as made:
            yield Path(made)
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        raise FrostlineError(
            f"Hidden states cannot be written to {folder} ({error.strerror}): free disk space (`frostline cache rm`), or set "
            "HF_ASSETS_CACHE to another folder."
        ) from error


@contextmanager
def temporary_states(forward_pass: ForwardPass, tokens: Tokens, rows: Rows) -> Iterator[HiddenStates]:
    """The selected hidden states of these rows of ``tokens``, while the context is open.

    Raises:
        FrostlineError: The disk is full, or its folder cannot be written.
    """
    unique = missing_rows(tokens, rows, forward_pass.selection)
    with scratch_folder() as folder:
        shard = write_shard(folder, forward_pass, tokens, unique, lambda examples: None)
        yield HiddenStates(forward_pass.selection, [Shard(shard)], tokens.keys, rows)
