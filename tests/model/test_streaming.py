"""A model whose layers are read when they run has the values of the model in memory, and is saved as the same model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from frostline import FrostlineError
from frostline.model import classifier as saving
from frostline.model.anatomy import probe_batch
from frostline.model.classifier import save_files
from frostline.model.loading import skeleton
from frostline.model.model_files import weight_files
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import Stream, stream_of
from frostline.model.weights import Source, is_unread, read_weights, shapes_in, unread, weight_bytes
from small_models import both, edit_weights, load, same_weights, sharded
from tiny import tiny_bert_folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pretrained, Pretrained]:
    return both(sharded(tmp_path_factory.mktemp("stream") / "model", "bert"))


def stream_in(pretrained: Pretrained) -> Stream:
    stream = pretrained.stream
    assert stream is not None
    return stream


def test_only_lower_layers_are_not_in_memory(models: tuple[Pretrained, Pretrained]) -> None:
    loaded, streamed = models
    stream = stream_in(streamed)
    assert loaded.stream is None and stream_of(loaded.model) is None
    assert stream.absent == set(stream.in_layers(streamed.anatomy, range(3)))
    assert stream.absent == {name for name, p in streamed.model.named_parameters() if is_unread(p)}


def test_a_layer_stays_while_a_context_holds_it(models: tuple[Pretrained, Pretrained]) -> None:
    _, streamed = models
    stream, anatomy = stream_in(streamed), streamed.anatomy
    names, before = stream.in_layers(anatomy, [1]), set(stream.absent)
    with stream.loaded(names):
        with stream.loaded(stream.in_layers(anatomy, [0, 1])):
            assert stream.absent == before - set(stream.in_layers(anatomy, [0, 1]))
        assert stream.absent == before - set(names)
        streamed.model(**probe_batch(streamed.model))
        assert stream.absent == before - set(names)
    assert stream.absent == before
    with pytest.raises(ZeroDivisionError), stream.loaded(names):
        _ = 1 / 0
    assert stream.absent == before


def test_a_digest_notices_a_layer_that_came_into_memory(models: tuple[Pretrained, Pretrained]) -> None:
    _, streamed = models
    stream = stream_in(streamed)
    before = streamed.frozen_digest(frozenset())
    with stream.loaded(stream.in_layers(streamed.anatomy, [0])):
        assert streamed.frozen_digest(frozenset()) != before
    assert streamed.frozen_digest(frozenset()) == before


def test_kept_layers_are_not_released(tmp_path: Path) -> None:
    _, streamed = both(sharded(tmp_path / "model", "llama"))
    stream = stream_in(streamed)
    kept = stream.in_layers(streamed.anatomy, [2])
    stream.keep(kept)
    streamed.model(**probe_batch(streamed.model))
    assert stream.absent == set(stream.in_layers(streamed.anatomy, [0, 1]))


@pytest.mark.parametrize("model_type", ["gpt2", "modernbert", "deberta-v2", "gemma2"])
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


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(SHAPES)
def test_an_unread_value_has_its_shape_and_one_number_in_memory(shape: list[int]) -> None:
    value = unread(shape)
    assert list(value.shape) == shape and value.isnan().all()
    assert is_unread(value) and value.untyped_storage().nbytes() == 4
    assert not is_unread(torch.zeros(shape)) and not is_unread(torch.zeros(()))
    assert torch.matmul(torch.ones(3, shape[0]), value.reshape(shape[0], -1)).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_an_index_are_read_file_by_file(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model", "bert", dtype=dtype)
    (folder / "other.safetensors").write_bytes(b"no weights of this model")
    files = weight_files(folder)
    assert len(files) > 2 and all(file.name.startswith("model-") for file in files)
    expected = {key: value for file in files for key, value in load_file(file).items()}
    found = {source.key: (source, shape) for source, shape, floating in shapes_in(files) if floating}
    assert {key: tuple(value.shape) for key, value in expected.items()} == {key: s for key, (_, s) in found.items()}
    read = dict(read_weights({key: source for key, (source, _) in found.items()}))
    assert all(torch.equal(read[key], value) for key, value in expected.items())
    assert weight_bytes(files) == sum(4 * value.numel() for value in expected.values())


def test_one_file_comes_before_an_index(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model", "bert")
    (folder / "model.safetensors").touch()
    assert weight_files(folder) == [folder / "model.safetensors"]
    assert weight_files(tmp_path) == []


@pytest.mark.parametrize(("model_type", "dtype"), [("bert", torch.float32), ("llama", torch.bfloat16)], ids=str)
def test_the_same_weights(model_type: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed weights and those that are not in memory, in one file and in several."""
    models = both(sharded(tmp_path / "model", model_type, dtype=dtype))
    for name, pretrained in zip(("loaded", "streamed", "one file"), (*models, models[1]), strict=True):
        pretrained.start_run(frozenset(pretrained.new), 0)
        with torch.no_grad():
            for parameter in pretrained.anatomy.layers(pretrained.model)[-1].parameters():
                parameter.fill_(0.5)
        monkeypatch.setattr(saving, "SHARD_BYTES", 1 << 30 if name == "one file" else 100_000)
        save_files(pretrained.model, tmp_path / name)
    assert len(weight_files(tmp_path / "streamed")) > 3
    sizes = [sum(v.nbytes for v in load_file(file).values()) for file in weight_files(tmp_path / "streamed")]
    assert max(sizes) <= 100_000
    same_weights(tmp_path / "loaded", tmp_path / "streamed")
    same_weights(tmp_path / "loaded", tmp_path / "one file")
