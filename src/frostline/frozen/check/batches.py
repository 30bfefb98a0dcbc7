"""The examples of the exactness check."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from frostline.model.tokens import Tokens
from frostline.model.trace import Batch

LENGTHS = (40, 31, 7, 22)  # tokens of each example; the first is made longer than a sliding window
MOST = 600  # tokens of an example, at most
POSITIONS = 512  # assumed if the configuration names no limit


def check_lengths(model: PreTrainedModel) -> Sequence[int]:
    """Ragged lengths; the first exceeds every sliding window, as far as the model's positions reach."""
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "window_size")]
    window = max((w for w in windows if isinstance(w, int)), default=0)
    positions = getattr(config, "max_position_embeddings", None) or POSITIONS
    longest = min(max(LENGTHS[0], window + 8), positions if positions > 0 else POSITIONS, MOST)  # XLNet: -1, no limit
    return (longest, *(n for n in LENGTHS[1:] if n < longest))


def last_example_alone(batch: Batch) -> dict[str, Tensor]:
    """The last example of a batch without its padding."""
    length = int(batch["attention_mask"][-1].sum())
    return {name: x[-1:, :length] if x.dim() >= 2 else x[-1:] for name, x in batch.items()}


def table_of(batch: Batch, model: PreTrainedModel) -> Tokens:
    """The examples of a batch as a table."""
    mask = batch["attention_mask"].bool().cpu()
    inputs = {
        name: x.cpu()[mask].numpy().astype(np.int32)
        for name, x in batch.items()
        if x.shape[:2] == mask.shape and name != "attention_mask"
    }
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    padding = {"input_ids": model.config.get_text_config().pad_token_id or 0}
    return Tokens(inputs, offsets, padding, np.zeros(len(mask), np.int32))
