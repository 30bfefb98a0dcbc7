"""The hidden states of an example are bitwise identical in every batch."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from frostline.frozen.exactness import check, packed_pass_is_exact
from frostline.frozen.forward_pass import TINY, TOKENS, ForwardPass, StateSelection, embeddings_are_lookups
from frostline.model import packing
from frostline.model.anatomy import find_layers
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.model.tokens import Tokens
from frozen.passes import bytes_by_row, pass_over
from frozen.random_tokens import random_tokens
from small_models import small_model

slow = pytest.mark.slow
TYPES = ("bert", "gpt2", "modernbert", "llama", "distilbert")
PRECISIONS = ("float32", "bfloat16")


def fast_first(cases: Iterable[tuple[Any, ...]], fast: set[tuple[Any, ...]]) -> list[Any]:
    """All cases. Cases that are not in ``fast`` are marked slow."""
    return [case if case in fast else pytest.param(*case, marks=slow) for case in cases]


ALL_PASSES = fast_first(
    product(TYPES, (True, False), PRECISIONS),
    {
        ("bert", True, "float32"),
        ("gpt2", False, "float32"),
        ("modernbert", True, "bfloat16"),
        ("llama", False, "bfloat16"),
    },
)
LONG_PASSES = fast_first(product(TYPES, PRECISIONS), {("bert", "bfloat16"), ("llama", "float32")})


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """Small models by type, created on first use. Tests must not change them."""

    class Models(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            self[name] = small_model(name)
            return self[name]

    return Models()


def assert_independent_of_batch(forward_pass: ForwardPass, tokens: Tokens, *subsets: Any) -> None:
    """The hidden states of each subset of rows are bitwise those of the same rows among all rows."""
    whole = bytes_by_row(forward_pass, tokens, np.arange(len(tokens)))
    for rows in subsets:
        assert bytes_by_row(forward_pass, tokens, rows) == {row: whole[row] for row in np.asarray(rows).tolist()}


@pytest.mark.parametrize("name, packed, precision", ALL_PASSES)
def test_hidden_states_do_not_depend_on_the_batch(
    models: dict[str, Any], name: str, packed: bool, precision: str
) -> None:
    generator = np.random.default_rng(0)
    tokens = random_tokens(generator.integers(2, 41, 90).tolist())
    forward_pass = pass_over(models[name], packed=packed, precision=precision)
    assert len({tuple(states) for states in bytes_by_row(forward_pass, tokens, np.arange(90)).values()}) == 90
    assert_independent_of_batch(forward_pass, tokens, *(generator.permutation(90)[:size] for size in (1, 2, 7, 40)))


@pytest.mark.parametrize("name, precision", LONG_PASSES)
def test_hidden_states_of_long_examples_do_not_depend_on_the_batch(
    models: dict[str, Any], name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_SHORT", 15)
    tokens = random_tokens([40, 33, 16, 15, 17, 16, 24, 32, 2, 19, *[29] * 30])
    subsets = ([0], [1], [2], [4], [2, 5], [9, 3, 1], list(range(4, 40)))
    assert_independent_of_batch(pass_over(models[name], precision=precision), tokens, *subsets)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["bert", pytest.param("gpt2", marks=slow), "llama"])
def test_hidden_states_in_a_batch_without_padding_are_the_same(models: dict[str, Any], name: str, packed: bool) -> None:
    """Without padding, transformers makes no mask, and torch chooses other kernels."""
    tokens = random_tokens([16] * 64 + [15, 13, 8])
    assert_independent_of_batch(
        pass_over(models[name], packed=packed), tokens, [0], [0, 1], [66], list(range(64)), [3, 64]
    )


@pytest.mark.parametrize("packed", [True, False])
def test_hidden_states_with_grouped_query_attention_do_not_depend_on_the_batch(packed: bool) -> None:
    """With fewer heads of keys, torch computes all examples in one product, whose last bits depend on their number."""
    model = small_model("llama")
    model.config.max_position_embeddings = 512
    tokens = random_tokens([136] * 7 + [135, 16])
    assert_independent_of_batch(pass_over(model, packed=packed), tokens, [0], [7], list(range(7)), [3, 7, 8])


def test_a_batch_of_examples_with_the_maximum_length_gets_a_copy_with_padding() -> None:
    config = GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=40, pad_token_id=0)
    forward_pass = pass_over(GPT2ForSequenceClassification(config).eval(), packed=False)
    tokens = random_tokens([40, 40, 38, 40, 12])
    batches = forward_pass.batches(tokens.lengths, np.arange(5))
    assert [batch.examples for batch in batches] == [TOKENS["cpu"] // 16, TOKENS["cpu"] // 40 + 1]
    assert all((batch.inputs(tokens)["attention_mask"] == 0).any() for batch in batches)
    assert_independent_of_batch(forward_pass, tokens, [0], [0, 1, 3], [2])


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=slow)])
def test_hidden_states_with_two_threads_and_a_realistic_width_do_not_depend_on_the_batch(precision: str) -> None:
    """Threads divide the rows of a batch, and an example can be in another thread's part in another batch."""
    sizes = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 12, "intermediate_size": 1536}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=300, **sizes)).eval()
    forward_pass = pass_over(model, precision=precision, selection=StateSelection((1,), head=True))
    tokens = random_tokens([*range(3, 63, 2), *range(100, 400, 60)])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_independent_of_batch(forward_pass, tokens, [5], [30, 31], range(0, 35, 3))
    finally:
        torch.set_num_threads(before)


