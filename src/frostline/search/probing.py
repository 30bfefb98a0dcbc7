"""Models that train no layer, fitted before a search trains anything: probes on the frozen layers, and a TF-IDF model.

They compete with every k, and the probes suggest the k to begin with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from frostline.data.load import Data
from frostline.frozen.batches import Rows
from frostline.report.probe_sentence import probe_sentence
from frostline.search.estimates import by_layer, by_probes, logme
from frostline.statistics.alternatives import PROBE, WORDS
from frostline.statistics.predictions import expand_to_all_rows
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.training.probes.alternatives import Alternatives
from frostline.training.probes.fitting import Probed, fit_probes, predictions_of, probe_examples, refitted
from frostline.training.probes.inputs import WORD, ProbeInput, has_features
from frostline.training.probes.words import WordsModel
from frostline.training.rows import train_rows, validation_rows
from frostline.training.specification import RunSpec

MAX_EXAMPLES = 5000  # training examples for these models; more would hardly improve them


def fit_alternatives(
    prepared: Prepared, runs: Sequence[RunSpec], progress: Progress
) -> tuple[Alternatives, Mapping[str, int | None]]:
    """Fit all of them on the examples of the first run, and once more for each other fold. Tags of words have no TF-IDF model.

    Args:
        prepared: Model, data and cached hidden states.
        runs: The first run of every fold; one run without folds. The models of the first one can be saved.
        progress: Where progress is reported.

    Returns:
        The models, and the estimate of k by each method.
    """
    task = prepared.data.task
    about = {
        "task": task.name,
        "task_type": task.task_type,
        "labels": task.labels,
        "columns": asdict(task.columns),
    }
    progress.begin("fitting models that train no layer")
    data, rows, scored = _examples(prepared, runs[0])
    words = WordsModel.fit(data.train, len(task.labels))
    probed, estimates = _probes(prepared, data, rows, words) or (None, {})
    values = {}
    if probed is not None:
        values[PROBE] = expand_to_all_rows(probed.best.predicted.astype(np.float32), scored)
    if words is not None:
        values[WORDS] = expand_to_all_rows(words.values(data.validation).astype(np.float32), scored)
    for run in runs[1:]:
        data, rows, scored = _examples(prepared, run)
        again = WordsModel.fit(data.train, len(task.labels)) if words is not None else None
        if again is not None:
            values[WORDS][scored] = again.values(data.validation)
        if probed is not None and prepared.context.states is not None:
            values[PROBE][scored] = refitted(probed, data, prepared.context.states, rows, prepared.context.tokens)
    return Alternatives(probed, words, values, _on_test(prepared, probed, words), about), estimates


def _examples(prepared: Prepared, run: RunSpec) -> tuple[Data, dict[str, Rows], NDArray[np.bool_]]:
    """The examples of a run, their rows in the hidden states, and which validation rows it is scored on, ``[rows]``."""
    context = prepared.context
    rows = {"train": train_rows(context, run)[:MAX_EXAMPLES], "validation": validation_rows(context, run)}
    positions = {split: some - context.splits[split][0] for split, some in rows.items()}
    train = prepared.data.train.take(positions["train"])
    data = replace(prepared.data, train=train, validation=prepared.data.validation.take(positions["validation"]))
    scored = np.zeros(len(prepared.data.validation), bool)
    scored[positions["validation"]] = True
    return data, rows, scored


def _on_test(prepared: Prepared, probed: Probed | None, words: WordsModel | None) -> dict[str, NDArray[np.float32]]:
    """The predictions for the test rows, by name, of the models that can be saved."""
    context, test = prepared.context, prepared.data.test
    found: dict[str, NDArray[np.float32]] = {}
    if test is not None and probed is not None and context.states is not None:
        values = predictions_of(probed, test, context.states, context.splits["test"], context.tokens)
        found[PROBE] = values.astype(np.float32)
    if test is not None and words is not None:
        found[WORDS] = words.values(test).astype(np.float32)
    return found


def _probes(
    prepared: Prepared, data: Data, rows: Mapping[str, Rows], words: WordsModel | None
) -> tuple[Probed, dict[str, int | None]] | None:
    """The probes, and the estimate of k by each method; None if the hidden states could not be cached."""
    identity, states = prepared.identity, prepared.context.states
    count, tokens = prepared.pretrained.anatomy.count, prepared.context.tokens
    if states is None or not has_features(states.selection, count, of_words=tokens.of_words):
        return None
    probed = fit_probes(
        data,
        states,
        rows,
        pretrained=prepared.pretrained,
        machine=prepared.context.machine,
        metric=identity.metric,
        max_length=identity.max_length,
        words=words,
        tokens=tokens,
        describe=probe_sentence,
    )
    train, _ = probe_examples(data, states, rows, tokens, identity.metric)
    vector = "mean" if train.words is None else WORD
    logmes = {
        n: logme(ProbeInput((n,), vector).features(train.vectors), train.targets, len(identity.labels))
        for n in range(count + 1)
    }
    return probed, {"probes": by_probes(probed.facts), "LogME": by_layer(logmes, 0.0)}
