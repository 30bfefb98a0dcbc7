"""SetFit (Tunstall et al. 2022, arXiv:2209.11055): contrastive fine-tuning of a sentence encoder, then logistic regression.

Its own package trains. A run gives it the examples, the seed, the learning rate, the batch size, the weight decay and the limit
of tokens. All else is the package's default: one epoch over all pairs of examples. The encoder is that of sentence-transformers,
which reads the mean of all tokens unless the model's folder says otherwise.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.frozen.forward_pass import Rows
from frostline.model.terms import HEAD
from frostline.training.estimators.estimators import NEVER, Logits, most_of_one_class, require_one_target
from frostline.training.estimators.saved_encoder import LinearHead, require_package, save_encoder
from frostline.training.experiment import Experiment
from frostline.training.probes.linear import by_class
from frostline.training.rows import train_rows
from frostline.training.specification import RunSpec

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

    def require_suitable(self, spec: RunSpec, train: Examples) -> None:
        require_one_target(spec, train)
        if train.has_label_sets:
            raise FrostlineError(
                f"{spec.recipe} learns one class for each text, but texts have several labels: leave it out."
            )
        if train.targets.dtype.kind == "f":
            raise FrostlineError(f"{spec.recipe} learns classes, but the task is a regression: leave it out.")
        if train.pairs is not None:
            raise FrostlineError(f"{spec.recipe} reads single texts, but the examples are pairs: leave it out.")
        if (largest := most_of_one_class(train)) > self.most:
            raise FrostlineError(
                f"{spec.recipe} is for at most {self.most} examples a class, but {spec.train_size:,} examples have "
                f"{largest:,} of one class: leave it out, or run it with a smaller --train-size and the same --out."
            )
        if largest == len(train):
            raise FrostlineError(
                f"{spec.recipe} needs two classes, but {spec.train_size} examples have one: give a larger --train-size."
            )

    def fit(self, spec: RunSpec, context: Experiment) -> RunSetFit:
        from datasets import Dataset
        from setfit import Trainer, TrainingArguments
        from transformers import ProgressCallback

        examples = context.examples_of(train_rows(context, spec), "train")
        with _quiet(), TemporaryDirectory() as folder:
            model = _new_model(context)
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

    def restore(self, spec: RunSpec, context: Experiment, learned: Mapping[str, Tensor]) -> RunSetFit:
        with _quiet():
            model = _new_model(context)
        body = {name.removeprefix(BODY): value for name, value in learned.items() if name.startswith(BODY)}
        model.model_body.load_state_dict(body)
        for name in HEAD_PARTS:
            setattr(model.model_head, name, learned[name].numpy())
        return _fitted(spec, context, model, int(learned["steps"]))

    def operations(self, spec: RunSpec, context: Experiment, training: float) -> float:
        """Each text is trained on once for each pair that it is in. There are as many equal as different pairs."""
        counts = np.bincount(context.problem.targets[train_rows(context, spec)])
        equal, pairs = float((counts * (counts + 1) / 2).sum()), spec.train_size * (spec.train_size + 1) / 2
        return training * 4 * max(equal, pairs - equal) / spec.train_size


def _new_model(context: Experiment) -> Any:
    """The pretrained encoder with an unfitted logistic regression.

    ``SetFitModel.from_pretrained`` does the same, but it also unpickles a ``model_head.pkl`` in the folder, which runs any code.
    """
    from sentence_transformers import SentenceTransformer
    from setfit import SetFitModel
    from sklearn.linear_model import LogisticRegression

    folder, device = str(context.pretrained.folder), str(context.machine.device)
    body = SentenceTransformer(folder, device=device, trust_remote_code=False)
    body.max_seq_length = context.max_length
    return SetFitModel(model_body=body, model_head=LogisticRegression())


def _fitted(spec: RunSpec, context: Experiment, model: Any, steps: int) -> RunSetFit:
    """The model of a run. Its trained parameters are those of layers and embeddings, and of the logistic regression."""
    anatomy, parameters = context.pretrained.anatomy, dict(context.pretrained.model.named_parameters())
    names = [name for name in spec.to_train.parameters(anatomy) if anatomy.places[name] != HEAD]
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
