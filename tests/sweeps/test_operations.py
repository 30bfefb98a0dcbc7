"""The cost model: properties that hold on every machine."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.frozen.exactness import find_head_token_part
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import probe_batch
from frostline.model.terms import HEAD, OWN_HEAD, POOLER, layer_place
from frostline.model.ways import Way
from frostline.sweeps.operations import Batches, CostModel
from frostline.training.experiment import Batching
from frostline.training.run import Run, phases_of
from frostline.training.train import run
from tiny import plan_of
from training.runs import context_of, named_spec, spec_of, with_states

BATCHES = Batches.of(np.array([5, 9, 4, 12]), 2)


def test_batches_have_every_example_token_and_pair_of_tokens() -> None:
    assert Batches(2, 4, 30, 266) == BATCHES and BATCHES + BATCHES == BATCHES * 2
    assert BATCHES.mean == Batches(1, 2, 15, 133) and Batches().mean == Batches()


@pytest.fixture(scope="module")
def costs(tiny_bert: Path) -> CostModel:
    """Of runs that start from the cached inputs of any layer."""
    experiment = context_of(tiny_bert)
    cuts = tuple(range(1, experiment.pretrained.anatomy.count + 1))
    return CostModel(experiment, StateSelection(cuts, head=True))


def test_a_layer_of_bert_takes_its_products_and_its_attention(costs: CostModel) -> None:
    """A layer has 12 D^2 weights, some biases and two norms. Each takes two operations for a token, and attention 4 D S."""
    anatomy, width = costs.anatomy, costs.anatomy.width
    model = costs.experiment.pretrained.model
    weights = sum(p.numel() for name, p in model.named_parameters() if anatomy.places[name] == layer_place(0))
    layer = 2 * weights * BATCHES.tokens + 4 * width * BATCHES.pairs
    uncut = CostModel(costs.experiment, StateSelection((), head=False))
    head = uncut.scoring(spec_of(0), BATCHES) - layer * anatomy.count
    assert 0 < head < layer
    for k in range(1, anatomy.count):
        assert costs.training(spec_of(k), BATCHES) == pytest.approx(3 * (head + k * layer))
        assert costs.scoring(spec_of(k), BATCHES) == pytest.approx(head + k * layer)
    # the embeddings are looked up, whether they are trained or not
    assert uncut.training(spec_of("full"), BATCHES) == pytest.approx(3 * (head + anatomy.count * layer))
    assert uncut.training(spec_of(0), BATCHES) == pytest.approx(3 * head + anatomy.count * layer)


def test_a_bilstm_reads_every_token(costs: CostModel) -> None:
    spec = spec_of("bilstm", way=Way(tune=0, lstm_width=8))
    experiment = costs.experiment.for_run(spec)
    sizes = Counter[str]()
    for name, p in experiment.pretrained.model.named_parameters():
        sizes[experiment.pretrained.anatomy.places[name]] += p.numel()
    products = sizes[HEAD] * BATCHES.tokens + sizes[POOLER] * BATCHES.examples
    assert costs.training(spec, BATCHES) == pytest.approx(3 * 2 * products)


def test_a_frozen_layer_above_a_trained_one_costs_two_forward_passes(costs: CostModel) -> None:
    anatomy, uncut = costs.anatomy, CostModel(costs.experiment, StateSelection((), head=False))
    lower, upper = (uncut.training(named_spec(f"{anatomy.path}.{n}"), BATCHES) for n in (0, anatomy.count - 1))
    layer = (uncut.scoring(spec_of(0), BATCHES) - costs.scoring(spec_of(0), BATCHES)) / anatomy.count
    assert lower - upper == pytest.approx((anatomy.count - 1) * layer)


@pytest.fixture(scope="module")
def workload(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[CostModel, Run]:
    own = {"model": tiny_bert, "train": tiny_table, "out": tmp_path_factory.mktemp("cost") / "o"}
    plan = plan_of(**own, tune="2", seeds=1, train_size=40)
    return CostModel(plan.experiment, plan.cached), plan.requested[0]


def spec_with(spec: Run, **values: Any) -> Run:
    return Run.model_validate({**spec.model_dump(exclude={"way"}), **values})


def test_longer_runs_cost_more(workload: tuple[CostModel, Run]) -> None:
    look, spec = workload
    base = look.operations(spec)
    longer = {"num_train_epochs": (4,), "train_size": (60,), "evaluations_per_epoch": (2,), "recipe": (3, "full")}
    for name, value in ((name, value) for name, values in longer.items() for value in values):
        assert look.operations(spec_with(spec, **{name: value})) > base, (name, value)
    assert look.operations(spec_with(spec, recipe=0)) < look.operations(spec_with(spec, recipe=1)) < base
    uncut = CostModel(look.experiment, StateSelection((), head=False))
    assert uncut.operations(spec) > base


def test_running_the_last_layer_for_one_token_saves_the_operations_of_the_others(costs: CostModel) -> None:
    pretrained, anatomy = costs.experiment.pretrained, costs.anatomy
    head_token = find_head_token_part(pretrained.model, anatomy, probe_batch(pretrained.model), "first")
    some = CostModel(
        costs.experiment.with_worker(batching=Batching(packed=True, head_tokens={OWN_HEAD: head_token})), costs.cached
    )
    above = spec_of(1), spec_of(2)
    saved = [costs.scoring(spec, BATCHES) - some.scoring(spec, BATCHES) for spec in above]
    d = anatomy.width
    weights = sum(
        p.numel() for name, p in pretrained.model.named_parameters() if anatomy.places[name] == layer_place(1)
    )
    once = weights - 2 * (d * d + d)  # all but keys and values
    expected = 2 * once * (BATCHES.tokens - BATCHES.examples) + 4 * d * (BATCHES.pairs - BATCHES.tokens)
    assert saved == pytest.approx([expected, expected])  # the layers below do not change


def test_a_batch_of_the_forward_pass_costs_as_much_with_few_rows_as_with_many(tiny_bert: Path) -> None:
    """Copies fill it up. A forecast scales with the speed that it measures on such a batch."""
    experiment = context_of(tiny_bert)
    costs = CostModel(experiment, StateSelection((1,), head=False))
    lengths = experiment.tokens.lengths
    one = np.flatnonzero(lengths == lengths[0])[:1]
    assert costs.forward_pass(one) > 0 and costs.forward_pass(np.repeat(one, 4)) == pytest.approx(
        costs.forward_pass(one)
    )
    assert costs.forward_pass(one[:0]) == 0


@pytest.mark.parametrize(("order", "evaluations"), [("at-once", 2), ("gradual", 5), ("head-first", 2)])
def test_evaluations_of_all_phases_are_counted(order: str, evaluations: int, tiny_bert: Path, tmp_path: Path) -> None:
    """Five phases in two epochs: each one ends with an evaluation."""
    experiment = with_states(context_of(tiny_bert), tmp_path)
    spec = spec_of("w", way=Way(order=order))
    record = run(spec, experiment).record
    measured = {row.epoch for row in record.scores if row.split == "validation"}
    counted = CostModel(experiment, StateSelection((), head=False)).batches(spec)
    # each evaluation scores validation and what was trained on; each phase some training rows in the end; test comes once
    phases = len(phases_of(spec, experiment.pretrained.anatomy))
    assert counted.scorings - phases - len(experiment.splits) + 2 == 2 * len(measured) == 2 * evaluations
    # the first phases, and the fit of a head, start from cached states, although the last training tunes everything
    assert record.provenance.cut is None
    assert record.provenance.from_cache == (order != "at-once")
    assert (record.cost.forward_pass_seconds > 0) == (order != "at-once")
