"""What a model does not read from a cut on, and doing without it."""

import pytest
import torch

from frostline.model.anatomy import find_layers
from frostline.model.unread import absent, take_away, unread
from small_models import small_model

L = 4


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "gpt2", "llama", "electra"])
def test_what_is_not_read(model_type: str) -> None:
    model = small_model(model_type, layers=L)
    anatomy = find_layers(model)
    assert not unread(model, anatomy, None)
    (table,) = unread(model, anatomy, 0)
    assert model.get_parameter(table) is model.get_input_embeddings().weight
    for cut in range(1, L + 1):
        more = unread(model, anatomy, cut).keys() - unread(model, anatomy, cut - 1).keys()
        assert more == {name for name, place in anatomy.places.items() if place == f"layer {cut - 1}"}


def test_without_memory_and_back() -> None:
    layer = torch.nn.Linear(3, 5)
    before = layer.weight.detach().clone()
    with absent({"weight": layer.weight}):
        assert layer.weight.shape == (5, 3) and layer.weight.untyped_storage().nbytes() == 4
        assert layer(torch.ones(2, 3)).isnan().all()  # whoever reads it is known by his result
    assert torch.equal(layer.weight, before)
    with pytest.raises(ZeroDivisionError), absent({"weight": layer.weight}):
        raise ZeroDivisionError
    assert torch.equal(layer.weight, before)
    take_away([layer.weight])
    assert layer.weight.isnan().all() and not layer.bias.isnan().any() and layer.weight.requires_grad
