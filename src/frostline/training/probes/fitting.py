"""Probes after every layer of a model, fitted on cached hidden states."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from frostline.data.held_out import NO_TEST_SET
from frostline.data.load import Data
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled, Predictions
from frostline.training.probes.baseline import tfidf_score
from frostline.training.probes.inputs import LAST_LAYERS, ProbeInput, last_layers_inputs, single_layer_inputs
from frostline.training.probes.linear import FITS, Probe
from frostline.training.probes.saved import save_probe

THREADS = 4  # probes fitted at the same time, at most: each takes memory for all rows

Vectors = Callable[[int], Any]  # a layer -> [n, 3, D]


@dataclass(frozen=True)
class ScoredProbe:
    """A fitted probe and its scores."""

    input: ProbeInput
    probe: Probe
    left_out: float  # score of the training rows, each by a fit that had not seen it
    validation: float
    values: Any  # [validation rows, C]


@dataclass(frozen=True)
class Probed:
    """The probes for one label column. ``facts`` are what probes.json holds."""

    facts: dict[str, Any]
    best: ScoredProbe
    pretrained: Pretrained
    machine: Machine

    @property
    def sentence(self) -> str:
        """The summary in words."""
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
    pretrained: Pretrained,
    machine: Machine,
    metric: str,
    max_length: int,
    kind: str = "ridge",
    describe: Callable[[Mapping[str, Any]], str],
) -> Probed:
    """Fit and score probes for one label column.

    The best probe is chosen by its scores on left-out training rows; validation is only reported.

    Args:
        data: The examples.
        states: Their hidden states, with the vectors after every layer.
        rows: The rows of ``states`` that belong to ``train`` and to ``validation``.
        pretrained: The model.
        machine: Device and precision that computed the hidden states.
        metric: The metric of all scores.
        max_length: Most tokens in an example, as reported.
        kind: ``ridge`` or ``logistic``.
        describe: Makes the summary sentence from the facts.
    """
    task = data.task
    train = Labelled(data.train.targets, task.problem_type, task.labels, metric)
    validation = Labelled(data.validation.targets, task.problem_type, task.labels, metric)
    train_vectors, validation_vectors = (_vectors(states, rows[split]) for split in ("train", "validation"))

    def fit(inputs: ProbeInput) -> ScoredProbe:
        features = inputs.features(train_vectors)
        probe = FITS[kind](features, data.train.targets, len(task.labels))
        values = probe.values(inputs.features(validation_vectors))
        # If all examples have the same features, leaving a row out changes only the class frequencies, always to its
        # disadvantage: such a score says nothing.
        left_out = _score(train, probe.left_out) if np.ptp(features, 0).any() else np.nan
        return ScoredProbe(inputs, probe, left_out, _score(validation, values), values)

    probes = _fit_all(fit, pretrained.anatomy.count)
    best = max(probes, key=_rank)
    facts = {
        **{"model": pretrained.name, "revision": pretrained.revision, "task": task.name, "kind": kind},
        "columns": asdict(task.columns),
        "problem_type": task.problem_type,
        "labels": task.labels,
        "metric": metric,
        "max_length": max_length,
        "layers": pretrained.anatomy.count,
        "train_rows": len(data.train),
        "validation_rows": len(data.validation),
        "chance": validation.chance,
        "words": tfidf_score(data, validation),
        **_probe_facts(probes, best, validation),
        "notes": [note for note in data.notes if note != NO_TEST_SET],
    }
    return Probed({**facts, "sentence": describe(facts)}, best, pretrained, machine)


def _score(split: Labelled, values: Any) -> float:
    return split.score(values, np.arange(len(split.targets)))


def _vectors(states: HiddenStates, rows: Rows) -> Vectors:
    """The vectors of these rows by layer; the most recent layers stay in memory."""
    cached, lock = lru_cache(LAST_LAYERS)(lambda layer: states.pooled(layer, rows).numpy()), Lock()

    def of(layer: int) -> Any:
        with lock:  # otherwise threads that want the same layer at the same time would each read it
            return cached(layer)

    return of


def _fit_all(fit: Callable[[ProbeInput], ScoredProbe], layers: int) -> list[ScoredProbe]:
    """Probes after every single layer, and on the last layers together of the vector that does best."""
    cores = torch.get_num_threads()
    threads = min(THREADS, cores)
    with threadpool_limits(cores // threads, "blas"), ThreadPoolExecutor(threads) as pool:
        probes = list(pool.map(fit, single_layer_inputs(layers)))
    vector = max(probes, key=_rank).input.pooled
    return [*probes, *map(fit, last_layers_inputs(layers, vector))]


def _rank(probe: ScoredProbe) -> tuple[float, int, int]:
    """Orders by the score of left-out rows; of equals, the probe that needs fewer layers is better."""
    score = -np.inf if np.isnan(probe.left_out) else probe.left_out
    return score, -probe.input.layers[-1], -len(probe.input.layers)


def _probe_facts(probes: Sequence[ScoredProbe], best: ScoredProbe, validation: Labelled) -> dict[str, Any]:
    scored = Predictions(validation, {"best": best.values}.__getitem__).alone("best")
    return {
        "probes": [
            {
                "layers": probe.input.layers,
                "vector": probe.input.pooled,
                "unseen": defined(probe.left_out),
                "validation": defined(probe.validation),
                "strength": probe.probe.strength,
            }
            for probe in probes
        ],
        "best": {
            "layers": best.input.layers,
            "vector": best.input.pooled,
            **{name: defined(value) for name, value in scored.items()},
        },
    }
