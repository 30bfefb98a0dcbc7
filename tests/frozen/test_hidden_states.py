"""Kept hidden states: the same bits in any company, computed once, and nothing damaged or half-written is believed."""

import dataclasses
import errno
import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline.frozen.forward_pass
import frostline.frozen.hidden_states
from frostline import FrostlineError
from frostline.frozen.cut import cut_at
from frostline.frozen.forward_pass import Need, Pass
from frostline.frozen.hidden_states import Recipe, cache_folder, damage, keep, not_kept, recipes_like
from frostline.model.anatomy import find_layers
from frostline.model.tokens import Tokens
from small_models import FIRST_WORD, small_model

WIDTH = 64
ALL = Need((1, 2, 4), head=True)
RECIPE = Recipe("m", "w", "float32", "sdpa", "cpu", 1, "AVX2", "2", "5", head_reads="first")


@pytest.fixture(scope="module")
def model():
    return small_model("bert")


@pytest.fixture(scope="module")
def anatomy(model):
    return find_layers(model)


def make_tokens(count=40, *, seed=0, longest=40):
    """Random texts of 1 to ``longest`` tokens, no two alike."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, longest + 1, count)
    ids = draw.integers(FIRST_WORD, 300, lengths.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens({"input_ids": ids}, offsets, {"input_ids": 0}, np.zeros(count, np.int32))


class Keeper:
    """``keep`` into one folder, with how many rows each call found or computed, and what it said."""

    def __init__(self, folder, model, anatomy):
        self.folder, self.model, self.anatomy = folder, model, anatomy
        self.passed, self.said = [], []

    def __call__(self, tokens, rows, need=ALL, recipe=RECIPE):
        self.passed, self.said = [], []
        made_by = Pass(self.model, self.anatomy, need, recipe.head_reads, recipe.packed)
        rows = np.asarray(rows, np.int64)
        return keep(
            made_by, tokens, rows, recipe, folder=self.folder, progress=self.passed.append, warn=self.said.append
        )

    @property
    def computed(self):
        """Rows that the last call computed: the first report is of those that were there."""
        return sum(self.passed[1:])

    @property
    def shards(self):
        return sorted(file.parent for file in self.folder.glob("*/*/shard.json"))

    def times(self):
        return {
            file: (file.stat().st_mtime_ns, file.stat().st_ino) for shard in self.shards for file in shard.iterdir()
        }


@pytest.fixture
def keeper(tmp_path, model, anatomy):
    return Keeper(tmp_path / "kept", model, anatomy)


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(frostline.frozen.hidden_states, "SHARD_ROWS", 7)
    monkeypatch.setitem(frostline.frozen.forward_pass.BUDGET, "cpu", 200)


def row_by_row(states, rows):
    """Bytes of each row's states, at every cut and at the head."""
    return [
        [states.tokens(cut, np.array([row])).numpy().tobytes() for cut in states.need.cuts]
        + [states.head(np.array([row])).numpy().tobytes()] * states.need.head
        for row in rows
    ]


def test_states_are_those_of_the_model(keeper, model, anatomy):
    """Against a forward of each text alone, without padding."""
    tokens = make_tokens()
    states = keeper(tokens, range(40))
    for row in range(40):
        alone = tokens.batch(np.array([row]))
        with torch.no_grad():
            hidden = model(**alone, output_hidden_states=True).hidden_states
        for cut in ALL.cuts:
            assert (states.tokens(cut, np.array([row])) - hidden[cut]).abs().max() < 1e-5
        assert (states.head(np.array([row])) - hidden[4][:, :1]).abs().max() < 1e-5


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("path", ["one shard", "many shards"])
def test_a_row_is_the_same_in_any_company(tmp_path, model, anatomy, request, path, packed):
    if path == "many shards":
        request.getfixturevalue("small_shards")
    tokens, recipe = make_tokens(), dataclasses.replace(RECIPE, packed=packed)
    whole = row_by_row(Keeper(tmp_path / "whole", model, anatomy)(tokens, range(40), recipe=recipe), range(40))
    assert len({tuple(states) for states in whole}) == 40
    draw = np.random.default_rng(1)
    for n, size in enumerate([1, 2, 17, 40]):
        rows = draw.permutation(40)[:size]
        some = Keeper(tmp_path / f"some {n}", model, anatomy)(tokens, rows, recipe=recipe)
        assert row_by_row(some, rows) == [whole[row] for row in rows]
    growing = Keeper(tmp_path / "growing", model, anatomy)
    for rows in (range(30, 35), range(10), range(40)):
        states = growing(tokens, rows, recipe=recipe)
        assert row_by_row(states, rows) == [whole[row] for row in rows]
    assert growing.computed == 40 - 15


