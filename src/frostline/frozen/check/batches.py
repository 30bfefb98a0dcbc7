"""The examples of the exactness check."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from frostline.model.anatomy import position_limit
from frostline.model.tokens import Tokens
from frostline.model.trace import Batch
from frostline.model.vocabulary import padding_fill

LENGTHS = (40, 31, 7, 22)  # tokens of each example; check_lengths makes the first longer than a sliding window
MAX_LENGTH = 600  # tokens of one example
DEFAULT_POSITIONS = 512  # assumed if the configuration names no limit


def check_lengths(model: PreTrainedModel) -> Sequence[int]:
    """Lengths of the examples in tokens, all different.

    The first example is longer than every sliding window, unless the model accepts no input that long.
    """
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "window_size")]
    window = max((w for w in windows if isinstance(w, int)), default=0)
    longest = min(max(LENGTHS[0], window + 8), position_limit(model) or DEFAULT_POSITIONS, MAX_LENGTH)
    return (longest, *(n for n in LENGTHS[1:] if n < longest))


def last_example_alone(batch: Batch) -> dict[str, Tensor]:
    """A batch with only the last example, without padding."""
    length = int(batch["attention_mask"][-1].sum())
    return {name: x[-1:, :length] if x.dim() >= 2 else x[-1:] for name, x in batch.items()}


def table_of(batch: Batch, model: PreTrainedModel) -> Tokens:
    """The examples of a batch as a token table, without padding."""
    mask = batch["attention_mask"].bool().cpu()
    inputs = {
        name: x.cpu()[mask].numpy().astype(np.int32)
        for name, x in batch.items()
        if x.shape[:2] == mask.shape and name != "attention_mask"
    }
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    padding = {"input_ids": padding_fill(model)}
    return Tokens(inputs, offsets, padding, np.zeros(len(mask), np.int32))
