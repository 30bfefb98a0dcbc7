"""Models that train no layer, fitted before a search trains anything: probes on the frozen layers, and a TF-IDF model.

They compete with every k. The probes also suggest the k that a search trains first, never which k is recommended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.report.probe_report import report_probes
from frostline.statistics.metrics import METRICS
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweep.plan import Plan
from frostline.sweep.progress import Progress
from frostline.training.estimators import Fitted, examples_of, fit_words, probe_of_run
from frostline.training.forward import train_rows, validation_rows
from frostline.training.probes import WORD, best_probe, features_of, fit_probe, fit_probes, has_features
from frostline.training.result import ProbeInput, ProbeReport
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


def by_probes(report: ProbeReport) -> int | None:
    """Estimate k from the probes of single layers, by their scores on held-out training examples."""
    scores: dict[int, float] = {}
    for probe in report.probes:
        if len(probe.layers) == 1 and probe.held_out is not None:
            scores[probe.layers[0]] = max(scores.get(probe.layers[0], -math.inf), probe.held_out)
    best = max(scores.values(), default=0.0)
    spread = 1 - best**2 if METRICS[report.metric].lowest < 0 else math.sqrt(max(best * (1 - best), 0.0))
    return by_layer(scores, spread / math.sqrt(report.train_rows))


MAX_EXAMPLES = 5000  # training examples for these models; more would hardly improve them


@dataclass(frozen=True)
class Alternatives:
    """Fitted models that train no layer.

    Attributes:
        models: Each by name. They can be saved.
        values: The predictions of each for all validation rows, ``[rows, C]``; NaN where a row was not scored.
        test: Their predictions for all test rows, ``[rows, C]``; empty without a test set.
        probes: What is reported of the probes; None if the hidden states could not be cached.
        estimates: The estimate of k by each method.
    """

    models: Mapping[str, Fitted] = field(default_factory=dict)
    values: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    test: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    probes: ProbeReport | None = None
    estimates: Mapping[str, int | None] = field(default_factory=dict)


def fit_alternatives(plan: Plan, runs: Sequence[Run], progress: Progress) -> Alternatives:
    """Fit all of them on the examples of the first run, and once more for each other fold. Tags of words have no TF-IDF model.

    Args:
        plan: Model, data and cached hidden states.
        runs: The first run of every fold; one run without folds. The models of the first one can be saved.
        progress: Where progress is reported.
    """
    progress.begin("fitting models that train no layer")
    experiment, count = plan.experiment, plan.experiment.pretrained.anatomy.count
    train = [train_rows(experiment, run)[:MAX_EXAMPLES] for run in runs]
    scored = [validation_rows(experiment, run) for run in runs]
    words = [one for rows in train if (one := fit_words(experiment, rows))]
    found: dict[str, list[Fitted]] = {}
    report, estimates = None, {}
    if experiment.states is not None and has_features(
        experiment.states.selection, count, of_words=experiment.tokens.of_words
    ):
        examples = examples_of(experiment, train[0], range(count + 1))
        probes = fit_probes(examples, count)
        best = best_probe(probes)
        others = [fit_probe(best.input, examples_of(experiment, rows, best.input.layers)) for rows in train[1:]]
        found[PROBE] = [probe_of_run(one, experiment) for one in (best, *others)]
        report = report_probes(
            probes,
            examples_of(experiment, scored[0], range(count + 1)),
            train_rows=len(train[0]),
            data=plan.data,
            tokens=experiment.tokens,
            pretrained=plan.experiment.pretrained,
            max_length=plan.identity.max_length,
            words=words[0].logits(scored[0], "validation") if words else None,
        )
        vector, targets = WORD if experiment.tokens.of_words else "mean", examples.targets
        inputs = {n: ProbeInput(layers=(n,), vector=vector) for n in range(count + 1)}
        logmes = {
            n: logme(features_of(one, examples.vectors), targets, len(experiment.labels)) for n, one in inputs.items()
        }
        estimates = {"probes": by_probes(report), "LogME": by_layer(logmes, 0.0)}
    if len(words) == len(runs):
        found[WORDS] = words
    values = {}
    for name, of_folds in found.items():
        logits = np.concatenate(
            [fitted.logits(rows, "validation") for fitted, rows in zip(of_folds, scored, strict=True)]
        )
        values[name] = np.full((len(plan.data.validation), *logits.shape[1:]), np.nan, np.float32)
        values[name][np.concatenate(scored) - experiment.splits["validation"][0]] = logits
    models = {name: of_folds[0] for name, of_folds in found.items()}
    rows = experiment.splits.get("test")
    test = {} if rows is None else {name: fitted.logits(rows, "test") for name, fitted in models.items()}
    return Alternatives(models, values, test, report, estimates)
