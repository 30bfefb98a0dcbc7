"""The pass: every row once, in shapes that hang on nothing but its own length."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from frostline.fast.linear import ready_weights
from frostline.frozen import forward_pass as passing
from frostline.frozen.check import check, head_reads, narrow_of, packs
from frostline.frozen.forward_pass import TINY, Need, Pass, looks_up, tokens_at_once
from frostline.model import packing
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.device import Machine
from frostline.model.packing import STEP
from frostline.model.tokens import Tokens
from small_models import FIRST_WORD, small_model

BUDGET = passing.BUDGET["cpu"]
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=300)


def table(lengths: list[int], *, words: int = 300, seed: int = 0) -> Tokens:
    """Random texts of these lengths."""
    ids = np.random.default_rng(seed).integers(FIRST_WORD, words, sum(lengths)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens({"input_ids": ids}, offsets, {"input_ids": 0}, np.zeros(len(lengths), np.int32))


def pass_of(model_type: str, **more: Any) -> Pass:
    return pass_over(small_model(model_type), **more)


def pass_over(model: Any, *, packed: bool = True, precision: str = "float32", need: Need | None = None) -> Pass:
    anatomy, batch = find_layers(model), probe_batch(model)
    reads = head_reads(model, anatomy, batch)
    need = need or Need((1, anatomy.count - 1), head=reads != "all")
    machine = Machine(torch.device("cpu"), precision)
    return Pass(model, anatomy, need, reads, packed, machine.autocast, narrow_of(model, anatomy, batch, reads))


def by_row(made_by: Pass, tokens: Tokens, rows: np.ndarray[Any, Any]) -> dict[int, list[bytes]]:
    """The bytes of each row's states."""
    found, batches = {}, made_by.batches(tokens.lengths, rows)
    precision = "float32" if made_by.autocast.__name__ == "nullcontext" else "bfloat16"
    with ready_weights(made_by.model, Machine(torch.device("cpu"), precision)):
        for batch, states in zip(batches, made_by.states(tokens, batches), strict=True):
            parts = {name: x.split(batch.lengths.tolist() if "tokens" in name else 1) for name, x in states.items()}
            for n, row in enumerate(batch.rows.tolist()):
                found[row] = [part[n].float().contiguous().numpy().tobytes() for part in parts.values()]
    return found


@pytest.fixture(scope="module")
def bert() -> Pass:
    return pass_of("bert")


