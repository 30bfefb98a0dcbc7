"""Token classification is exact: losses, logits and gradients are those of plain transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import DataCollatorForTokenClassification

from frostline.data.kinds import TOKENS
from frostline.data.tags import NO_WORD, filled, joined
from frostline.model.loading import load_pretrained
from frostline.model.packing import is_packable
from frostline.model.tokens import encode
from frostline.model.ways import Way
from frostline.statistics.metrics import score
from frostline.training.problem import TagProblem
from frostline.training.train import run, training_session
from frostline.training.updates import backward
from tagged import LABELS, aligned_labels, small_base, tagged
from training.runs import experiment_of, largest_difference, losses, spec_of, stack_gap, switch_dropout_off, with_states

TYPES = ("bert", "roberta", "deberta-v2", "gpt2")
MAX_LENGTH = 30  # some sentences are longer
WORDS, TAGS = tagged(96)
SPLITS = {"train": np.arange(48), "validation": np.arange(48, 72), "test": np.arange(72, 96)}


def targets_of(tags):
    return filled([[LABELS.index(tag) for tag in own] for own in tags], max(map(len, tags)))


def context_of(folder):
    pretrained = load_pretrained(str(folder), labels=LABELS, task_type=TOKENS)
    tokens = encode(pretrained.tokenizer, list(map(joined, WORDS)), None, MAX_LENGTH, of_words=True)
    problem = TagProblem.of(targets_of(TAGS), tokens, LABELS, "entity_f1")
    return experiment_of(pretrained, tokens, problem, SPLITS, packed=is_packable(pretrained.model))


@pytest.fixture(scope="module", params=TYPES)
def experiment(request, tmp_path_factory):
    experiment = context_of(small_base(tmp_path_factory.mktemp("base"), request.param))
    assert experiment.head_reads == "all"
    return with_states(experiment, tmp_path_factory.mktemp("states"), (3, 2, 1))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return context_of(small_base(tmp_path_factory.mktemp("bert"), "bert"))


@pytest.mark.parametrize("tune", [0, 2, "full"])
def test_losses_logits_and_gradients_are_those_of_transformers(experiment, tune):
    pretrained, rows = experiment.pretrained, np.arange(16)
    with training_session([spec_of(tune)], experiment) as ((learner,), forward):
        pretrained.model.eval()
        logits = forward(rows[None])[0]
        loss = experiment.problem.loss(logits, rows)
        gradients = torch.autograd.grad(loss, list(learner.parameters.values()), allow_unused=True)
    examples = aligned_labels(pretrained.tokenizer, WORDS[:16], TAGS[:16], MAX_LENGTH)
    batch = DataCollatorForTokenClassification(pretrained.tokenizer)(examples)
    expected = pretrained.model(**batch)
    expected_gradients = torch.autograd.grad(expected.loss, list(learner.parameters.values()), allow_unused=True)
    assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
    ours, theirs = logits[~logits.isnan().any(-1)], expected.logits[batch["labels"] != -100]
    assert ours.shape == theirs.shape and (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    both = [(g, e) for g, e in zip(gradients, expected_gradients, strict=True) if e is not None]
    largest = max(float(e.abs().max()) for _, e in both)
    assert both and all((g - e).abs().max() < 1e-5 * largest for g, e in both)


def test_all_tokens_of_a_word_can_be_labelled(bert):
    problem = TagProblem.of(bert.problem.targets, bert.tokens, LABELS, "entity_f1", every_token=True)
    experiment, rows = replace(bert, problem=problem), np.arange(16)
    with training_session([spec_of(1)], experiment) as (_, forward):
        bert.pretrained.model.eval()
        logits = forward(rows[None])
        loss, words = problem.loss(logits[0], rows), problem.predictions(logits, rows[None])[0]
    tokenizer = bert.pretrained.tokenizer
    examples = aligned_labels(tokenizer, WORDS[:16], TAGS[:16], MAX_LENGTH, every_token=True)
    batch = DataCollatorForTokenClassification(tokenizer)(examples)
    assert loss.item() == pytest.approx(bert.pretrained.model(**batch).loss.item(), rel=1e-5)
    assert {LABELS[tag] for tag in problem.token_targets[0] if tag >= 0} > {"B-person", "I-person"}
    with training_session([spec_of(1)], bert) as (_, forward):
        bert.pretrained.model.eval()
        assert torch.allclose(forward(rows[None])[0], words, equal_nan=True)
    result = run(spec_of(1, label_all_tokens=True), experiment)
    assert result.logits["validation_best"].shape == (24, *problem.predictions_per_row, 4)
    assert losses(result) != losses(run(spec_of(1), bert))


def test_the_model_learns_entities(bert):
    result = run(spec_of("full", num_train_epochs=12, train_size=48), bert)
    scores = {s.metric: s.value for s in result.record.scores if s.split == "train"}
    assert set(scores) == {"entity_f1", "entity_precision", "entity_recall", "token_accuracy", "loss"}
    assert result.record.validation_best > 0.5 and losses(result)["train", 12] < 0.5


@pytest.mark.parametrize("batched", [False, True])
def test_stacked_runs_are_those_trained_alone(tmp_path, batched):
    """Without dropout. The dropout of the head depends on the padded length, which is that of the longest run of a stack."""
    bert = context_of(small_base(tmp_path, "bert"))
    switch_dropout_off(bert.pretrained.model)
    specs = [spec_of(1, seed=seed, num_train_epochs=1) for seed in range(2)]
    assert stack_gap(specs, bert, batched=batched) < 1e-4


def test_words_that_were_cut_off_are_neither_trained_on_nor_scored(bert):
    problem = bert.problem
    cut = (problem.targets != NO_WORD) & (problem.known == NO_WORD)
    assert cut.any(axis=1).sum() > 5 and (bert.tokens.dropped[cut.any(axis=1)] > 0).all()
    logits = run(spec_of(0, num_train_epochs=1), bert).logits["validation_best"]
    assert np.array_equal(np.isnan(logits).any(-1), problem.known[SPLITS["validation"]] == NO_WORD)
    assert problem.is_finite(logits, SPLITS["validation"]) and not problem.is_finite(logits[::-1], SPLITS["validation"])
    assert problem.predictions_per_row == problem.targets.shape[1:]


@pytest.mark.parametrize("micro_batch", [None, 1])
@pytest.mark.parametrize(("tag", "weights"), [(NO_WORD, None), (0, torch.tensor([0.0, 1.0, 1.0, 1.0]))])
def test_a_batch_whose_words_have_no_tokens_or_a_tag_of_weight_0_changes_nothing(bert, tag, weights, micro_batch):
    targets = np.full_like(bert.problem.token_targets, tag)
    problem = replace(bert.problem, token_targets=targets, class_weights=weights)
    logits = torch.full((1, 2, targets.shape[1], len(LABELS)), torch.nan, requires_grad=True)
    _, loss = backward(lambda rows: logits[:, rows[0]], np.arange(2)[None], problem, micro_batch=micro_batch)
    assert loss.item() == 0 and not logits.grad.any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_have_no_score(bert, value):
    """Words that were cut off have none by design. Other words with NaN must not count as cut off."""
    problem, rows = bert.problem, SPLITS["validation"]
    logits = np.eye(len(LABELS), dtype=np.float32)[problem.targets[rows].clip(0)]
    logits[problem.known[rows] == NO_WORD] = np.nan
    assert problem.scores(logits, rows)["token_accuracy"] == 1
    logits[12:] = np.where(np.isnan(logits[12:]), np.nan, value)
    assert all(map(np.isnan, problem.scores(logits, rows).values()))


def test_a_run_misses_the_entity_whose_first_word_has_no_token(tmp_path):
    """Its scores are those that tables and the report compute again from its predictions."""
    words = [["\u3000", "Lee", "sings"], ["Anna", "Lee", "sings"]]
    targets = np.array([[1, 2, 0]] * 2)
    tokenizer = load_pretrained(str(small_base(tmp_path, "bert")), labels=LABELS, task_type=TOKENS).tokenizer
    tokens = encode(tokenizer, list(map(joined, words)), None, MAX_LENGTH, of_words=True)
    problem = TagProblem.of(targets, tokens, LABELS, "entity_f1")
    assert problem.known.tolist() == [[NO_WORD, 2, 0], [1, 2, 0]]
    logits = np.where(problem.known[..., None] == NO_WORD, np.nan, np.eye(len(LABELS))[targets]).astype(np.float32)
    found = problem.scores(logits, np.arange(2))
    assert found["entity_recall"] == 0.5 and found["entity_precision"] == found["token_accuracy"] == 1
    assert found.items() >= score(targets, logits, TOKENS, LABELS).items()


@pytest.mark.parametrize(("every_token", "weighted"), [(True, False), (False, True)])
def test_a_divided_batch_has_the_gradients_of_the_whole_batch(bert, every_token, weighted):
    """Parts with more words count more. A sentence without words that are labelled has no loss."""
    weights = torch.linspace(0.2, 2.0, len(LABELS)) if weighted else None
    problem = TagProblem.of(
        targets_of(TAGS), bert.tokens, LABELS, "entity_f1", class_weights=weights, every_token=every_token
    )
    problem.token_targets[3] = NO_WORD
    rows, found = np.arange(10)[None], []
    with training_session([spec_of(1)], replace(bert, problem=problem)) as ((learner,), forward):
        bert.pretrained.model.eval()
        for size in (None, 1, 4):
            for p in learner.parameters.values():
                p.grad = None
            logits, (loss,) = backward(forward, rows, problem, micro_batch=size)
            found.append((logits, loss, [p.grad.clone() for p in learner.parameters.values()]))
    for parts in found[1:]:
        torch.testing.assert_close(parts, found[0], equal_nan=True, rtol=1e-4, atol=1e-6)


def test_a_bilstm_tags_each_word_by_its_first_token(bert, tmp_path):
    spec = spec_of("m", way=Way(tune=0, lstm_width=6, lstm_states=2), num_train_epochs=1)
    cached = with_states(bert, tmp_path, (3, 2))
    one, other = run(spec, cached), run(spec, bert)
    assert cached.cut(spec) == 2 and largest_difference(one, other) < 1e-3
    model, tokens = cached.for_run(spec).pretrained.model.eval(), cached.tokens
    row, first = SPLITS["validation"][:1], tokens.labelled(SPLITS["validation"][:1]).position
    with torch.no_grad():
        states = model.base_model(**tokens.batch(row), output_hidden_states=True).hidden_states
        by_hand = model.head.linear(model.head.lstm(torch.cat(states[-2:], 2))[0])[0, first]
    found = torch.from_numpy(other.logits["validation_best"][0])
    assert torch.allclose(found[~found.isnan().any(-1)], by_hand, atol=1e-5)
