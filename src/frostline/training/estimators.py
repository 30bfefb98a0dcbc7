"""Ways without the training loop: an estimator gets the examples of a run, fits a model and predicts."""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor
from transformers.utils import logging

from frostline import FrostlineError
from frostline.data.examples import Examples, Texts
from frostline.data.files import replace_file
from frostline.frozen.forward_pass import POOLED, Rows
from frostline.model.loading import read_config
from frostline.model.model_files import readable, require_intact
from frostline.model.terms import HEAD
from frostline.model.tokens import encode
from frostline.model.ways import Way
from frostline.statistics.predictions import Labelled
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows
from frostline.training.linear_models import PENALTIES, WordsModel, by_class, has_words, read_saved, write_saved
from frostline.training.probes import (
    LAST_LAYERS,
    FittedProbe,
    ProbeExamples,
    Vectors,
    best_probe,
    cached_vectors,
    computed_vectors,
    features_after,
    has_features,
    probe_forward_pass,
    save_probe,
    words_of_rows,
)
from frostline.training.run import Run

PACKAGE, OLDEST = "sentence-transformers", 6  # before this version, it trusts local folders
ENCODER_FORMAT = 1
ENCODER_FACTS, ENCODER_WEIGHTS = "encoder.json", "encoder.safetensors"
CARD = """# {task}

{sentence}

A [SetFit](https://github.com/huggingface/setfit) model with the classes {labels}. `SetFitModel.from_pretrained` opens it, and
`frostline predict` predicts with it.
"""


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
class LinearHead:
    """Logits are ``embeddings @ weights + bias``, with weights ``[D, C]`` and bias ``[C]``."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]

    def logits(self, embeddings: Any) -> NDArray[np.float32]:
        return np.asarray(embeddings @ self.weights + self.bias, np.float32)


def save_encoder(folder: Path, head: LinearHead, about: Mapping[str, Any]) -> None:
    """Add the head and facts ``about`` the task to a folder of SetFit, whose card would show training examples."""
    about, arrays = {"format": ENCODER_FORMAT, **about}, {"weights": head.weights, "bias": head.bias}
    write_saved(folder, (ENCODER_FACTS, ENCODER_WEIGHTS), about, arrays)
    card = CARD.format(**{**about, "labels": ", ".join(about["labels"])})
    replace_file(folder / "README.md", card.encode(), inside=folder)


@dataclass(frozen=True)
class SavedEncoder:
    """A SetFit model that was loaded from a folder, with the facts about it."""

    folder: Path
    about: Mapping[str, Any]
    head: LinearHead

    def values(self, texts: Texts, *, trust_remote_code: bool = False) -> tuple[NDArray[np.float32], int]:
        """Probabilities ``[N, C]`` of new examples, and the number of truncated ones.

        Raises:
            FrostlineError: The package sentence-transformers is missing.
        """
        require_package(f"The model in {self.folder}")
        require_intact(self.folder)
        from sentence_transformers import SentenceTransformer

        if not texts.texts:
            return np.zeros((0, len(self.head.bias)), np.float32), 0
        name, trust = str(self.folder), {"trust_remote_code": trust_remote_code}
        read_config(name, self.folder, "its config.json cannot be used", **trust)
        model = readable(
            lambda: SentenceTransformer(name, device="cpu", **trust), name, "sentence-transformers cannot load it"
        )
        tokens = encode(model.tokenizer, texts.texts, None, self.about["max_length"])
        logits = self.head.logits(model.encode(list(texts.texts), show_progress_bar=False))
        return softmax(logits, 1), int((tokens.dropped > 0).sum())


def saved_encoder(folder: str | Path) -> SavedEncoder | None:
    """The SetFit model in a folder; None if there is none.

    Raises:
        FrostlineError: The model is damaged.
    """

    def make(about: dict[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> SavedEncoder:
        return SavedEncoder(Path(folder), about, LinearHead(**arrays))

    damaged = "The model in {} is damaged ({}): run the command of the comparison again."
    return read_saved(Path(folder), (ENCODER_FACTS, ENCODER_WEIGHTS), make, damaged)


Logits = NDArray[np.float32]
NEVER = -1e4  # the logit of a class without training examples, whose probability is zero; scores need a finite number


class Fitted(Protocol):
    """A fitted model."""

    @property
    def parameters(self) -> int:
        """How many parameters were trained."""

    @property
    def steps(self) -> int:
        """How many steps of an optimizer that took; 0 without one."""

    @property
    def epochs(self) -> float:
        """How often the optimizer saw all examples; 0 without one."""

    @property
    def learned(self) -> Mapping[str, Tensor]:
        """What :meth:`Estimator.restore` needs; empty if fitting again is as fast."""

    def logits(self, rows: Rows, split: str) -> Logits:
        """Logits, or predicted numbers, of rows of a split, ``[n, C]``."""

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Write the model into an empty folder, for ``frostline predict``. ``about`` are facts about the task."""


