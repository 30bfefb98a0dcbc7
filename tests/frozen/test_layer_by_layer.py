"""Layer by layer, hidden states have the same bytes as with the whole model in memory."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from frostline.frozen.forward_pass import Rows, StateSelection
from frostline.frozen.hidden_states import write_shard
from frostline.model.model_files import is_unread
from frozen.passes import pass_over
from frozen.random_tokens import ragged_tokens
from small_models import both, sharded

COUNT = 24


def arrays(model: Any, rows: Rows, folder: Path, **options: Any) -> dict[str, bytes]:
    """The content of the files that the cache keeps of the hidden states."""
    examples: list[float] = []
    forward_pass = replace(pass_over(model, **options), max_tokens=128)  # several batches
    if forward_pass.anatomy.count in forward_pass.selection.pooled:
        forward_pass = replace(forward_pass, head_token=None)
    shard = write_shard(folder, forward_pass, ragged_tokens(COUNT), rows, examples.append)
    assert abs(sum(examples) - len(rows)) < 1e-6
    assert [path.name for path in folder.iterdir()] == [shard.name]
    return {path.name: path.read_bytes() for path in shard.glob("*.npy")}


@pytest.mark.parametrize(
    ("model_type", "dtype"),
    [
        ("bert", torch.float32),
        ("llama", torch.bfloat16),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("bert", torch.bfloat16),
                ("llama", torch.float32),
                ("gpt2", torch.float32),
                ("modernbert", torch.bfloat16),
            )
        ),
    ],
    ids=str,
)
def test_the_same_bytes(model_type: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """For weights in float32 and in bfloat16, packed and padded, in two precisions, at cuts, for the head and for probes."""
    loaded, streamed = both(sharded(tmp_path / "model", model_type, dtype=dtype))
    every = StateSelection((0, 1, 3), head=False, pooled=(0, 1, 2, 3, 4))
    for n, selection in enumerate((None, every, StateSelection((2,), head=False))):
        for packed in (True, False):
            precision = "bfloat16" if n == 0 else "float32"
            expected, found = (
                arrays(
                    one.model,
                    np.arange(COUNT),
                    Path(tempfile.mkdtemp(dir=tmp_path)),
                    packed=packed,
                    precision=precision,
                    selection=selection,
                )
                for one in (loaded, streamed)
            )
            assert expected == found


def test_one_layer_is_in_memory_at_a_time(tmp_path: Path) -> None:
    _, streamed = both(sharded(tmp_path / "model", "bert"))
    model, layers = streamed.model, streamed.anatomy.layers(streamed.model)
    present: set[tuple[int, ...]] = set()

    def look(module: Any, args: Any) -> None:
        present.add(tuple(n for n, layer in enumerate(layers) if not any(map(is_unread, layer.parameters()))))

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(look)
    folder = tmp_path / "cache"
    folder.mkdir()
    arrays(model, np.arange(COUNT), folder)
    assert present == {(3,), (0, 3), (1, 3), (2, 3)}
    assert all(is_unread(p) for layer in layers[:-1] for p in layer.parameters())
