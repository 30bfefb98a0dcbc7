"""Training and validation rows of a run, their order, and their seeds."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.terms import HEAD
from frostline.training.forward import subset_key, subset_rows, train_rows
from frostline.training.run import generator_seed
from frostline.training.train import training_session
from training.lines import same
from training.runs import spec_of


def test_subset_head_and_order_are_the_same_for_every_k(experiment):
    places = experiment.pretrained.anatomy.places

    def start(k, seed):
        with training_session([spec_of(k, seed=seed)], experiment) as ((one,), _):
            head = {n: p.detach().clone() for n, p in one.parameters.items() if places[n] == HEAD}
            return head, one.rows.tolist(), torch.randperm(9, generator=one.order).tolist(), torch.rand(3).tolist()

    head, *drawn = start(0, 4)
    for k in (1, 2, 3, "full"):
        own, *others = start(k, 4)
        assert others == drawn and same(own, head), k
    own, *others = start(0, 5)
    assert all(one != other for one, other in zip(others, drawn, strict=True)) and not same(own, head)


def test_subsets_are_nested_and_stratified_and_depend_on_the_seed(experiment):
    for subset in ("per-seed", "fixed"):
        rows = [train_rows(experiment, spec_of(train_size=size, subset=subset)) for size in (4, 16, 32, 48)]
        for smaller, larger in pairwise(rows):
            assert set(smaller) < set(larger) <= set(experiment.splits["train"])
        for part in rows:
            assert abs(experiment.problem.targets[part].sum() - len(part) / 2) <= 1
    first = train_rows(experiment, spec_of(train_size=16))
    assert set(first) != set(train_rows(experiment, spec_of(train_size=16, seed=1)))
    assert set(first) == set(train_rows(experiment, spec_of(train_size=16, data_seed=1)))
    fixed = [
        train_rows(experiment, spec_of(train_size=16, subset="fixed", seed=s, data_seed=d))
        for s, d in ((0, 0), (1, 0), (0, 1))
    ]
    assert set(fixed[0]) == set(fixed[1]) != set(fixed[2])


@given(
    st.sampled_from(["per-seed", "fixed"]),
    st.sampled_from([0, 2, 3]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.sampled_from([8, 16, 20])), min_size=2, max_size=6),
)
def test_runs_with_the_same_key_train_on_the_same_rows(subset, folds, drawn):
    targets = np.arange(40) % 2
    of_row = np.arange(40) % folds if folds else None
    rows = {}
    for seed, data_seed, size in drawn:
        spec = spec_of(seed=seed, data_seed=data_seed, train_size=size, subset=subset, folds=folds)
        rows.setdefault(subset_key(spec, targets, of_row), []).append(set(subset_rows(spec, targets, of_row)))
    assert all(one == some[0] for some in rows.values() for one in some)
    assert len(rows) == len({frozenset(some[0]) for some in rows.values()})  # and with another key on others


def test_every_purpose_has_a_different_seed():
    seeds = {generator_seed(seed, purpose) for seed in range(50) for purpose in ("head", "order", "dropout", "subset")}
    assert len(seeds) == 200 and all(0 <= seed < 2**63 for seed in seeds)
