"""Whether the forward pass may use packed batches."""

import pytest

from frostline.frozen.exactness import packed_pass_is_exact
from frostline.model.anatomy import find_layers
from small_models import small_model


def test_a_model_that_cannot_be_packed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("bert")
    anatomy = find_layers(model)
    assert packed_pass_is_exact(model, anatomy)
    dense = model.bert.encoder.layer[1].output.dense
    dense.register_forward_pre_hook(lambda module, args: (args[0] + args[0].mean(1, keepdim=True),))
    assert not packed_pass_is_exact(model, anatomy)  # the module mixes tokens
    dense._forward_pre_hooks.clear()
    monkeypatch.setattr(model.config, "_attn_implementation", "eager")
    assert not packed_pass_is_exact(model, anatomy)
