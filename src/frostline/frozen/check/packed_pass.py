"""Check whether the forward pass over the frozen layers is exact with packed batches."""

import numpy as np
import torch
from transformers import PreTrainedModel

from frostline.frozen.batches import ForwardBatch
from frostline.frozen.check.batches import check_lengths, table_of
from frostline.frozen.check.differences import LAYER_ERRORS, TOLERANCE, relative_difference, restored
from frostline.frozen.cut import hidden_states_by_cut
from frostline.frozen.forward_pass import ForwardPass, embeddings_are_lookups
from frostline.frozen.selection import StateSelection
from frostline.model.anatomy import Anatomy, probe_batch
from frostline.model.packing import is_packable


def packed_pass_is_exact(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether the forward pass may use packed batches.

    The embeddings must not contain a matrix product. In float32, the hidden states after every layer must be those of
    a padded batch.
    """
    if not (is_packable(model) and embeddings_are_lookups(model, anatomy)):
        return False
    batch = probe_batch(model, check_lengths(model))
    tokens = table_of(batch, model)
    selection = StateSelection(tuple(range(anatomy.count + 1)), head=False)
    forward_pass = ForwardPass(model, anatomy, selection, "all", packed=True)
    one_batch = ForwardBatch(
        rows=np.arange(len(tokens)),
        lengths=tokens.lengths,
        padded_lengths=tokens.lengths,
        capacity=2 * int(tokens.lengths.sum()),
        examples=2 * len(tokens),
    )
    with restored(model), torch.no_grad():
        try:
            padded = hidden_states_by_cut(model, anatomy, batch)
            (packed,) = forward_pass.hidden_states(tokens, [one_batch])
        except LAYER_ERRORS:
            return False
    return all(relative_difference(packed[f"tokens-{n}"], expected[0]) < TOLERANCE for n, expected in padded.items())
