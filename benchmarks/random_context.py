"""Runs on random tokens, without files: a model of transformers, examples of given lengths, and their hidden states."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from frostline.data.kinds import CLASSIFICATION
from frostline.data.tags import NO_WORD
from frostline.frozen.exactness import find_head_reads, find_head_token_part
from frostline.frozen.forward_pass import selection_for
from frostline.frozen.hidden_states import computed_states
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.device import Machine
from frostline.model.packing import is_packable
from frostline.model.pretrained import Pretrained
from frostline.model.terms import HEAD, OWN_HEAD, POOLER
from frostline.model.tokens import Tokens
from frostline.training.experiment import Batching, Experiment, Worker
from frostline.training.problem import Problem, TagProblem
from frostline.training.run import Run

FIRST_WORD = 10  # lower ids may be special tokens
MEANS = {
    "short": (3.1, 0.45, 4, 66),
    "long": (5.4, 0.45, 40, 512),
}  # of the logarithm: like SST-2 and like film reviews


def lengths_like(kind: str, examples: int) -> NDArray[np.int64]:
    """Lengths in tokens with the distribution of short sentences or of long reviews, ``[N]``."""
    mean, deviation, least, most = MEANS[kind]
    drawn = np.random.default_rng(0).lognormal(mean, deviation, examples)
    return np.clip(drawn, least, most).astype(np.int64)


def context_of(model: PreTrainedModel, lengths: NDArray[np.int64], machine: Machine, *, validation: int) -> Experiment:
    """A context without hidden states. The last ``validation`` examples are those to score."""
    model.eval()
    anatomy, offsets = find_layers(model), np.concatenate([[0], np.cumsum(lengths)])
    words = np.random.default_rng(1).integers(FIRST_WORD, model.config.vocab_size, offsets[-1]).astype(np.int32)
    padding = {"input_ids": model.config.pad_token_id or 0}
    tokens = Tokens({"input_ids": words}, offsets, padding, np.zeros(len(lengths), np.int32))
    new = frozenset(name for name, place in anatomy.places.items() if place in (HEAD, POOLER))
    pretrained = Pretrained("random", Path(), None, model, None, anatomy, "w", "v", 512, new)
    problem = Problem(CLASSIFICATION, words[offsets[:-1]].astype(np.int64) % 2, tokens.lengths, None, "accuracy")
    reads = find_head_reads(model, anatomy, probe_batch(model))
    head_token = find_head_token_part(model, anatomy, probe_batch(model), reads)
    count = len(lengths) - validation
    splits = {"train": np.arange(count), "validation": np.arange(count, len(lengths))}
    model.to(machine.device)
    worker = Worker(Batching(is_packable(model), {OWN_HEAD: head_token}))
    return Experiment(pretrained, machine, problem, tokens, splits, reads, worker=worker)


def with_states(experiment: Experiment, cuts: tuple[int, ...]) -> Experiment:
    """The context with the hidden states of all examples after these numbers of layers."""
    experiment.pretrained.restore()
    selection = selection_for(cuts, experiment.pretrained.anatomy, experiment.head_reads)
    forward_pass = experiment.forward_pass(selection)
    with TemporaryDirectory() as folder:  # the memory-mapped file outlives it
        states = computed_states(Path(folder), forward_pass, experiment.tokens, np.arange(len(experiment.tokens)))
        return experiment.with_worker(states=states)


def with_tags(experiment: Experiment) -> Experiment:
    """The context of a token classifier in which every token is a word with one of two tags."""
    tokens, examples = experiment.tokens, np.arange(len(experiment.tokens))
    word = np.arange(tokens.offsets[-1]) - np.repeat(tokens.offsets[:-1], tokens.lengths)
    targets = np.full((len(tokens), tokens.lengths.max()), NO_WORD)
    targets[np.repeat(examples, tokens.lengths), word] = tokens.inputs["input_ids"] % 2
    tokens = replace(tokens, words=word.astype(np.int32))
    return replace(experiment, tokens=tokens, problem=TagProblem.of(targets, tokens, ("even", "odd"), "token_accuracy"))


def spec_of(tune: int | str, train_size: int, *, seed: int = 0, learning_rate: float = 2e-5, **more: object) -> Run:
    """A run on a random context."""
    values = {"weights": "w", "vocabulary": "v", "data": "d", "seed": seed, "train_size": train_size}
    return Run.model_validate({"recipe": tune, "learning_rate": learning_rate, "metric": "accuracy", **values, **more})


def switch_dropout_off(model: torch.nn.Module) -> None:
    """Set all dropout probabilities of a model to zero."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or isinstance(module, torch.nn.Dropout)):
                setattr(module, name, 0.0)
