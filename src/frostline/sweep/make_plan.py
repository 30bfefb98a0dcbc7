"""Make the plan of a sweep from its data and its model: which runs, and which hidden states fit on the disk."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
from torch import nn

from frostline.data.load import Data
from frostline.frozen.forward_pass import ForwardPass, Lengths, Rows, StateSelection, selection_for
from frostline.frozen.hidden_states import (
    RESERVED_BYTES,
    SHARD_ROWS,
    CacheKey,
    cache_folder,
    missing_rows,
    similar_recipes,
)
from frostline.model.anatomy import Anatomy
from frostline.model.device import Machine, device_memory, free_bytes
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN_HEAD
from frostline.model.tokens import ZEROED_TYPES, Tokens
from frostline.statistics.recipe import NAMED
from frostline.sweep.parameter_groups import groups_by_tune, notes_on_seeds
from frostline.sweep.plan import Identity, Plan, PlannedDevice, PlannedStates, one_of_each
from frostline.sweep.results.store import Store
from frostline.sweep.settings import Settings
from frostline.training.experiment import Experiment
from frostline.training.forward import subset_rows, train_rows
from frostline.training.probes import features_after
from frostline.training.run import Run, trainings_of


def make_plan(
    *,
    spec: Settings,
    identity: Identity,
    runs: Sequence[Run],
    context: Experiment,
    data: Data,
    encoded: Mapping[str, Tokens],
    store: Store,
    probes: bool,
    processes: int,
) -> Plan:
    """The plan of a sweep: its runs, the hidden states that they share, and the disk space that both need.

    Args:
        spec: The sweep.
        identity: What identifies the sweep besides its settings.
        runs: All runs of the grid.
        context: What the runs share.
        data: The examples.
        encoded: Tokens by split.
        store: The results in the folder.
        probes: Also cache the hidden states that probes after every layer read.
        processes: How many processes will train.
    """
    pretrained, machine = context.pretrained, context.machine

    def model_of(run: Run) -> tuple[nn.Module, Anatomy]:
        own = context.for_run(run).pretrained
        return own.model, own.anatomy

    states = _planned_states(_states_wanted(spec, runs, context, probes=probes), context, runs, spec.cache_limit)
    scored = sum(
        len(context.splits[name]) * times for name, times in (("validation", 2), ("test", 1)) if name in context.splits
    )
    shares = {name: encoded["train"].truncated(data.train.with_label(n)) for n, name in enumerate(identity.labels)}
    named = next((run for run in runs if run.recipe == NAMED), None)
    parameters = sum(p.numel() for p in pretrained.model.parameters())
    return Plan(
        device=PlannedDevice(machine.name, machine.precision, device_memory(machine.device), processes),
        runs=tuple(runs),
        done=frozenset({run.digest for run in runs} & store.done()),
        parameters=parameters,
        groups=groups_by_tune(runs, model_of),
        states=states,
        truncated={name: tokens.truncated() for name, tokens in encoded.items()},
        truncated_by_class={label: share for label, share in shares.items() if not np.isnan(share)},
        notes=(
            *data.notes,
            *[ZEROED_TYPES] * any(tokens.zeroed_types for tokens in encoded.values()),
            *(named.to_train.notes(pretrained.anatomy, pretrained.new) if named else ()),
            *notes_on_seeds(runs, pretrained.anatomy),
        ),
        results_bytes=len(runs)
        * (scored * 4 * max(1, len(identity.labels)) * prod(context.problem.predictions_per_row) + 12_000),
        model_bytes=4 * parameters,
    )


def _states_wanted(spec: Settings, runs: Sequence[Run], context: Experiment, *, probes: bool) -> StateSelection:
    """The hidden states that these runs (and probes) could use, if there were enough disk space."""
    anatomy = context.pretrained.anatomy
    different = one_of_each(runs)
    probes = probes or any(run.way.reads_features for run in different)
    trainings = [training for run in different if run.way.in_loop for training in trainings_of(run, anatomy)]
    own: set[int] = set()
    others: set[int] = set()  # of heads that read all tokens
    for training in trainings:
        depth = None if spec.frozen_dropout else training.to_train.depth(anatomy)
        if depth is not None and depth != anatomy.count:
            of_head = own if training.way.head == OWN_HEAD else others
            of_head.add(anatomy.count - max(depth, training.way.head.layers))
    wanted = selection_for(sorted(own), anatomy, context.head_reads)
    wanted = replace(wanted, cuts=tuple(sorted({*wanted.cuts, *others})))
    if not probes:
        return wanted
    features = features_after(range(anatomy.count + 1), of_words=context.tokens.of_words)
    return replace(wanted, pooled=features.pooled, cuts=features.cuts or wanted.cuts)


def _planned_states(
    wanted: StateSelection, context: Experiment, runs: Sequence[Run], limit: float | None
) -> PlannedStates:
    """The part of the wanted hidden states that the disk has space for, with a ``limit`` in GB that the user allows."""
    needed, tokens, pretrained = rows_needed(context, runs), context.tokens, context.pretrained
    unique = needed[np.unique(tokens.keys[needed], return_index=True)[1]]  # one row of each distinct example
    count, width = int(tokens.lengths[unique].sum()), pretrained.anatomy.width
    free, most = free_cache_bytes(), math.inf if limit is None else limit * 1e9

    def fits(part: StateSelection) -> bool:
        """Whether the disk has space for the states that are not cached yet, and the limit allows all of them."""
        recipe = recipe_of(pretrained, context.machine, context.forward_pass(part))
        # if states after the last layer are cached, it ran for all tokens
        whole = pretrained.anatomy.count in (*part.pooled, *part.cuts)
        recipes = [one for one in similar_recipes(recipe) if bool(one.head_token) != whole]
        missing = min((missing_rows(tokens, unique, part, one) for one in recipes), key=len, default=unique)
        lengths = tokens.lengths[missing]
        more = part.bytes(len(missing), int(lengths.sum()), width) + passage_bytes(pretrained, lengths)
        return more <= free and part.bytes(len(unique), count, width) <= most

    cached = wanted.largest_part(fits)
    size = cached.bytes(len(unique), count, width)
    return PlannedStates(len(unique), count, wanted, cached, size, int(min(free, most)), free)


def rows_needed(context: Experiment, runs: Sequence[Run]) -> Rows:
    """The rows of the pool that these runs train on or are scored on."""
    parts = [rows for name, rows in context.splits.items() if name != "train"]
    parts += [train_rows(context, spec) for spec in _one_per_subset(runs)]
    return np.unique(np.concatenate(parts))


def rows_trained(runs: Sequence[Run], data: Data) -> Rows | None:
    """The training rows that at least one of these runs trains on; None: all."""
    if any(spec.train_size == len(data.train) for spec in runs):
        return None
    subsets = [subset_rows(spec, data.train.targets, data.folds) for spec in _one_per_subset(runs)]
    return np.unique(np.concatenate(subsets))


def _one_per_subset(runs: Sequence[Run]) -> Iterable[Run]:
    """One run of each set of training examples."""
    return {(spec.seed if spec.subset == "per-seed" else spec.fold, spec.train_size): spec for spec in runs}.values()


def recipe_of(pretrained: Pretrained, machine: Machine, forward_pass: ForwardPass) -> CacheKey:
    """Everything that determines this model's hidden states on this machine."""
    facts = machine.facts()
    return CacheKey(
        model=pretrained.name,
        weights=pretrained.weights,
        precision=machine.precision,
        machine={
            "attention": str(pretrained.model.config._attn_implementation),
            **{name: facts[name] for name in ("device_name", "threads", "instructions", "torch", "transformers")},
        },
        head_reads=forward_pass.head_reads,
        packed=forward_pass.packed,
        head_token=" ".join(forward_pass.head_token.modules) if forward_pass.head_token else "",
    )


def passage_bytes(pretrained: Pretrained, lengths: Lengths) -> int:
    """The size of the hidden states between layers while examples of these lengths are streamed, else 0."""
    longest = int(np.sort(lengths)[-SHARD_ROWS:].sum())
    return 4 * pretrained.anatomy.width * longest if pretrained.stream else 0


def free_cache_bytes() -> int:
    """How many more bytes of disk the cache may take."""
    return max(0, free_bytes(nearest_existing(cache_folder())) - RESERVED_BYTES)


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else nearest_existing(path.parent)
