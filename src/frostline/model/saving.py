"""Write the weights of a model and its configuration, with the weights that are not in memory copied from file to file."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from frostline.model.shards import INDEX, WHOLE, Source, is_unread, read_weights
from frostline.model.streaming import Stream, stream_of

SHARD_BYTES = 1 << 30  # of one file with streamed weights, unless a single weight is larger


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
    values = _published(model)
    sources = _sources(model, stream, values)
    parts = list(_parts(values))
    names = (
        [WHOLE]
        if len(parts) == 1
        else [f"model-{n:05}-of-{len(parts):05}.safetensors" for n in range(1, len(parts) + 1)]
    )
    for name, keys in zip(names, parts, strict=True):
        read = {
            key: value.to(values[key].dtype)
            for key, value in read_weights({k: sources[k] for k in keys & sources.keys()})
        }
        save_file({key: read.get(key, values[key]).contiguous() for key in keys}, folder / name, {"format": "pt"})
    if len(parts) > 1:
        size = sum(map(_bytes, values.values()))
        facts = {"total_parameters": model.num_parameters(), "total_size": size}
        weight_map = {key: name for name, keys in zip(names, parts, strict=True) for key in keys}
        index = json.dumps({"metadata": facts, "weight_map": weight_map}, indent=2, sort_keys=True)
        (folder / INDEX).write_text(index + "\n", encoding="utf-8")


def _published(model: PreTrainedModel) -> dict[str, Tensor]:
    """The values that transformers would save, by the names that it would give them."""
    values = {k: v for k, v in model.state_dict().items() if k not in (model._keys_to_ignore_on_save or ())}
    values = remove_tied_weights_from_state_dict(values, model)
    return dict(sorted(revert_weight_conversion(model, values).items()))


def _sources(model: PreTrainedModel, stream: Stream, values: Mapping[str, Tensor]) -> dict[str, Source]:
    """Where the values are that are not in memory, by the names under which they are saved."""
    absent = {p.data_ptr(): stream.sources[name] for name, p in model.named_parameters() if name in stream.absent}
    return {key: absent[value.data_ptr()] for key, value in values.items() if is_unread(value)}


def _parts(values: Mapping[str, Tensor]) -> Iterator[set[str]]:
    """The names of the values in each file."""
    part: set[str] = set()
    held = 0
    for key, value in values.items():
        if part and held + _bytes(value) > SHARD_BYTES:
            yield part
            part, held = set(), 0
        part.add(key)
        held += _bytes(value)
    yield part


def _bytes(value: Tensor) -> int:
    return value.numel() * value.element_size()
