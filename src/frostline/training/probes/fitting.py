"""Fit and score probes after every layer of a model, on cached hidden states."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from frostline.data.examples import Examples, Targets
from frostline.data.load import Data
from frostline.data.splits import NO_TEST_SET
from frostline.frozen.forward_pass import Rows
from frostline.frozen.hidden_states import HiddenStates
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import ZEROED_TYPES, Tokens
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.training.probes.examples import ProbeExamples, Vectors, cached_vectors, words_by_row, words_of_rows
from frostline.training.probes.inputs import ProbeInput, last_layers_inputs, single_layer_inputs
from frostline.training.probes.linear import FITS, Probe
from frostline.training.probes.saved import save_probe
from frostline.training.probes.words import WordsModel, words_score

MAX_THREADS = 4  # probes fitted at the same time, because each needs memory for all rows


@dataclass(frozen=True)
class FittedProbe:
    """A fitted probe and its score on training rows.

    Attributes:
        input: The features of the probe.
        probe: The fitted probe.
        held_out: The cross-validated score on the training rows; NaN if it is undefined.
    """

    input: ProbeInput
    probe: Probe
    held_out: float

    def values(self, vectors: Vectors) -> Any:
        """The predictions ``[U, C]`` for the texts or words that ``vectors`` are of."""
        return self.probe.values(self.input.features(vectors))


P = TypeVar("P", bound=FittedProbe)


@dataclass(frozen=True)
class ScoredProbe(FittedProbe):
    """A fitted probe with its validation score, and its predictions for the validation rows, ``[n, C]`` or ``[n, W, C]``."""

    validation: float
    predicted: Any


@dataclass(frozen=True)
class Probed:
    """The probes for one label column. ``facts`` is the content of probes.json."""

    facts: dict[str, Any]
    best: ScoredProbe
    pretrained: Pretrained
    machine: Machine

    @property
    def sentence(self) -> str:
        """The summary as a sentence."""
        sentence: str = self.facts["sentence"]
        return sentence

    def save(self, folder: Path) -> None:
        """Write the best probe into ``folder``, for ``frostline predict``."""
        save_probe(folder, self.best.input, self.best.probe, self.pretrained, self.machine, self.facts)


def fit_probes(
    data: Data,
    states: HiddenStates,
    rows: Mapping[str, Rows],
    *,
    tokens: Tokens,
    pretrained: Pretrained,
    machine: Machine,
    metric: str,
    max_length: int,
    words: WordsModel | None,
    kind: str = "ridge",
    describe: Callable[[Mapping[str, Any]], str],
) -> Probed:
    """Fit and score probes for one label column.

    The best probe is chosen by its cross-validated score on training rows. The validation score is only reported.

    Args:
        data: The examples.
        states: Their hidden states after every layer: pooled vectors of texts, all tokens of sentences.
        rows: The rows of ``train`` and ``validation`` in ``states``.
        tokens: The tokens of all rows.
        pretrained: The model.
        machine: Device and precision that computed the hidden states.
        metric: The metric of all scores.
        max_length: The maximum number of tokens per example, for the report.
        words: The TF-IDF model, which is reported for comparison; None if the examples contain none.
        kind: ``ridge`` or ``logistic``.
        describe: Makes the summary sentence from the facts.
    """
    task = data.task
    train, validation = probe_examples(data, states, rows, tokens, metric)

    def fit(inputs: ProbeInput) -> ScoredProbe:
        one = _fit(inputs, train, kind)
        values = one.values(validation.vectors)
        return ScoredProbe(one.input, one.probe, one.held_out, validation.score(values), validation.by_row(values))

    probes = _fit_all(fit, pretrained.anatomy.count, of_words=train.words is not None)
    best = max(probes, key=_rank)
    facts = {
        **{"model": pretrained.name, "revision": pretrained.revision, "task": task.name, "kind": kind},
        "columns": asdict(task.columns),
        "task_type": task.task_type,
        "labels": task.labels,
        "metric": metric,
        "max_length": max_length,
        "layers": pretrained.anatomy.count,
        "train_rows": len(data.train),
        "validation_rows": len(data.validation),
        "chance": validation.split.chance,
        "tfidf_score": words_score(words, data.validation, validation.split),
        **_probe_facts(probes, best, validation.split),
        "notes": [note for note in data.notes if note != NO_TEST_SET] + [ZEROED_TYPES] * tokens.zeroed_types,
    }
    return Probed({**facts, "sentence": describe(facts)}, best, pretrained, machine)


def best_probe(train: ProbeExamples, layers: int, kind: str = "ridge") -> FittedProbe:
    """The probe with the best cross-validated score on training rows, as :func:`fit_probes` chooses it.

    Args:
        train: The training rows with their vectors.
        layers: The number of layers of the model.
        kind: ``ridge`` or ``logistic``.
    """
    fitted = _fit_all(lambda inputs: _fit(inputs, train, kind), layers, of_words=train.words is not None)
    return max(fitted, key=_rank)


def _fit(inputs: ProbeInput, train: ProbeExamples, kind: str) -> FittedProbe:
    """Fit one probe on the training rows."""
    features = inputs.features(train.vectors)
    probe = FITS[kind](features, train.targets, len(train.split.labels))
    # If all examples have the same features, holding out a row only makes its class rarer: the score is undefined.
    return FittedProbe(inputs, probe, train.score(probe.held_out) if np.ptp(features, 0).any() else np.nan)


def probe_examples(
    data: Data, states: HiddenStates, rows: Mapping[str, Rows], tokens: Tokens, metric: str
) -> tuple[ProbeExamples, ProbeExamples]:
    """The training and validation rows of ``data`` with their cached vectors. The arguments are those of :func:`fit_probes`."""
    task = data.task

    def of(split: str, targets: Targets) -> ProbeExamples:
        words = words_of_rows(tokens, rows[split])
        labelled = Labelled(targets, task.task_type, task.labels, metric)
        return ProbeExamples(labelled, cached_vectors(states, rows[split], words), words)

    return of("train", data.train.targets), of("validation", data.validation.targets)


def refitted(probed: Probed, data: Data, states: HiddenStates, rows: Mapping[str, Rows], tokens: Tokens) -> Any:
    """The validation predictions of the best probe, as its ``predicted``, fitted again on the training rows of another fold.

    Args:
        probed: The probes of the first fold.
        data: The examples of the other fold.
        states: Their hidden states.
        rows: The rows of ``train`` and ``validation`` in ``states``.
        tokens: The tokens of all rows.
    """
    train, validation = probe_examples(data, states, rows, tokens, probed.facts["metric"])
    again = _fit(probed.best.input, train, probed.facts["kind"])
    return validation.by_row(again.values(validation.vectors))


def predictions_of(probed: Probed, examples: Examples, states: HiddenStates, rows: Rows, tokens: Tokens) -> Any:
    """The predictions of the best probe for these examples, whose hidden states are at ``rows``, as its ``predicted``."""
    words = words_of_rows(tokens, rows)
    values = probed.best.values(cached_vectors(states, rows, words))
    return values if words is None else words_by_row(values, words, examples.targets.shape)


def _fit_all(fit: Callable[[ProbeInput], P], layers: int, *, of_words: bool) -> list[P]:
    """Probes after every single layer, and one on the last layers together, with the vector of the best single probe."""
    cores = torch.get_num_threads()
    threads = min(MAX_THREADS, cores)
    with threadpool_limits(cores // threads, "blas"), ThreadPoolExecutor(threads) as pool:
        probes = list(pool.map(fit, single_layer_inputs(layers, of_words=of_words)))
    vector = max(probes, key=_rank).input.vector
    return [*probes, *map(fit, last_layers_inputs(layers, vector))]


def _rank(probe: FittedProbe) -> tuple[float, int, int]:
    """The key to sort by: the score on held-out training rows. Of equal scores, the probe with fewer layers is better."""
    score = -np.inf if np.isnan(probe.held_out) else probe.held_out
    return score, -probe.input.layers[-1], -len(probe.input.layers)


def _probe_facts(probes: Sequence[ScoredProbe], best: ScoredProbe, validation: Labelled) -> dict[str, Any]:
    scored = RunPredictions(validation, {"best": best.predicted}.__getitem__).alone("best")
    return {
        "probes": [
            {
                "layers": probe.input.layers,
                "vector": probe.input.vector,
                "held_out": defined(probe.held_out),
                "validation": defined(probe.validation),
                "penalty": probe.probe.penalty,
            }
            for probe in probes
        ],
        "best": {
            "layers": best.input.layers,
            "vector": best.input.vector,
            **{name: defined(value) for name, value in scored.items()},
        },
    }