def test_other_tables_meet_the_same_rows(keeper):
    """A row is known by its tokens, wherever it stands."""
    tokens, more = make_tokens(10), make_tokens(5, seed=1)
    first = row_by_row(keeper(tokens, range(10)), range(10))
    states = keeper(Tokens.join([more, tokens]), range(15))
    assert keeper.computed == 5
    assert row_by_row(states, range(5, 15)) == first


def test_rows_with_the_same_tokens_are_computed_once(keeper):
    tokens = make_tokens(10)
    twice = Tokens.join([tokens, tokens])
    states = keeper(twice, range(20))
    assert sum(np.load(shard / "keys.npy").shape[0] for shard in keeper.shards) == 10
    assert row_by_row(states, range(10)) == row_by_row(states, range(10, 20))


def test_reuse_computes_nothing(keeper):
    tokens = make_tokens()
    first = row_by_row(keeper(tokens, range(40)), range(40))
    assert (keeper.passed[0], keeper.computed) == (0, 40)
    before = keeper.times()
    for need in (ALL, Need((2,), head=False), Need((), head=True)):
        states = keeper(tokens, range(40), need)
        assert keeper.passed == [40] and keeper.times() == before and not keeper.said
    assert row_by_row(keeper(tokens, range(40)), range(40)) == first
    assert states.head(np.arange(40)).shape == (1, 40, WIDTH)


def test_a_larger_need_is_computed_beside_the_smaller(keeper):
    tokens = make_tokens(10)
    keeper(tokens, range(10), Need((2,), head=False))
    states = keeper(tokens, range(10), Need((2, 3), head=False))
    assert keeper.computed == 10 and len(keeper.shards) == 2
    assert states.tokens(3, np.arange(10)).shape[1] == tokens.offsets[-1]


def test_three_vectors_of_each_text_are_those_of_its_tokens(keeper):
    tokens, rows = make_tokens(), np.random.default_rng(3).permutation(40)[:25]
    states = keeper(tokens, range(40), Need((1, 2), head=False, pooled=(1, 2, 4)))
    assert keeper.computed == 40
    for layer in (1, 2):
        got = states.pooled(layer, rows)
        assert got.shape == (25, 3, WIDTH)
        for row, (first, mean, last) in zip(rows, got, strict=True):
            of_row = states.tokens(layer, np.array([row]))[0]
            assert torch.equal(first, of_row[0]) and torch.equal(last, of_row[-1])
            torch.testing.assert_close(mean, of_row.mean(0))
    assert torch.equal(states.pooled(4, rows)[:, 0], keeper(tokens, range(40)).head(rows)[0])


@pytest.mark.usefixtures("small_shards")
def test_rows_of_several_shards_come_back_in_their_order(keeper):
    tokens = make_tokens()
    states = keeper(tokens, range(40))
    assert len(keeper.shards) == 6
    draw = np.random.default_rng(2)
    for size in (1, 3, 16, 40):
        rows = draw.permutation(40)[:size]
        for cut in ALL.cuts:
            alone = [states.tokens(cut, np.array([row]))[0] for row in rows]
            assert torch.equal(states.tokens(cut, rows), torch.cat(alone)[None])
        assert torch.equal(states.head(rows)[0], torch.cat([states.head(np.array([row]))[0] for row in rows]))


@pytest.mark.parametrize("reads", ["first", "last"])
def test_head_is_the_token_that_the_head_looks_at(keeper, reads):
    tokens = make_tokens(12)
    states = keeper(tokens, range(12), recipe=dataclasses.replace(RECIPE, head_reads=reads))
    for row in range(12):
        whole = states.tokens(4, np.array([row]))[0]
        assert torch.equal(states.head(np.array([row]))[0, 0], whole[0 if reads == "first" else -1])


def test_the_last_token_is_told_from_padding_as_transformers_does(tmp_path):
    """By its number: where the end of text pads, too, a text that ends in it is read one token before."""
    model = small_model("gpt2")
    anatomy, tokens = find_layers(model), make_tokens(6)
    tokens.inputs["input_ids"][tokens.offsets[1:4] - 1] = model.config.pad_token_id
    recipe = dataclasses.replace(RECIPE, head_reads="last")
    states = Keeper(tmp_path, model, anatomy)(tokens, range(6), Need((), head=True), recipe)
    rows = np.arange(6)
    with torch.no_grad():
        truth = model(**tokens.batch(rows)).logits
        with cut_at(model, anatomy, 4) as upper:
            logits = upper(tokens.one_token(rows, last=True), states.head(rows))
    assert (logits - truth).abs().max() < 1e-5


