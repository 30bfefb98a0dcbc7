"""Cached hidden states equal the hidden states of the model, in the order of the batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from frostline.frozen.cut import cut_at
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import find_layers
from frostline.model.tokens import Tokens
from frozen.cached import ALL, Cache
from frozen.random_tokens import ragged_tokens, random_tokens
from small_models import small_model

WIDTH = 64


def test_cached_states_equal_the_states_of_the_model(cache: Cache) -> None:
    """Compared with a forward pass over each example alone, without padding."""
    tokens = ragged_tokens(20)
    states = cache.load(tokens, range(20))
    for row in range(20):
        with torch.no_grad():
            hidden = cache.model(**tokens.batch(np.array([row])), output_hidden_states=True).hidden_states
        for cut in ALL.cuts:
            assert (states.tokens(cut, np.array([row])) - hidden[cut]).abs().max() < 1e-5
        assert (states.head(np.array([row])) - hidden[4][:, :1]).abs().max() < 1e-5


def test_pooled_vectors_follow_from_the_states_of_all_tokens(cache: Cache) -> None:
    tokens, rows = ragged_tokens(20), np.random.default_rng(3).permutation(20)[:12]
    states = cache.load(tokens, range(20), StateSelection((1, 2), head=False, pooled=(1, 2, 4)))
    assert cache.computed == 20
    for layer in (1, 2):
        pooled = states.pooled(layer, rows)
        assert pooled.shape == (12, 3, WIDTH)
        for row, (first, mean, last) in zip(rows, pooled, strict=True):
            of_row = states.tokens(layer, np.array([row]))[0]
            assert torch.equal(first, of_row[0]) and torch.equal(last, of_row[-1])
            torch.testing.assert_close(mean, of_row.mean(0))
    assert torch.equal(states.pooled(4, rows)[:, 0], cache.load(tokens, range(20)).head(rows)[0])


@pytest.mark.usefixtures("small_shards")
def test_rows_from_several_shards_have_the_order_of_the_batch(cache: Cache) -> None:
    tokens = ragged_tokens(40)
    states = cache.load(tokens, range(40))
    assert len(cache.shards) == 6
    generator = np.random.default_rng(2)
    for size in (1, 3, 16, 40):
        rows = generator.permutation(40)[:size]
        for cut in ALL.cuts:
            alone = [states.tokens(cut, np.array([row]))[0] for row in rows]
            assert torch.equal(states.tokens(cut, rows), torch.cat(alone)[None])
        assert torch.equal(states.head(rows)[0], torch.cat([states.head(np.array([row]))[0] for row in rows]))


@pytest.mark.parametrize("reads", ["first", "last"])
def test_the_head_gets_the_state_of_the_token_that_it_reads(cache: Cache, reads: str) -> None:
    tokens = ragged_tokens(8)
    states = cache.load(tokens, range(8), head_reads=reads)
    for row in range(8):
        whole = states.tokens(4, np.array([row]))[0]
        assert torch.equal(states.head(np.array([row]))[0, 0], whole[0 if reads == "first" else -1])


def test_the_last_token_is_the_last_one_whose_id_is_not_the_padding_id(tmp_path: Path) -> None:
    """As in transformers: if end-of-text is also the padding token, the head reads the token before it."""
    model = small_model("gpt2")
    tokens, rows = ragged_tokens(6), np.arange(6)
    tokens.inputs["input_ids"][tokens.offsets[1:4] - 1] = model.config.pad_token_id
    cache = Cache(tmp_path, model, find_layers(model))
    states = cache.load(tokens, rows, StateSelection((), head=True), head_reads="last")
    with torch.no_grad():
        expected = model(**tokens.batch(rows)).logits
        with cut_at(model, cache.anatomy, 4) as upper:
            logits = upper(tokens.one_token(rows, last=True), states.head(rows))
    assert (logits - expected).abs().max() < 1e-5


def test_an_example_of_the_maximum_length(tmp_path: Path) -> None:
    """The forward pass rounds lengths up to a multiple of 8, but not above the model's positions."""
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
    model = BertForSequenceClassification(BertConfig(vocab_size=300, max_position_embeddings=29, **sizes)).eval()
    tokens = Tokens.join([ragged_tokens(5, longest=29), random_tokens([29])])
    states = Cache(tmp_path, model, find_layers(model)).load(tokens, range(6))
    assert states.tokens(4, np.array([5])).shape == (1, 29, WIDTH)


def test_it_has_rows_only_if_all_of_them_are_cached(cache: Cache) -> None:
    states = cache.load(ragged_tokens(20), range(10))
    assert states.has(np.arange(10)) and not states.has(np.array([3, 15])) and not states.has(np.array([15]))


@pytest.mark.usefixtures("small_shards")
def test_closed_files_are_opened_again(cache: Cache) -> None:
    rows = np.arange(40)
    states = cache.load(ragged_tokens(40), range(40))
    assert not states.open_files
    before = states.tokens(ALL.cuts[0], rows)
    assert states.open_files == {f"tokens-{ALL.cuts[0]}"}
    states.begin_group(ALL.cuts[0])
    assert not states.open_files
    assert torch.equal(states.tokens(ALL.cuts[0], rows), before)
    states.begin_group(ALL.cuts[0])  # they are of this group
    assert states.open_files == {f"tokens-{ALL.cuts[0]}"}
