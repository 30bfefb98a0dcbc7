"""A trained classifier in a folder: write it, load it, encode texts, and compute their logits.

The folder has what transformers reads: weights, configuration and tokenizer. A classifier with a head of frostline has its base
model there, and the head beside it:

- A head that reads the mean or the last token: a folder of sentence-transformers. ``1_Pooling`` says what the head reads,
  ``2_Dense`` has its linear module, and ``SentenceTransformer(folder).encode(texts)`` returns the logits.
- A BiLSTM, which only frostline opens: ``head.json`` describes it, ``head.safetensors`` has its weights. (The LSTM of
  sentence-transformers does not run after a transformer.)

Shapes: N texts, B examples in a batch, S padded length, C outputs.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import replace_file, write_json
from frostline.data.kinds import CLASSIFICATION, TOKENS
from frostline.model.anatomy import Anatomy, Call, find_layers, text_limit
from frostline.model.heads import Head, on_base
from frostline.model.loading import (
    MODEL_CLASSES,
    UNLOADABLE,
    load_saved,
    load_tokenizer,
    refuse_left_out,
    settle_padding,
)
from frostline.model.model_files import (
    DENSE,
    HEAD,
    INDEX,
    KINDS,
    MODULES,
    POOLING,
    WHOLE,
    Streams,
    format_of,
    is_tagger,
    never_streams,
    readable,
    require_files,
)
from frostline.model.streaming import aligned, stream_of
from frostline.model.terms import LAST, MEAN, HeadKind
from frostline.model.tokens import Tokens, encode, suited, vocabulary_tables
from frostline.model.weights import is_unread, read_weights

SHARD_BYTES = 1 << 30  # of one file with streamed weights, unless a single weight is larger
POOLING_KEYS = {MEAN: "pooling_mode_mean_tokens", LAST: "pooling_mode_lasttoken"}
OTHER_POOLING_KEYS = ("pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
IDENTITY = "torch.nn.modules.linear.Identity"
NEWER_MODES = {MEAN: "mean", LAST: "lasttoken"}  # the only mode, as sentence-transformers writes it since version 6
HEAD_WEIGHTS = "head.safetensors"
BATCH = 64


def write_classifier(folder: Path, model: PreTrainedModel, max_length: int) -> None:
    """Write a classifier into ``folder``, without its tokenizer, in the format of the library that opens it.

    ``max_length`` is the most tokens of a text, which sentence-transformers reads.
    """
    head = getattr(model, "head", None)
    if not isinstance(head, Head):
        save_files(model, folder)
        return
    save_files(model.base_model, folder)
    sizes = {"width": head.width, "outputs": head.linear.out_features}
    if head.lstm is not None:
        write_json(folder / HEAD, {**asdict(head.kind), **sizes}, inside=folder)
        _save(head, folder / HEAD_WEIGHTS)
        return
    modes = dict.fromkeys((*POOLING_KEYS.values(), *OTHER_POOLING_KEYS), False) | {POOLING_KEYS[head.kind.reads]: True}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(KINDS.items())
    ]
    dense = {"in_features": head.width, "out_features": sizes["outputs"], "bias": True, "activation_function": IDENTITY}
    for name, content in {
        MODULES: modules,
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        f"{POOLING}/config.json": {"word_embedding_dimension": head.width, **modes},
        f"{DENSE}/config.json": dense,
    }.items():
        replace_file(folder / name, f"{json.dumps(content, indent=2)}\n".encode(), inside=folder)
    _save(nn.ModuleDict({"linear": head.linear}), folder / DENSE / WHOLE)


def _save(module: nn.Module, file: Path) -> None:
    save_file({name: p.detach().cpu().contiguous() for name, p in module.named_parameters()}, file)


def _read_with_head(folder: Path, library: str, *, trust_remote_code: bool, streams: Streams) -> PreTrainedModel:
    """A classifier with a head of frostline."""
    what = "transformers cannot load its base model"
    base, _ = load_saved(folder, AutoModel, what, trust_remote_code=trust_remote_code, streams=streams)
    layers: list[nn.Module] = []
    calls: tuple[Call, ...] = ()
    if library == "frostline":
        problem = f"the head in {HEAD} and {HEAD_WEIGHTS} cannot be loaded"
        head = readable(lambda: _read_recurrent_head(folder), str(folder), problem)
        anatomy = find_layers(base)
        layers, calls = anatomy.layers(base), anatomy.calls
    else:
        head = readable(
            lambda: _read_pooled_head(folder), str(folder), f"the head in {POOLING} and {DENSE} cannot be loaded"
        )
        if head.linear.out_features != base.config.num_labels:
            raise FrostlineError(
                f"The model in {folder} is not a trained classifier: it has {base.config.num_labels} labels, but {DENSE} "
                f"has {head.linear.out_features} outputs. Give the folder OUT/model of a sweep."
            )
    return on_base(base, base.base_model_prefix, head, layers, calls)


def _read_pooled_head(folder: Path) -> Head:
    pooling, dense = (json.loads((folder / name / "config.json").read_bytes()) for name in (POOLING, DENSE))
    modes = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    modes += [pooling["pooling_mode"]] if "pooling_mode" in pooling else []
    reads = [reads for reads, key in POOLING_KEYS.items() if modes in ([key], [NEWER_MODES[reads]])]
    if not reads or dense.get("activation_function") != IDENTITY:
        raise ValueError(f"it reads {modes}, with the activation {dense.get('activation_function')}")
    head = Head(HeadKind(reads[0]), int(dense["in_features"]), int(dense["out_features"]))
    head.load_state_dict(load_file(folder / DENSE / WHOLE))
    return head


def _read_recurrent_head(folder: Path) -> Head:
    facts = json.loads((folder / HEAD).read_bytes())
    width, outputs = facts.pop("width"), facts.pop("outputs")
    head = Head(HeadKind(**facts), width, outputs)
    head.load_state_dict(load_file(folder / HEAD_WEIGHTS))
    return head


def save_files(model: PreTrainedModel, folder: Path) -> None:
    """Write the model into ``folder``, as transformers does.

    The weights of a streamed model are written in files of ``SHARD_BYTES``, of which one is in memory. They get the names and
    values that they have if the whole model is in memory, so they are float32.
    """
    stream = stream_of(model)
    if stream is None:
        model.save_pretrained(folder)
        return
    model.save_pretrained(folder, state_dict={})  # all other files
    # the values that transformers would save, by the names that it would give them
    values = {k: v for k, v in model.state_dict().items() if k not in (model._keys_to_ignore_on_save or ())}
    values = remove_tied_weights_from_state_dict(values, model)
    values = dict(sorted(revert_weight_conversion(model, values).items()))
    absent = {p.data_ptr(): stream.sources[name] for name, p in model.named_parameters() if name in stream.absent}
    sources = {key: absent[value.data_ptr()] for key, value in values.items() if is_unread(value)}
    shapes = {key: torch.empty(value.shape, dtype=value.dtype, device="meta") for key, value in values.items()}
    split = split_torch_state_dict_into_shards(shapes, max_shard_size=SHARD_BYTES)
    for name, keys in split.filename_to_tensors.items():
        own = read_weights({key: sources[key] for key in keys if key in sources})
        read = {key: value.to(values[key].dtype) for key, value in own}
        save_file({key: read.get(key, values[key]).contiguous() for key in keys}, folder / name, {"format": "pt"})
    if split.is_sharded:
        facts = {"total_parameters": model.num_parameters(), **split.metadata}
        index = json.dumps({"metadata": facts, "weight_map": split.tensor_to_filename}, indent=2, sort_keys=True)
        (folder / INDEX).write_text(index + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Classifier:
    """A classifier that is ready to label texts, as :func:`load_classifier` or :func:`prepared` returns it.

    Attributes:
        model: The model in eval mode.
        tokenizer: Its tokenizer.
        max_length: The most tokens of a text. Longer texts are truncated.
        of_words: Whether it predicts a tag for each word of a sentence.
        anatomy: Its layers, if they are streamed; None if the whole model is in memory.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    of_words: bool = False
    anatomy: Anatomy | None = None

    def encode(self, texts: Texts) -> Tokens:
        """The tokens of all texts.

        Raises:
            FrostlineError: The model does not know a token.
        """
        tokens = encode(self.tokenizer, texts.texts, texts.pairs, self.max_length, of_words=self.of_words)
        return suited(tokens, self.model, self.tokenizer)


