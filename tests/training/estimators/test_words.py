"""The TF-IDF model of a run."""

from dataclasses import replace

import numpy as np

from frostline.data.examples import Examples
from frostline.model.ways import Way
from frostline.training.estimators import WordsEstimator
from frostline.training.forward import train_rows
from frostline.training.linear_models import WordsModel
from tiny import sentences
from training.runs import SIZES, context_of, spec_of

SPEC = spec_of("words", way=Way(estimator="words"), learning_rate=None)


def examples(texts, targets, pairs=None) -> Examples:
    count = len(texts)
    return Examples(texts=tuple(texts), pairs=pairs, rows=np.arange(count), name="train", targets=np.array(targets))


def with_texts(context, labels, texts):
    """The context with these texts of all splits."""
    parts = {
        split: examples([texts[n] for n in own], context.problem.targets[own]) for split, own in context.splits.items()
    }
    return replace(context, labels=labels, examples=parts)


def test_the_model_is_that_of_the_texts_of_the_run(tiny_bert) -> None:
    context, rows = context_of(tiny_bert), sentences(sum(SIZES.values()))
    context = with_texts(context, ("negative", "positive"), [row["text"] for row in rows])
    fitted = WordsEstimator().fit(SPEC, context)
    train = train_rows(context, SPEC)
    by_hand = WordsModel.fit(examples([rows[n]["text"] for n in train], context.problem.targets[train]), 2)
    assert by_hand is not None and fitted.parameters == by_hand.weights.size + 2
    test = context.splits["test"]
    expected = by_hand.values(examples([rows[n]["text"] for n in test], context.problem.targets[test]))
    np.testing.assert_allclose(fitted.logits(test, "test"), expected, rtol=1e-5)
