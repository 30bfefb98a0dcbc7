"""Linear probes on cached hidden states: their features, the fit after every layer, and saved probes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from threadpoolctl import threadpool_limits
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Examples, Targets, Texts
from frostline.data.files import new_folder
from frostline.data.kinds import TOKENS, TaskType
from frostline.data.load import Data
from frostline.data.splits import NO_TEST_SET
from frostline.fast.switch import memory_reused
from frostline.frozen.exactness import packed_pass_is_exact
from frostline.frozen.forward_pass import POOLED, ForwardBatch, ForwardPass, Rows, StateSelection
from frostline.frozen.hidden_states import SHARD_ROWS, HiddenStates, computed_states, scratch_folder
from frostline.model.device import Machine, this_machine
from frostline.model.loading import Streams, load_pretrained, never_streams
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import stream_of
from frostline.model.tokens import ZEROED_TYPES, LabelledTokens, Tokens, encode, flat_positions, suited
from frostline.statistics.metrics import defined
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.run_result import PROBE, WORDS
from frostline.training.linear_models import FITS, Features, Probe, WordsModel, read_saved, words_score, write_saved

LAST_LAYERS = 4  # one probe reads this many of the last layers together
WORD = "word"  # the vector of a word: its first token


@dataclass(frozen=True)
class ProbeInput:
    """Which vector of each text or word a probe reads, after which layers."""

    layers: tuple[int, ...]  # 0: the embeddings
    vector: str  # of a text one of POOLED: first, mean or last token; of a word WORD

    def features(self, states: Callable[[int], Any]) -> Features:
        """The features ``[U, D * layers]``. ``states(layer)`` returns the vectors after a layer, ``[U, P, D]``."""
        position = 0 if self.vector == WORD else POOLED.index(self.vector)
        return np.concatenate([states(layer)[:, position] for layer in self.layers], 1)


def single_layer_inputs(layers: int, *, of_words: bool) -> list[ProbeInput]:
    """Every vector after every single layer of a model with this number of ``layers``."""
    return [ProbeInput((n,), vector) for n in range(layers + 1) for vector in ((WORD,) if of_words else POOLED)]


def last_layers_inputs(layers: int, vector: str) -> list[ProbeInput]:
    """The last layers together, if there are at least two. This probe has the most features and takes longest to fit."""
    last = tuple(range(max(1, layers - LAST_LAYERS + 1), layers + 1))
    return [ProbeInput(last, vector)] * (len(last) > 1)


def features_after(layers: Sequence[int], *, of_words: bool) -> StateSelection:
    """The hidden states that probes read after these layers: pooled vectors of texts, or all tokens of sentences."""
    return StateSelection(tuple(layers) if of_words else (), head=False, pooled=() if of_words else tuple(layers))


def has_features(selection: StateSelection, layers: int, *, of_words: bool) -> bool:
    """Whether these hidden states are enough for probes after each of a model's ``layers`` and after the embeddings."""
    return set(range(layers + 1)) <= set(selection.cuts if of_words else selection.pooled)


def probe_forward_pass(pretrained: Pretrained, machine: Machine, selection: StateSelection) -> ForwardPass:
    """The forward pass that computes vectors for probes outside of a sweep."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return ForwardPass(model, anatomy, selection, "", packed_pass_is_exact(model, anatomy), machine.autocast)


Vectors = Callable[[int], Any]  # from a layer to the vectors after it, [U, P, D]


@dataclass(frozen=True)
class ProbeExamples:
    """The rows of a split with their vectors.

    Attributes:
        split: The targets of the n rows, and the metric.
        vectors: From a layer to the vectors of the U texts or words after it, ``[U, P, D]``.
        words: The words of the rows; None for texts.
    """

    split: Labelled
    vectors: Vectors
    words: LabelledTokens | None

    @property
    def targets(self) -> Targets:
        """The target of each text or word, ``[U]``; for label sets ``[U, C]``."""
        if self.words is None:
            return self.split.targets
        return self.split.targets[self.words.example, self.words.word]

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values ``[U, C]`` as the predictions of rows: ``[n, C]``, or ``[n, W, C]`` with NaN where there is no word."""
        return values if self.words is None else words_by_row(values, self.words, self.split.targets.shape)

    def score(self, values: NDArray[Any]) -> float:
        """The metric of values ``[U, C]``."""
        return self.split.score(self.by_row(values), np.arange(len(self.split.targets)))


