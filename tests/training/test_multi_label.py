"""Multi-label classification is exact: losses, gradients and trained weights are those of plain transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from frostline.data.kinds import MULTI_LABEL
from frostline.model.loading import load_pretrained
from frostline.training.problem import MultiLabelProblem
from frostline.training.train import run, training_session
from frostline.training.updates import backward
from tiny import GOOD, sentences, tiny_bert_folder
from training.by_hand import EVEN, gap, started, train_by_hand
from training.runs import SIZES, context_of, losses, outcome, spec_of, stack_gap, with_states

LABELS = ("good", "long", "plot")
TEXTS = [row["text"].split() for row in sentences(sum(SIZES.values()))]
TARGETS = np.array([[any(word in GOOD for word in text), len(text) > 6, "plot" in text] for text in TEXTS])


def context_of_sets(folder, **bert):
    experiment = context_of(tiny_bert_folder(folder, **bert))
    problem = MultiLabelProblem(MULTI_LABEL, TARGETS, experiment.tokens.lengths, None, "f1_micro")
    pretrained = load_pretrained(str(folder), labels=LABELS, task_type=MULTI_LABEL)
    return replace(experiment, pretrained=pretrained, problem=problem)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return context_of_sets(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("tune", [0, 1, "full"])
def test_a_run_has_the_weights_of_a_plain_loop_step_by_step(tmp_path, tune):
    experiment = context_of_sets(tmp_path / "bert", dropout=0.0)
    for epochs in (1, 2):
        spec = spec_of(tune, **{**EVEN, "num_train_epochs": epochs})
        trained = train_by_hand(*started(spec, experiment), spec, experiment)
        assert gap(run(spec, with_states(experiment, tmp_path / "states")), trained) < 2e-5


def test_stacked_runs_are_those_trained_alone(experiment):
    specs = [spec_of(0, seed=seed, num_train_epochs=1) for seed in range(2)]
    assert stack_gap(specs, experiment) < 1e-5


def test_a_model_learns_and_a_run_can_be_repeated(experiment):
    result = run(spec_of("full", num_train_epochs=12, train_size=48), experiment)
    assert {s.metric for s in result.record.scores} == {"f1_micro", "f1_macro", "subset_accuracy", "loss"}
    assert min(losses(result).values()) < 0.5 and result.logits["validation_best"].shape == (24, 3)
    spec = spec_of(1, num_train_epochs=1)
    assert outcome(run(spec, experiment)) == outcome(run(spec, experiment))


@pytest.mark.parametrize("weighted", [True, False])
def test_losses_of_several_runs_and_of_parts_are_those_of_each_run(experiment, weighted):
    weights = torch.tensor([0.5, 3.0, 1.0]) if weighted else None
    problem = replace(experiment.problem, class_weights=weights)
    draw = torch.Generator().manual_seed(0)
    logits, rows = torch.randn(2, 10, 3, generator=draw), np.arange(20).reshape(2, 10)
    targets = torch.from_numpy(TARGETS[rows])
    losses = problem.losses(logits, rows)
    expected = [
        F.binary_cross_entropy_with_logits(x, y.float(), pos_weight=weights)
        for x, y in zip(logits, targets, strict=True)
    ]
    torch.testing.assert_close(losses, torch.stack(expected))
    torch.testing.assert_close(problem._by_run(logits, targets), losses)
    found = []
    with training_session([spec_of(1)], replace(experiment, problem=problem)) as ((learner,), forward):
        experiment.pretrained.model.eval()
        for size in (None, 3):
            for p in learner.parameters.values():
                p.grad = None
            backward(forward, np.arange(10)[None], problem, micro_batch=size)
            found.append([p.grad.clone() for p in learner.parameters.values()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_a_model_that_predicts_one_set_for_all_is_degenerate(experiment):
    rows = np.arange(24)
    constant, other = np.full((24, 3), -1.0, np.float32), np.full((24, 3), -1.0, np.float32)
    other[3, 1] = 1.0
    assert experiment.problem.is_degenerate(constant, rows) and not experiment.problem.is_degenerate(other, rows)
