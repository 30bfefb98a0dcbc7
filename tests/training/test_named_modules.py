"""Runs that train named modules instead of the last layers."""

import json

import pytest
import torch

from frostline.model.anatomy import HEAD
from frostline.training.run import run
from training.runs import (
    furthest,
    losses,
    named_spec,
    outcome,
    same,
    spec_of,
    weights_of,
)


def outcome_but_for_the_name(result):
    facts, logits, test_facts, test = outcome(result)
    facts = {name: value for name, value in json.loads(facts).items() if name not in ("digest", "spec")}
    return facts, logits, test_facts["scores"], test


@pytest.mark.parametrize("cached", [True, False])
def test_the_last_layers_by_name_are_bitwise_the_last_layers(plain, context, cached):
    used = context if cached else plain
    by_number = run(spec_of(2), used)
    weights = weights_of(used)
    by_name = run(named_spec("encoder.layer.1", "layer.2", "pooler", "classifier"), used)
    assert outcome_but_for_the_name(by_name) == outcome_but_for_the_name(by_number)
    assert losses(by_name) == losses(by_number) and same(weights_of(used), weights)
    assert by_name.facts["provenance"]["cut"] == by_number.facts["provenance"]["cut"] == (1 if cached else None)


MODULES = [  # and the cut
    (("pooler",), 3),
    (("layer.1",), 1),
    (("layer.1.output", "layer.2.attention"), 1),
    (("attention.self.query",), None),
    (("layer.0",), None),
    (("word_embeddings", "layer.1"), None),
]


@pytest.mark.parametrize("modules, cut", MODULES, ids=lambda value: "+".join(value) if isinstance(value, tuple) else "")
def test_named_modules_with_cached_hidden_states_and_without(plain, context, modules, cut):
    one, other = run(named_spec(*modules), context), run(named_spec(*modules), plain)
    assert (one.facts["provenance"]["cut"], other.facts["provenance"]["cut"]) == (cut, None)
    assert one.facts["validation_best"] == other.facts["validation_best"]
    assert furthest(one, other) < 1e-3
    assert one.facts["audit"] == other.facts["audit"]


@pytest.mark.parametrize("modules, cut", MODULES, ids=lambda value: "+".join(value) if isinstance(value, tuple) else "")
def test_only_the_named_modules_change(context, modules, cut):
    anatomy = context.pretrained.anatomy
    context.pretrained.start_run(frozenset(), 0)
    before = weights_of(context)
    audit = run(named_spec(*modules), context).facts["audit"]
    moved = {name for name, value in weights_of(context).items() if not torch.equal(before[name], value)}
    wanted = {
        name
        for name, place in anatomy.places.items()
        if place == HEAD or any(f".{part}." in f".{name}" for part in modules)
    }
    assert moved <= wanted and {name for name in wanted - moved if not name.endswith("key.bias")} == set()
    assert audit["trainable_parameters"] == sum(before[name].numel() for name in wanted)
    assert audit["clipped_parameters"] == len(wanted)
    assert not [name for name, value in audit.items() if value is False]