def words_by_row(values: NDArray[Any], words: LabelledTokens, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values ``[U, C]`` of words, as predictions of rows of this shape ``(n, W)``: ``[n, W, C]``, NaN elsewhere."""
    found = np.full((*shape, values.shape[1]), np.nan, values.dtype)
    found[words.example, words.word] = values
    return found


def words_of_rows(tokens: Tokens, rows: Rows) -> LabelledTokens | None:
    """The first tokens of the words of these rows; None for texts."""
    return tokens.labelled(rows) if tokens.of_words else None


def cached_vectors(states: HiddenStates, rows: Rows, words: LabelledTokens | None) -> Vectors:
    """The vectors of these rows, or of their words, by layer. The most recently read layers stay in memory."""

    def read(layer: int) -> Any:
        if words is None:
            return states.pooled(layer, rows).numpy()
        return states.tokens(layer, rows)[0].numpy()[words.position][:, None]

    cached, lock = lru_cache(LAST_LAYERS)(read), Lock()

    def of(layer: int) -> Any:
        with lock:  # without it, several threads could read the same layer at the same time
            return cached(layer)

    return of


def computed_vectors(
    forward_pass: ForwardPass, tokens: Tokens, rows: Rows
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """The vectors of these rows, or of their words, from a forward pass over the rows.

    Yields:
        For each batch, the places of its texts or words among all, ``[u]``, and from a layer their vectors ``[u, P, D]``.
    """
    words = words_of_rows(tokens, rows)
    counts = np.ones(len(rows), np.int64) if words is None else np.bincount(words.example, minlength=len(rows))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.zeros(len(tokens), np.int64)
    place[rows] = np.arange(len(rows))
    batches = forward_pass.batches(tokens.lengths, rows)
    for batch, of_batch in zip(batches, _vectors_of_batches(forward_pass, tokens, batches), strict=True):
        yield flat_positions(offsets, place[batch.rows]), of_batch


def _vectors_of_batches(
    forward_pass: ForwardPass, tokens: Tokens, batches: Sequence[ForwardBatch]
) -> Iterator[Vectors]:
    """The vectors of each batch. If the layers are streamed, those of many batches are computed first, and wait on disk."""
    if stream_of(forward_pass.model) is None:
        for batch, states in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
            yield partial(_batch_vectors, states, words_of_rows(tokens, batch.rows))
        return
    for some in _groups(batches):
        rows = np.concatenate([batch.rows for batch in some])
        with scratch_folder() as folder:
            on_disk = computed_states(folder, forward_pass, tokens, rows)
            for batch in some:
                yield cached_vectors(on_disk, batch.rows, words_of_rows(tokens, batch.rows))


def _groups(batches: Sequence[ForwardBatch]) -> Iterator[list[ForwardBatch]]:
    """Batches whose examples fit into one shard of hidden states."""
    group: list[ForwardBatch] = []
    for batch in batches:
        if group and sum(len(one.rows) for one in (*group, batch)) > SHARD_ROWS:
            yield group
            group = []
        group.append(batch)
    yield group


def _batch_vectors(states: Mapping[str, Tensor], words: LabelledTokens | None, layer: int) -> Any:
    """The vectors of a batch after a layer, from the result of a forward pass."""
    if words is None:
        vectors = states[f"pooled-{layer}"]
        return vectors.view(len(vectors), len(POOLED), -1).float().cpu().numpy()
    return states[f"tokens-{layer}"][words.position][:, None].float().cpu().numpy()


PROBE_FORMAT = 1
PROBE_FACTS, PROBE_WEIGHTS = "probe.json", "probe.safetensors"
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
        "format": PROBE_FORMAT,
        "model": pretrained.name if pretrained.revision else str(pretrained.folder.resolve()),
        "revision": pretrained.revision,
        "weights": pretrained.weights,
        "precision": machine.precision,
        "layers": inputs.layers,
        "vector": inputs.vector,
        "inverse_temperature": probe.inverse_temperature,
        **{name: facts[name] for name in COPIED_FACTS},
    }
    write_saved(folder, (PROBE_FACTS, PROBE_WEIGHTS), saved, arrays)


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


class ProbeForm(BaseModel):
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
        ProbeForm.model_validate(about, strict=True)
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
    return read_saved(Path(folder), (PROBE_FACTS, PROBE_WEIGHTS), make, damaged)


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


@dataclass(frozen=True)
class Alternatives:
    """Fitted models that train no layer.

    Attributes:
        probed: The probes; None if the hidden states could not be cached.
        words: The TF-IDF model; None if the texts contain none.
        values: The predictions of each, by name, for all validation rows, ``[rows, C]``; NaN where a row was not scored.
        test: The predictions of those that can be saved, by name, for all test rows, ``[rows, C]``; empty without a test set.
        about: The facts of the task that a saved model needs.
    """

    probed: Probed | None
    words: WordsModel | None
    values: Mapping[str, NDArray[np.float32]]
    test: Mapping[str, NDArray[np.float32]]
    about: Mapping[str, Any]

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """The facts of the probes, as in probes.json."""
        return self.probed.facts if self.probed else None

    @property
    def sentence(self) -> str | None:
        """The summary of the probes as a sentence."""
        return self.probed.sentence if self.probed else None

    def save(self, name: str, folder: Path) -> None:
        """Write one of the models into a new folder, in place of an older folder within the same parent."""
        with new_folder(folder, inside=folder.parent, replace=True) as aside:
            if name == PROBE:
                assert self.probed is not None
                self.probed.save(aside)
            else:
                assert name == WORDS and self.words is not None
                self.words.save(aside, self.about)
