"""Runs of a tiny BERT on a small table, for tests of training."""

import json
from dataclasses import replace

import numpy as np
import torch

from frostline.data.examples import Examples
from frostline.data.kinds import CLASSIFICATION, REGRESSION
from frostline.frozen.exactness import find_head_reads, find_head_token_part
from frostline.frozen.forward_pass import selection_for
from frostline.frozen.hidden_states import computed_states
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.device import Machine
from frostline.model.loading import load_pretrained
from frostline.model.packing import is_packable
from frostline.model.pretrained import Pretrained
from frostline.model.terms import HEAD, OWN_HEAD, POOLER
from frostline.model.tokens import Tokens, encode
from frostline.model.ways import Way
from frostline.training.experiment import Batching, Experiment, Worker
from frostline.training.problem import Problem
from frostline.training.run import Run
from frostline.training.train import run, run_stacked
from small_models import FIRST_WORD, GENERIC, small_model
from tiny import GOOD, sentences

SIZES = {"train": 48, "validation": 24, "test": 24}
EVERY_CUT = (3, 2, 1)
COST = ("cost", "provenance")


def experiment_of(pretrained, tokens, problem, splits, texts=(), *, packed=True, precision="float32", head_tokens=None):
    """A context without cached hidden states, on a CPU."""
    reads = find_head_reads(pretrained.model, pretrained.anatomy, probe_batch(pretrained.model))
    machine, worker = Machine(torch.device("cpu"), precision), Worker(Batching(packed, head_tokens or {}))
    texts = np.array(texts or [*map(str, range(len(tokens)))], object)
    examples = {
        name: Examples(texts=tuple(texts[rows]), pairs=None, rows=rows, name=name, targets=problem.targets[rows])
        for name, rows in splits.items()
    }
    return Experiment(pretrained, machine, problem, tokens, splits, reads, examples=examples, worker=worker)


def context_of(folder, *, packed=True, precision="float32", regression=False):
    """A context of the model in a folder and a small table, without cached hidden states."""
    labels = () if regression else ("negative", "positive")
    task_type = REGRESSION if regression else CLASSIFICATION
    pretrained = load_pretrained(str(folder), labels=labels, task_type=task_type)
    rows = sentences(sum(SIZES.values()))
    texts = [row["text"] for row in rows]
    encoded = encode(pretrained.tokenizer, texts, None, 32)
    ends = np.cumsum([*SIZES.values()])
    splits = {name: np.arange(end - size, end) for (name, size), end in zip(SIZES.items(), ends, strict=True)}
    targets = np.array([row["label"] == "positive" for row in rows], np.int64)
    problem = Problem(CLASSIFICATION, targets, encoded.lengths, None, "accuracy")
    if regression:
        scores = np.array([sum(word in GOOD for word in row["text"].split()) for row in rows], np.float64)
        problem = Problem(REGRESSION, scores, encoded.lengths, None, "pearson")
    experiment = experiment_of(pretrained, encoded, problem, splits, texts, packed=packed, precision=precision)
    return replace(experiment, labels=labels)


def small_context(model_type, folder, *, dropout=False, packed=True):
    """A small model of a type with three layers, examples of random tokens, and their hidden states."""
    model = small_model(model_type, layers=3)
    if not dropout:
        switch_dropout_off(model)
    anatomy = find_layers(model)
    draw = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(draw.integers(3, 30, 72))])
    words = draw.integers(FIRST_WORD, GENERIC["vocab_size"], offsets[-1]).astype(np.int32)
    tokens = Tokens({"input_ids": words}, offsets, {"input_ids": model.config.pad_token_id}, np.zeros(72, np.int32))
    new = frozenset(name for name, place in anatomy.places.items() if place in (HEAD, POOLER))
    pretrained = Pretrained(model_type, folder, None, model, None, anatomy, "w", "v", 64, new)
    problem = Problem(CLASSIFICATION, words[offsets[:-1]].astype(np.int64) % 3, tokens.lengths, None, "accuracy")
    splits = {"train": np.arange(40), "validation": np.arange(40, 60), "test": np.arange(60, 72)}
    batch, packed = probe_batch(model), packed and is_packable(model)
    parts = {OWN_HEAD: find_head_token_part(model, anatomy, batch, find_head_reads(model, anatomy, batch))}
    return with_states(experiment_of(pretrained, tokens, problem, splits, packed=packed, head_tokens=parts), folder)


def switch_dropout_off(model):
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or isinstance(module, torch.nn.Dropout)):
                setattr(module, name, 0.0)


def with_states(experiment, folder, cuts=EVERY_CUT):
    """The context with hidden states cached after these layers."""
    experiment.pretrained.restore()
    rows = np.arange(len(experiment.tokens))
    selection = selection_for(cuts, experiment.pretrained.anatomy, experiment.head_reads)
    folder.mkdir(exist_ok=True)
    states = computed_states(folder, experiment.forward_pass(selection), experiment.tokens, rows)
    return experiment.with_worker(states=states)


def spec_of(tune=1, **more):
    values = {
        "weights": "w",
        "vocabulary": "v",
        "data": "d",
        "seed": 0,
        "train_size": 32,
        "learning_rate": 3e-3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 8,
        "precision": "float32",
    }
    return Run(recipe=tune, **values | more)


def named_spec(*modules, **more):
    return spec_of("named", way=Way(modules=modules), **more)


def outcome(result):
    """The whole result except its cost, for bitwise comparisons."""
    facts = result.record.model_dump(mode="json", exclude=set(COST))
    logits = {name: value.tobytes() for name, value in result.logits.items()}
    test = None if result.test_logits is None else result.test_logits.tobytes()
    return json.dumps(facts, sort_keys=True), logits, result.test and result.test.scores, test


def weights_of(experiment):
    return {name: p.detach().clone() for name, p in experiment.pretrained.model.named_parameters()}


def losses(result):
    return {(s.split, s.epoch): s.value for s in result.record.scores if s.metric == "loss"}


def largest_difference(one, other):
    """The largest relative difference of the losses and logits of two runs. Words that were cut off have NaN in both."""
    gaps = [abs(a - losses(other)[key]) / abs(a) for key, a in losses(one).items()]
    pairs = [(a, other.logits[name]) for name, a in one.logits.items()]
    for a, b in [*pairs, (one.test_logits, other.test_logits)] if one.test_logits is not None else pairs:
        assert np.array_equal(np.isnan(a), np.isnan(b))
        gaps.append(np.nanmax(np.abs(a - b)) / np.nanmax(np.abs(a)))
    return max(gaps)


def stack_gap(specs, experiment, *, batched=False):
    """The largest difference of runs that are trained as one stack from the same runs, each trained alone."""
    alone = [run(spec, experiment) for spec in specs]
    pairs = zip(run_stacked(specs, experiment.with_worker(batched=batched)), alone, strict=True)
    return max(largest_difference(one, other) for one, other in pairs)
