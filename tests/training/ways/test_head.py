"""The head of LP-FT is that of scikit-learn's ridge regression on the frozen model."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeClassifier

from frostline.data.kinds import CLASSIFICATION
from frostline.frozen import forward_pass as batches
from frostline.model.loading import load_pretrained
from frostline.model.ways import Way
from frostline.training.forward import train_rows
from frostline.training.linear_models import ridge
from frostline.training.problem import Problem
from frostline.training.train import run, start_values
from training.by_hand import way_spec
from training.runs import context_of, small_context, with_states

SPEC = way_spec(Way(order="head-first"))


def three_classes(folder):
    """A context whose labels are the lengths of the texts, in thirds."""
    two = context_of(folder)
    lengths = two.tokens.lengths
    targets = np.digitize(lengths, np.quantile(lengths, (1 / 3, 2 / 3)))
    return replace(
        two,
        pretrained=load_pretrained(str(folder), labels=("short", "middle", "long"), task_type=CLASSIFICATION),
        problem=Problem(CLASSIFICATION, targets, lengths, None, "accuracy"),
    )


def predictions(experiment):
    """What the model predicts for its training rows, and what its head reads."""
    read = []
    model = experiment.pretrained.model
    head = model.get_submodule(experiment.last_linear)
    hook = head.register_forward_pre_hook(lambda module, args: read.append(args[0]))
    rows = train_rows(experiment, SPEC)
    with torch.no_grad():
        logits = model.eval()(**experiment.tokens.batch(rows)).logits
    hook.remove()
    return logits.numpy(), read[0].numpy().astype(float), experiment.problem.targets[rows]


@pytest.mark.parametrize("reads", ["type", "mean"])
@pytest.mark.parametrize("of", [context_of, three_classes, partial(context_of, regression=True)])
def test_the_start_predicts_as_scikit_learn(tiny_bert, of, reads):
    spec = way_spec(Way(order="head-first", head_reads=reads))
    experiment = of(tiny_bert).for_run(spec)
    start_values(spec, experiment)
    logits, features, targets = predictions(experiment)
    scaled = (features - features.mean(0)) / features.std(0)
    kind, penalties = Ridge if targets.dtype == float else RidgeClassifier, np.logspace(-4, 1, 11) * len(targets)
    fits = [kind(alpha=penalty).fit(scaled, targets) for penalty in penalties]
    if kind is Ridge:
        assert min(np.abs(fit.predict(scaled) - logits[:, 0]).max() for fit in fits) < 1e-4
        return
    margins = (logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits).ravel()
    alike = [np.corrcoef(margins, fit.decision_function(scaled).ravel())[0, 1] for fit in fits]
    best = fits[int(np.argmax(alike))]
    assert max(alike) > 1 - 1e-6 and (best.predict(scaled) == logits.argmax(1)).all()
    assert set(logits.argmax(1)) == set(targets)


def test_the_same_head_from_cached_hidden_states(experiment, tmp_path):
    start_values(SPEC, experiment)
    plain = experiment.pretrained.model.classifier.weight.detach().clone()
    start_values(SPEC, with_states(experiment, tmp_path))
    assert (experiment.pretrained.model.classifier.weight - plain).abs().max() < 1e-3 * plain.abs().max()


def test_the_head_of_a_decoder_is_the_same_if_batches_are_scored_in_chunks(tmp_path, monkeypatch):
    """Its head runs for every token."""
    experiment = small_context("gpt2", tmp_path).with_worker(states=None)
    start_values(SPEC, experiment)
    whole = experiment.pretrained.model.score.weight.detach().clone()
    monkeypatch.setitem(batches.TOKENS, "cpu", 200)
    start_values(SPEC, experiment)
    torch.testing.assert_close(
        experiment.pretrained.model.score.weight, whole, rtol=1e-3, atol=1e-3 * whole.abs().max()
    )


@pytest.mark.parametrize("kind", ["eurobert", "gpt2"])
def test_the_head_is_fitted_on_what_it_reads_of_a_text(kind, tmp_path):
    """That is the mean of all tokens (EuroBERT), or the last token that is no padding token, which may end a text (GPT-2)."""
    experiment = small_context(kind, tmp_path).with_worker(states=None)
    model, tokens, rows = experiment.pretrained.model, experiment.tokens, train_rows(experiment, SPEC)
    tokens.inputs["input_ids"][tokens.offsets[1:] - 1] = model.config.pad_token_id
    start_values(SPEC, experiment)
    head = model.get_submodule(experiment.last_linear)
    logits = (model(**tokens.batch(row[None])).logits[0, 0] for row in rows)
    read = np.stack([torch.autograd.grad(one, head.weight)[0][0].numpy() for one in logits])
    expected, *_ = ridge(read, experiment.problem.targets[rows], 3, np.arange(len(rows)))
    fitted = head.weight.detach().numpy()
    assert np.abs(fitted - expected.weights.T).max() < 1e-3 * np.abs(fitted).max()


def test_no_row_is_read_twice_if_memory_runs_out_in_the_head(uncached):
    experiment = uncached.with_worker(scoring_tokens={})
    start_values(SPEC, experiment)
    head = experiment.pretrained.model.classifier
    whole = head.weight.detach().clone()

    def short_of_memory(module, args):
        if len(args[0]) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")

    hook = head.register_forward_pre_hook(short_of_memory)
    start_values(SPEC, experiment)
    hook.remove()
    torch.testing.assert_close(head.weight, whole, rtol=1e-3, atol=1e-3 * whole.abs().max())


def test_the_run_goes_on_from_the_fitted_head(experiment):
    fitted, random = run(SPEC, experiment), run(way_spec(Way()), experiment)
    first = [next(s for s in one.record.scores if s.metric == "loss") for one in (fitted, random)]
    assert first[0].value < first[1].value and "embeddings" in fitted.record.audit.moved


def test_named_modules_are_tuned_from_the_fitted_head(experiment):
    start_values(SPEC, experiment)
    fitted = experiment.pretrained.model.classifier.weight.detach().clone()
    spec = way_spec(Way(order="head-first", modules=("encoder.layer.2.output",)))
    start_values(spec, experiment)
    assert torch.equal(experiment.pretrained.model.classifier.weight, fitted)
    places = {experiment.pretrained.anatomy.places[name] for name in run(spec, experiment).learned}
    assert places == {"layer 2", "head"}
