"""Runs that train named modules instead of the last layers."""

import json

import pytest

from frostline.training.train import run
from training.runs import (
    largest_difference,
    losses,
    named_spec,
    outcome,
    same,
    spec_of,
    weights_of,
)


def outcome_without_specification(result):
    facts, logits, *test = outcome(result)
    facts = {name: value for name, value in json.loads(facts).items() if name not in ("digest", "spec")}
    return facts, logits, test


@pytest.mark.parametrize("cached", [True, False])
def test_naming_the_last_layers_is_bitwise_identical_to_their_number(uncached, experiment, cached):
    used = experiment if cached else uncached
    by_number = run(spec_of(2), used)
    weights = weights_of(used)
    by_name = run(named_spec("encoder.layer.1", "layer.2", "pooler", "classifier"), used)
    assert outcome_without_specification(by_name) == outcome_without_specification(by_number)
    assert losses(by_name) == losses(by_number) and same(weights_of(used), weights)
    assert by_name.record.provenance.cut == by_number.record.provenance.cut == (1 if cached else None)


MODULES = [  # named modules, and the cut of their runs
    (("pooler",), 3),
    (("layer.1",), 1),
    (("layer.1.output", "layer.2.attention"), 1),
    (("attention.self.query",), None),
    (("layer.0",), None),
    (("word_embeddings", "layer.1"), None),
]


@pytest.mark.parametrize("modules, cut", MODULES, ids=lambda value: "+".join(value) if isinstance(value, tuple) else "")
def test_named_modules_with_and_without_cached_hidden_states(uncached, experiment, modules, cut):
    one, other = run(named_spec(*modules), experiment), run(named_spec(*modules), uncached)
    assert (one.record.provenance.cut, other.record.provenance.cut) == (cut, None)
    assert one.record.validation_best == other.record.validation_best
    assert largest_difference(one, other) < 1e-3
    assert one.record.audit == other.record.audit
