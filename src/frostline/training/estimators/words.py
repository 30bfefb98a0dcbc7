"""A TF-IDF model, which reads the texts and no pretrained model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.frozen.batches import Rows
from frostline.training.context import RunContext
from frostline.training.estimators.estimator import NEVER, Logits, Refitted, require_one_target
from frostline.training.probes.words import WordsModel, has_words
from frostline.training.rows import train_rows
from frostline.training.specification import RunSpec

PER_TOKEN = 20_000.0  # operations that fitting takes for each token, at the speed of a forward pass


@dataclass(frozen=True)
class RunWords(Refitted):
    """The TF-IDF model of a run."""

    model: WordsModel
    context: RunContext

    @property
    def parameters(self) -> int:
        return int(self.model.weights.size + self.model.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        return np.maximum(self.model.values(self.context.examples_of(rows, split)), NEVER).astype(np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.model.save(folder, about)


class WordsEstimator:
    """Fits a TF-IDF model of words and word pairs."""

    most = None

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: RunSpec, train: Examples) -> None:
        require_one_target(spec, train)
        if not has_words(train):
            raise FrostlineError(
                f"{spec.trainable} needs texts of words, but the training texts have none: leave it out."
            )

    def fit(self, spec: RunSpec, context: RunContext) -> RunWords:
        model = WordsModel.fit(context.examples_of(train_rows(context, spec), "train"), len(context.labels))
        assert model is not None
        return RunWords(model, context)

    def restore(self, spec: RunSpec, context: RunContext, learned: Mapping[str, Tensor]) -> RunWords:
        return self.fit(spec, context)

    def operations(self, spec: RunSpec, context: RunContext, training: float) -> float:
        return PER_TOKEN * float(context.tokens.lengths[train_rows(context, spec)].sum())
