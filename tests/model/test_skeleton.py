"""A model without its weights: every parameter and buffer is where transformers puts it, and conversions are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from frostline import FrostlineError
from frostline.model.loading import skeleton
from frostline.model.model_files import Source, is_unread
from small_models import both, edit_weights, load, sharded
from tiny import tiny_bert_folder

TYPES = ("bert", "llama", "gpt2", "deberta-v2", "modernbert", "electra", "gemma2", "bloom")
FAST = ("gpt2", "modernbert")


@pytest.mark.parametrize("model_type", [t if t in FAST else pytest.param(t, marks=pytest.mark.slow) for t in TYPES])
def test_every_value_is_that_of_the_loaded_model(model_type: str, tmp_path: Path) -> None:
    """Parameters that streaming reads, those that no file has, and buffers."""
    loaded, streamed = both(sharded(tmp_path / "model", model_type))
    stream = streamed.stream
    assert stream and stream.absent and streamed.new == loaded.new
    assert (streamed.anatomy, streamed.weights) == (loaded.anatomy, loaded.weights)
    assert any(is_unread(p) for p in streamed.model.parameters())
    for pretrained in (loaded, streamed):
        pretrained.start_run(frozenset(pretrained.new), 0)
    with stream.loaded(set(stream.absent)):
        expected, found = loaded.model.state_dict(), streamed.model.state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(value, found[name]) for name, value in expected.items())
    buffers = dict(streamed.model.named_buffers())
    assert all(torch.equal(value, buffers[name]) for name, value in loaded.model.named_buffers())


def test_a_type_whose_weights_are_computed_from_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FrostlineError, match="cannot be streamed: transformers computes some of them from others"
    ) as caught:
        both(sharded(tmp_path / "model", "mixtral"))
    assert "\n" not in str(caught.value)


def test_renamed_weights(tmp_path: Path) -> None:
    """Old BERT checkpoints have other names for the parameters of norms, and a prefix."""
    folder = tiny_bert_folder(tmp_path / "model")

    def rename(weights: dict[str, torch.Tensor]) -> None:
        for name in list(weights):
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            weights[f"bert.{new}"] = weights.pop(name)

    edit_weights(folder, rename)
    loaded, streamed = both(folder)
    assert streamed.stream is not None
    with streamed.stream.loaded(set(streamed.stream.absent)):
        for name, value in loaded.model.named_parameters():
            assert name in loaded.new or torch.equal(value, streamed.model.get_parameter(name))


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    folder = tiny_bert_folder(tmp_path / "model")
    edit_weights(folder, lambda weights: weights.pop("encoder.layer.0.output.dense.weight"))
    with pytest.raises(FrostlineError, match="weights lack 1 parameters of its body"):
        load(folder, streams=lambda weight_bytes: True)


def test_buffers_and_whole_numbers_are_read(tmp_path: Path) -> None:
    stored = {"weight": torch.ones(3, 2), "scale": torch.tensor([2.0, 3.0]), "ids": torch.arange(4)}
    save_file(stored, tmp_path / "model.safetensors")

    def load(values: Mapping[str, Any]) -> Any:
        module: Any = torch.nn.Module()
        module.weight = torch.nn.Parameter(values["weight"][...])
        module.register_buffer("scale", values["scale"][...])
        module.register_buffer("ids", values["ids"][...])
        return module, {}

    model, _, sources = skeleton("this one", tmp_path, load)
    assert sources == {"weight": Source(tmp_path / "model.safetensors", "weight")}
    assert is_unread(model.weight) and model.weight.shape == (3, 2)
    assert torch.equal(model.scale, stored["scale"]) and torch.equal(model.ids, stored["ids"])