class Refitted:
    """A fitted model that no optimizer has trained. It is fitted again instead of restored, because that takes seconds."""

    steps = 0
    epochs = 0.0

    @property
    def learned(self) -> Mapping[str, Tensor]:
        return {}


class Estimator(Protocol):
    """Fits a model to the examples of a run."""

    def require_installed(self) -> None:
        """Refuse to run without a package.

        Raises:
            FrostlineError: A package is missing.
        """

    def require_suitable(self, spec: Run, train: Examples) -> None:
        """Refuse a run. ``train`` are its training examples.

        Raises:
            WrongTrainSize: The estimator is not for so many examples.
            FrostlineError: The estimator is not for this task.
        """

    def fit(self, spec: Run, context: Experiment) -> Fitted:
        """Fit a model to the training rows of a run. The same run gives the same model."""

    def restore(self, spec: Run, context: Experiment, learned: Mapping[str, Tensor]) -> Fitted:
        """The model that :meth:`fit` has fitted before, from what it ``learned``."""

    def operations(self, spec: Run, context: Experiment, training: float) -> float:
        """Operations of a run, approximately.

        Args:
            spec: The run.
            context: Model and data.
            training: Operations of training the whole model on all examples of the run once.
        """


class WrongTrainSize(FrostlineError):
    """A way is not for so many training examples. ``reason`` says why."""

    def __init__(self, spec: Run, reason: str, advice: str) -> None:
        super().__init__(f"{spec.recipe} cannot have {spec.train_size:,} examples: {reason}; {advice}.")
        self.reason = reason


def require_one_target(spec: Run, train: Examples) -> None:
    """Refuse tags of words.

    Raises:
        FrostlineError: The examples are sentences of words.
    """
    if train.of_words:
        raise FrostlineError(f"{spec.recipe} predicts one label for each text, but words have tags: leave it out.")


