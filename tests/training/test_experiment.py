"""Runs from cached hidden states, of the last layers or of named modules, give the same results as runs of the whole model."""

import pytest

from frostline.training.experiment import Batching
from frostline.training.train import run
from training.runs import largest_difference, named_spec, outcome, spec_of, with_states

CASES = [  # a run, its cut, and whether batches are packed
    *((spec_of(k), 3 - k, True) for k in (0, 1, 2)),
    (spec_of(1), 2, False),
    (named_spec("pooler"), 3, True),
    (named_spec("layer.1.output", "layer.2.attention"), 1, True),
    (named_spec("word_embeddings", "layer.1"), None, True),
]


@pytest.mark.parametrize("spec, cut, packed", CASES, ids=lambda value: getattr(value, "recipe", str(value)))
def test_runs_from_cached_hidden_states_equal_runs_of_the_whole_model(uncached, experiment, spec, cut, packed):
    """The forward pass has other batches than a run, so rounding differs. Two epochs are too few to amplify this."""
    with_cache, without = (one.with_worker(batching=Batching(packed)) for one in (experiment, uncached))
    one, other = run(spec, with_cache), run(spec, without)
    assert (one.record.provenance.cut, other.record.provenance.cut) == (cut, None)
    assert one.record.validation_best == other.record.validation_best
    assert largest_difference(one, other) < 1e-3
    assert one.record.audit == other.record.audit


@pytest.fixture(scope="module")
def from_every_cut(experiment):
    """Runs with k = 0, 1, 2, each from its own cut."""
    return {k: run(spec_of(k), experiment) for k in (0, 1, 2)}


@pytest.mark.parametrize("cached, cuts", [((3, 1), {0: 3, 1: 1, 2: 1}), ((1,), {0: 1, 1: 1})])
def test_a_run_whose_cut_is_not_cached_starts_from_the_nearest_below(uncached, from_every_cut, tmp_path, cached, cuts):
    some = with_states(uncached, tmp_path, cached)
    for k, cut in cuts.items():
        one, whole = run(spec_of(k), some), from_every_cut[k]
        assert one.record.provenance.cut == cut
        assert one.record.validation_best == whole.record.validation_best
        assert largest_difference(one, whole) < 1e-3
        if cut == 3 - k:
            assert outcome(one) == outcome(whole)


def test_runs_that_train_all_layers_use_no_cached_hidden_states(uncached, tmp_path):
    """This includes full fine-tuning, which also trains the embeddings. Cached embeddings are for probes of words."""
    cached = with_states(uncached, tmp_path, (3, 2, 1, 0))
    for tune in (3, "full"):
        one = run(spec_of(tune), cached)
        assert one.record.provenance.cut is None and one.record.cost.forward_pass_seconds == 0
        assert outcome(one) == outcome(run(spec_of(tune), uncached))
