"""The vocabulary of a model: the tokens and token types that its embedding tables know."""

from dataclasses import replace
from typing import TypeGuard

import numpy as np
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline import FrostlineError
from frostline.model.tokens import Tokens

TYPES = "token_type_ids"
ZEROED_TYPES = (
    "The tokenizer gives tokens types that the model does not have, such as type 1 for a second text. "
    "They are read as type 0."
)


def vocabulary_size(model: PreTrainedModel) -> int | None:
    """How many tokens the model knows; None if it has no vocabulary and reads characters (CANINE)."""
    size: int | None = getattr(model.config.get_text_config(), "vocab_size", None)
    return size


def vocabulary_tables(model: PreTrainedModel) -> dict[str, nn.Embedding]:
    """The embedding tables of the vocabulary, by their path in the model."""
    size = vocabulary_size(model)
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings == size
    }


def padding_fill(model: PreTrainedModel) -> int:
    """The token in padded positions: the model's own, by which some heads find the last token of a text.

    The tokenizer may pad with another one. The attention mask hides either.
    """
    pad, size = getattr(model.config.get_text_config(), "pad_token_id", None), vocabulary_size(model)
    return pad if is_token(pad, size) else 0


def is_token(number: int | None, size: int | None) -> TypeGuard[int]:
    """Whether a number is that of a token in a vocabulary of this size (None: no vocabulary)."""
    return number is not None and number >= 0 and (size is None or number < size)


def suited(tokens: Tokens, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tokens:
    """The tokens as the model takes them: padded with its own token, and with type 0 instead of types that it lacks.

    Raises:
        FrostlineError: The model does not know a token, so the tokenizer belongs to another model, or tokens were added to it
            only. A GPU cannot report them, and a stack would look them up in another run.
    """
    size, ids = vocabulary_size(model), tokens.inputs["input_ids"]
    if len(ids) and not is_token(largest := int(ids.max()), size):
        token = tokenizer.convert_ids_to_tokens(largest)
        raise FrostlineError(
            f"The tokenizer gives the token {token!r} the number {largest}, and the model knows {size} tokens, from 0 to "
            f"{(size or 0) - 1}: use the model's own tokenizer, or save the model after "
            "model.resize_token_embeddings(len(tokenizer))."
        )
    inputs, padding = dict(tokens.inputs), {**tokens.padding, "input_ids": padding_fill(model)}
    types = inputs.get(TYPES)
    count = getattr(model.config.get_text_config(), "type_vocab_size", None)
    if types is None or not count:  # types are not looked up in a table of their own
        return replace(tokens, padding=padding)
    unknown = types >= count
    inputs[TYPES] = np.where(unknown, 0, types)
    padding[TYPES] = padding[TYPES] if padding[TYPES] < count else 0
    return replace(tokens, inputs=inputs, padding=padding, zeroed_types=bool(unknown.any()))
