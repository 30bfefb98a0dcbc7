"""The vocabulary of a model: the tokens that its embedding tables know."""

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline import FrostlineError
from frostline.model.tokens import Tokens


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


def require_known(tokens: Tokens, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse tokens that the model does not know: a GPU cannot report them, and a stack would look them up in another run.

    Raises:
        FrostlineError: The tokenizer belongs to another model, or tokens were added to it only.
    """
    size, ids = vocabulary_size(model), tokens.inputs["input_ids"]
    if size is None or not len(ids) or (largest := int(ids.max())) < size:
        return
    token = tokenizer.convert_ids_to_tokens(largest)
    raise FrostlineError(
        f"The tokenizer gives the token {token!r} the number {largest}, and the model knows {size} tokens, from 0 to {size - 1}: "
        "use the model's own tokenizer, or save the model after model.resize_token_embeddings(len(tokenizer))."
    )
