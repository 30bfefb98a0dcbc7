"""A run of an estimator: its result has the form of any other run's."""

from dataclasses import replace

from frostline.model.ways import Way
from frostline.training.train import run
from training.runs import context_of, spec_of

SPEC = spec_of("probe", way=Way(estimator="probe"), learning_rate=None)


def test_the_result_has_scores_predictions_and_costs(tiny_bert) -> None:
    context = replace(context_of(tiny_bert), labels=("negative", "positive"))
    result, usual = run(SPEC, context), run(spec_of(1), context)
    assert result.record.digest == SPEC.digest and result.record.cost.run_seconds > 0
    assert result.record.outcome == "ok" and result.record.validation_best > 0.7
    assert result.record.audit.tuned_share == 0.0
    assert all(not counts.trained for counts in result.record.audit.by_place.values())
    assert {name: logits.shape for name, logits in result.logits.items()} == {
        name: logits.shape for name, logits in usual.logits.items()
    }
    assert result.test is not None and usual.test is not None
    assert result.test.scores.keys() == usual.test.scores.keys()
    scored = {(row.split, row.metric) for row in result.record.scores}
    assert ("validation", "accuracy") in scored and ("train", "loss") in scored
