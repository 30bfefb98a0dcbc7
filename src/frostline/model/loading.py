"""Load a model, its configuration and its tokenizer for classification."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.model.anatomy import Anatomy, find_layers, first_position, position_limit
from frostline.model.checkpoint import Checkpoint, Streams, never_streams, read_config
from frostline.model.model_files import (
    MODEL_FILES,
    files_digest,
    model_folder,
    readable,
    require_files,
    tokenizer_files,
)
from frostline.model.places import HEAD, POOLER
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import stream_of
from frostline.model.tokens import tokenized
from frostline.model.vocabulary import is_token, padding_fill, vocabulary_size

MODEL_CLASSES = {  # by task type
    CLASSIFICATION: AutoModelForSequenceClassification,
    MULTI_LABEL: AutoModelForSequenceClassification,
    REGRESSION: AutoModelForSequenceClassification,
    TOKENS: AutoModelForTokenClassification,
}
PROBLEM_TYPES = {  # transformers' names, by task type
    CLASSIFICATION: "single_label_classification",
    MULTI_LABEL: "multi_label_classification",
    REGRESSION: "regression",
    TOKENS: None,
}
LOAD_SETTINGS = ("name_or_path", "is_local", "local_files_only", "max_length")  # of a tokenizer; not part of the model
UNLOADABLE = "transformers cannot load it for classification"
LONGEST = 512  # tokens of an example, unless the user or the model sets another limit


def load_pretrained(
    name: str,
    *,
    labels: Sequence[str],
    task_type: str,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: torch.device | str = "cpu",
    streams: Streams = never_streams,
) -> Pretrained:
    """Load a hub model or a model folder as a classifier with these ``labels`` (no labels: regression).

    ``streams`` decides whether the layers are streamed (:mod:`frostline.model.streaming`). It is called with the bytes of all
    weights in float32.

    Raises:
        FrostlineError: There is no such model or it has no tokenizer, its weights are not safetensors, or it cannot be cut.
    """
    if trust_remote_code and not revision and not Path(name).expanduser().is_dir():
        raise FrostlineError("trust_remote_code runs code from the hub: pin it with --revision COMMIT.")
    folder, commit = model_folder(name, revision, MODEL_FILES + ["*.py"] * trust_remote_code)
    trust = {"trust_remote_code": trust_remote_code}
    config = read_config(name, folder, "its config.json cannot be used", **trust)
    require_files(name, folder)
    tokenizer = load_tokenizer(name, folder, of_words=task_type == TOKENS, trust_remote_code=trust_remote_code)
    _set_labels(config, labels, task_type)
    use_cache = getattr(config, "use_cache", None)
    if use_cache is not None:
        config.use_cache = False

    kind, options = MODEL_CLASSES[task_type], {"ignore_mismatched_sizes": True}
    checkpoint = Checkpoint(name, folder, kind, config, torch.float32, UNLOADABLE, **trust, options=options)
    model, info = checkpoint.load(streams, device)
    settle_padding(model, tokenizer)
    anatomy = find_layers(model)
    if stream := stream_of(model):
        stream.settle(anatomy)
    return Pretrained(
        name=name,
        folder=folder,
        revision=commit,
        model=model,
        tokenizer=tokenizer,
        anatomy=anatomy,
        weights=files_digest([*sorted(folder.glob("*.safetensors")), folder / "config.json"]),
        vocabulary=files_digest(sorted(p for p in folder.iterdir() if p.name in tokenizer_files(folder))),
        max_length=_max_length(model, tokenizer),
        new=_new_parameters(model, anatomy, info),
        use_cache=use_cache,
    )


def _set_labels(config: PreTrainedConfig, labels: Sequence[str], task_type: str) -> None:
    """Write the task into the configuration."""
    config.num_labels = len(labels) or 1
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: n for n, label in enumerate(labels)}
    config.problem_type = PROBLEM_TYPES[task_type]


def load_config(name: str, *, revision: str | None = None) -> PreTrainedConfig:
    """The configuration of a hub model or a folder, without its weights.

    Raises:
        FrostlineError: No such model, or an unusable config.json.
    """
    folder, _ = model_folder(name, revision, ["config.json"])
    return read_config(name, folder, "its config.json cannot be used")


def _new_parameters(model: PreTrainedModel, anatomy: Anatomy, info: Any) -> frozenset[str]:
    """Names of the parameters that each run initializes: the head, and the pooler if the checkpoint has none.

    Raises:
        FrostlineError: The checkpoint lacks other parameters.
    """
    absent = set(info["missing_keys"]) | {key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"]}
    parameters = dict(model.named_parameters())
    head = {name for name, place in anatomy.places.items() if place == HEAD}
    missing = {name for name in absent if name in parameters} - head
    body = sorted(name for name in missing if anatomy.places[name] != POOLER)
    if body:
        raise FrostlineError(
            f"The model's weights lack {len(body)} parameters of its body ({body[0]}, ...): the folder does not hold "
            "the checkpoint that its config.json describes. Download the model again."
        )
    return frozenset(head | missing)


def _max_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens that tokenizer and model allow, at most ``LONGEST``."""
    positions = getattr(model.config.get_text_config(), "n_positions", None)  # the limit's name in some configurations
    return int(min(tokenizer.model_max_length, position_limit(model) or positions or LONGEST, LONGEST))


def load_tokenizer(
    name: str, folder: Path, *, of_words: bool = False, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``, set to pad on the right.

    A tokenizer without a padding token pads with its end-of-text or unknown token. Attention masks padding in any case.

    Args:
        name: The name of the model for errors.
        folder: Its folder.
        of_words: Whether sentences of words are encoded, for which the tokenizer must know where a token is in a text.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The model called ``name`` has no usable tokenizer.
    """
    tokenizer: PreTrainedTokenizerBase = readable(
        lambda: AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code),
        name,
        "its tokenizer cannot be loaded",
    )
    if of_words and not tokenizer.is_fast:
        raise FrostlineError(
            f"The tokenizer of {name} does not say which word a token belongs to, which token classification needs: choose a "
            "model with a fast tokenizer (tokenizer.json)."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.padding_side = "right"
    return tokenizer


def settle_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let model and tokenizer pad with the same token if they can, without changing what the model computes for a text.

    The padding token of the configuration counts: RoBERTa numbers positions from it, and the heads of decoders look for the
    last token that is another one. Without one, such a head reads the very last token of a text, and must find it in a batch.
    """
    size, special = vocabulary_size(model), tokenizer.all_special_ids
    text_config = model.config.get_text_config()
    pad = getattr(text_config, "pad_token_id", None)
    if not is_token(pad, size) and first_position(model) is None:
        at_end = tokenized(tokenizer, ["a"])["input_ids"][0][
            -1:
        ]  # what the tokenizer puts at the end of every text, if anything
        known = [one for one in (tokenizer.pad_token_id, *special) if is_token(one, size) and one not in at_end]
        known.sort(key=lambda one: one == tokenizer.unk_token_id)  # a text may end with an unknown word
        pad = known[0] if known else padding_fill(model)
    for config in (model.config, text_config):
        if not is_token(getattr(config, "pad_token_id", None), size):
            config.pad_token_id = pad
    if pad in special:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)


@contextmanager
def without_load_settings(tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
    """While the context is open, the tokenizer is saved without the settings with which it was loaded."""
    init = tokenizer.init_kwargs
    tokenizer.init_kwargs = {name: value for name, value in init.items() if name not in LOAD_SETTINGS}
    try:
        yield
    finally:
        tokenizer.init_kwargs = init
