"""The probe of a run: the same as that of ``frostline probe`` on the same examples."""

from dataclasses import replace

import numpy as np

from frostline.training.estimators import ProbeEstimator, examples_of
from frostline.training.forward import train_rows
from frostline.training.probes import best_probe
from training.runs import context_of, spec_of, with_states

LABELS = ("negative", "positive")


def probe_spec(**more):
    from frostline.model.ways import Way

    return spec_of("probe", way=Way(estimator="probe"), **{"learning_rate": None, **more})


def labelled_context(tiny_bert):
    return replace(context_of(tiny_bert), labels=LABELS)


def test_cached_and_recomputed_features_give_the_same_probe(tiny_bert, tmp_path) -> None:

    from frostline.frozen.forward_pass import StateSelection
    from frostline.frozen.hidden_states import CacheKey, load_or_compute

    context, spec = labelled_context(tiny_bert), probe_spec()
    selection = StateSelection((), head=False, pooled=(0, 1, 2, 3))
    recipe = CacheKey("", "", "float32", "", "", 1, "", "", "", head_reads=context.head_reads)
    rows = np.arange(len(context.tokens))
    states = load_or_compute(context.forward_pass(selection), context.tokens, rows, recipe, folder=tmp_path)
    fits = [ProbeEstimator().fit(spec, one) for one in (context, context.with_worker(states=states))]
    assert fits[0].fitted.input == fits[1].fitted.input
    logits = [fit.logits(context.splits["test"], "test") for fit in fits]
    np.testing.assert_allclose(*logits, atol=1e-5)


def test_states_without_pooled_vectors_are_not_read(tiny_bert, tmp_path) -> None:
    context = with_states(labelled_context(tiny_bert), tmp_path)
    rows = context.splits["validation"]
    assert examples_of(context, rows, (0, 3)).vectors(3).shape == (len(rows), 3, 32)


def test_the_subset_of_the_seed_is_fitted(tiny_bert) -> None:
    context, fits = labelled_context(tiny_bert), {}
    for seed in (0, 1):
        spec = probe_spec(seed=seed, train_size=24)
        fits[seed] = ProbeEstimator().fit(spec, context)
        by_hand = best_probe(examples_of(context, train_rows(context, spec), range(4)), 3)
        assert by_hand.input == fits[seed].fitted.input
        np.testing.assert_array_equal(by_hand.probe.weights, fits[seed].fitted.probe.weights)
    assert fits[0].parameters == (len(fits[0].fitted.input.layers) * 32 + 1) * 2
    both = [fit.logits(context.splits["validation"], "validation") for fit in fits.values()]
    assert not np.array_equal(*both)
