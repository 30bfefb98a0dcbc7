"""Models that train no layer, fitted before a search trains anything: probes on the frozen layers, and a TF-IDF model.

They compete with every k, and the probes suggest the k to begin with.

Cheap estimates of the k to begin a search with.

They decide which k a search trains first, never which k is recommended. The report shows how close each estimate was. Imports no
torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.load import Data
from frostline.frozen.forward_pass import Rows
from frostline.report.explanations import probe_sentence
from frostline.statistics.metrics import METRICS
from frostline.statistics.predictions import expand_to_all_rows
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweep.plan import Plan
from frostline.sweep.progress import Progress
from frostline.training.forward import train_rows, validation_rows
from frostline.training.linear_models import WordsModel
from frostline.training.probes import (
    WORD,
    Alternatives,
    Probed,
    ProbeInput,
    fit_probes,
    has_features,
    predictions_of,
    probe_examples,
    refitted,
)
from frostline.training.run import Run

Array = NDArray[np.float64]

STEPS = 100  # the most fixed-point iterations
TOLERANCE = 1e-3  # the relative change at which the iteration has converged


def by_layer(scores: Mapping[int, float], error: float) -> int | None:
    """Estimate k from the score of each layer's features.

    The estimate is the number of layers above the lowest layer whose score is within one standard ``error`` of the best score.
    It is None if no score is finite.
    """
    known = {layer: score for layer, score in scores.items() if np.isfinite(score)}
    if not known:
        return None
    best = max(known.values())
    return max(scores) - min(layer for layer, score in known.items() if score >= best - error)


def logme(features: NDArray[np.float32], targets: NDArray[Any], classes: int) -> float:
    """LogME (You et al. 2021): the maximum log evidence per example of a Bayesian linear model, averaged over classes.

    Args:
        features: ``[N, D]``.
        targets: ``[N]``, class indices, or real numbers if ``classes`` is 0; or label sets ``[N, C]``.
        classes: The number of classes; 0 for regression.
    """
    wanted = targets if targets.dtype == np.bool_ else np.equal.outer(targets, np.arange(classes))
    one_hot = wanted.astype(float) if classes else targets.astype(float)[:, None]
    left, sizes, _ = np.linalg.svd(features.astype(float), full_matrices=False)
    spectrum, along = sizes**2, np.square(left.T @ one_hot)  # [r], [r, C]
    outside = np.maximum(np.square(one_hot).sum(0) - along.sum(0), 0.0)
    return float(
        np.mean([_evidence(spectrum, along[:, n], outside[n], *features.shape) for n in range(one_hot.shape[1])])
    )


def _evidence(spectrum: Array, along: Array, outside: float, rows: int, width: int) -> float:
    """The log evidence per example of one target.

    A fixed-point iteration finds the precisions of weights and noise that maximize it.
    """
    weights, noise = 1.0, 1.0
    for _ in range(STEPS):
        shrunk = weights / noise + spectrum
        effective = float((spectrum / shrunk).sum())
        length = float((spectrum * along / shrunk**2).sum())
        residual = float((along * (weights / noise / shrunk) ** 2).sum()) + outside
        before = weights / noise
        weights = effective / max(length, 1e-12)
        noise = max(rows - effective, 1e-12) / max(residual, 1e-12)
        if abs(weights / noise - before) <= TOLERANCE * before:
            break
    shrunk = weights + noise * spectrum
    length = float((noise**2 * spectrum * along / shrunk**2).sum())
    residual = float((along * (weights / shrunk) ** 2).sum()) + outside
    determinant = float(np.log(shrunk).sum()) + (width - len(spectrum)) * np.log(weights)
    total = width * np.log(weights) + rows * np.log(noise) - rows * np.log(2 * np.pi)
    return float(total - noise * residual - weights * length - determinant) / 2 / rows


def by_probes(facts: Mapping[str, Any]) -> int | None:
    """Estimate k from the probes of single layers, by their scores on held-out training examples.

    Args:
        facts: The facts of fitted probes, as in ``probes.json``.
    """
    scores: dict[int, float] = {}
    for probe in facts["probes"]:
        if len(probe["layers"]) == 1 and probe["held_out"] is not None:
            scores[probe["layers"][0]] = max(scores.get(probe["layers"][0], -math.inf), probe["held_out"])
    best = max(scores.values(), default=0.0)
    spread = 1 - best**2 if METRICS[facts["metric"]].lowest < 0 else math.sqrt(max(best * (1 - best), 0.0))
    return by_layer(scores, spread / math.sqrt(facts["train_rows"]))


MAX_EXAMPLES = 5000  # training examples for these models; more would hardly improve them


def fit_alternatives(
    prepared: Plan, runs: Sequence[Run], progress: Progress
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


def _examples(prepared: Plan, run: Run) -> tuple[Data, dict[str, Rows], NDArray[np.bool_]]:
    """The examples of a run, their rows in the hidden states, and which validation rows it is scored on, ``[rows]``."""
    context = prepared.context
    rows = {"train": train_rows(context, run)[:MAX_EXAMPLES], "validation": validation_rows(context, run)}
    positions = {split: some - context.splits[split][0] for split, some in rows.items()}
    train = prepared.data.train.take(positions["train"])
    data = replace(prepared.data, train=train, validation=prepared.data.validation.take(positions["validation"]))
    scored = np.zeros(len(prepared.data.validation), bool)
    scored[positions["validation"]] = True
    return data, rows, scored


def _on_test(prepared: Plan, probed: Probed | None, words: WordsModel | None) -> dict[str, NDArray[np.float32]]:
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
    prepared: Plan, data: Data, rows: Mapping[str, Rows], words: WordsModel | None
) -> tuple[Probed, dict[str, int | None]] | None:
    """The probes, and the estimate of k by each method; None if the hidden states could not be cached."""
    identity, states = prepared.identity, prepared.context.states
    count, tokens = prepared.context.pretrained.anatomy.count, prepared.context.tokens
    if states is None or not has_features(states.selection, count, of_words=tokens.of_words):
        return None
    probed = fit_probes(
        data,
        states,
        rows,
        pretrained=prepared.context.pretrained,
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
