"""The folder of a classifier with a BiLSTM, which only frostline opens.

The folder itself has the base model and the tokenizer, as transformers reads them. ``head.json`` describes the head, and
``head.safetensors`` has its weights. (The LSTM of sentence-transformers does not run after a transformer.)
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from frostline.data.files import write_json
from frostline.model.anatomy import find_layers
from frostline.model.checkpoint import Streams, never_streams
from frostline.model.heads import RecurrentHead
from frostline.model.model_files import json_object, readable
from frostline.model.reading import OWN, HeadKind
from frostline.model.saving import save_files
from frostline.model.with_head import on_base, read_base

HEAD, WEIGHTS = "head.json", "head.safetensors"


def write_recurrent(folder: Path, model: PreTrainedModel) -> None:
    """Write a classifier with a BiLSTM into ``folder``, without its tokenizer."""
    head = model.head
    assert isinstance(head, RecurrentHead)
    save_files(model.base_model, folder)
    facts = {**asdict(head.kind), "width": head.width, "outputs": head.linear.out_features}
    write_json(folder / HEAD, facts, inside=folder)
    save_file({name: p.detach().cpu().contiguous() for name, p in head.named_parameters()}, folder / WEIGHTS)


def is_recurrent(folder: Path) -> bool:
    """Whether a folder has a classifier with a BiLSTM."""
    return (folder / HEAD).is_file()


def is_recurrent_tagger(folder: Path) -> bool:
    """Whether a folder has a classifier with a BiLSTM that predicts a tag for each word."""
    return bool(json_object(folder / HEAD).get("reads") == OWN)


def read_recurrent(
    folder: Path, *, trust_remote_code: bool = False, streams: Streams = never_streams
) -> PreTrainedModel:
    """The classifier in such a folder.

    Raises:
        FrostlineError: A file is missing or damaged.
    """
    base = read_base(folder, trust_remote_code=trust_remote_code, streams=streams)
    head = readable(lambda: _read_head(folder), str(folder), f"the head in {HEAD} and {WEIGHTS} cannot be loaded")
    anatomy = find_layers(base)
    model: Any = on_base(base, base.base_model_prefix, head)
    model.read_lower_states(anatomy.layers(base), anatomy.calls)
    return model


def _read_head(folder: Path) -> RecurrentHead:
    facts = json.loads((folder / HEAD).read_bytes())
    width, outputs = facts.pop("width"), facts.pop("outputs")
    head = RecurrentHead(HeadKind(**facts), width, outputs)
    head.load_state_dict(load_file(folder / WEIGHTS))
    return head
