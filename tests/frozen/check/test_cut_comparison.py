"""The comparison finds every dependence on more than the hidden states at the cut, and reports the reason."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from frostline.frozen.exactness import CutComparison, check
from frostline.frozen.forward_pass import ForwardPass
from frostline.model.anatomy import find_layers
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import Recipe
from small_models import small_model

DEPENDS_ON_PADDING = "Its output for an example depends on the padding in the batch"
SOMETHING_ELSE = "Something other than the hidden states passes from below the cut to the logits"


def refusals(model: Any, ks: Sequence[Recipe] | None = None) -> dict[Recipe | None, str | None]:
    return {
        row.tuned_layers if row.tuned_layers is None or row.tuned_layers.k is None else row.tuned_layers.k: row.refused
        for row in check(model, tuned_layers=ks)
    }


def test_a_skip_connection_around_the_cut_is_refused() -> None:
    """The pooler adds the output of the first layer."""
    model, seen = small_model("bert"), {}
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, out: seen.update(hidden=out))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["hidden"][:, 0])
    found = refusals(model)
    assert found.pop(4) is None and found.pop("full") is None  # nothing is cut
    for k in range(4):
        assert SOMETHING_ELSE in (found[k] or ""), k


def test_weights_of_a_lower_layer_in_the_head_are_refused() -> None:
    """Only NaN in the lower weights reveals this, because the cut does not remove them from the model."""
    model = small_model("bert")
    weight = model.bert.encoder.layer[1].output.dense.weight
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * weight[:, 0])
    for k, refused in refusals(model, [1, 2, 3, "full"]).items():
        assert (refused is None) == (k in (3, "full")), k  # for k = 3 the layer is not below the cut
        assert refused is None or SOMETHING_ELSE in refused


def test_a_mean_of_the_embeddings_in_the_head_is_refused() -> None:
    """At k = 0 the head gets one token per example, and the embeddings of the other tokens are missing."""
    model, seen = small_model("bert"), {}
    model.bert.embeddings.register_forward_hook(lambda module, args, out: seen.update(mean=out.mean(1)))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["mean"])
    assert refusals(model, [0])[0]


def test_layers_whose_output_depends_on_padding_are_refused() -> None:
    model = small_model("bert")
    for layer in model.bert.encoder.layer:
        layer.output.register_forward_hook(lambda module, args, out: out + 0.1 * out.mean(1, keepdim=True))
    for k, refused in refusals(model, [1, 2, 3]).items():
        assert DEPENDS_ON_PADDING in (refused or ""), k


def test_a_gradient_that_is_nan_is_refused() -> None:
    model = small_model("bert")
    bias = model.bert.pooler.dense.bias
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + (bias * 0).sqrt().sum())
    for row in check(model, tuned_layers=[0, 2, "full"]):
        assert row.refused and row.batches is None and math.isnan(row.max_gradient_difference or 0.0)
        assert row.max_logit_difference is not None and row.max_logit_difference < 1e-5


def test_max_uncut_layers_limits_the_compared_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model, compared, original = small_model("bert"), [], CutComparison.check
    monkeypatch.setattr(
        CutComparison, "check", lambda self, k, names: compared.append(names) or original(self, k, names)
    )
    (row,) = check(model, tuned_layers=["full"], max_uncut_layers=1)
    assert row.tuned_layers == "full" and row.batches == "packed" and (row.max_gradient_difference or 0.0) < 1e-5
    assert compared == [Trainable(Recipe(1)).parameters(find_layers(model))]


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_the_check_computes_few_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, original = [], ForwardPass.batches

    def batches(self: ForwardPass, *args: Any) -> Any:
        found = original(self, *args)
        seen.extend(found)
        return found

    monkeypatch.setattr(ForwardPass, "batches", batches)
    assert not check(small_model(name), tuned_layers=[1], lengths=[23, 17, 9])[0].refused
    computed = [batch.capacity or batch.examples * batch.padded_lengths[0] for batch in seen]
    assert seen and max(computed) <= 2 * (23 + 17 + 9 + 3 * 8)
    assert all(batch.examples > len(batch.rows) for batch in seen)  # copies fill the batch