def load_classifier(
    folder: Path, *, of_words: bool = False, trust_remote_code: bool = False, streams: Streams = never_streams
) -> Classifier:
    """Load the classifier in a folder. With ``of_words`` it predicts a tag for each word.

    ``streams`` decides whether its layers are streamed (:mod:`frostline.model.streaming`).

    Raises:
        FrostlineError: The folder has no classifier that transformers can load, or not one for texts, or its layers cannot
            be streamed.
    """
    require_files(str(folder), folder)
    if is_tagger(folder) and not of_words:
        raise FrostlineError(
            f"The model in {folder} predicts tags of words: give one that predicts labels or a number for a text."
        )
    library = format_of(folder)
    if library == "transformers":
        kind = MODEL_CLASSES[TOKENS if of_words else CLASSIFICATION]
        model, info = load_saved(folder, kind, UNLOADABLE, trust_remote_code=trust_remote_code, streams=streams)
        refuse_left_out(str(folder), model, info["unexpected_keys"])
        if info["missing_keys"]:
            raise FrostlineError(
                f"The model in {folder} is not a trained classifier (its weights lack {min(info['missing_keys'])}): give "
                "the folder OUT/model of a sweep."
            )
    else:
        model = _read_with_head(folder, library, trust_remote_code=trust_remote_code, streams=streams)
    tokenizer = load_tokenizer(str(folder), folder, of_words=of_words, trust_remote_code=trust_remote_code)
    return replace(prepared(model, tokenizer), of_words=of_words)


