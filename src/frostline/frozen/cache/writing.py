"""Compute the hidden states of some examples and write them as one shard."""

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import numpy as np

from frostline.data.files import json_bytes
from frostline.data.sealed import checksum, file_checksum, seal
from frostline.frozen.batches import Lengths, Rows
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.layer_by_layer import states_of_batches
from frostline.frozen.selection import POOLED, StateSelection
from frostline.model.tokens import Tokens


def write_shard(
    folder: Path, forward_pass: ForwardPass, tokens: Tokens, rows: Rows, progress: Callable[[float], None]
) -> Path:
    """Compute the hidden states of these rows of ``tokens`` and write them as a shard into ``folder``.

    Args:
        folder: The folder of the recipe.
        forward_pass: Computes the hidden states.
        tokens: The token table.
        rows: Positions in the table. No two rows may have the same tokens.
        progress: Called after every batch with the number of examples that it is worth.

    Returns:
        The folder of the shard.
    """
    part = folder / f"{uuid.uuid4().hex}.part"
    part.mkdir()
    selection, begun = forward_pass.selection, perf_counter()
    batches = forward_pass.batches(tokens.lengths, rows)
    rows = np.concatenate([batch.rows for batch in batches])
    lengths = tokens.lengths[rows]
    try:
        np.save(part / "keys.npy", tokens.keys[rows].view(np.uint8).reshape(-1, 16))
        np.save(part / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        with ExitStack() as opened:
            files = {
                name: opened.enter_context(_array_file(part / f"{name}.npy", shape))
                for name, shape in _shapes(selection, lengths, forward_pass.anatomy.width).items()
            }
            for states, examples in states_of_batches(forward_pass, tokens, batches, part):
                for name, array in states.items():
                    files[name].write(array.float().cpu().contiguous().numpy().data)
                progress(examples)
        sizes = {file.name: (file.stat().st_size, file_checksum(file)) for file in sorted(part.iterdir())}
        seconds = perf_counter() - begun
        facts = {"rows": len(rows), **asdict(selection), "files": sizes}
        (part / "shard.json").write_bytes(seal({**facts, "seconds": seconds}))
        for written in part.iterdir():
            with written.open("rb+") as file:
                os.fsync(file.fileno())
        return part.rename(folder / checksum(json_bytes(facts))[:20])
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _shapes(selection: StateSelection, lengths: Lengths, width: int) -> dict[str, tuple[int, int]]:
    """The shapes of a shard's arrays, by name."""
    shapes = {f"tokens-{cut}": (int(lengths.sum()), width) for cut in selection.cuts}
    shapes |= {"head": (len(lengths), width)} if selection.head else {}
    return shapes | {f"pooled-{layers}": (len(lengths), len(POOLED) * width) for layers in selection.pooled}


def _array_file(path: Path, shape: tuple[int, int]) -> BinaryIO:
    """Create a .npy file of float32 and reserve its disk space. Its rows are written later."""
    file = path.open("wb")
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, header)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, file.tell() + 4 * shape[0] * shape[1])
    except OSError:
        file.close()
        raise
    return file
