"""Runs with a BiLSTM over hidden states, against a loop over transformers' AutoModel and torch's LSTM on one text at a time."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline.frozen.exactness import check
from frostline.model.model_files import quiet_loading
from frostline.model.terms import HEAD
from frostline.model.ways import Way
from frostline.training.experiment import head_of
from frostline.training.train import restore, run, start_values
from tiny import tiny_bert_folder
from training.by_hand import gap, train_by_hand, way_spec
from training.runs import context_of, largest_difference, outcome, with_states

WIDTH = 6


class ByHand(nn.Module):
    """A base model of transformers, a BiLSTM over its last hidden states, the mean of its outputs, and a linear module."""

    def __init__(self, folder, states, start):
        super().__init__()
        with quiet_loading():
            self.base = AutoModel.from_pretrained(folder)
        self.states = states
        self.lstm = nn.LSTM(32 * states, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * WIDTH, 2)
        own = {name: start[f"head.{name}"] for name in self.state_dict() if not name.startswith("base.")}
        self.load_state_dict(own, strict=False)

    def forward(self, attention_mask, **inputs):
        found = self.base(attention_mask=attention_mask, output_hidden_states=True, **inputs).hidden_states
        hidden = torch.cat(found[-self.states :], 2)
        means = [self.lstm(x[None, :n])[0].mean(1) for x, n in zip(hidden, attention_mask.sum(1), strict=True)]
        return SequenceClassifierOutput(logits=self.linear(torch.cat(means)))


@pytest.fixture(scope="module")
def five_layers(tmp_path_factory):
    """The folder of a model without dropout, its context, and the same with cached hidden states."""
    folder = tiny_bert_folder(tmp_path_factory.mktemp("five"), layers=5, dropout=0.0)
    context = context_of(folder)
    return folder, context, with_states(context, tmp_path_factory.mktemp("states"), (5, 4, 2))


def lstm_share(context):
    """The weights of the LSTM as a share of those of all layers."""
    sizes = {name: p.numel() for name, p in context.pretrained.model.named_parameters()}
    layers = sum(size for name, size in sizes.items() if ".layer." in name)
    return sum(size for name, size in sizes.items() if "lstm" in name) / layers


@pytest.mark.parametrize(("states", "cut"), [(1, 4), (4, 2)])
def test_a_run_equals_a_plain_loop_with_and_without_cached_hidden_states(five_layers, states, cut):
    folder, context, cached = five_layers
    spec = way_spec(Way(tune=0, lstm_width=WIDTH, lstm_states=states))
    own = context.for_run(spec)
    model = ByHand(folder, states, start_values(spec, own)).eval()
    trained = {f"head.{name}": p for name, p in model.named_parameters() if not name.startswith("base.")}
    expected = train_by_hand(model, trained, spec, own)
    share = run(spec, cached).record.audit.tuned_share
    assert share > (states - 1) / 5 and share == pytest.approx((states - 1) / 5 + lstm_share(own))
    assert cached.cut(spec) == cut and set(expected) == own.pretrained.new
    for one in (context, cached):
        assert gap(run(spec, one), expected) < 1e-5


def test_it_can_stand_on_tuned_layers(five_layers):
    _, context, cached = five_layers
    spec = way_spec(Way(tune=2, lstm_width=WIDTH, lstm_states=3, head_reads="last", layer_decay=0.9))
    one, other = run(spec, cached), run(spec, context)
    assert largest_difference(one, other) < 1e-3 and one.record.audit.moved == ["layer 3", "layer 4", "head"]
    learned = {name: p.clone() for name, p in one.learned.items()}
    assert np.allclose(restore(spec, cached, learned), one.logits["validation_best"], atol=1e-5)


def test_every_run_starts_from_values_of_its_seed(five_layers):
    """transformers initializes an LSTM by itself in some model types only."""
    spec = way_spec(Way(tune=0, lstm_width=WIDTH))
    first = outcome(run(spec, five_layers[2]))
    other = outcome(run(way_spec(Way(tune=0, lstm_width=WIDTH), seed=1), five_layers[2]))
    assert outcome(run(spec, five_layers[2])) == first != other


@pytest.mark.parametrize("states", [1, 4])
def test_the_cut_is_exact_from_the_lowest_state_that_is_read(five_layers, states):
    kind = head_of(way_spec(Way(tune=0, lstm_width=WIDTH, lstm_states=states)), "text-classification")
    pretrained = five_layers[1].pretrained.with_head(kind)
    checks = check(pretrained.model, tuned_layers=[states - 1, "full"])
    assert not any(one.refused for one in checks) and {one.batches for one in checks} == {"packed"}
    pretrained.restore()


def test_the_head_has_the_learning_rate_of_heads(five_layers):
    _, context, _ = five_layers
    places = context.for_run(way_spec(Way(tune=0, lstm_width=WIDTH))).pretrained.anatomy.places
    assert {place for name, place in places.items() if "lstm" in name} == {HEAD}
