"""The hidden states of an example are bitwise identical in every batch, and whether layers are streamed or in memory.

Their selection has the predicted size on disk. Batches contain every example once.
"""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
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

from frostline.frozen import forward_pass as passing
from frostline.frozen.exactness import check, packed_pass_is_exact
from frostline.frozen.forward_pass import (
    TINY,
    TOKENS,
    ForwardPass,
    Rows,
    StateSelection,
    embeddings_are_lookups,
    selection_for,
    tokens_per_batch,
)
from frostline.frozen.hidden_states import write_shard
from frostline.model import packing
from frostline.model.anatomy import find_layers
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.model.tokens import Tokens
from frostline.model.weights import is_unread
from frozen.passes import ALL, Cache, bytes_by_row, bytes_of, layers_in_memory, pass_over, ragged_tokens, random_tokens
from small_models import both, sharded, small_model

WIDTH = 64


@pytest.mark.parametrize(
    "selection",
    [
        ALL,
        StateSelection((2,), head=False),
        StateSelection((), head=True),
        StateSelection((0, 1, 2, 3, 4), head=False),
        StateSelection((1,), head=True, pooled=(0, 4)),
    ],
)
def test_the_predicted_size_is_the_size_on_disk(cache: Cache, selection: StateSelection) -> None:
    tokens = ragged_tokens(10)
    cache.load(tokens, range(10), selection)
    (shard,) = cache.shards
    found = sum(map(len, bytes_of(shard).values()))
    assert found == selection.bytes(10, int(tokens.offsets[-1]), WIDTH) + 8  # offsets have one more than examples
    assert found < shard.stat().st_size < found + 1000


def largest_part(selection: StateSelection, limit: int, *, width: int = 8) -> StateSelection:
    """The largest part that fits for 10 examples with 100 tokens in total."""
    return selection.largest_part(lambda part: part.bytes(10, 100, width) <= limit)


def test_pooled_vectors_are_dropped_before_a_cut_and_stay_if_no_cut_is_saved() -> None:
    selection, one = StateSelection((1, 3), head=True, pooled=(0, 1, 2)), StateSelection((3,), head=True)
    assert largest_part(selection, selection.bytes(10, 100, 8) - 1) == StateSelection((1, 3), head=True)
    assert largest_part(selection, one.bytes(10, 100, 8)) == one
    without_cuts = StateSelection((), head=True, pooled=(0, 1, 2))
    assert largest_part(selection, one.bytes(10, 100, 8) - 1) == without_cuts  # it takes less than a cut


@given(st.sets(st.integers(0, 12)), st.booleans(), st.integers(0, 10**7), st.integers(1, 99), st.integers(1, 999))
def test_the_largest_part_has_as_many_of_the_last_cuts_as_fit(
    cuts: set[int], head: bool, limit: int, examples: int, tokens: int
) -> None:
    selection = StateSelection(tuple(sorted(cuts)), head)

    def size(part: StateSelection) -> int:
        return part.bytes(examples, tokens, 64)

    part = selection.largest_part(lambda part: size(part) <= limit)
    if part == StateSelection((), head=False):
        assert size(StateSelection((), head)) > limit or not cuts or not head
        assert not cuts or size(StateSelection(selection.cuts[-1:], head)) > limit
        return
    assert part.head == head and part.cuts == selection.cuts[len(cuts) - len(part.cuts) :]
    assert size(part) <= limit
    if part != selection:
        assert size(StateSelection(selection.cuts[len(cuts) - len(part.cuts) - 1 :], head)) > limit


@pytest.mark.parametrize(
    "cuts, reads, selection",
    [
        ((4, 2, 0), "first", StateSelection((0, 2), head=True)),
        ((4, 2, 2), "last", StateSelection((2,), head=True)),
        ((4, 2), "all", StateSelection((2, 4), head=False)),
        ((3, 1), "first", StateSelection((1, 3), head=False)),
        ((4,), "first", StateSelection((), head=True)),
        ((), "first", StateSelection((), head=False)),
    ],
)
def test_selection_for(bert: tuple[Any, Any], cuts: tuple[int, ...], reads: str, selection: StateSelection) -> None:
    assert selection_for(cuts, bert[1], reads) == selection