def test_a_text_as_long_as_the_model_takes(tmp_path):
    """The pass pads to a multiple of 8, but not beyond the model's positions."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
    model = BertForSequenceClassification(BertConfig(vocab_size=300, max_position_embeddings=29, **sizes)).eval()
    tokens = make_tokens(5, longest=29)
    tokens = Tokens.join([tokens, tokens_of_length(29)])
    states = Keeper(tmp_path, model, find_layers(model))(tokens, range(6))
    assert states.tokens(4, np.array([5])).shape == (1, 29, WIDTH)


def tokens_of_length(length):
    ids = np.arange(FIRST_WORD, FIRST_WORD + length, dtype=np.int32)
    return Tokens({"input_ids": ids}, np.array([0, length]), {"input_ids": 0}, np.zeros(1, np.int32))


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


DAMAGE = {
    "a bit of the states": lambda shard: flip(shard / "tokens-2.npy"),
    "a bit of the keys": lambda shard: flip(shard / "keys.npy"),
    "the end of a file": lambda shard: os.truncate(shard / "head.npy", 200),
    "a file": lambda shard: (shard / "offsets.npy").unlink(),
    "the record": lambda shard: (shard / "shard.json").write_text("{"),
    "what the record says": lambda shard: (shard / "shard.json").write_text("[]"),
    "all of the keys": lambda shard: os.truncate(shard / "keys.npy", 0),
    "all of the offsets": lambda shard: os.truncate(shard / "offsets.npy", 0),
    "all of the record": lambda shard: os.truncate(shard / "shard.json", 0),
    "what a record holds": lambda shard: (shard / "shard.json").write_text("{}"),
    "a cut in the record": lambda shard: (shard / "shard.json").write_text(
        (shard / "shard.json").read_text().replace("4\n", "3\n", 1)
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_said_and_mended(keeper, what):
    tokens = make_tokens(12)
    truth = row_by_row(keeper(tokens, range(12)), range(12))
    (shard,) = keeper.shards
    assert damage(shard) == ""
    before = (shard / "shard.json").read_text()
    DAMAGE[what](shard)
    if what == "a cut in the record":
        assert (shard / "shard.json").read_text() != before
    assert "is not what was written" in damage(shard) and str(shard) in damage(shard)
    guess = not_kept(tokens, np.arange(12), ALL, RECIPE, folder=keeper.folder)  # before anything is verified
    assert len(guess) <= 12 and shard.exists()
    assert row_by_row(keeper(tokens, range(12)), range(12)) == truth
    assert keeper.computed == 12
    (sentence,) = keeper.said
    assert "damaged" in sentence and str(shard) in sentence
    assert damage(shard) == ""
    keeper(tokens, range(12))
    assert keeper.passed == [12] and not keeper.said


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "7", '{"colour": "red"}'])
def test_a_damaged_recipe_is_passed_over_and_written_anew(keeper, content):
    tokens = make_tokens(3)
    keeper(tokens, range(3))
    (file,) = keeper.folder.glob("*/recipe.json")
    file.write_text(content)
    assert list(recipes_like(RECIPE, folder=keeper.folder)) == []
    keeper(tokens, range(3))
    assert not keeper.computed and list(recipes_like(RECIPE, folder=keeper.folder)) == [RECIPE]
    assert sorted(path.name for path in file.parent.iterdir() if path.is_file()) == ["lock", "recipe.json"]


def test_what_a_killed_process_left_is_removed(keeper):
    tokens = make_tokens(5)
    leftover = keeper.folder / RECIPE.key / "0123.part"
    leftover.mkdir(parents=True)
    (leftover / "tokens-2.npy").write_bytes(b"half")
    truth = row_by_row(keeper(tokens, range(5)), range(5))
    assert not leftover.exists() and len(keeper.shards) == 1
    assert len(truth) == 5


def test_nobody_can_change_what_is_kept(keeper):
    tokens = make_tokens(5)
    states = keeper(tokens, range(5))
    states._shards[0].array("tokens-2").fill_(0)
    assert damage(keeper.shards[0]) == ""


@pytest.mark.parametrize(
    "need",
    [ALL, Need((2,), head=False), Need((), head=True), Need((0, 1, 2, 3, 4), head=False), Need((1,), True, (0, 4))],
)
def test_need_knows_its_bytes(keeper, need):
    tokens = make_tokens(30)
    keeper(tokens, range(30), need)
    on_disk = sum(file.stat().st_size for shard in keeper.shards for file in shard.iterdir())
    beside = on_disk - need.bytes(30, int(tokens.offsets[-1]), WIDTH)
    assert 0 < beside < 2500  # headers of 128 bytes, and the record
    states = [file for shard in keeper.shards for file in shard.glob("*.npy")]
    assert beside - 8 == 128 * len(states) + sum((shard / "shard.json").stat().st_size for shard in keeper.shards)


def test_need_within_a_limit_gives_up_what_is_farthest_from_the_head():
    need = Need((1, 3, 5), head=True)
    whole = need.bytes(10, 100, 8)
    one = 100 * 8 * 4
    assert need.within(lambda part: part.bytes(10, 100, 8) <= whole) == need
    assert need.within(lambda part: part.bytes(10, 100, 8) <= whole - 1) == Need((3, 5), head=True)
    assert need.within(lambda part: part.bytes(10, 100, 8) <= whole - one - 1) == Need((5,), head=True)
    assert need.within(lambda part: part.bytes(10, 100, 8) <= 10 * 8 * 4 + 24 * 10) == Need((), head=True)
    assert need.within(lambda part: part.bytes(10, 100, 8) <= 0) == Need((), head=False)


def test_vectors_of_texts_go_where_a_cut_would_have_to_and_stay_where_none_is_saved():
    need = Need((1, 3), head=True, pooled=(0, 1, 2))

    def kept(limit):
        return need.within(lambda part: part.bytes(10, 100, 8) <= limit)

    assert kept(need.bytes(10, 100, 8) - 1) == Need((1, 3), head=True)
    one = Need((3,), head=True)
    assert kept(one.bytes(10, 100, 8)) == one
    assert kept(one.bytes(10, 100, 8) - 1) == Need((), head=True, pooled=(0, 1, 2))  # less than a cut


@given(st.sets(st.integers(0, 12)), st.booleans(), st.integers(0, 10**7), st.integers(1, 99), st.integers(1, 999))
def test_need_within_is_the_largest_end_that_fits(cuts, head, limit, rows, tokens):
    need = Need(tuple(sorted(cuts)), head)
    part = need.within(lambda part: part.bytes(rows, tokens, 64) <= limit)
    if part == Need((), head=False):
        assert Need((), head).bytes(rows, tokens, 64) > limit or not need.cuts or not head
        assert not need.cuts or Need(need.cuts[-1:], head).bytes(rows, tokens, 64) > limit
        return
    assert part.head == head and part.cuts == need.cuts[len(need.cuts) - len(part.cuts) :]
    assert part.bytes(rows, tokens, 64) <= limit
    if part != need:
        larger = Need(need.cuts[len(need.cuts) - len(part.cuts) - 1 :], head)
        assert larger.bytes(rows, tokens, 64) > limit


def full(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def over_quota(*args):
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("where, what", [("posix_fallocate", full), ("fsync", full), ("posix_fallocate", over_quota)])
@pytest.mark.usefixtures("small_shards")
def test_a_full_disk(keeper, monkeypatch, where, what):
    """What was published stays; nothing half-written does; the next call goes on."""
    tokens = make_tokens(21)
    truth = row_by_row(keeper(tokens, range(7)), range(7))
    with monkeypatch.context() as disk:
        disk.setattr(os, where, what)
        with pytest.raises(FrostlineError, match=r"The disk is full: .*`frostline cache rm`.* --cache-limit"):
            keeper(tokens, range(21))
    assert len(keeper.shards) == 1 and not list(keeper.folder.glob("*/*.part"))
    assert row_by_row(keeper(tokens, range(21)), range(7)) == truth
    assert keeper.computed == 14


def test_a_disk_that_is_full_from_the_start(keeper, monkeypatch):
    monkeypatch.setattr(frostline.frozen.hidden_states.Path, "write_text", full)
    with pytest.raises(FrostlineError, match="The disk is full"):
        keeper(make_tokens(3), range(3))


def test_other_trouble_with_the_disk_is_no_full_disk(keeper, monkeypatch):
    def broken(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with pytest.raises(OSError, match="Input/output error"):
        keeper(make_tokens(3), range(3))
    assert not list(keeper.folder.glob("*/*.part"))


def test_the_recipe_key_knows_every_field_but_the_name():
    for field in dataclasses.fields(Recipe):
        value = getattr(RECIPE, field.name)
        other = dataclasses.replace(RECIPE, **{field.name: value + 1 if isinstance(value, int) else value + "x"})
        assert (other.key == RECIPE.key) == (field.name == "model"), field.name


def test_other_recipes_do_not_meet(keeper):
    tokens = make_tokens(5)
    keeper(tokens, range(5))
    keeper(tokens, range(5), recipe=dataclasses.replace(RECIPE, weights="other"))
    assert keeper.computed == 5
    recipes = [json.loads(file.read_text())["weights"] for file in keeper.folder.glob("*/recipe.json")]
    assert sorted(recipes) == ["other", "w"]


def test_the_cache_is_where_hugging_face_keeps_assets():
    assert cache_folder().is_relative_to(os.environ["HF_ASSETS_CACHE"])
    assert {"frostline", "hidden-states"} <= set(cache_folder().parts)
