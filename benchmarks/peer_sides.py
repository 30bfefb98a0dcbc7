"""The other sides of peers.py: a table becomes a model with another tool, which then predicts new rows.

    python benchmarks/peer_sides.py SIDE TASK BEGAN OUT

SIDE is ``trainer``, ``optuna``, ``logistic`` or ``setfit``. TASK is a JSON file of peers.py. BEGAN is the start time of
the process. OUT becomes a JSON list of models, each with its name, the seconds until it
was ready, and its predictions of the new rows.
"""

import csv
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import spearmanr

Rows = list[dict[str, str]]
Predict = Callable[[Rows], list[Any]]
RATE, EPOCHS, BATCH = 5e-5, 3, 16
TRIALS, RATES, LENGTHS, HELD_OUT = 8, (1e-5, 5e-4), (2, 10), 0.2
PAIRS = 20  # of SetFit for each row, the default of its paper


def score(predicted: Sequence[Any], rows: Rows, metric: str) -> float:
    """Of predicted labels or numbers."""
    true = [row["label"] for row in rows]
    if metric == "spearmanr":
        return float(np.nan_to_num(spearmanr(predicted, [float(label) for label in true]).statistic))
    if metric == "accuracy":
        return float(np.mean([one == label for one, label in zip(predicted, true, strict=True)]))
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(true, predicted))


class Side:
    """A task, the time since its process began, and the models made so far."""

    def __init__(self, task: dict[str, Any], began: float) -> None:
        self.task, self.began, self.models = task, began, list[dict[str, Any]]()
        self.train, self.new = (read(task[name]) for name in ("train", "new"))
        self.names = sorted({row["label"] for row in self.train}) if task["classes"] else []
        self.targets = np.array(
            [self.names.index(row["label"]) if self.names else float(row["label"]) for row in self.train]
        )

    def seconds(self) -> float:
        return time.time() - self.began

    def add(self, name: str, predict: Predict, seconds: float, **more: Any) -> None:
        """Keep a model's predictions. The seconds end before it predicts."""
        self.models.append({"name": name, "seconds": seconds, "predictions": predict(self.new), **more})

    def words(self, numbers: Sequence[float]) -> list[Any]:
        """Predicted numbers as labels of the table."""
        return [self.names[int(one)] if self.names else float(one) for one in numbers]


def read(path: str) -> Rows:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def texts(rows: Rows) -> list[list[str]]:
    """The columns of text: one, or two of pairs."""
    return [[row[name] for row in rows] for name in ("text", "text_pair") if name in rows[0]]


