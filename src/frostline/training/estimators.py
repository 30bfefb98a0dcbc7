"""Ways without the training loop: an estimator fits a model to the examples of a run, and predicts."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.frozen.forward_pass import POOLED, Rows
from frostline.model.loading import keep_first_layers, read_config
from frostline.model.model_files import quiet_loading, without_progress_bar
from frostline.model.terms import HEAD
from frostline.model.ways import Way
from frostline.statistics.predictions import Labelled
from frostline.training.experiment import Experiment
from frostline.training.forward import train_rows
from frostline.training.linear_models import PENALTIES, WordsModel, by_class, has_words
from frostline.training.probes import (
    LAST_LAYERS,
    FittedProbe,
    ProbeExamples,
    Vectors,
    best_probe,
    cached_vectors,
    fit_probes,
    has_features,
    last_layers,
    means_apart,
    read_computed,
    read_once,
    vectors_apart,
    words_of_rows,
)
from frostline.training.result import TaskFacts
from frostline.training.run import Run
from frostline.training.saved_estimators import EstimatorFacts, ProbeFacts, require_package, write_estimator

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Fitted:
    """A fitted model.

    Attributes:
        parameters: How many parameters were trained.
        logits: Logits, or predicted numbers, of rows of a split, ``[n, C]``; of tags ``[n, W, C]``.
        save: Writes the model into a new folder, for ``frostline predict``; if asked, with a copy of the pretrained model
            that it reads.
        steps: How many steps of an optimizer that took; 0 without one.
        epochs: How often the optimizer saw all examples; 0 without one.
        learned: What an estimator needs to make it again without training; empty if fitting again is as fast.
    """

    parameters: int
    logits: Callable[[Rows, str], Logits]
    save: Callable[[Path, TaskFacts, bool], None]
    steps: int = 0
    epochs: float = 0.0
    learned: Mapping[str, Tensor] = field(default_factory=dict)


class Estimator:
    """Fits models to the examples of runs.

    Attributes:
        reads_model: Whether its saved models read the pretrained model, which is elsewhere unless it is embedded.
    """

    reads_model = False

    def require_installed(self) -> None:
        """Refuse to run without a package."""

    def require_suitable(self, spec: Run, train: Examples) -> None:
        """Refuse a run with its training examples if this is not for its task, or not for so many examples.

        Raises:
            WrongTrainSize: It is not for so many.
            FrostlineError: It is not for this task.
        """

    def fit(self, spec: Run, experiment: Experiment, learned: Mapping[str, Tensor] | None = None) -> Fitted:
        """Fit a model to the training rows of a run. The same run gives the same model.

        If what it ``learned`` before is given, nothing is trained.
        """
        raise NotImplementedError

    def operations(self, spec: Run, experiment: Experiment, training: float) -> float:
        """Operations of a run, approximately. ``training``: those of training the whole model on all its examples once."""
        raise NotImplementedError


class WrongTrainSize(FrostlineError):
    """A way is not for so many training examples. ``reason`` says why."""

    def __init__(self, spec: Run, reason: str, advice: str) -> None:
        super().__init__(f"{spec.recipe} cannot have {spec.train_size:,} examples: {reason}; {advice}.")
        self.reason, self._given = reason, (spec, reason, advice)

    def __reduce__(self) -> tuple[Any, ...]:  # a worker sends it to its parent
        return type(self), self._given


def require_one_target(spec: Run, train: Examples) -> None:
    """Refuse tags of words.

    Raises:
        FrostlineError: The examples are sentences of words.
    """
    if train.of_words:
        raise FrostlineError(f"{spec.recipe} predicts one label for each text, but words have tags: leave it out.")


def examples_of(experiment: Experiment, rows: Rows, layers: Iterable[int]) -> ProbeExamples:
    """These rows with their vectors, from the cache if they are there, else from a forward pass over the rows."""
    words, states, problem = words_of_rows(experiment.tokens, rows), experiment.states, experiment.problem
    count = experiment.pretrained.anatomy.count
    if states is not None and has_features(states.selection, count, of_words=experiment.tokens.of_words):
        vectors = cached_vectors(states, rows, words)
    else:
        experiment.pretrained.restore()
        place = {layer: n for n, layer in enumerate(layers)}
        found = read_computed(
            *(experiment.pretrained, experiment.machine, experiment.tokens, rows, list(place)),
            lambda vectors: np.stack([vectors(layer) for layer in place], 1),
        )
        vectors = lambda layer: found[:, place[layer]]  # noqa: E731
    name = next(name for name, own in experiment.splits.items() if own[0] <= rows.min() and rows.max() <= own[-1])
    texts = experiment.examples_of(rows, name)
    alike, together = texts.first_alike(), texts.together()
    split = Labelled(problem.targets[rows], problem.task_type, experiment.labels, problem.metric, alike, together)
    return ProbeExamples(split, vectors, words, None if texts.pairs is None else _apart(experiment, rows, name))


MOST_APART = 20_000  # pairs of which the worker keeps the means


def _apart(experiment: Experiment, rows: Rows, split: str) -> Vectors:
    """The vectors of these rows of pairs with their texts read alone. They are computed when they are first read."""
    layers = last_layers(experiment.pretrained.anatomy.count)
    vectors = read_once(lambda: vectors_apart(_means_apart(experiment, rows, split, layers), layers), 1)
    return lambda layer: vectors()(layer)


def _means_apart(experiment: Experiment, rows: Rows, split: str, layers: Sequence[int]) -> NDArray[np.float32]:
    """The means of these rows, ``[n, layers, 2, D]``, of which the worker may know some."""
    known = experiment.worker.means_apart
    means = {row: known[row] for row in rows.tolist() if row in known}
    new = np.array([row for row in rows.tolist() if row not in means], rows.dtype)
    if new.size:
        experiment.pretrained.restore()
        texts = experiment.examples_of(new, split)
        longest = int(experiment.tokens.lengths.max())  # nothing was truncated if this is below the limit
        found = means_apart(experiment.pretrained, experiment.machine, texts, layers, longest)
        computed = dict(zip(new.tolist(), found, strict=True))
        means |= computed
        if len(known) + len(computed) > MOST_APART:
            known.clear()
        if len(computed) <= MOST_APART:
            known.update(computed)
    return np.stack([means[row] for row in rows.tolist()])


def probe_of_run(fitted: FittedProbe, experiment: Experiment) -> Fitted:
    """A probe on the examples of a sweep. Its logits are those whose softmax ``frostline predict`` prints."""

    def logits(rows: Rows, split: str) -> Logits:
        examples = examples_of(experiment, rows, fitted.input.layers)
        return np.asarray(examples.by_row(fitted.logits(examples)), np.float32)

    def save(folder: Path, task: TaskFacts, embed: bool) -> None:
        pretrained, model = experiment.pretrained, fitted.model
        source = pretrained.folder.resolve()
        facts = ProbeFacts(
            **dict(fitted.input),
            model=pretrained.name if pretrained.revision else source.name if embed else str(source),
            revision=pretrained.revision,
            depth=pretrained.depth,
            weights=pretrained.weights,
            vocabulary=pretrained.vocabulary,
            precision=experiment.machine.precision,
        )
        arrays = {"weights": model.weights, "bias": model.bias}
        write_estimator(folder, EstimatorFacts(**dict(task), probe=facts), arrays, source if embed else None)

    return Fitted(int(fitted.model.weights.size + fitted.model.bias.size), logits, save)


def fit_best_probe(experiment: Experiment, rows: Rows) -> Fitted:
    """The probe with the best cross-validated score on these training rows, among those after every layer."""
    layers = experiment.pretrained.anatomy.count
    return probe_of_run(best_probe(fit_probes(examples_of(experiment, rows, range(layers + 1)), layers)), experiment)


class Probes(Estimator):
    """Probes after every layer, of which the one with the best cross-validated score on training rows counts."""

    reads_model = True

    def fit(self, spec: Run, experiment: Experiment, learned: Mapping[str, Tensor] | None = None) -> Fitted:
        return fit_best_probe(experiment, train_rows(experiment, spec))

    def operations(self, spec: Run, experiment: Experiment, training: float) -> float:
        """An eigendecomposition takes about ten times the cube of its size, and the product of the features before it."""
        anatomy, penalties = experiment.pretrained.anatomy, len(PENALTIES)
        words = words_of_rows(experiment.tokens, train_rows(experiment, spec))
        count = spec.train_size if words is None else len(words.position)
        size, other = sorted((count, anatomy.width))
        one = 10.0 * size**3 + 2.0 * size**2 * other + 2.0 * penalties * count * anatomy.width
        vectors = len(POOLED) if words is None else 1
        return (vectors * (anatomy.count + 1) + LAST_LAYERS**2) * one  # one probe reads the last layers together


PER_TOKEN = 20_000.0  # operations that fitting takes for each token, at the speed of a forward pass


def fit_words(experiment: Experiment, rows: Rows) -> Fitted | None:
    """A TF-IDF model of words and word pairs for these training rows; None for tags of words, or if there are no words."""
    model = WordsModel.fit(experiment.examples_of(rows, "train"), len(experiment.labels))
    if model is None:
        return None

    def logits(rows: Rows, split: str) -> Logits:
        return model.logits(experiment.examples_of(rows, split)).astype(np.float32)

    def save(folder: Path, task: TaskFacts, embed: bool) -> None:
        arrays = {"idf": model.idf, "weights": model.weights, "bias": model.bias}
        write_estimator(folder, EstimatorFacts(**dict(task), terms=model.terms), arrays)

    return Fitted(int(model.weights.size + model.bias.size), logits, save)


class Words(Estimator):
    """A TF-IDF model."""

    def require_suitable(self, spec: Run, train: Examples) -> None:
        require_one_target(spec, train)
        if not has_words(train):
            raise FrostlineError(f"{spec.recipe} needs texts of words, but the training texts have none: leave it out.")

    def fit(self, spec: Run, experiment: Experiment, learned: Mapping[str, Tensor] | None = None) -> Fitted:
        fitted = fit_words(experiment, train_rows(experiment, spec))
        assert fitted is not None
        return fitted

    def operations(self, spec: Run, experiment: Experiment, training: float) -> float:
        return PER_TOKEN * float(experiment.tokens.lengths[train_rows(experiment, spec)].sum())


PAIRS = 20  # of one class, and of two, for each example: as in the experiments of its paper (Tunstall et al. 2022)
MOST_EXAMPLES = 1_000  # the package lists all pairs before it takes some
BODY, HEAD_PARTS = "body.", ("classes_", "coef_", "intercept_")  # names of what a run learns


@contextmanager
def _quiet() -> Iterator[None]:
    """While this is open, SetFit and what it uses print nothing but warnings."""
    import datasets
    from setfit import logging as own

    bars, verbosity = datasets.is_progress_bar_enabled(), own.get_verbosity()
    datasets.disable_progress_bars()
    own.set_verbosity_warning()
    try:
        with without_progress_bar():
            yield
    finally:
        own.set_verbosity(verbosity)
        if bars:
            datasets.enable_progress_bars()


class SetFit(Estimator):
    """A model of the package SetFit, which fine-tunes the body on pairs of texts and fits a logistic regression."""

    def require_installed(self) -> None:
        if importlib.util.find_spec("setfit") is None:
            raise FrostlineError("setfit needs its package: install it with `pip install setfit`, or leave setfit out.")
        require_package("setfit")

    def require_suitable(self, spec: Run, train: Examples) -> None:
        """Refuse what SetFit does not learn: it learns two or more classes of few single texts."""
        require_one_target(spec, train)
        if train.has_label_sets:
            raise FrostlineError(
                f"{spec.recipe} learns one class for each text, but texts have several labels: leave it out."
            )
        if train.targets.dtype.kind == "f":
            raise FrostlineError(f"{spec.recipe} learns classes, but the task is a regression: leave it out.")
        if train.pairs is not None:
            raise FrostlineError(f"{spec.recipe} reads single texts, but the examples are pairs: leave it out.")
        if len(train) > MOST_EXAMPLES:
            advice = "leave it out, or run it with a smaller --train-size and the same --out"
            raise WrongTrainSize(spec, f"it is for at most {MOST_EXAMPLES:,} examples", advice)
        if len(np.unique(train.targets)) < 2:
            raise FrostlineError(
                f"{spec.recipe} needs two classes, but {spec.train_size} examples have one: give a larger --train-size."
            )

    def fit(self, spec: Run, experiment: Experiment, learned: Mapping[str, Tensor] | None = None) -> Fitted:
        """Train a ``SetFitModel`` with its own ``Trainer``, or give a new one what a run has learned before."""
        with _quiet():
            model = self._new_model(spec, experiment)
        if learned:
            body = {name.removeprefix(BODY): value for name, value in learned.items() if name.startswith(BODY)}
            model.model_body.load_state_dict(body)
            for name in HEAD_PARTS:
                setattr(model.model_head, name, learned[name].numpy())
            steps = int(learned["steps"])
        else:
            steps = self._train(spec, experiment, model)
            body = {f"{BODY}{name}": value.detach().clone() for name, value in model.model_body.state_dict().items()}
            head = {name: torch.from_numpy(np.array(getattr(model.model_head, name))) for name in HEAD_PARTS}
            learned = {**body, **head, "steps": torch.tensor(steps)}
        weights, bias = by_class(model.model_head, len(experiment.labels))

        def logits(rows: Rows, split: str) -> Logits:
            texts = list(experiment.examples_of(rows, split).texts)
            with _quiet():
                return np.asarray(model.encode(texts, show_progress_bar=False) @ weights + bias, np.float32)

        def save(folder: Path, task: TaskFacts, embed: bool) -> None:
            """The card of the package would show training examples."""
            with _quiet():
                model.labels = list(task.labels)
                model.save_pretrained(folder)
            write_estimator(folder, EstimatorFacts(**dict(task)), {"weights": weights, "bias": bias})

        anatomy, parameters = experiment.pretrained.anatomy, dict(experiment.pretrained.model.named_parameters())
        names = [name for name in spec.parameters(anatomy) if anatomy.places[name] != HEAD]
        trained = sum(parameters[name].numel() for name in names)
        trained += sum(getattr(model.model_head, name).size for name in HEAD_PARTS[1:])
        return Fitted(trained, logits, save, steps, 1.0, learned)

    def _train(self, spec: Run, experiment: Experiment, model: Any) -> int:
        """Train the model, and return the number of steps."""
        from datasets import Dataset
        from setfit import Trainer, TrainingArguments
        from transformers import ProgressCallback

        examples = experiment.examples_of(train_rows(experiment, spec), "train")
        all_pairs = _most_pairs(examples.targets) <= PAIRS * len(examples)
        with _quiet(), TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                batch_size=spec.per_device_train_batch_size,
                body_learning_rate=spec.learning_rate,
                l2_weight=spec.weight_decay,
                seed=spec.seed,
                num_iterations=None if all_pairs else PAIRS,
                report_to="none",
                logging_strategy="no",
                logging_first_step=False,
                save_strategy="no",
                show_progress_bar=False,
            )
            rows = Dataset.from_dict({"text": list(examples.texts), "label": examples.targets.tolist()})
            trainer = Trainer(model=model, args=arguments, train_dataset=rows)
            trainer.pop_callback(ProgressCallback)
            trainer.st_trainer.args.dataloader_pin_memory = experiment.machine.device.type == "cuda"
            trainer.train()
        return int(trainer.st_trainer.state.global_step)

    def _new_model(self, spec: Run, experiment: Experiment) -> Any:
        """The pretrained encoder with an unfitted logistic regression.

        ``SetFitModel.from_pretrained`` does the same, but it also unpickles ``model_head.pkl``, which runs any code.
        """
        from sentence_transformers import SentenceTransformer
        from setfit import SetFitModel
        from sklearn.linear_model import LogisticRegression

        pretrained, device, fewer = experiment.pretrained, str(experiment.machine.device), dict[str, Any]()
        if pretrained.depth is not None:
            config = read_config(pretrained.name, pretrained.folder, "its config.json cannot be used")
            every = config.to_dict()
            keep_first_layers(config, pretrained.depth, pretrained.name)
            fewer = {key: value for key, value in config.to_dict().items() if value != every[key]}
        with quiet_loading():  # the other layers in the checkpoint are not needed
            body = SentenceTransformer(
                str(pretrained.folder),
                device=device,
                trust_remote_code=False,
                model_kwargs={"dtype": torch.float32},  # small steps would get lost in bfloat16
                config_kwargs=fewer,
            )
        body.max_seq_length = spec.max_length
        return SetFitModel(model_body=body, model_head=LogisticRegression())

    def operations(self, spec: Run, experiment: Experiment, training: float) -> float:
        """Each text is trained on once for each pair that it is in. There are as many equal as different pairs."""
        targets = experiment.problem.targets[train_rows(experiment, spec)]
        return training * 4 * min(_most_pairs(targets), PAIRS * len(targets)) / len(targets)


def _most_pairs(targets: NDArray[Any]) -> int:
    """The number of pairs of one class, or of two if these are more: the package repeats the fewer ones."""
    counts = np.unique(targets, return_counts=True)[1]
    equal, pairs = int((counts * (counts + 1) // 2).sum()), len(targets) * (len(targets) + 1) // 2
    return max(equal, pairs - equal)


ESTIMATORS: Mapping[str, Estimator] = {"probe": Probes(), "words": Words(), "setfit": SetFit()}


def estimator_of(way: Way) -> Estimator | None:
    """The estimator of a way; None if it trains in the training loop."""
    return None if way.in_loop else ESTIMATORS[way.estimator]
