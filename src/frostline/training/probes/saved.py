"""A probe in a folder: what it reads, its weights, and which model it was fitted on; and its use on new texts."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor

from frostline import FrostlineError
from frostline.data import Texts
from frostline.frozen.check import packs
from frostline.frozen.forward_pass import POOLED, Need, Pass, ready_for_pass
from frostline.model.device import Machine, this_machine
from frostline.model.pretrained import Pretrained, load_pretrained
from frostline.model.tokens import encode
from frostline.sweep.results.store import replace, write_facts
from frostline.training.probes.linear import Features, Probe

FORMAT = 1
FACTS, WEIGHTS = "probe.json", "probe.safetensors"
SAID = ("task", "problem_type", "labels", "columns", "max_length", "sentence")


@dataclass(frozen=True)
class Place:
    """What a probe reads: one vector of each text, after one layer or several side by side."""

    layers: tuple[int, ...]
    pooled: str  # one of POOLED

    def features(self, states: Callable[[int], Any]) -> Features:
        """``[n, D]`` from ``states(layer)``, ``[n, 3, D]``."""
        which = POOLED.index(self.pooled)
        return np.concatenate([states(layer)[:, which] for layer in self.layers], 1)


def vectors_of(pretrained: Pretrained, machine: Machine, need: Need) -> Pass:
    """How the vectors that probes read are made where no sweep has made them."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return Pass(model, anatomy, need, "", packs(model, anatomy), machine.autocast)


def save_probe(
    folder: Path, place: Place, probe: Probe, pretrained: Pretrained, machine: Machine, facts: Mapping[str, Any]
) -> None:
    """Write a probe for ``frostline predict``; the model itself stays where it is. ``facts`` are what is said of it."""
    arrays = {name: getattr(probe, name) for name in ("weights", "bias", "mean", "scale")}
    replace(folder / WEIGHTS, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    about = {
        "format": FORMAT,
        "model": pretrained.name if pretrained.revision else str(pretrained.folder.resolve()),
        "revision": pretrained.revision,
        "weights": pretrained.weights,
        "precision": machine.precision,
        "layers": place.layers,
        "pooled": place.pooled,
        "sharpness": probe.sharpness,
        **{name: facts[name] for name in SAID},
    }
    write_facts(folder / FACTS, about)


@dataclass(frozen=True)
class SavedProbe:
    """A probe that was saved, and what it says of itself."""

    folder: Path
    about: Mapping[str, Any]
    probe: Probe

    def values(self, texts: Texts, *, trust_remote_code: bool = False) -> tuple[Any, int]:
        """Probabilities ``[n, C]``, or numbers ``[n, 1]``, and how many texts were cut.

        Raises:
            FrostlineError: the model that it was fitted on is not where it was, or has changed.
        """
        about, place = self.about, Place(tuple(self.about["layers"]), self.about["pooled"])
        pretrained = load_pretrained(
            about["model"],
            labels=about["labels"],
            problem_type=about["problem_type"],
            revision=about["revision"],
            trust_remote_code=trust_remote_code,
        )
        if pretrained.weights != about["weights"]:
            raise FrostlineError(
                f"The probe in {self.folder} was fitted on other weights than {about['model']} has now: put those back, "
                "or fit it anew with `frostline probe`."
            )
        machine = this_machine("cpu", about["precision"])
        if not texts.texts:
            return np.zeros((0, len(self.probe.bias)), np.float32), 0
        tokens = encode(pretrained.tokenizer, texts.texts, texts.pairs, about["max_length"])
        made_by = vectors_of(pretrained, machine, Need((), head=False, pooled=place.layers))
        batches = made_by.batches(tokens.lengths, np.arange(len(tokens)))
        says = self.probe.probabilities if about["labels"] else self.probe.values
        values = np.zeros((len(tokens), len(self.probe.bias)), np.float32)
        with ready_for_pass(pretrained.model, machine):
            for batch, states in zip(batches, made_by.states(tokens, batches), strict=True):
                values[batch.rows] = says(place.features(partial(_pooled, states)))
        return values, int((tokens.dropped > 0).sum())


def _pooled(states: Mapping[str, Tensor], layer: int) -> Any:
    """``[n, 3, D]``: what a pass gives for the texts of a batch after ``layer`` layers."""
    vectors = states[f"pooled-{layer}"]
    return vectors.view(len(vectors), len(POOLED), -1).numpy()


def saved_probe(folder: str | Path) -> SavedProbe | None:
    """The probe in a folder; None where there is none.

    Raises:
        FrostlineError: it is damaged.
    """
    folder = Path(folder)
    if not (folder / FACTS).is_file():
        return None
    try:
        about = json.loads((folder / FACTS).read_bytes())
        arrays = load_file(folder / WEIGHTS)
        probe = Probe(**arrays, strength=np.nan, sharpness=about["sharpness"], unseen=np.zeros((0, 0)))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FrostlineError(
            f"The probe in {folder} is damaged ({error}): fit it anew with `frostline probe`."
        ) from error
    return SavedProbe(folder, about, probe)