@given(LENGTHS, st.booleans(), st.integers(0, 99))
def test_every_row_once_and_no_batch_above_its_room(bert: Pass, lengths: list[int], packed: bool, seed: int) -> None:
    made_by = Pass(bert.model, bert.anatomy, bert.need, bert.reads, packed)
    rows = np.random.default_rng(seed).permutation(len(lengths))[: max(1, len(lengths) // 2)]
    batches = made_by.batches(np.array(lengths), rows)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == sorted(rows.tolist())
    for batch in batches:
        assert batch.lengths.tolist() == [lengths[row] for row in batch.rows] and len(batch.rows) <= batch.texts
        assert ((batch.padded - batch.lengths) <= STEP - packed).all() and not (batch.padded % STEP).any()
        if packed:
            tiny = batch.lengths.max() <= STEP
            assert tiny == (batch.lengths.min() <= STEP)  # a text's own length alone says in which company it is
            assert batch.lengths.sum() <= batch.room == BUDGET and batch.texts == BUDGET // (TINY if tiny else STEP)
            assert batch.computed.tokens == BUDGET
        else:
            assert len(set(batch.padded)) == 1 and len(batch.rows) <= batch.texts == BUDGET // batch.padded[0]
            assert (batch.lengths < batch.padded).all()  # so there is always a mask


@given(st.lists(st.integers(1, 40), min_size=200, max_size=400), st.integers(0, 3))
def test_packed_batches_are_full(bert: Pass, lengths: list[int], long: int) -> None:
    """All but the last have no room for the shortest text that comes after them, or their padded grid would be too large."""
    lengths = lengths + [500] * long
    batches = bert.batches(np.array(lengths), np.arange(len(lengths)))
    for batch, later in pairwise(batches):
        if batch.texts != later.texts:
            continue
        texts = min(batch.texts, passing.GRID * BUDGET // batch.lengths.max())
        assert len(batch.rows) == texts or batch.lengths.sum() + later.lengths.min() > batch.room
    for batch in batches:
        assert len(batch.rows) * batch.lengths.max() <= passing.GRID * BUDGET


def test_the_wider_the_model_the_fewer_tokens_go_together(bert: Pass) -> None:
    device = torch.device("cpu")

    def at_once(width: int) -> int:
        return tokens_at_once(device, replace(bert.anatomy, width=width))

    assert at_once(32) == at_once(passing.WIDE) == BUDGET
    assert at_once(2 * passing.WIDE) == BUDGET // 2 and at_once(10**9) == STEP
    for width in range(passing.WIDE, 5000, 7):
        assert (
            not at_once(width) % STEP
            and BUDGET * passing.WIDE - STEP * width < at_once(width) * width <= BUDGET * passing.WIDE
        )


@pytest.mark.parametrize("packed", [True, False])
def test_a_batch_may_be_said_to_be_smaller(bert: Pass, packed: bool) -> None:
    lengths = np.array([40, 31, 22, 7, 7, 3])
    small = replace(bert, packed=packed, most=64)
    batches = small.batches(lengths, np.arange(len(lengths)))
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(len(lengths)))
    assert all((batch.room or batch.texts * batch.padded[0]) <= 64 for batch in batches)
    (long,) = replace(bert, packed=True, most=8).batches(lengths[:1], np.arange(1))
    assert (long.room, len(long.rows)) == (40, 1)


def test_texts_of_few_tokens_fill_batches_of_their_own(bert: Pass) -> None:
    """Among longer ones there is no room for as many of them as fill a batch."""
    lengths = np.array([5] * 3000 + [20] * 300)
    batches = bert.batches(lengths, np.arange(3300))
    assert [len(batch.rows) for batch in batches] == [
        BUDGET // 20,
        300 - BUDGET // 20,
        *[BUDGET // 5] * 3,
        3000 - BUDGET // 5 * 3,
    ]


def test_a_text_longer_than_a_batch_is_one_of_its_own(bert: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passing.BUDGET, "cpu", 16)
    tokens = table([5, 37, 3, 16, 38])
    batches = bert.batches(tokens.lengths, np.arange(5))
    assert [batch.rows.tolist() for batch in batches] == [[4], [1], [3], [0, 2]]
    assert [batch.room for batch in batches] == [40, 40, 16, 16]
    together = by_row(bert, tokens, np.arange(5))
    for row in range(5):
        assert by_row(bert, tokens, np.array([row]))[row] == together[row]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert", "llama", "distilbert"])
def test_a_row_is_the_same_in_any_company(name: str, packed: bool, precision: str) -> None:
    made_by = pass_of(name, packed=packed, precision=precision)
    draw = np.random.default_rng(0)
    tokens = table(draw.integers(2, 41, 90).tolist())
    whole = by_row(made_by, tokens, np.arange(90))
    assert len({tuple(states) for states in whole.values()}) == 90
    for size in (1, 2, 7, 40):
        rows = draw.permutation(90)[:size]
        assert by_row(made_by, tokens, rows) == {row: whole[row] for row in rows.tolist()}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert", "llama", "distilbert"])
def test_so_it_is_of_long_texts_which_attention_sees_one_by_one(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LONG", 16)
    made_by, tokens = pass_of(name, precision=precision), table([40, 33, 16, 15, 17, 16, 24, 32, 2, 19, *[29] * 30])
    whole = by_row(made_by, tokens, np.arange(40))
    for rows in ([0], [1], [2], [4], [2, 5], [9, 3, 1], list(range(4, 40))):
        assert by_row(made_by, tokens, np.array(rows)) == {row: whole[row] for row in rows}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_so_it_is_where_nothing_is_padded(name: str, packed: bool) -> None:
    """transformers then makes no mask, and torch takes other kernels without one."""
    made_by, tokens = pass_of(name, packed=packed), table([16] * 64 + [15, 13, 8])
    whole = by_row(made_by, tokens, np.arange(67))
    for rows in ([0], [0, 1], [66], list(range(64)), [3, 64]):
        assert by_row(made_by, tokens, np.array(rows)) == {row: whole[row] for row in rows}


@pytest.mark.parametrize("packed", [True, False])
def test_so_it_is_of_long_texts_with_fewer_heads_of_keys(packed: bool) -> None:
    """torch then multiplies all texts by one product, whose last bits hang on how many there are."""
    model = small_model("llama")
    model.config.max_position_embeddings = 512
    made_by, tokens = pass_over(model, packed=packed), table([136] * 7 + [135, 16])
    whole = by_row(made_by, tokens, np.arange(9))
    for rows in ([0], [7], list(range(7)), [3, 7, 8]):
        assert by_row(made_by, tokens, np.array(rows)) == {row: whole[row] for row in rows}


def test_a_text_as_long_as_the_positions_has_a_copy_with_padding_beside_it() -> None:
    config = GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=40, pad_token_id=0)
    made_by = pass_over(GPT2ForSequenceClassification(config).eval(), packed=False)
    tokens = table([40, 40, 38, 40, 12])
    batches = made_by.batches(tokens.lengths, np.arange(5))
    assert [batch.texts for batch in batches] == [BUDGET // 16, BUDGET // 40 + 1]
    assert all((batch.inputs(tokens)["attention_mask"] == 0).any() for batch in batches)
    whole = by_row(made_by, tokens, np.arange(5))
    for rows in ([0], [0, 1, 3], [2]):
        assert by_row(made_by, tokens, np.array(rows)) == {row: whole[row] for row in rows}


def test_what_does_not_run_multiplies_nothing() -> None:
    model = small_model("esm")
    anatomy = find_layers(model)
    assert any("contact_head" in name for name in anatomy.idle) and looks_up(model, anatomy)


def test_what_multiplies_below_the_layers_is_passed_over_padded() -> None:
    """There products would see as many places as the company makes."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = ElectraForSequenceClassification(ElectraConfig(vocab_size=300, embedding_size=16, **sizes)).eval()
    anatomy = find_layers(model)
    assert not looks_up(model, anatomy) and not packs(model, anatomy)
    assert looks_up(small_model("electra"), find_layers(small_model("electra")))
    (row,) = check(model, tuned_layers=[1])
    assert row.path == "packed"  # its layers can be


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_so_it_is_with_two_threads_and_real_widths(precision: str) -> None:
    """Where work is shared out over threads, a text's rows lie elsewhere in other company."""
    sizes = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 12, "intermediate_size": 1536}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=300, **sizes)).eval()
    made_by = pass_over(model, precision=precision)
    tokens = table([*range(3, 63), *range(100, 400, 30)])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        whole = by_row(made_by, tokens, np.arange(70))
        for rows in ([5], [60, 61], range(0, 70, 3)):
            assert by_row(made_by, tokens, np.array(rows)) == {row: whole[row] for row in rows}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("long", [packing.LONG, 16])
@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert", "llama", "distilbert", "roberta", "electra", "qwen2"])
def test_packed_is_padded(name: str, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LONG", long)
    made_by = pass_of(name)
    assert packs(made_by.model, made_by.anatomy)
    tokens = table([9, 33, 17, 2, 40, 24, 8])
    need = Need((1,), head=made_by.reads != "all")
    both = []
    for packed in (True, False):
        way = Pass(made_by.model, made_by.anatomy, need, made_by.reads, packed, narrow=made_by.narrow)
        both.append(by_row(way, tokens, np.arange(7)))
    for row in range(7):
        for one, other in zip(both[0][row], both[1][row], strict=True):
            np.testing.assert_allclose(np.frombuffer(one, "f4"), np.frombuffer(other, "f4"), atol=1e-5)


def test_a_type_that_cannot_be_packed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("bert")
    anatomy = find_layers(model)
    assert packs(model, anatomy)
    mixing = model.bert.encoder.layer[1].output.dense
    mixing.register_forward_pre_hook(lambda module, args: (args[0] + args[0].mean(1, keepdim=True),))
    assert not packs(model, anatomy)  # what looks beyond its token
    mixing._forward_pre_hooks.clear()
    monkeypatch.setattr(model.config, "_attn_implementation", "eager")
    assert not packs(model, anatomy)


def test_the_products_of_a_packed_pass_see_one_number_of_tokens(bert: Pass) -> None:
    shapes: dict[str, set[int]] = {}
    hooks = [
        module.register_forward_hook(
            lambda module, args, out, name=name: shapes.setdefault(name, set()).add(args[0].shape[:-1].numel())
        )
        for name, module in torch.nn.ModuleList(bert.anatomy.layers(bert.model)).named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    tokens = table(np.random.default_rng(0).integers(1, 41, 100).tolist())
    for rows in ([0], [3, 4, 5], range(100)):
        by_row(bert, tokens, np.array(rows))
    for hook in hooks:
        hook.remove()
    assert bert.narrow and {BUDGET} in shapes.values() and {BUDGET // STEP, BUDGET // TINY} in shapes.values()
    assert len(set(map(tuple, shapes.values()))) == 2
