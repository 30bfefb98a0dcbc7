"""A saved SetFit model, for ``frostline predict``: a folder of sentence-transformers, and a linear head beside it.

The folder also has the pickle that ``SetFitModel.from_pretrained`` reads. It is not read here, because a pickle from others can
run code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import replace_file
from frostline.model.loading import read_config
from frostline.model.model_files import readable, require_intact
from frostline.model.tokens import encode
from frostline.training.probes.saved_files import read_saved, write_saved

PACKAGE, OLDEST = "sentence-transformers", 6  # before this version, it trusts local folders
FORMAT = 1
FACTS, WEIGHTS = "encoder.json", "encoder.safetensors"
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
    about, arrays = {"format": FORMAT, **about}, {"weights": head.weights, "bias": head.bias}
    write_saved(folder, (FACTS, WEIGHTS), about, arrays)
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
    return read_saved(Path(folder), (FACTS, WEIGHTS), make, damaged)
