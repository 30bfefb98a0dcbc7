"""Runs of a tiny BERT. A run depends only on its specification, and its facts can be written as JSON."""

import json

import torch

from frostline.model.ways import Way
from frostline.training.result import RunRecord
from frostline.training.run import Run
from frostline.training.train import run
from training.runs import outcome, spec_of


def test_a_run_depends_on_its_specification_only(experiment):
    """Neither on which runs were before, nor on their order, nor on torch's generator, which it leaves as it is."""
    short = {"num_train_epochs": 1}
    specs = [
        spec_of(1, **short),
        spec_of("full", learning_rate=1e-2, **short),
        spec_of(0, **short),
        spec_of(1, seed=1, **short),
        spec_of(3, seed=1, **short),
        spec_of(2, tune_pooler=False, **short),
        spec_of("m", way=Way(tune=2, head_reads="mean"), **short),  # its base model is that of all others
    ]
    forwards = [outcome(run(spec, experiment)) for spec in specs]
    torch.manual_seed(99)
    state = torch.get_rng_state()
    backwards = [outcome(run(spec, experiment)) for spec in specs[::-1]]
    assert torch.equal(torch.get_rng_state(), state)
    assert backwards[::-1] == forwards
    assert len({logits["validation_last"] for _, logits, *_ in forwards}) == len(specs)


def test_the_facts_can_be_written_as_json(experiment):
    """Test scores are stored separately."""
    result = run(spec_of(2), experiment)
    facts = json.loads(json.dumps(result.record.model_dump(mode="json"), allow_nan=False))
    assert RunRecord.model_validate(facts) == result.record
    assert facts["digest"] == spec_of(2).digest and Run.model_validate(facts["spec"]) == spec_of(2)
    accuracy = {(s.split, s.epoch): s.value for s in result.record.scores if s.metric == "accuracy"}
    assert set(accuracy) == {
        *((split, epoch) for split in ("validation", "train_running") for epoch in (1, 2)),
        ("train", 2),
    }
    right, test_right = (
        (logits.argmax(1) == experiment.problem.targets[experiment.splits[split]]).mean()
        for split, logits in (("validation", result.logits["validation_best"]), ("test", result.test_logits))
    )
    assert facts["validation_best"] == right == max(accuracy["validation", epoch] for epoch in (1, 2))
    assert facts["validation_last"] == accuracy["validation", 2] and facts["train_last"] == accuracy["train", 2]
    assert facts["cost"]["steps"] == 8 and facts["cost"]["peak_memory_bytes"] > 0
    assert result.test.scores["accuracy"] == test_right and "test" not in json.dumps(facts["scores"])


def test_a_run_that_diverges_has_a_result(experiment):
    spec = spec_of(1, learning_rate=1e30, head_learning_rate=1e30, max_grad_norm=0, warmup_steps=0)
    result = run(spec, experiment)
    assert result.record.outcome == "diverged" and "not finite" in result.record.reason
    json.dumps(result.record.model_dump(mode="json"), allow_nan=False)
    assert result.test is None
    assert run(spec_of(1), experiment).record.outcome != "diverged"  # the next run is not affected