BUDGET = passing.TOKENS["cpu"]
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=300)


@pytest.fixture(scope="module")
def over_bert() -> ForwardPass:
    return pass_over(small_model("bert"))


@given(LENGTHS, st.booleans(), st.integers(0, 99))
def test_batches_contain_every_row_once_and_respect_their_capacity(
    over_bert: ForwardPass, lengths: list[int], packed: bool, seed: int
) -> None:
    rows = np.random.default_rng(seed).permutation(len(lengths))[: max(1, len(lengths) // 2)]
    batches = replace(over_bert, packed=packed).batches(np.array(lengths), rows)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == sorted(rows.tolist())
    for batch in batches:
        padded = batch.padded_lengths
        assert batch.lengths.tolist() == [lengths[row] for row in batch.rows] and len(batch.rows) <= batch.examples
        assert ((padded - batch.lengths) <= LENGTH_MULTIPLE - packed).all() and not (padded % LENGTH_MULTIPLE).any()
        if packed:
            tiny = batch.lengths.max() <= LENGTH_MULTIPLE
            assert tiny == (
                batch.lengths.min() <= LENGTH_MULTIPLE
            )  # an example's own length decides in which batches it is
            assert batch.lengths.sum() <= batch.capacity == BUDGET
            assert batch.examples == BUDGET // (TINY if tiny else LENGTH_MULTIPLE)
            assert batch.computed_tokens == BUDGET
        else:
            assert len(set(padded)) == 1 and len(batch.rows) <= batch.examples == BUDGET // padded[0]
            assert (batch.lengths < padded).all()  # every example has padding


@given(st.lists(st.integers(1, 40), min_size=200, max_size=400), st.integers(0, 3))
def test_packed_batches_are_full(over_bert: ForwardPass, lengths: list[int], long: int) -> None:
    """The shortest example of the next batch would exceed the capacity of a batch or of its padded grid."""
    lengths = lengths + [500] * long
    batches = over_bert.batches(np.array(lengths), np.arange(len(lengths)))
    for batch, later in pairwise(batches):
        if batch.examples != later.examples:
            continue
        most = min(batch.examples, passing.GRID * BUDGET // batch.lengths.max())
        assert len(batch.rows) == most or batch.lengths.sum() + later.lengths.min() > batch.capacity
    for batch in batches:
        assert len(batch.rows) * batch.lengths.max() <= passing.GRID * BUDGET


def test_a_wider_model_has_fewer_tokens_in_a_batch(over_bert: ForwardPass) -> None:
    def tokens(width: int) -> int:
        return tokens_per_batch(torch.device("cpu"), replace(over_bert.anatomy, width=width))

    assert tokens(32) == tokens(passing.WIDE) == BUDGET
    assert tokens(2 * passing.WIDE) == BUDGET // 2 and tokens(10**9) == LENGTH_MULTIPLE
    for width in range(passing.WIDE, 5000, 7):
        assert not tokens(width) % LENGTH_MULTIPLE
        assert BUDGET * passing.WIDE - LENGTH_MULTIPLE * width < tokens(width) * width <= BUDGET * passing.WIDE


def test_a_gpu_with_more_free_memory_has_more_tokens_in_a_batch(
    over_bert: ForwardPass, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gigabytes, times in ((1, 1), (31, 1), (32, 2), (67, 4), (180, 4)):
        monkeypatch.setattr(passing, "_free_at_first", lambda device, free=gigabytes << 30: free)
        assert tokens_per_batch(torch.device("cuda"), over_bert.anatomy) == times * passing.TOKENS["cuda"]


@pytest.mark.parametrize("packed", [True, False])
def test_max_tokens_limits_a_batch(over_bert: ForwardPass, packed: bool) -> None:
    lengths = np.array([40, 31, 22, 7, 7, 3])
    batches = replace(over_bert, packed=packed, max_tokens=64).batches(lengths, np.arange(len(lengths)))
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(len(lengths)))
    assert all((batch.capacity or batch.examples * batch.padded_lengths[0]) <= 64 for batch in batches)
    (long,) = replace(over_bert, packed=True, max_tokens=8).batches(lengths[:1], np.arange(1))
    assert (long.capacity, len(long.rows)) == (40, 1)


def test_an_example_with_more_tokens_than_the_budget_has_its_own_batch(over_bert: ForwardPass) -> None:
    small = replace(over_bert, max_tokens=16)
    tokens = random_tokens([5, 37, 3, 16, 38])
    batches = small.batches(tokens.lengths, np.arange(5))
    assert [batch.rows.tolist() for batch in batches] == [[4], [1], [3], [0, 2]]
    assert [batch.capacity for batch in batches] == [40, 40, 16, 16]
    together = bytes_by_row(small, tokens, np.arange(5))
    for row in range(5):
        assert bytes_by_row(small, tokens, [row])[row] == together[row]


slow = pytest.mark.slow


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


@pytest.mark.parametrize(
    "name, packed, precision",
    [
        ("bert", True, "float32"),
        ("gpt2", False, "float32"),
        ("llama", True, "bfloat16"),
        pytest.param("modernbert", True, "float32", marks=slow),
        pytest.param("modernbert", False, "bfloat16", marks=slow),
    ],
)
def test_hidden_states_do_not_depend_on_the_batch(
    models: dict[str, Any], name: str, packed: bool, precision: str
) -> None:
    generator = np.random.default_rng(0)
    tokens = random_tokens(generator.integers(2, 41, 90).tolist())
    forward_pass = pass_over(models[name], packed=packed, precision=precision)
    assert len({tuple(states) for states in bytes_by_row(forward_pass, tokens, np.arange(90)).values()}) == 90
    assert_independent_of_batch(forward_pass, tokens, *(generator.permutation(90)[:size] for size in (1, 2, 7, 40)))


@pytest.mark.parametrize(
    "name, precision", [("bert", "bfloat16"), ("llama", "float32"), pytest.param("modernbert", "float32", marks=slow)]
)
def test_hidden_states_of_long_examples_do_not_depend_on_the_batch(
    models: dict[str, Any], name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_SHORT", 15)
    tokens = random_tokens([40, 33, 16, 15, 17, 16, 24, 32, 2, 19, *[29] * 30])
    subsets = ([0], [1], [2], [4], [2, 5], [9, 3, 1], list(range(4, 40)))
    assert_independent_of_batch(pass_over(models[name], precision=precision), tokens, *subsets)


@pytest.mark.parametrize(("name", "packed"), [("bert", False), ("llama", True)])
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
    tokens = random_tokens([*range(3, 63, 4), *range(100, 400, 60)])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_independent_of_batch(forward_pass, tokens, [5, 16, 17])
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
    (row,) = check(model, tune=[1])
    assert row.batches == "packed"  # the layers themselves can be packed


@pytest.mark.parametrize(("name", "max_short"), [("bert", 127), ("gpt2", 15), ("modernbert", 15), ("llama", 127)])
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
    return bytes_of(shard)


@pytest.mark.parametrize(("model_type", "dtype"), [("bert", torch.float32), ("llama", torch.bfloat16)], ids=str)
def test_the_same_bytes(model_type: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """For weights in float32 and in bfloat16, packed and padded, in two precisions, at cuts, for the head and for probes."""
    loaded, streamed = both(sharded(tmp_path / "model", model_type, dtype=dtype))
    every = StateSelection((0, 1, 3), head=False, pooled=(0, 1, 2, 3, 4))
    for n, selection in enumerate((None, every, StateSelection((2,), head=False))):
        for packed in (True, False):
            precision = "bfloat16" if n == 0 else "float32"
            options = {"packed": packed, "precision": precision, "selection": selection}
            expected, found = (
                arrays(one.model, np.arange(COUNT), Path(tempfile.mkdtemp(dir=tmp_path)), **options)
                for one in (loaded, streamed)
            )
            assert expected == found


def test_one_layer_is_in_memory_at_a_time(tmp_path: Path) -> None:
    _, streamed = both(sharded(tmp_path / "model", "bert"))
    present, lower = layers_in_memory(streamed.model, streamed.anatomy)
    (tmp_path / "cache").mkdir()
    arrays(streamed.model, np.arange(COUNT), tmp_path / "cache")
    assert {*present} == {(3,), (0, 3), (1, 3), (2, 3)} and all(map(is_unread, lower))
