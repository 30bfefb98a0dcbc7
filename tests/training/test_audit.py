"""The audit: it describes every run correctly, and fails if a run trains a frozen parameter."""

import pytest
import torch

from frostline.model.terms import HEAD
from frostline.training.audit import Audit
from frostline.training.train import run, training_session
from training.runs import named_spec, spec_of, weights_of


@pytest.mark.parametrize(
    "spec",
    [
        *(
            spec_of(tune, tune_pooler=on)
            for tune, on in ((0, True), (1, False), (3, True), ("full", True), ("full", False))
        ),
        *map(named_spec, ("pooler", "attention.self.query")),
        named_spec("layer.1.output", "layer.2.attention"),
        named_spec("word_embeddings", "layer.1"),
    ],
    ids=lambda spec: f"{spec.recipe} {spec.way.modules or ''} {spec.tune_pooler}",
)
def test_the_audit_matches_the_parameters_that_changed(experiment, spec):
    model, anatomy = experiment.pretrained.model, experiment.pretrained.anatomy
    experiment.pretrained.start_run(frozenset(), 0)
    before = weights_of(experiment)
    audit, after, names = run(spec, experiment).record.audit, weights_of(experiment), spec.parameters(anatomy)
    if modules := spec.way.modules:
        inside = {n for n in anatomy.places if any(f".{part}." in f".{n}" for part in modules)}
        assert names == inside | anatomy.within({HEAD})
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert moved <= names and {n for n in names if not n.endswith("key.bias")} - moved <= {
        "bert.embeddings.position_embeddings.weight"
    }
    assert audit.trainable_parameters == sum(p.numel() for n, p in model.named_parameters() if n in names)
    assert audit.parameters == sum(p.numel() for p in model.parameters())
    assert sum(place.trained for place in audit.by_place.values()) == audit.trainable_parameters
    assert sum(place.frozen for place in audit.by_place.values()) == audit.parameters - audit.trainable_parameters
    assert audit.clipped_parameters == len(names)
    assert set(audit.moved) == {anatomy.places[name] for name in moved} and audit.merged == []
    assert len(audit.checks) == 5 and all(audit.checks.values())


def test_the_audit_of_a_continued_training_knows_where_it_started(experiment):
    spec = spec_of(1)
    names = spec.parameters(experiment.pretrained.anatomy)
    with training_session([spec], experiment) as (learners, _):
        first = Audit(experiment.pretrained, names, learners)
        with torch.no_grad():
            learners[0].learned["classifier.weight"].add_(1)
        continued = Audit(experiment.pretrained, names, learners)
        assert first.records(frozen_dropout=False)[0].moved == ["head"]
        assert continued.records(frozen_dropout=False)[0].moved == []
        continued.load_state(first.state())
        assert continued.records(frozen_dropout=False) == first.records(frozen_dropout=False)


def test_a_run_whose_audit_fails_has_no_result(uncached):
    model = uncached.pretrained.model
    table = model.bert.embeddings.word_embeddings.weight

    def change_frozen_weight(step, total):
        with torch.no_grad():
            table[0, 0] = 1e-3

    def give_frozen_gradient(step, total):
        table.grad = torch.ones_like(table)

    for check, on_step in (
        ("frozen_bytes_unchanged", change_frozen_weight),
        ("frozen_gradients_none", give_frozen_gradient),
    ):
        with pytest.raises(AssertionError, match=rf"audit: \['{check}'\]"):
            run(spec_of(1), uncached, on_step=on_step)
        with torch.no_grad():
            table[0, 0], table.grad = 0, None  # the embedding of the padding token is 0


def test_modes_and_optimizer_are_audited(experiment):
    spec = spec_of(1)
    names = spec.parameters(experiment.pretrained.anatomy)
    with training_session([spec], experiment) as (learners, _):
        audit = Audit(experiment.pretrained, names, learners)
        experiment.pretrained.model.train()
        audit.check_modes()
        learners[0].groups[0]["params"].pop()
        with pytest.raises(AssertionError, match=r"optimizer_holds_exactly_the_trained.*frozen_in_eval_mode"):
            audit.records(frozen_dropout=False)