@dataclass(frozen=True)
class RunProbe(Refitted):
    """The probe of a run. Its logits are those whose softmax ``frostline predict`` prints."""

    fitted: FittedProbe
    context: Experiment

    @property
    def parameters(self) -> int:
        probe = self.fitted.probe
        return int(probe.weights.size + probe.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        examples = examples_of(self.context, rows, self.fitted.input.layers)
        values = self.fitted.probe.inverse_temperature * self.fitted.values(examples.vectors)
        return np.asarray(examples.by_row(values), np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        context, fitted = self.context, self.fitted
        save_probe(folder, fitted.input, fitted.probe, context.pretrained, context.machine, about)


class ProbeEstimator:
    """Fits probes after every layer, and takes the one with the best cross-validated score on training rows."""

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: Run, train: Examples) -> None: ...

    def fit(self, spec: Run, context: Experiment) -> RunProbe:
        rows, layers = train_rows(context, spec), context.pretrained.anatomy.count
        return RunProbe(best_probe(examples_of(context, rows, range(layers + 1)), layers), context)

    def restore(self, spec: Run, context: Experiment, learned: Mapping[str, Tensor]) -> RunProbe:
        return self.fit(spec, context)

    def operations(self, spec: Run, context: Experiment, training: float) -> float:
        """An eigendecomposition takes about ten times the cube of its size, and the product of the features before it."""
        anatomy, penalties = context.pretrained.anatomy, len(PENALTIES)
        words = words_of_rows(context.tokens, train_rows(context, spec))
        count = spec.train_size if words is None else len(words.position)
        size, other = sorted((count, anatomy.width))
        one = 10.0 * size**3 + 2.0 * size**2 * other + 2.0 * penalties * count * anatomy.width
        vectors = len(POOLED) if words is None else 1
        return (vectors * (anatomy.count + 1) + LAST_LAYERS**2) * one  # one probe reads the last layers together


def examples_of(context: Experiment, rows: Rows, layers: Iterable[int]) -> ProbeExamples:
    """These rows with their vectors, from the cache if they are there, else from a forward pass over the rows."""
    words, states, problem = words_of_rows(context.tokens, rows), context.states, context.problem
    count = context.pretrained.anatomy.count
    if states is not None and has_features(states.selection, count, of_words=context.tokens.of_words):
        vectors = cached_vectors(states, rows, words)
    else:
        vectors = _computed(context, rows, tuple(layers))
    split = Labelled(problem.targets[rows], problem.task_type, context.labels, problem.metric)
    return ProbeExamples(split, vectors, words)


def _computed(context: Experiment, rows: Rows, layers: tuple[int, ...]) -> Vectors:
    """The vectors of these rows, or of their words, after these layers, in memory."""
    pretrained = context.pretrained
    pretrained.restore()
    forward_pass = probe_forward_pass(
        pretrained, context.machine, features_after(layers, of_words=context.tokens.of_words)
    )
    parts = [
        (places, {layer: vectors(layer) for layer in layers})
        for places, vectors in computed_vectors(forward_pass, context.tokens, rows)
    ]
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    found = {layer: np.concatenate([vectors[layer] for _, vectors in parts])[order] for layer in layers}
    return found.__getitem__


PER_TOKEN = 20_000.0  # operations that fitting takes for each token, at the speed of a forward pass


@dataclass(frozen=True)
class RunWords(Refitted):
    """The TF-IDF model of a run."""

    model: WordsModel
    context: Experiment

    @property
    def parameters(self) -> int:
        return int(self.model.weights.size + self.model.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        return np.maximum(self.model.values(self.context.examples_of(rows, split)), NEVER).astype(np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.model.save(folder, about)


class WordsEstimator:
    """Fits a TF-IDF model of words and word pairs."""

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: Run, train: Examples) -> None:
        require_one_target(spec, train)
        if not has_words(train):
            raise FrostlineError(f"{spec.recipe} needs texts of words, but the training texts have none: leave it out.")

    def fit(self, spec: Run, context: Experiment) -> RunWords:
        model = WordsModel.fit(context.examples_of(train_rows(context, spec), "train"), len(context.labels))
        assert model is not None
        return RunWords(model, context)

    def restore(self, spec: Run, context: Experiment, learned: Mapping[str, Tensor]) -> RunWords:
        return self.fit(spec, context)

    def operations(self, spec: Run, context: Experiment, training: float) -> float:
        return PER_TOKEN * float(context.tokens.lengths[train_rows(context, spec)].sum())


BODY, HEAD_PARTS = "body.", ("classes_", "coef_", "intercept_")  # names of what a run learns
EPOCHS = 1.0


@dataclass(frozen=True)
class RunSetFit:
    """The model of a run: a ``SetFitModel``, and how many steps and parameters its encoder was trained with."""

    model: Any
    context: Experiment
    parameters: int
    steps: int
    epochs = EPOCHS

    @property
    def learned(self) -> Mapping[str, Tensor]:
        body = {f"{BODY}{name}": value.detach().clone() for name, value in self.model.model_body.state_dict().items()}
        head = {name: torch.from_numpy(np.array(getattr(self.model.model_head, name))) for name in HEAD_PARTS}
        return {**body, **head, "steps": torch.tensor(self.steps)}

    def logits(self, rows: Rows, split: str) -> Logits:
        texts = list(self.context.examples_of(rows, split).texts)
        with _quiet():
            return self._head.logits(self.model.encode(texts, show_progress_bar=False))

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        with _quiet():
            self.model.labels = list(about["labels"])
            self.model.save_pretrained(folder)
        save_encoder(folder, self._head, about)

    @property
    def _head(self) -> LinearHead:
        return LinearHead(*by_class(self.model.model_head, len(self.context.labels), NEVER))


class SetFitEstimator:
    """Trains a ``SetFitModel`` with its own ``Trainer``."""

    most = 64  # the number of pairs grows with its square

    def require_installed(self) -> None:
        if importlib.util.find_spec("setfit") is None:
            raise FrostlineError("setfit needs its package: install it with `pip install setfit`, or leave setfit out.")
        require_package("setfit")

    def require_suitable(self, spec: Run, train: Examples) -> None:
        require_one_target(spec, train)
        if train.has_label_sets:
            raise FrostlineError(
                f"{spec.recipe} learns one class for each text, but texts have several labels: leave it out."
            )
        if train.targets.dtype.kind == "f":
            raise FrostlineError(f"{spec.recipe} learns classes, but the task is a regression: leave it out.")
        if train.pairs is not None:
            raise FrostlineError(f"{spec.recipe} reads single texts, but the examples are pairs: leave it out.")
        if (largest := int(np.unique(train.targets, return_counts=True)[1].max())) > self.most:
            advice = "leave it out, or run it with a smaller --train-size and the same --out"
            raise WrongTrainSize(spec, f"it is for at most {self.most} examples a class, not {largest:,}", advice)
        if largest == len(train):
            raise FrostlineError(
                f"{spec.recipe} needs two classes, but {spec.train_size} examples have one: give a larger --train-size."
            )

    def fit(self, spec: Run, context: Experiment) -> RunSetFit:
        from datasets import Dataset
        from setfit import Trainer, TrainingArguments
        from transformers import ProgressCallback

        examples = context.examples_of(train_rows(context, spec), "train")
        with _quiet(), TemporaryDirectory() as folder:
            model = _new_model(spec, context)
            arguments = TrainingArguments(
                output_dir=folder,
                batch_size=spec.per_device_train_batch_size,
                body_learning_rate=spec.learning_rate,
                l2_weight=spec.weight_decay,
                seed=spec.seed,
                report_to="none",
                logging_strategy="no",
                logging_first_step=False,
                save_strategy="no",
                show_progress_bar=False,
            )
            rows = Dataset.from_dict({"text": list(examples.texts), "label": examples.targets.tolist()})
            trainer = Trainer(model=model, args=arguments, train_dataset=rows)
            trainer.pop_callback(ProgressCallback)
            trainer.st_trainer.args.dataloader_pin_memory = context.machine.device.type == "cuda"
            trainer.train()
        return _fitted(spec, context, model, trainer.st_trainer.state.global_step)

    def restore(self, spec: Run, context: Experiment, learned: Mapping[str, Tensor]) -> RunSetFit:
        with _quiet():
            model = _new_model(spec, context)
        body = {name.removeprefix(BODY): value for name, value in learned.items() if name.startswith(BODY)}
        model.model_body.load_state_dict(body)
        for name in HEAD_PARTS:
            setattr(model.model_head, name, learned[name].numpy())
        return _fitted(spec, context, model, int(learned["steps"]))

    def operations(self, spec: Run, context: Experiment, training: float) -> float:
        """Each text is trained on once for each pair that it is in. There are as many equal as different pairs."""
        counts = np.bincount(context.problem.targets[train_rows(context, spec)])
        equal, pairs = float((counts * (counts + 1) / 2).sum()), spec.train_size * (spec.train_size + 1) / 2
        return training * 4 * max(equal, pairs - equal) / spec.train_size


def _new_model(spec: Run, context: Experiment) -> Any:
    """The pretrained encoder with an unfitted logistic regression.

    ``SetFitModel.from_pretrained`` does the same, but it also unpickles a ``model_head.pkl`` in the folder, which runs any code.
    """
    from sentence_transformers import SentenceTransformer
    from setfit import SetFitModel
    from sklearn.linear_model import LogisticRegression

    folder, device = str(context.pretrained.folder), str(context.machine.device)
    body = SentenceTransformer(folder, device=device, trust_remote_code=False)
    body.max_seq_length = spec.max_length
    return SetFitModel(model_body=body, model_head=LogisticRegression())


def _fitted(spec: Run, context: Experiment, model: Any, steps: int) -> RunSetFit:
    """The model of a run. Its trained parameters are those of layers and embeddings, and of the logistic regression."""
    anatomy, parameters = context.pretrained.anatomy, dict(context.pretrained.model.named_parameters())
    names = [name for name in spec.parameters(anatomy) if anatomy.places[name] != HEAD]
    head = sum(getattr(model.model_head, name).size for name in HEAD_PARTS[1:])
    return RunSetFit(model, context, sum(parameters[name].numel() for name in names) + head, steps)


@contextmanager
def _quiet() -> Iterator[None]:
    """While this is open, SetFit and what it uses print nothing but warnings."""
    import datasets
    from setfit import logging as own

    bars, verbosity, shown = datasets.is_progress_bar_enabled(), own.get_verbosity(), logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    own.set_verbosity_warning()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        own.set_verbosity(verbosity)
        if bars:
            datasets.enable_progress_bars()
        if shown:
            logging.enable_progress_bar()


ESTIMATORS: Mapping[str, Estimator] = {
    "probe": ProbeEstimator(),
    "words": WordsEstimator(),
    "setfit": SetFitEstimator(),
}


def estimator_of(way: Way) -> Estimator | None:
    """The estimator of a way; None if it trains in the training loop."""
    return None if way.in_loop else ESTIMATORS[way.estimator]
