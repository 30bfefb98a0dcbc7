"""Runs whose head reads the mean of all tokens, the last one or a BiLSTM, against a loop over transformers' AutoModel."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaModel
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline.frozen.exactness import check
from frostline.frozen.forward_pass import StateSelection
from frostline.model.model_files import quiet_loading
from frostline.model.terms import HEAD, POOLER
from frostline.model.ways import Way
from frostline.training.experiment import head_of, starting_cut
from frostline.training.train import restore, run, start_values
from tiny import tiny_bert_folder
from training.by_hand import gap, train_by_hand, way_spec
from training.runs import context_of, largest_difference, outcome, spec_of, stack_gap, with_states

SIZES = {
    **{"vocab_size": 28, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64},
    **{"max_position_embeddings": 40, "initializer_range": 0.2, "pad_token_id": 0},
}
WIDTH = 6
LSTM = Way(tune=0, lstm_width=WIDTH)


def folder_of(kind, folder, dropout=0.0):
    """A small model of this type with the tokenizer of the tiny BERT."""
    with quiet_loading():
        tiny_bert_folder(folder, dropout=dropout)
        if kind == "bert":
            return folder
        AutoTokenizer.from_pretrained(folder, model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            LlamaModel(LlamaConfig(**SIZES)).save_pretrained(folder)
    return folder


class ByHand(nn.Module):
    """A base model of transformers, a BiLSTM on one text at a time or none, pooling, dropout and a linear module."""

    def __init__(self, folder, kind, start, dropout):
        super().__init__()
        with quiet_loading():
            self.base = AutoModel.from_pretrained(folder)
        self.kind, self.lstm, self.dropout = kind, None, nn.Dropout(dropout)
        if kind.lstm_width:
            sizes = (32 * kind.states, kind.lstm_width)
            self.lstm = nn.LSTM(*sizes, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * kind.lstm_width or 32, 2)
        own = {name: start[f"head.{name}"] for name in self.state_dict() if not name.startswith("base.")}
        self.load_state_dict(own, strict=False)

    def forward(self, attention_mask, **inputs):
        found = self.base(attention_mask=attention_mask, output_hidden_states=True, **inputs).hidden_states
        hidden = torch.cat(found[-self.kind.states :], 2)
        texts = [x[:n] for x, n in zip(hidden, attention_mask.sum(1), strict=True)]
        if self.lstm is not None:
            texts = [self.lstm(x[None])[0][0] for x in texts]
        vectors = [x.mean(0) if self.kind.reads == "mean" else x[-1] for x in texts]
        return SequenceClassifierOutput(logits=self.linear(self.dropout(torch.stack(vectors))))


def by_hand(spec, experiment, folder, dropout=0.0):
    """The parameters that a plain loop trains, under frostline's names. With dropout, the model is in training mode."""
    own = experiment.for_run(spec)
    names, base = spec.parameters(own.pretrained.anatomy), f"{own.pretrained.model.base_model_prefix}."
    kind = head_of(spec, own.problem.task_type)
    model = ByHand(folder, kind, start_values(spec, own), dropout).train(dropout > 0)
    ours = {name: name.replace("base.", base, 1) if "base." in name else f"head.{name}" for name in model.state_dict()}
    trained = {ours[name]: p for name, p in model.named_parameters() if ours[name] in names}
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed_for("dropout"))
        return train_by_hand(model, trained, spec, own)


@pytest.fixture(scope="module", params=["bert", "llama"])
def kind(request, tmp_path_factory):
    """The folder of a model, its context, and the same with cached hidden states."""
    folder = folder_of(request.param, tmp_path_factory.mktemp(request.param))
    experiment = context_of(folder)
    return folder, experiment, with_states(experiment, tmp_path_factory.mktemp("states"))


@pytest.mark.parametrize(("reads", "tune"), [("mean", 0), ("mean", "full"), ("last", 2)])
def test_a_run_equals_a_loop_over_the_base_model(kind, reads, tune):
    folder, experiment, cached = kind
    spec = way_spec(Way(tune=tune, head_reads=reads))
    expected = by_hand(spec, experiment, folder)
    for one in (experiment, cached) if tune != "full" else (experiment,):
        assert gap(run(spec, one), expected) < 1e-5
    # after the last layer, only the own head's token is cached
    assert cached.cut(spec) == {0: 2, 2: 1, "full": None}[tune]


@pytest.fixture(scope="module")
def five_layers(tmp_path_factory):
    """The folder of a model without dropout, its context, and the same with cached hidden states."""
    folder = tiny_bert_folder(tmp_path_factory.mktemp("five"), layers=5, dropout=0.0)
    experiment = context_of(folder)
    return folder, experiment, with_states(experiment, tmp_path_factory.mktemp("states"), (5, 4, 2))


