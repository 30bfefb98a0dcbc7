"""Models that train no layer, fitted before a search trains anything: probes on the frozen layers, and a TF-IDF model.

They compete with every k. The probes also suggest the k that a search trains first, never which k is recommended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.load import Data
from frostline.frozen.forward_pass import Rows
from frostline.report.probe_report import report_probes
from frostline.statistics.metrics import METRICS
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.training.estimators import Fitted, examples_of, fit_words, probe_of_run
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows, validation_rows
from frostline.training.probes import APART, FittedProbe, best_probe, fit_probe, fit_probes, has_features
from frostline.training.result import ProbeReport
from frostline.training.run import Run


def estimate_k(report: ProbeReport) -> int | None:
    """Estimate k from the scores of the probes of single layers on held-out training examples.

    The estimate is the number of layers above the lowest layer whose score is within one standard error of the best score. It is
    None if no score is defined.
    """
    scores: dict[int, float] = {}
    for probe in report.probes:
        if len(probe.layers) == 1 and probe.vector != APART and probe.held_out is not None:
            scores[probe.layers[0]] = max(scores.get(probe.layers[0], -math.inf), probe.held_out)
    if not scores:
        return None
    best = max(scores.values())
    least = best - _standard_error(best, report)
    return max(scores) - min(layer for layer, score in scores.items() if score >= least)


def mean_is_better(report: ProbeReport, head_reads: str) -> bool:
    """Whether the probe on the mean of all tokens after the last layer is better than that on what the model's head reads.

    It is, if its score on held-out training examples is more than one standard error above.

    Args:
        report: The probes.
        head_reads: Which tokens the head reads: ``first``, ``last`` or ``all``.
    """
    scores = {probe.vector: probe.held_out for probe in report.probes if probe.layers == (report.layers,)}
    mean, own = scores.get("mean"), scores.get(head_reads)
    return mean is not None and own is not None and mean - own > _standard_error(mean, report)


def _standard_error(score: float, report: ProbeReport) -> float:
    """The approximate standard error of the score of a probe on held-out training examples."""
    spread = 1 - score**2 if METRICS[report.metric].lowest < 0 else math.sqrt(max(score * (1 - score), 0.0))
    return spread / math.sqrt(report.train_rows)


@dataclass(frozen=True)
class Probed:
    """The probes for one label column.

    Attributes:
        report: What probes.json says of them.
        best: The best one on held-out training examples.
        model: The same, to predict with and to save.
    """

    report: ProbeReport
    best: FittedProbe
    model: Fitted

    def save(self, folder: Path, *, embed: bool = False) -> None:
        """Write the best probe into ``folder``, for ``frostline predict``; with ``embed``, also the model that it reads."""
        self.model.save(folder, self.report, embed)


def probe_layers(
    experiment: Experiment,
    data: Data,
    train: Rows,
    validation: Rows,
    *,
    max_length: int,
    words: Fitted | None,
    kind: str = "ridge",
) -> Probed:
    """Fit probes on training rows, and score them on validation rows.

    Args:
        experiment: Model and examples, with cached features.
        data: The task, and what was noticed about its examples.
        train: The training rows.
        validation: The validation rows.
        max_length: The most tokens of an example.
        words: A TF-IDF model of the same examples, which is reported beside the probes; None if there is none.
        kind: ``ridge`` or ``logistic``.
    """
    layers = experiment.pretrained.anatomy.count
    probes = fit_probes(examples_of(experiment, train, range(layers + 1)), layers, kind)
    more: dict[str, Any] = {"max_length": max_length, "words": words, "kind": kind}
    report = report_probes(probes, experiment, data, validation, train_rows=len(train), **more)
    best = best_probe(probes)
    return Probed(report, best, probe_of_run(best, experiment))


MAX_EXAMPLES = 5000  # training examples for these models; more would hardly improve them


@dataclass(frozen=True)
class Alternatives:
    """Fitted models that train no layer.

    Attributes:
        models: Each by name. They can be saved.
        values: The predictions of each for all validation rows, ``[rows, C]``; NaN where a row was not scored.
        test: Their predictions for all test rows, ``[rows, C]``; empty without a test set.
        probes: What is reported of the probes; None if the hidden states could not be cached.
        estimated_k: The k that the probes suggest.
        mean_is_better: Whether the probes score better on the mean of all tokens than on what the head of the model reads.
    """

    models: Mapping[str, Fitted] = field(default_factory=dict)
    values: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    test: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    probes: ProbeReport | None = None
    estimated_k: int | None = None
    mean_is_better: bool = False


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
    report = None
    if experiment.states is not None and has_features(
        experiment.states.selection, count, of_words=experiment.tokens.of_words
    ):
        more: dict[str, Any] = {"max_length": plan.identity.max_length, "words": next(iter(words), None)}
        probed = probe_layers(experiment, plan.data, train[0], scored[0], **more)
        report, inputs = probed.report, probed.best.input
        again = [fit_probe(inputs, examples_of(experiment, rows, inputs.layers)) for rows in train[1:]]
        found[PROBE] = [probed.model, *(probe_of_run(one, experiment) for one in again)]
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
    if report is None:
        return Alternatives(models, values, test)
    return Alternatives(models, values, test, report, estimate_k(report), mean_is_better(report, experiment.head_reads))
