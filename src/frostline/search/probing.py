"""Models that train no layer, fitted before a search trains anything: probes on the frozen layers, and a TF-IDF model.

They compete with every k. The probes also suggest the k that a search trains first, never which k is recommended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.load import Data
from frostline.data.splits import NO_TEST_SET
from frostline.frozen.forward_pass import Rows
from frostline.model.tokens import notes_on_tokens
from frostline.report.probe_report import probe_sentence
from frostline.statistics.metrics import METRICS, defined
from frostline.statistics.predictions import RunPredictions
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.training.estimators import Fitted, examples_of, fit_best_probe, fit_words, probe_of_run
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows, validation_rows
from frostline.training.probes import APART, best_probe, fit_probes, has_features
from frostline.training.result import ProbeReport, ReportedProbe
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
    """Linear probes after every layer.

    Attributes:
        report: What probes.json says of them.
        model: The best one on held-out training examples, to predict with and to save.
    """

    report: ProbeReport
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
    """Fit probes on training rows, score them on validation rows, and say how good the best one is.

    Its choice does not depend on the validation rows.

    Args:
        experiment: Model and examples, with cached features.
        data: The task, and what was noticed about its examples.
        train: The training rows.
        validation: The validation rows.
        max_length: The most tokens of an example.
        words: A TF-IDF model of the same examples, which is reported beside the probes; None if there is none.
        kind: ``ridge`` or ``logistic``.
    """
    task, pretrained, layers = data.task, experiment.pretrained, experiment.pretrained.anatomy.count
    fitted = fit_probes(examples_of(experiment, train, range(layers + 1)), layers, kind)
    best, held = best_probe(fitted), examples_of(experiment, validation, range(layers + 1))
    split, every = held.split, np.arange(len(validation))
    probes = {
        probe.input: ReportedProbe(
            **dict(probe.input),
            held_out=defined(probe.held_out),
            validation=defined(held.score(probe.logits(held))),
            penalty=probe.penalty,
        )
        for probe in fitted
    }
    interval = RunPredictions(split, lambda run: held.by_row(best.logits(held))).alone("best")
    report = ProbeReport(
        model=pretrained.name,
        revision=pretrained.revision,
        task=task.name,
        kind=kind,
        columns=asdict(task.columns),
        task_type=task.task_type,
        labels=task.labels,
        metric=split.metric,
        max_length=max_length,
        layers=layers,
        train_rows=len(train),
        validation_rows=len(validation),
        chance=split.chance,
        tfidf_score=None if words is None else defined(split.score(words.logits(validation, "validation"), every)),
        probes=tuple(probes.values()),
        best=probes[best.input],
        low=interval.low,
        high=interval.high,
        notes=(
            *(note for note in data.notes if note != NO_TEST_SET),
            *notes_on_tokens(experiment.tokens, pretrained.tokenizer, pretrained.folder),
        ),
        sentence="",
    )
    report = report.model_copy(update={"sentence": probe_sentence(report)})
    return Probed(report, probe_of_run(best, experiment))


MAX_EXAMPLES = 5000  # training examples for these models; more would hardly improve them


@dataclass(frozen=True)
class Alternatives:
    """Fitted models that train no layer.

    Attributes:
        models: Each by name. They can be saved.
        values: The predictions of each for all validation rows, ``[rows, C]``; NaN where a row was not scored.
        probes: What is reported of the probes; None if the hidden states could not be cached.
        estimated_k: The k that the probes suggest.
    """

    models: Mapping[str, Fitted] = field(default_factory=dict)
    values: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    probes: ProbeReport | None = None
    estimated_k: int | None = None


def fit_alternatives(plan: Plan, runs: Sequence[Run], progress: Progress) -> Alternatives:
    """Fit all of them on the examples of the first run, and once more for each other fold. Tags of words have no TF-IDF model.

    Each fold has the probe that its own training rows choose: a choice that has seen rows looks too good on them.

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
        report = probed.report
        found[PROBE] = [probed.model, *(fit_best_probe(experiment, rows) for rows in train[1:])]
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
    return Alternatives(models, values, report, None if report is None else estimate_k(report))