def lstm_share(experiment):
    """The weights of the LSTM as a share of those of all layers."""
    sizes = {name: p.numel() for name, p in experiment.pretrained.model.named_parameters()}
    layers = sum(size for name, size in sizes.items() if ".layer." in name)
    return sum(size for name, size in sizes.items() if "lstm" in name) / layers


@pytest.mark.parametrize(("states", "cut"), [(1, 4), (4, 2)])
def test_a_run_with_a_bilstm_equals_a_loop_over_the_base_model(five_layers, states, cut):
    folder, experiment, cached = five_layers
    spec = way_spec(Way(tune=0, lstm_width=WIDTH, lstm_states=states))
    expected, own = by_hand(spec, experiment, folder), experiment.for_run(spec)
    share = run(spec, cached).record.audit.tuned_share
    assert share > (states - 1) / 5 and share == pytest.approx((states - 1) / 5 + lstm_share(own))
    assert cached.cut(spec) == cut and set(expected) == own.pretrained.new
    assert all(own.pretrained.anatomy.places[name] == HEAD for name in expected)
    for one in (experiment, cached):
        assert gap(run(spec, one), expected) < 1e-5
    checks = check(own.pretrained.model, tune=[states - 1, "full"])  # from the lowest state that is read
    assert not any(one.refused for one in checks) and {one.batches for one in checks} == {"packed"}
    own.pretrained.restore()


def test_every_bilstm_starts_from_values_of_its_seed(five_layers):
    """transformers initializes an LSTM by itself in some model types only."""
    first, again, other = (outcome(run(way_spec(LSTM, seed=seed), five_layers[2])) for seed in (0, 0, 1))
    assert first == again != other


def test_dropout_acts_on_what_the_linear_module_reads(tmp_path, monkeypatch):
    """Without speed-ups, the same generator draws the masks of both loops."""
    folder = folder_of("bert", tmp_path, dropout=0.1)
    experiment, spec = context_of(folder, packed=False), way_spec(Way(head_reads="mean"))
    monkeypatch.setenv("FROSTLINE_PLAIN", "1")
    without = run(way_spec(Way(head_reads="mean"), seed=1), context_of(folder, packed=False))
    expected = by_hand(spec, experiment, folder, dropout=0.1)
    result = run(spec, experiment)
    assert gap(result, expected) < 1e-5
    assert not np.allclose(without.logits["validation_best"], result.logits["validation_best"])


COMPOSED = {
    "lora": Way(tune=2, head_reads="mean", low_rank=2),
    "lp-ft": Way(tune=1, head_reads="mean", order="head-first"),
    "biases": Way(tune=2, head_reads="last", only="biases"),
    "modules": Way(modules=("encoder.layer.1",), head_reads="mean"),
    "bilstm": Way(tune=2, lstm_width=WIDTH, lstm_states=3, head_reads="last", layer_decay=0.9),
}


@pytest.mark.parametrize("way", COMPOSED.values(), ids=COMPOSED)
def test_it_composes_with_the_other_fields(way, experiment, uncached):
    spec = way_spec(way)
    one, other = run(spec, experiment), run(spec, uncached)
    assert largest_difference(one, other) < 1e-3
    audit = one.record.audit
    assert POOLER not in audit.moved and "head" in audit.moved and audit.checks["frozen_bytes_unchanged"]
    assert {"head.linear.weight", "head.linear.bias"} <= one.learned.keys()
    learned = {name: p.clone() for name, p in one.learned.items()}
    assert np.allclose(restore(spec, experiment, learned), one.logits["validation_best"], atol=1e-5)


def test_the_pooler_is_not_trained_and_costs_nothing_in_the_audit(experiment):
    audit = run(spec_of("m", way=Way(head_reads="mean")), experiment).record.audit
    assert audit.by_place[POOLER].trained == 0 and "head" in audit.by_place
    assert audit.trainable_parameters == audit.parameters - audit.by_place[POOLER].frozen


@pytest.mark.parametrize("batched", [True, False])
def test_stacked_runs_equal_single_ones(tmp_path, batched):
    experiment = context_of(folder_of("bert", tmp_path))  # without dropout
    specs = [way_spec(Way(tune=1, head_reads="mean"), seed=seed) for seed in (0, 1)]
    assert stack_gap(specs, experiment, batched=batched) < 1e-3


def test_the_token_of_the_own_head_is_no_start_for_another_head(experiment):
    anatomy = experiment.pretrained.anatomy
    one_token = StateSelection((1,), head=True)
    head = spec_of("m", way=Way(tune=0, head_reads="mean"))
    assert starting_cut(one_token, anatomy, spec_of(0)) == 3 and starting_cut(one_token, anatomy, head) == 1
    assert starting_cut(StateSelection((1, 3), head=True), anatomy, head) == 3


def test_a_number_to_predict_has_one_output(tiny_bert):
    spec = way_spec(Way(tune=0, head_reads="mean", order="head-first"))
    assert run(spec, context_of(tiny_bert, regression=True)).learned["head.linear.weight"].shape == (1, 32)
