"""The other sides of versus_probe.py: a frozen encoder with a classifier on its embeddings, each in its own process.

python benchmarks/probe_sides.py FOLDER JOURNAL SIDE REPEAT EPOCHS
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from measuring import Journal
from same_rows import read_task
from sentence_transformers import SentenceTransformer

from frostline.statistics.metrics import score

LOGISTIC = "sentence-transformers"
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C of the logistic regression; it has no learning rate
SETFIT_RATE = 1e-2  # the default of setfit
Line = dict[str, Any]


class Texts:
    """The texts and targets of a task, the encoder, and the metric."""

    def __init__(self, folder: Path) -> None:
        self.task, train, validation = read_task(folder)
        self.train, self.validation = ([row["text"] for row in rows] for rows in (train, validation))
        self.targets = np.array([row["target"] for row in train])
        self.expected = np.array([row["target"] for row in validation])
        device = None if self.task["device"] == "auto" else self.task["device"]
        self.body = SentenceTransformer(self.task["model"], device=device, local_files_only=True)
        self.body.max_seq_length = self.task["max_length"]

    def subsets(self) -> Iterator[tuple[int, list[int]]]:
        """Pairs of a seed and its training rows."""
        yield from ((int(seed), rows) for seed, rows in self.task["subsets"].items())

    def score(self, shares: Any) -> float:
        """The score of predicted probabilities."""
        return score(self.expected, np.asarray(shares), self.task["task_type"])[self.task["metric"]]


def logistic(texts: Texts) -> Iterator[Line]:
    """Encode every text once, and fit a logistic regression for each seed and each C."""
    from sklearn.linear_model import LogisticRegression

    begun = perf_counter()
    train, validation = (texts.body.encode(some, show_progress_bar=False) for some in (texts.train, texts.validation))
    yield {"kind": "pass", "seconds": perf_counter() - begun}
    for seed, rows in texts.subsets():
        for strength in STRENGTHS:
            begun = perf_counter()
            model = LogisticRegression(C=strength, max_iter=1000).fit(train[rows], texts.targets[rows])
            shares = model.predict_proba(validation)
            seconds = perf_counter() - begun
            yield {"kind": "cell", "seed": seed, "rate": strength, "score": texts.score(shares), "training": seconds}


def setfit(texts: Texts, epochs: int) -> Iterator[Line]:
    """Fit setfit's differentiable head with a frozen body. setfit runs every batch through the body in every epoch.

    setfit pads each text to ``max_length``, by default the model's limit. Here it is the length of the longest text.
    """
    from setfit import SetFitHead, SetFitModel

    longest = max(map(len, texts.body.tokenizer(texts.train, truncation=True)["input_ids"]))
    for seed, rows in texts.subsets():
        begun = perf_counter()
        torch.manual_seed(seed)
        width = texts.body.get_embedding_dimension()
        head = SetFitHead(in_features=width, out_features=len(texts.task["labels"]), device=texts.body.device)
        model = SetFitModel(model_body=texts.body, model_head=head)
        model.fit(
            [texts.train[row] for row in rows],
            texts.targets[rows].tolist(),
            num_epochs=epochs,
            batch_size=texts.task["per_device_train_batch_size"],
            head_learning_rate=SETFIT_RATE,
            max_length=longest,
            end_to_end=False,
            show_progress_bar=False,
        )
        shares = model.predict_proba(texts.validation, as_numpy=True, show_progress_bar=False)
        seconds = perf_counter() - begun
        yield {"kind": "cell", "seed": seed, "rate": SETFIT_RATE, "score": texts.score(shares), "training": seconds}


def main() -> None:
    folder, journal, side, repeat, epochs = sys.argv[1:]
    texts = Texts(Path(folder))
    lines = logistic(texts) if side == LOGISTIC else setfit(texts, int(epochs))
    Journal(Path(journal)).add(*({"side": side, "repeat": int(repeat), **line} for line in lines))


if __name__ == "__main__":
    main()