def fine_tuned(side: Side, rows: Sequence[int], rate: float, epochs: int, seed: int) -> Predict:
    """All parameters trained with transformers' Trainer, as its examples do."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(side.task["model"])
    model = AutoModelForSequenceClassification.from_pretrained(side.task["model"], num_labels=len(side.names) or 1)

    def encoded(some: Rows, targets: Sequence[float] | None = None) -> list[dict[str, Any]]:
        tokens = tokenizer(*texts(some), truncation=True, max_length=side.task["max_length"])
        lines = [{name: values[n] for name, values in tokens.items()} for n in range(len(some))]
        return (
            [{**line, "labels": label} for line, label in zip(lines, targets, strict=True)]
            if targets is not None
            else lines
        )

    labels = side.targets[list(rows)].tolist()
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            learning_rate=rate,
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=seed,
        )
        data = encoded([side.train[n] for n in rows], labels)
        trainer = Trainer(
            model=model, args=arguments, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer)
        )
        trainer.train()

    def predict(some: Rows) -> list[Any]:
        logits = trainer.predict(encoded(some)).predictions
        return side.words(logits.argmax(-1) if side.names else logits[:, 0])

    return predict


def trainer(side: Side) -> None:
    predict = fine_tuned(side, range(len(side.train)), RATE, EPOCHS, side.task["seed"])
    side.add("trainer", predict, side.seconds())


def optuna(side: Side) -> None:
    """Trials of learning rate and epochs. The best is trained again on all rows: when ``seconds`` are over, and after all."""
    from optuna import create_study, samplers
    from sklearn.model_selection import train_test_split

    seed, everything = side.task["seed"], list(range(len(side.train)))
    kept, held = train_test_split(
        everything, test_size=HELD_OUT, random_state=seed, stratify=side.targets if side.names else None
    )
    study = create_study(direction="maximize", sampler=samplers.TPESampler(seed=seed))
    seconds_per_epoch, spared, last = list[float](), 0.0, None

    def refit(name: str) -> None:
        nonlocal spared, last
        begun, best = time.time(), study.best_params
        if last is None or last[0] != best:
            last = best, fine_tuned(side, everything, best["rate"], best["epochs"], seed), time.time() - begun
        side.add(name, last[1], side.seconds() - spared, trials=len(study.trials), **best)
        spared += time.time() - begun  # a refit on the way, and predictions, are no part of what comes after

    for _ in range(TRIALS):
        trial = study.ask()
        rate = trial.suggest_float("rate", *RATES, log=True)
        epochs = trial.suggest_int("epochs", *LENGTHS)
        begun = time.time()
        predicted = fine_tuned(side, kept, rate, epochs, seed)([side.train[n] for n in held])
        study.tell(trial, score(predicted, [side.train[n] for n in held], side.task["metric"]))
        seconds_per_epoch.append((time.time() - begun) / epochs / (1 - HELD_OUT))
        next_refit = study.best_params["epochs"] * float(np.mean(seconds_per_epoch))
        next_trial = np.mean(LENGTHS) * (1 - HELD_OUT) * float(np.mean(seconds_per_epoch))
        if not side.models and side.seconds() + next_trial + next_refit > side.task["seconds"]:
            refit("optuna in the time of find")
            if side.task["in_time"]:
                return
    known = last
    refit(f"optuna, {TRIALS} trials")
    if last is known and known is not None:  # the model was there: its training counts all the same
        side.models[-1]["seconds"] += known[2]


def embeddings(side: Side, rows: Rows) -> Any:
    """The mean of the last layer's tokens with length 1; of pairs also the product and the size of the difference."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    body = Transformer(side.task["model"], max_seq_length=side.task["max_length"])
    model = SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension())], device="cpu")
    u, *pair = (model.encode(column, normalize_embeddings=True, show_progress_bar=False) for column in texts(rows))
    return np.hstack([u, *pair, *(values for v in pair for values in (u * v, abs(u - v)))])


def logistic(side: Side) -> None:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    model = LogisticRegression(max_iter=1000) if side.names else RidgeCV(np.logspace(-3, 3, 13))
    model.fit(embeddings(side, side.train), side.targets)
    side.add("logistic", lambda rows: side.words(model.predict(embeddings(side, rows))), side.seconds())


def setfit(side: Side) -> None:
    """SetFit with the pairs of its paper, ended after ``seconds``."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression
    from transformers import TrainerCallback

    class InTime(TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = side.seconds() > side.task["seconds"]

    body = Transformer(side.task["model"], max_seq_length=side.task["max_length"])
    encoder = SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension())], device="cpu")
    model = SetFitModel(model_body=encoder, model_head=LogisticRegression(max_iter=1000), labels=side.names)
    data = Dataset.from_dict({"text": texts(side.train)[0], "label": side.targets.tolist()})
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_iterations=PAIRS, seed=side.task["seed"], report_to="none", show_progress_bar=False
        )
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[InTime()]).train()

    def predict(rows: Rows) -> list[Any]:
        return [str(label) for label in model.predict(texts(rows)[0])]

    side.add("setfit", predict, side.seconds())


SIDES = {side.__name__: side for side in (trainer, optuna, logistic, setfit)}


def main() -> None:
    name, task, began, out = sys.argv[1:]
    side = Side(json.loads(Path(task).read_text()), float(began))
    SIDES[name](side)
    Path(out).write_text(json.dumps(side.models))


if __name__ == "__main__":
    main()
