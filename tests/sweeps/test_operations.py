"""The cost model: properties that hold on every machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.frozen.exactness import find_head_token_part
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.terms import layer_place
from frostline.model.ways import Way
from frostline.sweeps.operations import CostModel, Matrices, batch_totals, random_batch_totals
from frostline.sweeps.progress import Progress
from frostline.training.run import Run
from frostline.training.train import run
from small_models import small_model
from tiny import plan_of
from training.runs import context_of, spec_of, with_states

LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=60).map(np.array)


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    model = small_model("bert")
    return Matrices.of(model, find_layers(model))


@given(LENGTHS, st.integers(1, 16))
def test_batches_contain_every_example_and_token_for_every_order(lengths: np.ndarray, size: int) -> None:
    for made in (batch_totals(lengths, size), random_batch_totals(lengths, size)):
        assert (made.count, made.examples, made.tokens) == (-(-len(lengths) // size), len(lengths), lengths.sum())
        assert made.padded_tokens >= made.tokens and made.token_pairs >= (lengths**2).sum()
        assert made.token_pairs <= made.padded_tokens * lengths.max()
    assert batch_totals(lengths, 1).padded_tokens == lengths.sum()


def test_operations_of_a_layer_match_the_formula_for_bert(matrices: Matrices) -> None:
    width = matrices.anatomy.width
    step = batch_totals(np.full(4, 8), 4)
    weights = matrices.layers[0]
    shapes = {name: size for name, size in matrices.sizes.items() if matrices.anatomy.places[name] == layer_place(0)}
    assert weights == sum(shapes.values()) and len(shapes) == 6  # query, key, value, output, and two of the FFN
    assert matrices.forward(step, 0, 1) == 32 * 2 * weights + 4 * width * 4 * 8 * 8
    assert not any("embeddings" in name for name in matrices.sizes)
    assert matrices.forward(step) == matrices.forward(step, 0, 1) + matrices.forward(step, 1)
    whole = matrices.training(Way(tune="full").parameters(matrices.anatomy), step, None)
    assert whole == pytest.approx(3 * matrices.forward(step))  # looking up embeddings costs no operations


def test_training_a_lower_layer_costs_more(matrices: Matrices) -> None:
    """With one trained layer, each frozen layer above it costs as much as two more forward passes.

    Its attention costs three, because both of its inputs have gradients.
    """
    anatomy, step = matrices.anatomy, batch_totals(np.array([5, 9, 4]), 3)
    head = Way(tune=0).parameters(anatomy)

    def only(layer: int) -> float:
        names = head | {name for name, place in anatomy.places.items() if place == layer_place(layer)}
        return matrices.training(names, step, layer)

    one, attention = matrices.forward(step, 0, 1), 4 * anatomy.width * step.token_pairs
    last = anatomy.count - 1
    assert [only(layer) - only(last) for layer in range(anatomy.count)] == pytest.approx(
        [(2 * one + attention) * (last - layer) for layer in range(anatomy.count)]
    )
    assert matrices.training(head, step, None) - matrices.training(head, step, anatomy.count) == pytest.approx(
        one * anatomy.count
    )


@pytest.fixture(scope="module")
def workload(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[CostModel, Run]:
    out = tmp_path_factory.mktemp("cost") / "o"
    sweep = {
        "progress": Progress(),
        "model": tiny_bert,
        "train": tiny_table,
        "out": out,
        "tune": "2",
        "seeds": 1,
        "train_size": 40,
    }
    plan = plan_of(**sweep)
    return CostModel(plan.experiment, plan.cached), plan.requested[0]


def spec_with(spec: Run, **values: Any) -> Run:
    return Run.model_validate({**spec.model_dump(exclude={"way"}), **values})


def test_longer_runs_cost_more(workload: tuple[CostModel, Run]) -> None:
    look, spec = workload
    base = look.operations(spec)
    for longer in (
        {"num_train_epochs": 4},
        {"train_size": 60},
        {"evaluations_per_epoch": 2},
        {"recipe": 3},
        {"recipe": "full"},
    ):
        assert look.operations(spec_with(spec, **longer)) > base, longer
    assert look.operations(spec_with(spec, recipe=0)) < look.operations(spec_with(spec, recipe=1)) < base
    uncut = CostModel(look.experiment, StateSelection((), head=False))
    assert uncut.operations(spec) > base


def test_running_the_last_layer_for_one_token_saves_the_operations_of_the_others() -> None:
    model = small_model("bert", layers=3)
    anatomy = find_layers(model)
    batch = probe_batch(model)
    head_token = find_head_token_part(model, anatomy, batch, "first")
    whole, some = Matrices.of(model, anatomy), Matrices.of(model, anatomy, head_token)
    batches = batch_totals(np.full(8, 10), 4)
    assert some.forward(batches, stop=2) == whole.forward(batches, stop=2)  # the layers below do not change
    d = anatomy.width
    cached = 2 * (2 * d * d)  # keys and values
    saved = whole.layers[2] - cached // 2
    expected = 2 * saved * (batches.tokens - batches.examples) + 4 * d * (batches.token_pairs - batches.tokens)
    assert whole.forward(batches) - some.forward(batches) == pytest.approx(expected)


@pytest.mark.parametrize(("order", "evaluations"), [("at-once", 2), ("gradual", 5), ("head-first", 2)])
def test_evaluations_of_all_phases_are_counted(order: str, evaluations: int, tiny_bert: Path, tmp_path: Path) -> None:
    """Five phases in two epochs: each one ends with an evaluation."""
    experiment = with_states(context_of(tiny_bert), tmp_path)
    spec = spec_of("w", way=Way(order=order))
    record = run(spec, experiment).record
    measured = {row.epoch for row in record.scores if row.split == "validation"}
    _, counted = CostModel(experiment, StateSelection((), head=False)).steps(spec, experiment.tokens.lengths[:32])
    assert counted == len(measured) == evaluations
    # the first phases, and the fit of a head, start from cached states, although the last training tunes everything
    assert record.provenance.cut is None
    assert record.provenance.from_cache == (order != "at-once")
    assert (record.cost.forward_pass_seconds > 0) == (order != "at-once")
