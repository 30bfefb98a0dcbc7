"""The folder of a classifier whose head reads the mean of all tokens or the last one: a folder of sentence-transformers.

The folder itself has the base model and the tokenizer, as transformers reads them. ``1_Pooling`` says what the head reads, and
``2_Dense`` has its linear module. ``SentenceTransformer(folder).encode(texts)`` then returns the logits.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.data.files import replace_file
from frostline.model.checkpoint import Streams, never_streams
from frostline.model.heads import PooledHead
from frostline.model.model_files import readable
from frostline.model.reading import LAST, MEAN, HeadKind
from frostline.model.saving import save_files
from frostline.model.with_head import on_base, read_base

MODULES = "modules.json"
POOLING, DENSE = "1_Pooling", "2_Dense"
KINDS = {"": "Transformer", POOLING: "Pooling", DENSE: "Dense"}  # by folder
POOLING_KEYS = {MEAN: "pooling_mode_mean_tokens", LAST: "pooling_mode_lasttoken"}
OTHER_POOLING_KEYS = ("pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
IDENTITY = "torch.nn.modules.linear.Identity"
WEIGHTS = "model.safetensors"
NEWER_MODES = {MEAN: "mean", LAST: "lasttoken"}  # the only mode, as sentence-transformers writes it since version 6


def write_pooled(folder: Path, model: PreTrainedModel, max_length: int) -> None:
    """Write a classifier with a pooled head into ``folder``, without its tokenizer."""
    head = model.head
    assert isinstance(head, PooledHead)
    save_files(model.base_model, folder)
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(KINDS.items())
    ]
    _write(folder, MODULES, modules)
    _write(folder, "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    width, outputs = head.linear.in_features, head.linear.out_features
    modes = dict.fromkeys((*POOLING_KEYS.values(), *OTHER_POOLING_KEYS), False) | {POOLING_KEYS[head.kind.reads]: True}
    _write(folder, f"{POOLING}/config.json", {"word_embedding_dimension": width, **modes})
    dense = {"in_features": width, "out_features": outputs, "bias": True, "activation_function": IDENTITY}
    _write(folder, f"{DENSE}/config.json", dense)
    weights = {f"linear.{name}": p.detach().cpu().contiguous() for name, p in head.linear.named_parameters()}
    save_file(weights, folder / DENSE / WEIGHTS)


def is_pooled(folder: Path) -> bool:
    """Whether a folder has a transformer, pooling and a dense module of sentence-transformers, in this order."""
    try:
        modules = json.loads((folder / MODULES).read_bytes())
        return [(one["path"], one["type"].rpartition(".")[2]) for one in modules] == [*KINDS.items()]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False


def read_pooled(folder: Path, *, trust_remote_code: bool = False, streams: Streams = never_streams) -> PreTrainedModel:
    """The classifier in such a folder.

    Raises:
        FrostlineError: A file is missing or damaged, or the modules compute something other than logits of the labels.
    """
    base = read_base(folder, trust_remote_code=trust_remote_code, streams=streams)
    head = readable(lambda: _read_head(folder), str(folder), f"the head in {POOLING} and {DENSE} cannot be loaded")
    if head.linear.out_features != base.config.num_labels:
        raise FrostlineError(
            f"The model in {folder} is not a trained classifier: it has {base.config.num_labels} labels, but {DENSE} has "
            f"{head.linear.out_features} outputs. Give the folder OUT/model of a sweep."
        )
    return on_base(base, base.base_model_prefix, head)


def _read_head(folder: Path) -> PooledHead:
    pooling, dense = (json.loads((folder / name / "config.json").read_bytes()) for name in (POOLING, DENSE))
    modes = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    modes += [pooling["pooling_mode"]] if "pooling_mode" in pooling else []
    reads = [reads for reads, key in POOLING_KEYS.items() if modes in ([key], [NEWER_MODES[reads]])]
    if not reads or dense.get("activation_function") != IDENTITY:
        raise ValueError(f"it reads {modes}, with the activation {dense.get('activation_function')}")
    head = PooledHead(HeadKind(reads[0]), int(dense["in_features"]), int(dense["out_features"]))
    weights = load_file(folder / DENSE / WEIGHTS)
    head.linear.load_state_dict({name.removeprefix("linear."): x for name, x in weights.items()})
    return head


def _write(folder: Path, name: str, content: Any) -> None:
    replace_file(folder / name, f"{json.dumps(content, indent=2)}\n".encode(), inside=folder)
