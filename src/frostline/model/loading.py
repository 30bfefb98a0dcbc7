"""Load a model, its configuration and its tokenizer: all weights, or those of the layers stay in the files and are streamed.

A model that is streamed is built as transformers loads it, but without the values of its weights. Which weight of a file becomes
which parameter is not known here. transformers is given a stand-in for each weight, and where it puts them is read from the
model. A checkpoint whose weights it must compute from others is refused.
"""

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.model.anatomy import LONGEST, find_layers, first_position, text_limit
from frostline.model.device import CPU
from frostline.model.model_files import (
    MODEL_FILES,
    Streams,
    code_elsewhere,
    files_digest,
    has_own_code,
    model_folder,
    module_files,
    never_streams,
    quiet_loading,
    readable,
    require_files,
    runs_own_code,
    tokenizer_digest,
    weight_files,
)
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import stream_of, streamed
from frostline.model.terms import HEAD, OUTPUT_KEYS, POOLER
from frostline.model.tokens import is_token, padding_fill, tokenized, vocabulary_size
from frostline.model.weights import (
    Source,
    floating_type,
    is_unread,
    quantized_in,
    read_weight,
    shapes_in,
    unread,
    weight_bytes,
)


class _StandIn:
    """Stands for a weight in a file, for as long as transformers only asks for all of it."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __getitem__(self, index: Any) -> Tensor:
        return self.value


class _Untouched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, every operation that computes with a stand-in is refused and recorded."""

    def __init__(self, sources: Mapping[int, Source]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources, self.touched = sources, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        computes = not any(one.alias_info for one in func._schema.returns)  # a view has the memory of its input
        given = {_storage(x) for x in tree_leaves((args, kwargs))} & self.sources.keys() if computes else set()
        if given:
            self.touched |= {self.sources[one].key for one in given}
            raise RuntimeError("a weight is computed from others")
        return func(*args, **(kwargs or {}))


def skeleton(
    name: str,
    folder: Path,
    load: Callable[[Mapping[str, Any]], tuple[PreTrainedModel, Any]],
    dtype: torch.dtype = torch.float32,
) -> tuple[PreTrainedModel, Any, Mapping[str, Source]]:
    """A model of this type without its weights, transformers' report, and where the values of parameters are, by name.

    These parameters are :func:`frostline.model.weights.unread`; all others have their values. ``load`` loads the model in a
    folder with given values of weights, by their names in the files.

    Raises:
        FrostlineError: transformers computes weights of the model called ``name`` from others.
    """
    values: dict[str, _StandIn] = {}
    by_storage: dict[int, Source] = {}
    for source, shape, floating in shapes_in(weight_files(folder)):
        value = unread(shape, dtype=dtype) if floating and shape else read_weight(source)
        values[source.key] = _StandIn(value)
        if is_unread(value):
            by_storage[_storage(value)] = source
    watch = _Untouched(by_storage)
    try:
        with watch:
            model, info = load(values)
    except FrostlineError:
        if not watch.touched:
            raise
    if watch.touched:
        raise FrostlineError(
            f"The weights of {name} cannot be streamed: transformers computes some of them from others in its files "
            f"({min(watch.touched)}). Load the whole model with --no-stream, or write it anew with save_pretrained(..., "
            "save_original_format=False)."
        )
    for _, buffer in model.named_buffers():  # they are small
        if _storage(buffer) in by_storage:
            buffer.data = read_weight(by_storage[_storage(buffer)]).to(buffer.dtype)
    sources = {name: by_storage[_storage(p)] for name, p in model.named_parameters() if _storage(p) in by_storage}
    return model, info, sources


def _storage(x: Any) -> int:
    """What identifies the memory of a tensor; 0 for anything else."""
    return int(x.untyped_storage()._cdata) if isinstance(x, Tensor) else 0


def read_config(name: str, folder: Path, problem: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration in a folder. An error about it names the model, and has the ``problem``.

    Raises:
        FrostlineError: It cannot be read, or names kernels of the hub, which are code, and ``trust_remote_code`` is not set. Or
            it is set, and the code is in another repository.
    """
    if trust_remote_code and (elsewhere := code_elsewhere(folder)):
        raise FrostlineError(
            f"The model {name} runs code of {elsewhere}, which may change at any time: copy the Python files of {elsewhere} into "
            f"a copy of the model's folder, remove {elsewhere}-- from the auto_map in its JSON files, and give that folder."
        )
    # without the argument, transformers would ask on the terminal whether to run code
    config = readable(lambda: AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code), name, problem)
    for one in (config, *(getattr(config, part, None) for part in getattr(config, "sub_configs", ()))):
        for kind in ("_attn_implementation", "_experts_implementation"):
            kernels = str(getattr(one, kind, ""))
            if "/" in kernels and not trust_remote_code:
                raise FrostlineError(
                    f"The configuration of {name} asks to run the kernels {kernels} of the hub, which are code: remove them from "
                    "its config.json, or read that code and add --trust-remote-code."
                )
    return config


def load_weights(
    name: str,
    folder: Path,
    kind: Any,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    *,
    streams: Streams,
    unloadable: str,
    device: torch.device | str = CPU,
    trust_remote_code: bool = False,
    **more: Any,
) -> tuple[PreTrainedModel, Any]:
    """The model in eval mode, and transformers' report of missing and mismatched weights.

    ``kind`` is the class that loads it, such as ``AutoModel``; ``more`` are other arguments of its ``from_pretrained``.

    Raises:
        FrostlineError: transformers cannot load it (the message says ``unloadable``) or reads quantized weights as plain
            numbers, or its layers cannot be streamed.
    """
    names_method = getattr(config, "quantization_config", None) is not None
    options = {"config": config, "dtype": dtype, "output_loading_info": True, **more}

    def read(values: Mapping[str, Any] | None = None) -> tuple[PreTrainedModel, Any]:
        """The model with these ``values`` instead of the weights in the folder, if they are given."""

        def load() -> Any:
            if values is None:
                trust = {"trust_remote_code": trust_remote_code}
                return kind.from_pretrained(folder, use_safetensors=True, **options, **trust)
            model, info = kind._model_mapping[type(config)].from_pretrained(None, state_dict=values, **options)
            model.name_or_path = model.config.name_or_path = str(folder)
            return model, info

        if values is not None and type(config) not in kind._model_mapping:
            raise FrostlineError(
                f"The weights of {name} cannot be streamed, because transformers itself has no such model: load the whole "
                "model with --no-stream."
            )
        with quiet_loading():
            model, info = readable(load, name, unloadable)
        restored = names_method and getattr(model.config, "quantization_config", None) is None
        if not restored and not is_quantized(model) and (key := quantized_in(weight_files(folder))):
            raise FrostlineError(
                f"The weights of {name} are quantized ({key}), and transformers would read them without their scales. Choose the "
                "model that they were made from."
            )
        return model, info

    if not streams(readable(lambda: weight_bytes(weight_files(folder), dtype), name, unloadable)):
        model, info = read()
        if runs_own_code(model):
            compute_buffers(model, info["missing_keys"])
        model.to(device)
        return model.eval(), info
    model, info, sources = skeleton(name, folder, read, dtype)
    streamed(model, sources, torch.device(device))
    return model.eval(), info


def is_quantized(model: PreTrainedModel) -> bool:
    """Whether transformers keeps the weights of a model quantized."""
    return getattr(model, "hf_quantizer", None) is not None


@torch.no_grad()
def compute_buffers(model: PreTrainedModel, missing: Container[str]) -> None:
    """Set the buffers of a model that are not in its files, such as rotary embeddings, to the values that its code computes.

    ``missing`` are those that the files lack. transformers sets those of its own models only. Others have the values of unused
    memory.
    """
    absent = dict(model.named_non_persistent_buffers())
    absent |= {name: buffer for name, buffer in model.named_buffers() if name in missing}
    if absent:
        with no_init_weights(), torch.random.fork_rng(devices=[]):
            computed = dict(type(model)(deepcopy(model.config)).named_buffers())
        for name in absent.keys() & computed.keys():
            absent[name].copy_(computed[name])


IN_LAYER = re.compile(r"(.*?)\.(\d+)\..*weight")  # the list of layers, and the number of the layer in it


def refuse_left_out(name: str, model: PreTrainedModel, left: Iterable[str], depth: int | None = None) -> None:
    """Raise an error if weights of the layers of a model are ``left`` out, unless of layers above its ``depth``."""
    lists = {found[1] for key, _ in model.base_model.named_parameters() if (found := IN_LAYER.fullmatch(key))}
    for key in sorted(left):
        found = IN_LAYER.fullmatch(key.removeprefix(f"{model.base_model_prefix}."))
        if found and found[1] in lists and (depth is None or int(found[2]) < depth):
            raise FrostlineError(
                f"The weights of {name} have more in their layers than its config.json describes ({key}), such as more layers "
                "or an adapter. Download the model again, merge the adapter into it, or correct config.json."
            )


def load_saved(
    folder: Path, kind: Any, unloadable: str, *, trust_remote_code: bool, streams: Streams
) -> tuple[PreTrainedModel, Any]:
    """The model that was saved in a folder, with the parameters of the type that they have there (:func:`load_weights`).

    transformers takes that type from the configuration, or else from the first weights.
    """
    name, files = str(folder), weight_files(folder)
    config = read_config(name, folder, unloadable, trust_remote_code=trust_remote_code)
    dtype = config.dtype
    if not isinstance(dtype, torch.dtype):
        dtype = readable(lambda: floating_type(files), name, unloadable)
    return load_weights(
        name,
        folder,
        kind,
        config,
        dtype,
        streams=streams,
        unloadable=unloadable,
        trust_remote_code=trust_remote_code,
    )


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


def load_pretrained(
    name: str,
    *,
    labels: Sequence[str],
    task_type: str,
    revision: str | None = None,
    depth: int | None = None,
    trust_remote_code: bool = False,
    device: torch.device | str = "cpu",
    streams: Streams = never_streams,
) -> Pretrained:
    """Load a hub model or a model folder as a classifier with these ``labels`` (no labels: regression).

    Of its layers only the first ``depth`` are kept; None: all. ``streams`` decides whether the layers are streamed
    (:mod:`frostline.model.streaming`). It is called with the bytes of all weights in float32.

    Raises:
        FrostlineError: There is no such model or it has no tokenizer, its weights are not safetensors, or it cannot be cut.
    """
    if trust_remote_code and not revision and not Path(name).expanduser().is_dir():
        raise FrostlineError("trust_remote_code runs code from the hub: pin it with --revision COMMIT.")
    folder, commit = model_folder(name, revision, MODEL_FILES + ["*.py"] * trust_remote_code)
    trust = {"trust_remote_code": trust_remote_code}
    config = read_config(name, folder, "its config.json cannot be used", **trust)
    if depth is not None:
        depth = keep_first_layers(config, depth, name)
    require_files(name, folder)
    tokenizer = load_tokenizer(name, folder, of_words=task_type == TOKENS, trust_remote_code=trust_remote_code)
    config.num_labels = len(labels) or 1
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: n for n, label in enumerate(labels)}
    config.problem_type = PROBLEM_TYPES[task_type]
    for key in OUTPUT_KEYS:  # of an earlier task, if the model was fine-tuned before
        vars(config).pop(key, None)
    use_cache = getattr(config, "use_cache", None)
    if use_cache is not None:
        config.use_cache = False

    model, info = load_weights(
        name,
        folder,
        MODEL_CLASSES[task_type],
        config,
        torch.float32,
        streams=streams,
        unloadable=UNLOADABLE,
        device=device,
        ignore_mismatched_sizes=True,
        **trust,
    )
    if is_quantized(model):
        raise FrostlineError(
            f"The weights of {name} are quantized and cannot be trained. Choose the model that they were made from."
        )
    settle_padding(model, tokenizer)
    refuse_left_out(name, model, info["unexpected_keys"], depth)
    anatomy = find_layers(model)
    if depth is not None and anatomy.count != depth:
        raise FrostlineError(
            f"{name} has {anatomy.count} layers when its configuration asks for {depth}: leave --depth out."
        )
    if stream := stream_of(model):
        stream.settle(anatomy)
    absent = set(info["missing_keys"]) | {key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"]}
    head = {name for name, place in anatomy.places.items() if place == HEAD}
    missing = {name for name, _ in model.named_parameters() if name in absent} - head
    if body := sorted(name for name in missing if anatomy.places[name] != POOLER):
        raise FrostlineError(
            f"The model's weights lack {len(body)} parameters of its body ({body[0]}, ...): the folder does not hold "
            "the checkpoint that its config.json describes. Download the model again."
        )
    return Pretrained(
        name=name,
        folder=folder,
        revision=commit,
        model=model,
        tokenizer=tokenizer,
        anatomy=anatomy,
        weights=weights_digest(folder, depth, own_code=trust_remote_code and has_own_code(folder)),
        vocabulary=tokenizer_digest(folder),
        max_length=min(text_limit(model, tokenizer), LONGEST),
        new=frozenset(head | missing),
        use_cache=use_cache,
        depth=depth,
    )


NUMBER_MATTERS = (
    "esm",
    "esmc",
    "minicpm3",
)  # model types that divide by a function of the number of layers, or read all


def keep_first_layers(config: PreTrainedConfig, depth: int, name: str) -> int | None:
    """Let a configuration ask for its first ``depth`` layers only. Lists with an entry for each layer become as short.

    Returns:
        The depth; None if these are all layers.

    Raises:
        FrostlineError: It does not say how many layers it has, has fewer, or what a layer computes depends on their number.
    """
    text = config.get_text_config()
    if text.model_type in NUMBER_MATTERS:
        raise FrostlineError(
            f"{name} is of the type {text.model_type}, whose layers compute something else if there are fewer of them: leave "
            "--depth out."
        )
    layers = getattr(text, "num_hidden_layers", None)
    if not isinstance(layers, int):
        raise FrostlineError(f"The configuration of {name} does not say how many layers it has: leave --depth out.")
    if not 1 <= depth <= layers:
        raise FrostlineError(f"--depth {depth} is not among the {layers} layers of {name}: give 1 to {layers}.")
    if depth == layers:
        return None
    try:
        text.num_hidden_layers = depth
    except NotImplementedError:  # the layers are in blocks
        raise FrostlineError(f"The layers of {name} cannot be made fewer: leave --depth out.") from None
    for key, value in vars(text).items():
        if isinstance(value, list | tuple) and len(value) == layers:
            setattr(text, key, value[:depth])
    return depth


def weights_digest(folder: Path, depth: int | None, *, own_code: bool) -> str:
    """The digest of the configuration and the weights of a model, of which the first ``depth`` layers are kept.

    With ``own_code``, the model runs Python code that comes with it, which then counts too. So do the modules that SetFit reads
    with sentence-transformers, such as the pooling.
    """
    code = sorted(folder.glob("*.py")) if own_code else []
    weights = [*sorted(folder.glob("*.safetensors")), folder / "config.json"]
    digest = files_digest([*weights, *code, *module_files(folder)])
    return digest if depth is None else hashlib.sha256(f"{digest} {depth}".encode()).hexdigest()


def load_tokenizer(
    name: str, folder: Path, *, of_words: bool = False, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``, set to pad on the right.

    A tokenizer without a padding token pads with its end-of-text or unknown token. Attention masks padding in any case. For
    sentences ``of_words`` it must know where a token is in a text.

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
        # what the tokenizer puts at the end of every text, if anything
        at_end = tokenized(tokenizer, ["a"])["input_ids"][0][-1:]
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
