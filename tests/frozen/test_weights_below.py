"""Find the weights below a cut and replace them by NaN."""

import pytest
import torch

from frostline.frozen.exactness import replaced_by_nan, weights_below
from frostline.model.anatomy import find_layers
from small_models import small_model

L = 4


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "gpt2", "llama", "electra"])
def test_each_cut_adds_one_layer(model_type: str) -> None:
    model = small_model(model_type, layers=L)
    anatomy = find_layers(model)
    (table,) = weights_below(model, anatomy, 0)
    assert model.get_parameter(table) is model.get_input_embeddings().weight
    for cut in range(1, L + 1):
        more = weights_below(model, anatomy, cut).keys() - weights_below(model, anatomy, cut - 1).keys()
        assert more == {name for name, place in anatomy.places.items() if place == f"layer {cut - 1}"}


def test_nan_weights_make_the_output_nan_and_are_restored() -> None:
    layer = torch.nn.Linear(3, 5)
    before = layer.weight.detach().clone()
    with replaced_by_nan([layer.weight]):
        assert layer.weight.shape == (5, 3) and layer.weight.untyped_storage().nbytes() == 4
        assert layer(torch.ones(2, 3)).isnan().all() and not layer.bias.isnan().any()
    assert torch.equal(layer.weight, before)
    with pytest.raises(ZeroDivisionError), replaced_by_nan([layer.weight]):
        raise ZeroDivisionError
    assert torch.equal(layer.weight, before) and layer.weight.requires_grad
