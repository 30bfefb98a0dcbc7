"""Gradual unfreezing equals trainings by hand, one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.anatomy import Anatomy
from frostline.model.trainable import Trainable
from frostline.statistics.tune import FULL
from frostline.training.run import run
from frostline.training.session import score_rows, training_session
from frostline.training.steps import StepPlan
from frostline.training.ways.phases import phases_of
from frostline.training.ways.way import Way
from training.by_hand import context_without_dropout, gap, parameters_of, started, train_by_hand, way_spec
from training.runs import largest_difference, outcome, spec_of, with_states


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return context_without_dropout(tmp_path_factory.mktemp("even"))


@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 24), st.sampled_from([0.0, 0.1, 0.5, 1.0, 30.0]))
def test_the_phases_have_all_steps_of_the_run_and_warm_up_at_most_half_of_the_first(examples, epochs, layers, warmup):
    spec = spec_of("g", way=Way(order="gradual"), train_size=examples, num_train_epochs=epochs, warmup_steps=warmup)
    whole = StepPlan.of(spec, examples)
    plans = [StepPlan.of(phase, examples) for phase in phases_of(spec, Anatomy("l", layers, {}, (), 1))]
    if whole.total >= len(plans):
        assert sum(plan.total for plan in plans) == whole.total
        assert max(plan.total for plan in plans) - min(plan.total for plan in plans) <= 1
        assert 2 * plans[0].warmup <= plans[0].total and not any(plan.warmup for plan in plans[1:])


def test_every_phase_moves_what_it_unfreezes_even_in_a_single_step(context):
    audit = run(spec_of("g", way=Way(order="gradual"), train_size=8, num_train_epochs=5), context).facts["audit"]
    for layer, moved in zip(("layer 2", "layer 1", "layer 0", "embeddings"), audit["moved_in_phases"][1:], strict=True):
        assert layer in moved


def test_the_phases_unfreeze_one_layer_after_the_other(context):
    anatomy = context.pretrained.anatomy
    phases = phases_of(spec_of("gradual", way=Way(order="gradual"), num_train_epochs=5, warmup_steps=3), anatomy)
    assert [phase.to_train.tune for phase in phases] == [0, 1, 2, 3, FULL]
    assert [phase.warmup_steps for phase in phases] == [2, 0, 0, 0, 0]
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
        unfrozen = Trainable(phase.way.tune).parameters(context.pretrained.anatomy)
        train_by_hand(model, parameters_of(model, unfrozen), phase, context)
    result = run(spec, context)
    assert gap(result, parameters_of(model, names)) < 1e-5
    assert result.facts["cost"]["steps"] == 12
    assert [score["epoch"] for score in result.facts["scores"] if score["metric"] == "loss"][::2][:3] == [1, 2, 3]


def test_what_was_frozen_moves_when_it_is_unfrozen(context):
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
    more = {"num_train_epochs": 4, "evaluations_per_epoch": 2, "head_learning_rate": 0.3, "learning_rate": 1e-30}
    spec = spec_of("gradual-1", way=Way(tune=1, order="gradual"), **more)
    head, last = phases_of(spec, context.pretrained.anatomy)
    alone = run(head, context)
    best, end = alone.logits["validation_best"], alone.logits["validation_last"]
    assert abs(best - end).max() > 1e-3  # the head is worse at the end of the first phase
    learned = {name: p.detach().clone() for name, p in alone.learned.items()}
    with training_session([last], context, earlier=learned) as (_, forward):
        context.pretrained.model.eval()
        logits = score_rows(forward, context, context.splits["validation"], [last])[0]
    assert abs(logits - best).max() < 1e-6


def test_a_run_that_diverges_in_its_first_phase_ends_there(context):
    before = outcome(run(spec_of(1), context))
    spec = spec_of("gradual-1", way=Way(tune=1, order="gradual"), head_learning_rate=1e38, num_train_epochs=2)
    result = run(spec, context)
    assert result.facts["outcome"] == "diverged" and result.facts["cost"]["steps"] < 4
    assert outcome(run(spec_of(1), context)) == before
