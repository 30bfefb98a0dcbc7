"""Results: facts for JSON, with test scores stored separately."""

import json

from frostline.training.result import RunRecord
from frostline.training.run import Run
from frostline.training.train import run
from training.runs import (
    spec_of,
)


def test_the_facts_can_be_written_as_json(experiment):
    result = run(spec_of(2), experiment)
    facts = json.loads(json.dumps(result.record.model_dump(mode="json"), allow_nan=False))
    assert RunRecord.model_validate(facts) == result.record
    assert facts["digest"] == spec_of(2).digest and Run.model_validate(facts["spec"]) == spec_of(2)
    accuracy = {(s.split, s.epoch): s.value for s in result.record.scores if s.metric == "accuracy"}
    assert set(accuracy) == {
        ("validation", 1),
        ("validation", 2),
        ("train_running", 1),
        ("train_running", 2),
        ("train", 2),
    }
    best = result.logits["validation_best"]
    targets = experiment.problem.targets[experiment.splits["validation"]]
    assert (
        facts["validation_best"] == (best.argmax(1) == targets).mean() == max(accuracy["validation", e] for e in (1, 2))
    )
    assert facts["validation_last"] == accuracy["validation", 2] and facts["train_last"] == accuracy["train", 2]
    assert facts["cost"]["steps"] == 8 and facts["cost"]["peak_memory_bytes"] > 0
    test = (result.test_logits.argmax(1) == experiment.problem.targets[experiment.splits["test"]]).mean()
    assert result.test.scores["accuracy"] == test and "test" not in json.dumps(facts["scores"])


def test_a_run_that_diverges_has_a_result(experiment):
    spec = spec_of(1, learning_rate=1e30, head_learning_rate=1e30, max_grad_norm=0, warmup_steps=0)
    result = run(spec, experiment)
    assert result.record.outcome == "diverged" and "not finite" in result.record.reason
    json.dumps(result.record.model_dump(mode="json"), allow_nan=False)
    assert result.test is None
    assert run(spec_of(1), experiment).record.outcome != "diverged"  # the next run is not affected
