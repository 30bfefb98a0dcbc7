"""The models that train no layer and compete with every k: a linear probe on frozen features, and a TF-IDF model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.files import new_folder
from frostline.statistics.run_result import PROBE, WORDS
from frostline.training.probes.fitting import Probed
from frostline.training.probes.words import WordsModel


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
