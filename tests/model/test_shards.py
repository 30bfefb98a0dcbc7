"""Single weights from safetensors files, and values that are not in memory."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from frostline.model.model_files import Source, is_unread, read_weights, shapes_in, unread, weight_bytes, weight_files
from small_models import sharded

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


def test_a_missing_key_is_an_error(tmp_path: Path) -> None:
    file = weight_files(sharded(tmp_path / "model", "bert"))[0]
    with pytest.raises(Exception, match="nothing"):
        dict(read_weights({"x": Source(file, "nothing")}))
