"""Saved estimators: what is written of a probe, a TF-IDF model or a model of SetFit, and their logits for new texts.

They are read without torch, so that a mistake is answered at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import CARD, FILES, read_record, replace_file, require_recorded, validated, write_record
from frostline.data.kinds import TOKENS
from frostline.data.wording import in_markdown, kept_layers
from frostline.model.model_files import (
    ESTIMATOR,
    Streams,
    copy_model,
    model_folder,
    never_streams,
    readable,
    require_intact,
)
from frostline.statistics.run_result import PROBE, WORDS
from frostline.training.result import ProbeInput, TaskFacts

if TYPE_CHECKING:
    from frostline.model.tokens import Tokens

ARRAYS, BASE = "estimator.safetensors", "base"
PACKAGE, OLDEST = "sentence-transformers", 6  # before this version, it trusts local folders
READS = {  # by the vector of a probe
    "first": "the first token",
    "mean": "the mean of all tokens",
    "last": "the last token",
    "word": "the first token of each word",
    "apart": "the product and the distance of the means of both texts",
}
LABELS, NUMBERS = "Labels, in the order of the probabilities:\n", "It predicts numbers."
CARD_TEXT = """---
{head}
---

# {task}

{sentence}

{what} `frostline predict path/to/this/folder FILE` predicts with it.{longest}

