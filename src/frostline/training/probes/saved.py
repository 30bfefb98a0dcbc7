"""Save a probe, load it, and predict with it. A saved probe names its model but does not contain it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.kinds import TOKENS, TaskType
from frostline.fast.switch import memory_reused
from frostline.model.device import Machine, this_machine
from frostline.model.loading import Streams, load_pretrained, never_streams
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import Tokens, encode, suited
from frostline.training.probes.examples import computed_vectors
from frostline.training.probes.inputs import ProbeInput, features_after, probe_forward_pass
from frostline.training.probes.linear import Probe
from frostline.training.probes.saved_files import read_saved, write_saved

FORMAT = 1
FACTS, WEIGHTS = "probe.json", "probe.safetensors"
COPIED_FACTS = ("task", "task_type", "labels", "columns", "max_length", "sentence")


def save_probe(
    folder: Path, inputs: ProbeInput, probe: Probe, pretrained: Pretrained, machine: Machine, facts: Mapping[str, Any]
) -> None:
    """Write a probe for ``frostline predict``. The model itself is not copied.

    Args:
        folder: Where to write.
        inputs: The features of the probe.
        probe: The fitted probe.
        pretrained: The model that computes the features.
        machine: The device and precision that computed the features.
        facts: Task, labels, columns, maximum length and summary.
    """
    arrays = {name: getattr(probe, name) for name in ("weights", "bias", "mean", "scale")}
    saved = {
        "format": FORMAT,
        "model": pretrained.name if pretrained.revision else str(pretrained.folder.resolve()),
        "revision": pretrained.revision,
        "weights": pretrained.weights,
        "precision": machine.precision,
        "layers": inputs.layers,
        "vector": inputs.vector,
        "inverse_temperature": probe.inverse_temperature,
        **{name: facts[name] for name in COPIED_FACTS},
    }
    write_saved(folder, (FACTS, WEIGHTS), saved, arrays)


@dataclass(frozen=True)
class SavedProbe:
    """A probe that was loaded from a folder, with the facts about it."""

    folder: Path
    about: Mapping[str, Any]
    input: ProbeInput
    probe: Probe

    @property
    def of_words(self) -> bool:
        """Whether it predicts tags of words."""
        return bool(self.about["task_type"] == TOKENS)

    def values(
        self, texts: Texts, *, trust_remote_code: bool = False, streams: Streams = never_streams
    ) -> tuple[NDArray[np.float32], Tokens]:
        """Predict new examples. ``streams`` decides whether the layers of the model are streamed.

        Returns:
            Probabilities ``[n, C]`` or numbers ``[n, 1]``, and the encoded examples. For tags, these are the probabilities
            of the words with tokens, one sentence after the other.

        Raises:
            FrostlineError: The probe's model is not found, or has changed, or does not know a token.
        """
        about = self.about
        pretrained = self._load_model(trust_remote_code=trust_remote_code, streams=streams)
        machine = this_machine("cpu", about["precision"])
        length, tokenizer = about["max_length"], pretrained.tokenizer
        tokens = encode(tokenizer, texts.texts, texts.pairs, length, of_words=self.of_words)
        tokens = suited(tokens, pretrained.model, tokenizer)
        if not texts.texts:
            return np.zeros((0, len(self.probe.bias)), np.float32), tokens
        forward_pass = probe_forward_pass(
            pretrained, machine, features_after(self.input.layers, of_words=self.of_words)
        )
        with memory_reused():
            found = [
                (places, self._outputs(vectors))
                for places, vectors in computed_vectors(forward_pass, tokens, np.arange(len(tokens)))
            ]
        places, outputs = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return outputs[np.argsort(places)].astype(np.float32), tokens

    def _load_model(self, *, trust_remote_code: bool, streams: Streams) -> Pretrained:
        about = self.about
        pretrained = load_pretrained(
            about["model"],
            labels=about["labels"],
            task_type=about["task_type"],
            revision=about["revision"],
            trust_remote_code=trust_remote_code,
            streams=streams,
        )
        if pretrained.weights != about["weights"]:
            raise FrostlineError(
                f"The weights of {about['model']} have changed since the probe in {self.folder} was fitted: restore the old "
                "weights, or fit the probe again with `frostline probe`."
            )
        if max(about["layers"]) > pretrained.anatomy.count:
            raise self._of_another_model()
        return pretrained

    def _outputs(self, vectors: Any) -> NDArray[Any]:
        features = self.input.features(vectors)
        if features.shape[1] != len(self.probe.mean):
            raise self._of_another_model()
        return self.probe.outputs(features)

    def _of_another_model(self) -> FrostlineError:
        return FrostlineError(
            f"The probe in {self.folder} reads other layers than {self.about['model']} has: fit it again with `frostline probe`."
        )


class Form(BaseModel):
    """The facts about a probe, which may come from others."""

    model: str
    revision: str | None
    weights: str
    precision: str
    layers: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    vector: Literal["first", "mean", "last", "word"]
    inverse_temperature: Annotated[float, Field(ge=0)]
    task_type: TaskType
    labels: list[str]
    max_length: Annotated[int, Field(ge=1)]


def _require_form(about: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Raise a ValueError if the facts or the arrays are not those of a probe."""
    try:
        Form.model_validate(about, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
    inputs, outputs = arrays["mean"].shape, (max(1, len(about["labels"])),)
    shapes = {"weights": inputs + outputs, "bias": outputs, "mean": inputs, "scale": inputs}
    for name, shape in shapes.items():
        if arrays[name].shape != shape or len(shape) > 2 or not np.isfinite(arrays[name]).all():
            raise ValueError(f"its {name} are of another shape, or not finite")


def saved_probe(folder: str | Path) -> SavedProbe | None:
    """The probe in a folder; None if there is none.

    Raises:
        FrostlineError: The probe is damaged.
    """

    def make(about: dict[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> SavedProbe:
        _require_form(about, arrays)
        probe = Probe(
            **arrays,
            penalty=np.nan,
            inverse_temperature=about["inverse_temperature"],
            held_out=np.zeros((0, 0)),
            task_type=about["task_type"],
        )
        return SavedProbe(Path(folder), about, ProbeInput(tuple(about["layers"]), about["vector"]), probe)

    damaged = "The probe in {} is damaged ({}): fit it again with `frostline probe`."
    return read_saved(Path(folder), (FACTS, WEIGHTS), make, damaged)
