"""Gradual thawing equals trainings by hand, one after the other."""

import pytest
import torch

from frostline.model.trainable import Trainable
from frostline.statistics.tune import FULL
from frostline.training.run import run
from frostline.training.ways.phases import phases_of
from frostline.training.ways.way import Way
from training.by_hand import context_without_dropout, gap, parameters_of, started, train_by_hand, way_spec
from training.runs import largest_difference, outcome, spec_of, with_states


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return context_without_dropout(tmp_path_factory.mktemp("even"))


def test_the_phases_thaw_one_layer_after_the_other(context):
    anatomy = context.pretrained.anatomy
    phases = phases_of(spec_of("gradual", way=Way(order="gradual"), num_train_epochs=5), anatomy)
    assert [phase.to_train.tune for phase in phases] == [0, 1, 2, 3, FULL]
    assert [phase.num_train_epochs for phase in phases] == [1] * 5 and [phase.phase for phase in phases] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert len({phase.seed_for("order") for phase in phases}) == 5
    last_2 = phases_of(spec_of("gradual-2", way=Way(tune=2, order="gradual")), anatomy)
    assert [phase.to_train.tune for phase in last_2] == [0, 1, 2]
    plain = spec_of(2)
    assert phases_of(plain, anatomy) == [plain]


def test_a_run_equals_trainings_by_hand(context):
    spec = way_spec(Way(tune=2, order="gradual"), num_train_epochs=3)
    model, names = started(spec, context)
    for phase in phases_of(spec, context.pretrained.anatomy):
        thawed = Trainable(phase.way.tune).parameters(context.pretrained.anatomy)
        train_by_hand(model, parameters_of(model, thawed), phase, context)
    result = run(spec, context)
    assert gap(result, parameters_of(model, names)) < 1e-5
    assert result.facts["cost"]["steps"] == 12
    assert [score["epoch"] for score in result.facts["scores"] if score["metric"] == "loss"][::2][:3] == [1, 2, 3]


def test_what_was_frozen_moves_when_it_is_thawed(context):
    audit = run(way_spec(Way(order="gradual"), num_train_epochs=5), context).facts["audit"]
    assert audit["moved_in_phases"] == [
        ["pooler"] if "pooler" in audit["moved"] else [],
        *(
            [place for place in audit["moved"] if place in layers or place == "pooler"]
            for layers in (["layer 2"], ["layer 1", "layer 2"], ["layer 0", "layer 1", "layer 2"])
        ),
        audit["moved"],
    ]
    assert {"embeddings", "layer 0", "layer 1", "layer 2"} <= set(audit["moved"])


def test_each_phase_starts_from_cached_hidden_states(context, tmp_path):
    spec = way_spec(Way(tune=2, order="gradual"), num_train_epochs=3)
    assert largest_difference(run(spec, context), run(spec, with_states(context, tmp_path))) < 1e-4


def test_each_phase_begins_at_the_best_evaluation_of_the_one_before(context):
    spec = spec_of("gradual-1", way=Way(tune=1, order="gradual"), num_train_epochs=2, evaluations_per_epoch=4)
    head = phases_of(spec, context.pretrained.anatomy)[0]
    frozen = run(spec, context)
    alone = run(head, context)
    first = frozen.facts["scores"][: len([s for s in alone.facts["scores"] if s["split"] != "train"]) // 2]
    assert first == alone.facts["scores"][: len(first)]


def test_a_run_that_diverges_in_its_first_phase_ends_there(context):
    spec = spec_of("gradual-1", way=Way(tune=1, order="gradual"), head_learning_rate=1e38, num_train_epochs=2)
    result = run(spec, context)
    assert result.facts["outcome"] == "diverged" and result.facts["cost"]["steps"] < 4
    assert outcome(run(spec_of(1), context)) == outcome(run(spec_of(1), context))
    assert torch.isfinite(context.pretrained.model.get_parameter("classifier.weight")).all()