{outputs}
"""


class ProbeFacts(ProbeInput):
    """What a saved probe reads.

    Attributes:
        model: The hub name or folder of the model, which is not copied.
        revision: The commit of a hub model.
        depth: How many of its first layers are kept; None: all.
        weights: The digest of its configuration and weights.
        vocabulary: The digest of its tokenizer.
        precision: The precision that computes the features.
    """

    model: str
    revision: str | None
    depth: int | None = None
    weights: str
    vocabulary: str
    precision: str


class EstimatorFacts(TaskFacts):
    """What is saved beside the arrays of an estimator. A model of SetFit has neither of these attributes.

    Attributes:
        probe: The features of a probe.
        terms: The words and word pairs of a TF-IDF model.
    """

    probe: ProbeFacts | None = None
    terms: tuple[str, ...] | None = None

    @property
    def choice(self) -> str | None:
        """Its name among the choices of a search that train no layer; None for a model of SetFit."""
        return PROBE if self.probe is not None else WORDS if self.terms is not None else None


def write_estimator(
    folder: Path, facts: EstimatorFacts, arrays: Mapping[str, NDArray[Any]], base: Path | None = None
) -> None:
    """Write the files that :func:`read_estimator` reads, and a model card. The model in ``base`` is copied if it is given."""
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    replace_file(folder / ARRAYS, content, inside=folder)
    copied = [] if base is None else copy_model(base, folder / BASE)
    write_record(folder / ESTIMATOR, facts.model_dump(), [folder / ARRAYS, *copied], inside=folder)
    replace_file(folder / CARD, _card(facts, embedded=base is not None).encode(), inside=folder)


def _card(facts: EstimatorFacts, *, embedded: bool) -> str:
    """The model card: what it is, what it needs, and how to predict with it."""
    head: dict[str, Any] = {"library_name": "frostline", "tags": ["frostline"]}
    if facts.terms is not None:
        what = f"A TF-IDF model of {len(facts.terms):,} words and word pairs."
    elif facts.probe is None:
        head["library_name"] = "setfit"
        what = "A [SetFit](https://github.com/huggingface/setfit) model. `SetFitModel.from_pretrained` opens it, too."
    else:
        probe, where = facts.probe, f" at revision {facts.probe.revision}" if facts.probe.revision else ""
        if probe.revision:
            head["base_model"] = probe.model
        after = f"{'layers' if len(probe.layers) > 1 else 'layer'} {', '.join(map(str, probe.layers))}"
        what = f"A linear probe on {READS[probe.vector]} after {after} of {in_markdown(probe.model)}{where}"
        what += kept_layers(probe.depth)
        what += f", which is in the folder {BASE}." if embedded else ", which is not in this folder."
        if not embedded and not probe.revision:
            what += " If it is elsewhere, `--base FOLDER` gives its place."
    return CARD_TEXT.format(
        head=json.dumps(head, indent=1),
        task=in_markdown(facts.task),
        sentence=in_markdown(facts.sentence),
        what=what,
        outputs="\n".join((LABELS, *(f"- {in_markdown(label)}" for label in facts.labels)))
        if facts.labels
        else NUMBERS,
        longest="" if facts.terms is not None else f" Texts are truncated to {facts.max_length:,} tokens.",
    )


def require_package(what: str) -> None:
    """Refuse to open a folder of sentence-transformers without the package, or with a version that runs code in the folder.

    Raises:
        FrostlineError: The package is missing or too old; ``what`` needs it.
    """
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        found = "0"
    if int(found.partition(".")[0]) < OLDEST:
        held = f" ({found} would run code in any local folder)" if found != "0" else ""
        raise FrostlineError(
            f"{what} needs {PACKAGE} {OLDEST} or later{held}: run `pip install '{PACKAGE}>={OLDEST}'`."
        )


@dataclass(frozen=True)
class SavedEstimator:
    """An estimator's model that was loaded from a folder."""

    folder: Path
    facts: EstimatorFacts
    arrays: Mapping[str, NDArray[np.float64]]

    @property
    def reads_only_here(self) -> str | None:
        """The folder of the model that a probe reads, if it is neither on the hub nor in the folder of the probe."""
        probe = self.facts.probe
        return None if probe is None or probe.revision or (self.folder / BASE).is_dir() else probe.model

    def logits(
        self,
        texts: Texts,
        *,
        base: str | Path | None = None,
        trust_remote_code: bool = False,
        streams: Streams = never_streams,
    ) -> "tuple[NDArray[Any], Tokens | None]":
        """Predict new examples.

        Args:
            texts: The examples.
            base: The model that a probe reads, if not where it was when the probe was fitted.
            trust_remote_code: Whether to run code that comes with the model.
            streams: Decides whether the layers of a probe's model are streamed.

        Returns:
            Logits ``[n, C]`` or numbers ``[n, 1]``, for tags those of the words with tokens, one sentence after the other. And
            the encoded examples; None for a TF-IDF model.

        Raises:
            FrostlineError: A probe's model is not found, or has changed, or does not know a token; or a package is missing.
        """
        if self.facts.terms is not None:
            from frostline.training.linear_models import WordsModel

            model = WordsModel(self.facts.terms, **self.arrays)
            return model.logits(texts), None
        if self.facts.probe is None:
            return self._of_setfit(texts, trust_remote_code=trust_remote_code)
        return self._of_probe(self.facts.probe, texts, base, trust_remote_code=trust_remote_code, streams=streams)

    def _require_base(self) -> None:
        """Refuse a copy of the pretrained model that is not what was copied."""
        try:
            recorded = read_record(self.folder / ESTIMATOR)[FILES]
            copied = {name: one for name, one in recorded.items() if name.startswith(f"{BASE}/")}
            require_recorded(self.folder, copied)
        except (OSError, ValueError) as error:
            raise FrostlineError(
                f"The model in {self.folder / BASE} is not what was copied there ({error}): copy {self.folder} again."
            ) from error

    def _of_probe(
        self, facts: ProbeFacts, texts: Texts, base: str | Path | None, *, trust_remote_code: bool, streams: Streams
    ) -> "tuple[NDArray[Any], Tokens]":
        task, name, revision = self.facts, str(base or facts.model), None if base else facts.revision
        if not base and (self.folder / BASE).is_dir():
            self._require_base()
            name, revision = str(self.folder / BASE), None
        try:
            model_folder(name, revision, ["config.json"])
        except FrostlineError as error:
            raise FrostlineError(
                f"The probe in {self.folder} reads another model. {error} If it is elsewhere, give its folder with "
                "--base. A probe that is written with --embed has the model in its own folder."
            ) from error
        from frostline.fast.switch import memory_reused
        from frostline.model.device import this_machine
        from frostline.model.loading import load_pretrained
        from frostline.model.tokens import encode, suited
        from frostline.training.linear_models import LinearModel
        from frostline.training.probes import APART, features_of, means_apart, read_computed, vectors_apart

        pretrained = load_pretrained(
            name,
            labels=task.labels,
            task_type=task.task_type,
            revision=revision,
            depth=facts.depth,
            trust_remote_code=trust_remote_code,
            streams=streams,
        )
        for part, now, then in (
            ("weights, configuration or code", pretrained.weights, facts.weights),
            ("tokenizer files", pretrained.vocabulary, facts.vocabulary),
        ):
            if now != then:
                raise FrostlineError(
                    f"The {part} of {name} have changed since the probe in {self.folder} was fitted: restore the old ones, or "
                    "fit the probe again with `frostline probe`."
                )
        apart = facts.vector == APART
        width = pretrained.anatomy.width * len(facts.layers) * (2 if apart else 1)
        if max(facts.layers) > pretrained.anatomy.count or width != len(self.arrays["weights"]):
            raise FrostlineError(
                f"The probe in {self.folder} reads other layers than {name} has: fit it again with `frostline probe`."
            )
        of_words, tokenizer = task.task_type == TOKENS, pretrained.tokenizer
        tokens = encode(tokenizer, texts.texts, texts.pairs, task.max_length, of_words=of_words)
        tokens = suited(tokens, pretrained.model, tokenizer)
        model = LinearModel(**self.arrays)
        machine = this_machine("cpu", facts.precision)
        with memory_reused():
            if apart:
                means = means_apart(pretrained, machine, texts, facts.layers, task.max_length)
                return model.logits(features_of(facts, vectors_apart(means, facts.layers))), tokens
            logits = read_computed(
                *(pretrained, machine, tokens, np.arange(len(tokens)), facts.layers),
                lambda vectors: model.logits(features_of(facts, vectors)),
            )
        return logits, tokens

    def _of_setfit(self, texts: Texts, *, trust_remote_code: bool) -> "tuple[NDArray[Any], Tokens | None]":
        require_package(f"The model in {self.folder}")
        require_intact(self.folder)
        from sentence_transformers import SentenceTransformer

        from frostline.model.loading import read_config
        from frostline.model.tokens import encode

        name, trust = str(self.folder), {"trust_remote_code": trust_remote_code}
        read_config(name, self.folder, "its config.json cannot be used", **trust)
        model = readable(
            lambda: SentenceTransformer(name, device="cpu", **trust), name, "sentence-transformers cannot load it"
        )
        tokens = encode(model.tokenizer, texts.texts, None, self.facts.max_length)
        embeddings = model.encode(list(texts.texts), show_progress_bar=False)
        return np.asarray(embeddings @ self.arrays["weights"] + self.arrays["bias"], np.float32), tokens


def read_estimator(folder: str | Path) -> SavedEstimator | None:
    """The estimator's model in a folder; None if there is none.

    Raises:
        FrostlineError: It is damaged.
    """
    folder = Path(folder)
    if not (folder / ESTIMATOR).is_file():
        return None
    try:
        record = read_record(folder / ESTIMATOR)
        require_recorded(folder, {ARRAYS: record[FILES].get(ARRAYS)})
        facts, arrays = validated(EstimatorFacts, record), load_file(folder / ARRAYS)
        width, outputs = len(arrays["weights"]), (max(1, len(facts.labels)),)
        shapes: dict[str, tuple[int, ...]] = {"weights": (width, *outputs), "bias": outputs}
        if facts.terms is not None:
            shapes["idf"] = (len(facts.terms),)
        if {name: array.shape for name, array in arrays.items()} != shapes or width != shapes.get("idf", (width,))[0]:
            raise ValueError("its arrays are of other shapes")
        if any(np.isnan(array).any() for array in arrays.values()):
            raise ValueError("its arrays are not finite")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FrostlineError(
            f"The model in {folder} is damaged ({error}): run the command that wrote it again."
        ) from error
    return SavedEstimator(folder, facts, arrays)
