"""Spectrum: matrices of low rank have more signal than random ones."""

import math

import pytest
import torch

from frostline.model.anatomy import find_layers
from frostline.model.ways import Way
from frostline.training.start import signal_to_noise, with_modules
from small_models import small_model


def test_the_ratio_is_that_of_the_sums_of_singular_values_on_both_sides_of_the_limit():
    matrix = torch.diag(torch.tensor([10.0, 4.0, 3.0, 2.0, 1.0]))  # quartiles 2 and 4
    limit = 2 / 1.349 * 2
    assert 2 < limit < 3
    assert signal_to_noise(matrix) == pytest.approx((10 + 4 + 3) / (2 + 1) / 10)
    wide = torch.zeros(5, 80)
    wide[:, :5] = matrix
    assert 1 < 2 / 1.349 * (1 + math.sqrt(5 / 80)) < 2
    assert signal_to_noise(wide) == signal_to_noise(wide.T) == pytest.approx((10 + 4 + 3 + 2) / 1 / 10)
    assert signal_to_noise(torch.eye(5)) == math.inf


def test_the_top_share_of_each_kind_is_chosen():
    model = small_model("bert")
    anatomy = find_layers(model)
    ways = {"spectrum-50": Way(signal_share=0.5), "last": Way(tune=2)}
    found = with_modules(ways, model, anatomy)
    assert found.keys() == {"spectrum-50"}
    for kind in ("attention.self.query", "attention.output.dense", "output.dense"):
        paths = [f"bert.encoder.layer.{n}.{kind}" for n in range(4)]
        ranked = sorted(paths, key=lambda path: signal_to_noise(model.get_submodule(path).weight))
        assert set(ranked[2:]) == set(paths) & set(found["spectrum-50"].modules)
    assert len(found["spectrum-50"].modules) == 12
    assert with_modules(found, model, anatomy) == {}
