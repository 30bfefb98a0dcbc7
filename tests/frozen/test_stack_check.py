"""Whether runs of a model type can be trained as one stack."""

from typing import Any

import pytest
import torch

from frostline.frozen.stack_check import stack_refusal
from frostline.model import stacking
from frostline.model.anatomy import find_layers
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import Recipe
from small_models import small_batch, small_model

DIFFER = "In a stack, logits differ by "


def refusal_of(model_type: str, k: Recipe, **options: Any) -> str | None:
    model = small_model(model_type)
    batches = [small_batch(model), small_batch(model, (11, 36, 5, 29), seed=1)]
    anatomy = find_layers(model, batches[0])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    options = {"packed": False, "batched": True, **options}
    cut = anatomy.count - k if isinstance(k, int) else None
    refusal = stack_refusal(model, anatomy, Trainable(Recipe(k)).parameters(anatomy), cut, batches=batches, **options)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    return refusal


@pytest.mark.parametrize(
    "model_type",
    ["mixtral", "opt", "gemma2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt_oss", "qwen3_next"))],
)
def test_runs_of_most_types_can_be_stacked(model_type: str) -> None:
    """With experts, with norms that add one to their weights, and with parameters that other modules read."""
    assert [refusal_of(model_type, k) for k in (0, 2)] == [None, None]


def test_types_whose_runs_cannot_be_stacked() -> None:
    together = "Its modules cannot compute the examples of several runs together"
    assert refusal_of("deberta-v2", 0) is None
    assert (refusal_of("deberta-v2", 1) or "").startswith(f"{together} (RuntimeError: ")
    assert (refusal_of("biogpt", "full", packed=True) or "").startswith(together)
    assert refusal_of("mpnet", 2) is None  # position biases that all layers share belong to the embeddings
    assert (refusal_of("mpnet", "full") or "").startswith(DIFFER)


def test_runs_that_share_a_weight_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal_of("bert", 1, packed=True) is None

    def of_the_first(module, whole, x):
        return right(module, {leaf: p[:1].expand_as(p) for leaf, p in whole.items()}, x)

    right = stacking._product
    monkeypatch.setattr(stacking, "_product", of_the_first)
    assert (refusal_of("bert", 1, packed=True) or "").startswith(DIFFER)
    assert refusal_of("bert", 1, packed=True, batched=False) is None
    own = stacking._Stack.parameter
    monkeypatch.setattr(stacking._Stack, "parameter", lambda self, run, name: own(self, run, name).detach())
    assert refusal_of("bert", 1, batched=False) is not None


def test_the_check_makes_its_own_examples() -> None:
    model = small_model("llama")
    anatomy = find_layers(model)
    for cut in (1, 2):  # cut 1: one frozen layer runs
        assert (
            stack_refusal(model, anatomy, Trainable(Recipe(2)).parameters(anatomy), cut, packed=True, batched=True)
            is None
        )
