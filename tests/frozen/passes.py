"""Forward passes over small models, and the bytes of each example's hidden states."""

from typing import Any

import numpy as np
import torch

from frostline.frozen.exactness import find_head_reads, find_head_token_part
from frostline.frozen.forward_pass import ForwardPass, StateSelection
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.device import Machine
from frostline.model.tokens import Tokens


def pass_over(
    model: Any, *, packed: bool = True, precision: str = "float32", selection: StateSelection | None = None
) -> ForwardPass:
    """The forward pass of a sweep. By default it computes the hidden states at two cuts and of the head's token."""
    anatomy, batch = find_layers(model), probe_batch(model)
    reads = find_head_reads(model, anatomy, batch)
    selection = selection or StateSelection((1, anatomy.count - 1), head=reads != "all")
    head_token = find_head_token_part(model, anatomy, batch, reads)
    return ForwardPass(model, anatomy, selection, reads, packed, machine(precision).autocast, head_token)


def bytes_by_row(forward_pass: ForwardPass, tokens: Tokens, rows: Any) -> dict[int, list[bytes]]:
    """The bytes of each row's hidden states."""
    found, batches = {}, forward_pass.batches(tokens.lengths, np.asarray(rows, np.int64))
    for batch, states in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
        parts = {name: x.split(batch.lengths.tolist() if "tokens" in name else 1) for name, x in states.items()}
        for n, row in enumerate(batch.rows.tolist()):
            found[row] = [part[n].float().contiguous().numpy().tobytes() for part in parts.values()]
    return found


def machine(precision: str) -> Machine:
    return Machine(torch.device("cpu"), precision)