def test_products_in_modules_that_do_not_run_are_ignored() -> None:
    model = small_model("esm")
    anatomy = find_layers(model)
    assert any("contact_head" in name for name in anatomy.idle) and embeddings_are_lookups(model, anatomy)


def test_with_products_below_the_layers_the_forward_pass_uses_padded_batches(models: dict[str, Any]) -> None:
    """In packed batches, these products would have a varying number of padded tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = ElectraForSequenceClassification(ElectraConfig(vocab_size=300, embedding_size=16, **sizes)).eval()
    anatomy = find_layers(model)
    assert not embeddings_are_lookups(model, anatomy) and not packed_pass_is_exact(model, anatomy)
    assert embeddings_are_lookups(models["electra"], find_layers(models["electra"]))
    (row,) = check(model, tuned_layers=[1])
    assert row.batches == "packed"  # the layers themselves can be packed


@pytest.mark.parametrize("max_short", [packing.MAX_SHORT, 15])
@pytest.mark.parametrize(
    "name",
    [
        *("bert", "gpt2", "modernbert"),
        *(pytest.param(name, marks=slow) for name in ("llama", "distilbert", "roberta", "electra", "qwen2")),
    ],
)
def test_packed_and_padded_batches_give_the_same_hidden_states(
    models: dict[str, Any], name: str, max_short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_SHORT", max_short)
    forward_pass = pass_over(models[name])
    assert packed_pass_is_exact(models[name], forward_pass.anatomy)
    tokens = random_tokens([9, 33, 17, 2, 40, 24, 8])
    packed, padded = (bytes_by_row(replace(forward_pass, packed=way), tokens, np.arange(7)) for way in (True, False))
    for row in range(7):
        for one, other in zip(packed[row], padded[row], strict=True):
            np.testing.assert_allclose(np.frombuffer(one, "f4"), np.frombuffer(other, "f4"), atol=1e-5)


def test_products_in_packed_batches_always_have_the_same_number_of_tokens() -> None:
    bert, budget = pass_over(small_model("bert")), TOKENS["cpu"]
    shapes: dict[str, set[int]] = {}
    for name, layer in torch.nn.ModuleList(bert.anatomy.layers(bert.model)).named_modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(
                lambda module, args, out, name=name: shapes.setdefault(name, set()).add(args[0].shape[:-1].numel())
            )
    tokens = random_tokens(np.random.default_rng(0).integers(1, 41, 100).tolist())
    for rows in ([0], [3, 4, 5], range(100)):
        bytes_by_row(bert, tokens, rows)
    assert (
        bert.head_token
        and {budget} in shapes.values()
        and {budget // LENGTH_MULTIPLE, budget // TINY} in shapes.values()
    )
    assert len(set(map(tuple, shapes.values()))) == 2
