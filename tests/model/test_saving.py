"""A model whose layers are streamed is saved as the same model in memory."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from frostline.model import classifier as saving
from frostline.model.classifier import save_files
from frostline.model.model_files import weight_files
from small_models import both, same_weights, sharded


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
