"""The unit in which the head of a regression learns its numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.data.kinds import REGRESSION
from frostline.model.anatomy import find_layers
from frostline.model.ways import Way
from frostline.training.experiment import Worker
from frostline.training.problem import Problem, Unit
from frostline.training.train import restore, run
from tiny import tiny_bert_folder
from training.by_hand import way_spec
from training.runs import context_of, spec_of, stack_gap
from training.test_other_heads import folder_of

FULL, RAW = spec_of("full"), Unit()
SPECS = (spec_of(0), FULL, way_spec(Way(tune=2, head_reads="mean")), way_spec(Way(order="head-first")))


def of_numbers(folder, times=1.0, plus=0.0, unit=None):
    """An experiment with these numbers of good words, and the unit of the training rows."""
    experiment = context_of(folder, regression=True)
    numbers = times * experiment.problem.targets + plus
    unit = unit or Unit.of(numbers[experiment.splits["train"]])
    return replace(experiment, problem=Problem(REGRESSION, numbers, experiment.tokens.lengths, None, "r2", unit=unit))


def validated(experiment, spec):
    """The logits of the validation rows at the best evaluation; frostline and the restored model alone predict them too."""
    result = run(spec, experiment)
    (logits,) = {one.tobytes(): one for one in result.logits.values()}.values()
    learned = {name: p.detach().clone() for name, p in result.learned.items()}
    restored, own = restore(spec, experiment, learned), experiment.for_run(spec)
    with torch.no_grad():
        alone = own.pretrained.model.eval()(**own.tokens.batch(own.splits["validation"])).logits.float().numpy()
    for again in (restored, alone):
        assert np.abs(again - logits).max() < 1e-4 * experiment.problem.unit.scale
    return logits


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.integers(-20, 20))
def test_numbers_in_their_unit_have_a_mean_near_2_5_and_a_spread_near_1_5(numbers, power):
    unit, known = Unit.of(np.array(numbers)), np.array(numbers)
    if known.std() > 1e-6 * (1 + abs(known).max()):
        learned = (known - unit.centre) / unit.scale
        assert abs(learned.mean() - 2.5) <= 0.51 and 1.05 < learned.std() < 2.13
        assert Unit.of(known * 2.0**power) == Unit(unit.centre * 2.0**power, unit.scale * 2.0**power)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.recipe))
def test_the_unit_of_a_table_changes_no_digit_of_what_is_learned(tiny_bert, spec):
    one, many = (validated(of_numbers(tiny_bert, times), spec) for times in (1, 1024))
    assert np.array_equal(1024 * one, many) and one.std() > 0


@pytest.mark.parametrize("kind", ["bert", "llama"])  # the head of a LLaMA has no bias
def test_a_run_equals_one_on_numbers_in_their_unit(kind, tmp_path):
    folder = folder_of(kind, tmp_path / "base")
    experiment = of_numbers(folder, 40, 900)
    unit = experiment.problem.unit if kind == "bert" else experiment.problem.unit.without_centre
    logits = validated(experiment, FULL)
    plain = validated(of_numbers(folder, 40 / unit.scale, (900 - unit.centre) / unit.scale, unit=RAW), FULL)
    assert np.abs(logits - (unit.scale * plain + unit.centre)).max() < 1e-3 * unit.scale


def test_a_head_that_does_not_end_in_a_linear_module_learns_the_numbers_themselves(tmp_path):
    """Such as one of a model with code of its own. Its module can predict no number in another unit."""
    experiment = of_numbers(tiny_bert_folder(tmp_path), 40, 900)
    model = experiment.pretrained.model
    model.classifier = nn.Sequential(model.classifier, nn.Tanh())
    new = {name.replace("classifier", "classifier.0") for name in experiment.pretrained.new}
    pretrained = replace(experiment.pretrained, anatomy=find_layers(model), new=frozenset(new))
    assert np.abs(validated(replace(experiment, pretrained=pretrained, worker=Worker()), way_spec(Way()))).max() <= 1


def test_stacks_learn_in_the_unit(tiny_bert):
    specs = [spec_of(0, seed=seed) for seed in range(3)]
    for batched in (False, True):
        assert stack_gap(specs, of_numbers(tiny_bert, 40, 900), batched=batched) < 1e-4