def prepared(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Classifier:
    """The classifier of a loaded model and its tokenizer.

    Weights whose address is not aligned are copied, so that logits do not depend on where a file stores the weights. The table of
    the vocabulary is not, because it is only looked up.
    """
    settle_padding(model, tokenizer)
    tables = vocabulary_tables(model).values()
    for module in model.modules():
        for parameter in module.parameters(recurse=False) if module not in tables else ():
            if not is_unread(parameter):
                parameter.data = aligned(parameter.data)
    anatomy, stream = None, stream_of(model)
    if stream:
        stream.align = True
        anatomy = find_layers(model)
        stream.settle(anatomy)
    return Classifier(model.eval(), tokenizer, text_limit(model, tokenizer), anatomy=anatomy)


def logits_of(
    tokens: Tokens,
    forward: Callable[[Sequence[NDArray[np.int64]]], Iterable[Sequence[Tensor]]],
    *,
    lengths: NDArray[np.int64] | None = None,
) -> list[Tensor]:
    """The logits of all texts in their order, computed in batches of similar length.

    Args:
        tokens: The N encoded texts.
        forward: From the positions of the texts of each batch to the logits ``[B, C]`` of each of several tasks, batch by
            batch. C can differ between tasks.
        lengths: How many rows of logits each text has, ``[N]``; None: one.

    Returns:
        For each task ``[N, C]`` in float32; with ``lengths``, ``[T, C]``.
    """
    order = np.argsort(tokens.lengths, kind="stable")
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    with torch.no_grad():
        logits = [[x.float() for x in of_batch] for of_batch in forward(batches)]
    restore = torch.from_numpy(
        np.argsort(order if lengths is None else np.repeat(order, lengths[order]), kind="stable")
    )
    return [torch.cat(of_task)[restore] for of_task in zip(*logits, strict=True)]
