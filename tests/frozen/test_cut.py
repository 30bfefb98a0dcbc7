"""The cut model against the uncut one: logits, gradients and five steps of training; and nothing of it stays behind."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
import torch.nn.functional as F

import frostline.frozen.cut as cut_module
import frostline.model.packing as packing_module
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packing import packable
from frostline.model.pretrained import set_train_mode
from small_models import small_batch, small_model

TYPES = ["bert", "roberta", "electra", "distilbert", "modernbert", "gpt2", "llama", "qwen2", "qwen3", "mistral"]
L = 4


@contextmanager
def path_of(model, path):
    """Packed or padded batches."""
    with packable(model) if path == "packed" else nullcontext() as packing:
        assert path == "padded" or packing
        yield packing


def states_of(model, anatomy, batch, packing=None):
    """What a forward of this very batch gives after 0 .. L layers, ``[1, T, D]`` each."""
    seen, mask = {}, batch["attention_mask"].bool()

    def tap(n, hidden):
        seen[n] = hidden[:, : int(mask.sum())] if packing else hidden[mask][None]

    with torch.no_grad(), cut_at(model, anatomy, None, packing=packing, tap=tap) as whole:
        whole(batch)
    return seen


def train_only(model, names):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return {name: p for name, p in model.named_parameters() if name in names}


def loss_of(logits):
    return F.cross_entropy(logits, torch.arange(len(logits)) % 3)


def logits_and_gradients(logits, trained):
    gradients = torch.autograd.grad(loss_of(logits), list(trained.values()))
    return logits.detach(), dict(zip(trained, gradients, strict=True))


def furthest(one, other):
    """The largest difference, relative to the largest value."""
    return float(max((a - b).abs().max() for a, b in zip(one, other, strict=True)) / max(b.abs().max() for b in other))


@pytest.mark.parametrize("cut", range(L + 1))
@pytest.mark.parametrize("model_type", TYPES)
def test_cut_is_uncut(model_type, cut):
    model = small_model(model_type)
    batch = small_batch(model)  # ragged, longer than the sliding windows
    anatomy = find_layers(model, batch)
    trained = train_only(model, anatomy.tuned(L - cut))
    logits, gradients = logits_and_gradients(model(**batch).logits, trained)
    states = states_of(model, anatomy, batch)[cut]
    with cut_at(model, anatomy, cut) as upper:
        padded, padded_gradients = logits_and_gradients(upper(batch, states), trained)
    assert torch.equal(padded, logits)
    for name, gradient in gradients.items():
        assert torch.equal(padded_gradients[name], gradient), name
    with path_of(model, "packed") as packing, cut_at(model, anatomy, cut, packing=packing) as upper:
        packed, packed_gradients = logits_and_gradients(upper(batch, states), trained)
        assert bool(packing.calls) == (cut < L)
    assert furthest([packed], [logits]) < 1e-6
    assert furthest(packed_gradients.values(), gradients.values()) < 1e-6


@pytest.mark.parametrize("path", ["padded", "packed"])
@pytest.mark.parametrize("model_type", TYPES)
def test_nothing_cut_is_the_whole_model(model_type, path):
    model = small_model(model_type)
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    trained = train_only(model, anatomy.tuned(None))
    logits, gradients = logits_and_gradients(model(**batch).logits, trained)
    with path_of(model, path) as packing, cut_at(model, anatomy, None, packing=packing) as whole:
        others, other_gradients = logits_and_gradients(whole(batch), trained)
    assert furthest([others], [logits]) < 1e-6
    assert furthest(other_gradients.values(), gradients.values()) < 1e-6


@pytest.mark.parametrize("model_type, last", [("bert", False), ("roberta", False), ("gpt2", True), ("llama", True)])
def test_one_token_is_enough_where_the_head_looks_at_no_other(model_type, last):
    model = small_model(model_type)
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    lengths = batch["attention_mask"].sum(1)
    at = lengths.cumsum(0) - 1 if last else lengths.cumsum(0) - lengths
    states = states_of(model, anatomy, batch)[L][:, at]
    rows = torch.arange(len(lengths))
    one = {name: x[rows, lengths - 1 if last else 0][:, None] for name, x in batch.items()}
    with torch.no_grad():
        truth = model(**batch).logits
        with cut_at(model, anatomy, L) as upper:
            assert furthest([upper(one, states)], [truth]) < 1e-6


@pytest.mark.parametrize("path", ["padded", "packed"])
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "electra", "gpt2"])
def test_five_steps_on_kept_states_are_five_steps_without(model_type, k, path):
    """With dropout on in what is trained. The steps are the same to the last bit: both run the same shapes."""
    kept = five_losses(model_type, k, path, kept=True)
    assert kept == five_losses(model_type, k, path, kept=False)
    assert len(set(kept)) == 5
    model = small_model(model_type)
    dropouts = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    assert max(dropouts) > 0


def five_losses(model_type, k, path, *, kept):
    model = small_model(model_type)
    batches = [small_batch(model, seed=seed) for seed in range(5)]
    anatomy = find_layers(model, batches[0])
    names = anatomy.tuned(k)
    trained = train_only(model, names)
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3)
    losses = []
    with path_of(model, path) as packing:
        cut = L - k
        states = [states_of(model, anatomy, batch, packing)[cut] for batch in batches] if kept else [None] * 5
        set_train_mode(model, anatomy, names)
        with torch.random.fork_rng(), cut_at(model, anatomy, cut if kept else None, packing=packing) as upper:
            torch.manual_seed(3)
            for batch, state in zip(batches, states, strict=True):
                loss = loss_of(upper(batch, state))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    return losses


def test_dropout_follows_the_seed():
    """Else the test above would show nothing of dropout."""
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    state = states_of(model, anatomy, batch)[2]
    set_train_mode(model, anatomy, anatomy.tuned(2))
    logits = []
    with torch.random.fork_rng(), cut_at(model, anatomy, 2) as upper:
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            logits.append(upper(batch, state))
    assert torch.equal(logits[0], logits[1]) and not torch.equal(logits[0], logits[2])


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama"])
def test_taps_see_every_cut(model_type):
    model = small_model(model_type)
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        plain = model(**batch, output_hidden_states=True).hidden_states
    seen = states_of(model, anatomy, batch)
    assert list(seen) == [0, 1, 2, 3, 4]
    for n in range(L):
        assert torch.equal(seen[n][0], plain[n][mask])
    last = seen[L][0]
    if model_type == "llama":  # transformers' list ends after the final norm
        last = model.model.norm(last)
    if model_type == "gpt2":
        last = model.transformer.ln_f(last)
    assert torch.equal(last, plain[L][mask])
    with path_of(model, "packed") as packing:
        packed = states_of(model, anatomy, batch, packing)
    assert all(furthest([packed[n]], [seen[n]]) < 1e-6 for n in seen)


def test_taps_of_a_cut_model_begin_at_the_cut():
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    state, seen = states_of(model, anatomy, batch)[2], []
    with torch.no_grad(), cut_at(model, anatomy, 2, tap=lambda n, hidden: seen.append(n)) as upper:
        upper(batch, state)
    assert seen == [2, 3, 4]


@pytest.mark.parametrize("cut", [0, 2, L])
@pytest.mark.parametrize("path", ["padded", "packed"])
def test_lower_layers_do_not_run(cut, path):
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    states = states_of(model, anatomy, batch)[cut]
    with torch.no_grad():
        truth = model(**batch).logits
        for layer in anatomy.layers(model)[:cut]:
            for parameter in layer.parameters():
                parameter.fill_(float("nan"))
        model.bert.embeddings.word_embeddings.weight.fill_(7.0)
        with path_of(model, path) as packing, cut_at(model, anatomy, cut, packing=packing) as upper:
            logits = upper(batch, states)
    assert furthest([logits], [truth]) < 1e-6


@pytest.mark.parametrize("path", ["padded", "packed"])
@pytest.mark.parametrize("cut", [None, 0, 2, L])
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_undone(cut, path, fails):
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    states = None if cut is None else states_of(model, anatomy, batch)[cut]
    with torch.no_grad():
        before = model(**batch).logits
        with (
            pytest.raises(ZeroDivisionError) if fails else nullcontext(),
            path_of(model, path) as packing,
            cut_at(model, anatomy, cut, packing=packing) as upper,
        ):
            upper(batch, states)
            if fails:
                raise ZeroDivisionError
        assert torch.equal(model(**batch).logits, before)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert "forward" not in vars(module)


def test_batches_do_not_leak_into_each_other():
    """A failed forward leaves no kept states for the next one."""
    model = small_model("bert")
    long, short = small_batch(model), small_batch(model, (5, 3))
    anatomy = find_layers(model, long)
    states = states_of(model, anatomy, long)[2]
    with torch.no_grad(), path_of(model, "packed") as packing, cut_at(model, anatomy, 2, packing=packing) as upper:
        truth = upper(long, states)
        with pytest.raises(AssertionError, match="not those of this batch"):
            upper(short, states)
        assert packing.layout is None and upper._kept is None
        assert torch.equal(upper(long, states), truth)


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama", "modernbert"])
@pytest.mark.parametrize("long", [128, 8])
def test_rounding_tokens_up_changes_no_number(model_type, long, monkeypatch):
    """Neither a logit nor a gradient, whether attention sees one grid or texts of like length together."""
    found, lengths = [], (20, 18, 7, 3)
    monkeypatch.setattr(packing_module, "LONG", long)
    monkeypatch.setattr(packing_module, "GROUP", 0)
    for step in (1, 16):
        monkeypatch.setattr(cut_module, "STEP", step)
        model = small_model(model_type)
        batch = small_batch(model, lengths)
        with (
            path_of(model, "packed") as packing,
            cut_at(model, find_layers(model, batch), None, packing=packing) as whole,
        ):
            logits = whole(batch)
            logits.square().sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append((logits.detach(), gradients))
    (logits, gradients), (others, more) = found
    assert gradients.keys() == more.keys() and furthest([logits], [others]) < 1e-6
    assert furthest(gradients.values(), [more[name] for name in gradients]) < 1e-5


def test_a_room_is_not_rounded():
    """A pass computes the same number of tokens in every batch, however many are real."""
    model = small_model("bert")
    batch, seen = small_batch(model), []
    real = int(batch["attention_mask"].sum())
    room = real + 16 - real % 16 - 8  # no multiple of what tokens are rounded up to
    with (
        torch.no_grad(),
        path_of(model, "packed") as packing,
        cut_at(
            model,
            find_layers(model, batch),
            None,
            packing=packing,
            tap=lambda n, hidden: seen.append(hidden.shape[1]),
        ) as whole,
    ):
        whole(batch, room=room, texts=room // 8)
    assert set(seen) == {room}
