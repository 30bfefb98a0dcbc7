"""Gradual unfreezing equals trainings by hand, one after the other."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.anatomy import Anatomy
from frostline.model.ways import Way
from frostline.training.forward import train_rows
from frostline.training.result import PhaseAudit
from frostline.training.run import StepPlan, generator_seed, phases_of
from frostline.training.train import run
from training.by_hand import gap, started, way_spec
from training.runs import largest_difference, outcome, spec_of, with_states


@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 24), st.sampled_from([0.0, 0.1, 0.5, 1.0, 30.0]))
def test_the_phases_have_all_steps_of_the_run_and_warm_up_at_most_half_of_the_first(examples, epochs, layers, warmup):
    spec = spec_of("g", way=Way(order="gradual"), train_size=examples, num_train_epochs=epochs, warmup_steps=warmup)
    whole = StepPlan.of(spec, examples)
    plans = [StepPlan.of(phase, examples) for phase in phases_of(spec, Anatomy("l", layers, {}, (), 1))]
    if whole.total >= len(plans):
        assert sum(plan.total for plan in plans) == whole.total
        assert max(plan.total for plan in plans) - min(plan.total for plan in plans) <= 1
        assert 2 * plans[0].warmup <= plans[0].total and not any(plan.warmup for plan in plans[1:])


UNFROZEN = (  # in the phases of gradual unfreezing of two of three layers
    ("classifier.", "bert.pooler."),
    ("classifier.", "bert.pooler.", "bert.encoder.layer.2."),
    ("classifier.", "bert.pooler.", "bert.encoder.layer.2.", "bert.encoder.layer.1."),
)
RATES = {"layers": 2e-3, "head": 5e-3}
BY_HAND = {
    **{"train_size": 32, "per_device_train_batch_size": 8, "weight_decay": 0.1},
    **{"learning_rate": RATES["layers"], "head_learning_rate": RATES["head"]},
}


def steps_by_hand(model, spec, even, phase, factors):
    """AdamW on what is unfrozen in a phase, with these factors of the learning rates. Yields the number of each step."""
    groups = []
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith(UNFROZEN[phase - 1]))
        rate = RATES["head" if name.startswith(UNFROZEN[0]) else "layers"]
        groups += [{"params": [p], "lr": rate, "weight_decay": 0.1 * (p.dim() > 1)}] if p.requires_grad else []
    optimizer, rates = torch.optim.AdamW(groups, eps=spec.adam_epsilon), [group["lr"] for group in groups]
    order = torch.Generator().manual_seed(generator_seed(spec.seed, f"order, phase {phase}"))
    for step, factor in enumerate(factors):
        if step % 4 == 0:
            epoch = train_rows(even, spec)[torch.randperm(32, generator=order).numpy()]
        rows = epoch[step % 4 * 8 :][:8]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        model(**even.tokens.batch(rows), labels=torch.from_numpy(even.problem.targets[rows])).loss.backward()
        torch.nn.utils.clip_grad_norm_([group["params"][0] for group in groups], 1.0)
        optimizer.step()
        yield step + 1


def unfrozen_of(model, phase):
    return {name: p for name, p in model.named_parameters() if name.startswith(UNFROZEN[phase - 1])}


def test_a_run_equals_trainings_by_hand(even):
    """Three phases of four steps. The first one warms up for at most half of its steps."""
    spec = way_spec(Way(tune=2, order="gradual"), num_train_epochs=3, warmup_steps=5, **BY_HAND)
    model, _ = started(spec, even)
    for phase, factors in ((1, (0, 0.5, 1, 0.5)), (2, (1, 0.75, 0.5, 0.25)), (3, (1, 0.75, 0.5, 0.25))):
        assert list(steps_by_hand(model, spec, even, phase, factors)) == [1, 2, 3, 4]
    result = run(spec, even)
    assert gap(result, unfrozen_of(model, 3)) < 1e-5
    assert result.record.cost.steps == 12
    assert [score.epoch for score in result.record.scores if score.metric == "loss"][::2][:3] == [1, 2, 3]


def test_a_phase_ends_by_patience_and_the_next_one_starts_from_its_best_state(even):
    """Two phases of at most eight steps, each evaluated after every second one."""
    more = {"num_train_epochs": 4, "warmup_steps": 0, "evaluations_per_epoch": 2, "load_best_model_at_end": True}
    spec = way_spec(Way(tune=1, order="gradual", patience=1), **more, **BY_HAND)
    model, _ = started(spec, even)
    rows, steps = even.splits["validation"], []
    for phase in (1, 2):
        best = -1.0
        for step in steps_by_hand(model, spec, even, phase, [1 - n / 8 for n in range(8)]):
            if step % 2 == 0:
                with torch.no_grad():
                    predicted = model(**even.tokens.batch(rows)).logits.argmax(1).numpy()
                score = (predicted == even.problem.targets[rows]).mean()
                if score <= best:
                    break
                best, best_step, kept = score, step, copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        steps.append(step)
    result = run(spec, even)
    assert steps[0] < 8 and result.record.cost.steps == sum(steps)
    assert [phase.steps for phase in result.record.audit.phases] == steps
    assert result.record.best_epoch == (steps[0] + best_step) / 4
    assert gap(result, unfrozen_of(model, 2)) < 1e-5


@pytest.mark.parametrize(("examples", "steps"), [(32, 4), (8, 1)])
def test_what_was_frozen_moves_when_it_is_unfrozen(even, examples, steps):
    audit = run(way_spec(Way(order="gradual"), num_train_epochs=5, train_size=examples), even).record.audit
    layers = ["layer 0", "layer 1", "layer 2"]
    moved = [[*layers[first:], "pooler", "head"] for first in (3, 2, 1, 0)]
    whole = ["embeddings", *layers, "pooler", "head"]
    assert audit.phases[1:] == [PhaseAudit(steps=steps, moved=places) for places in (*moved[1:], whole)]
    assert steps == 1 or audit.phases[0] == PhaseAudit(steps=steps, moved=moved[0])
    assert audit.moved == whole


def test_each_phase_starts_from_cached_hidden_states(even, tmp_path):
    spec = way_spec(Way(tune=2, order="gradual"), num_train_epochs=3)
    assert largest_difference(run(spec, even), run(spec, with_states(even, tmp_path))) < 1e-4


def test_a_run_that_diverges_in_its_first_phase_ends_there(even):
    before = outcome(run(spec_of(1), even))
    spec = spec_of("gradual-1", way=Way(tune=1, order="gradual"), head_learning_rate=1e38, num_train_epochs=2)
    result = run(spec, even)
    assert result.record.outcome == "diverged" and result.record.cost.steps < 4
    assert outcome(run(spec_of(1), even)) == before
