"""Trainer's side of versus_trainer.py: runs of a grid with transformers' Trainer, one after the other in one process.

    python benchmarks/trainer_side.py FOLDER JOURNAL SIDE REPEAT BEGAN CELLS

FOLDER was written by same_rows.py. SIDE is ``trainer`` (as users run it) or ``trainer-best``. BEGAN is the start time of the
process. CELLS are numbers of cells, separated by commas; cells in the journal are skipped.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import MethodType
from typing import Any

import torch
from datasets import Dataset
from measuring import Journal
from same_rows import read_task
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from frostline.data.kinds import TOKENS
from frostline.data.tags import NO_WORD
from frostline.model.device import this_machine
from frostline.statistics.metrics import score

BEST_EVAL_BATCH = 64


class Grid:
    """What all cells share: the tokenized texts."""

    def __init__(self, folder: Path, best: bool) -> None:
        self.task, train, validation = read_task(folder)
        self.best, self.of_words = best, self.task["task_type"] == TOKENS
        self.tokenizer = AutoTokenizer.from_pretrained(self.task["model"])
        self.train, self.validation = self._encoded(train), self._encoded(validation)

    def _encoded(self, rows: list[dict[str, Any]]) -> Dataset:
        table = Dataset.from_list(rows)
        if self.of_words:
            return table.map(self._with_tags, batched=True, remove_columns=table.column_names)

        def encode(batch: dict[str, list[Any]]) -> dict[str, Any]:
            texts = [batch[name] for name in ("text", "pair") if name in batch]
            encoded = self.tokenizer(*texts, truncation=True, max_length=self.task["max_length"])
            return {**encoded, "labels": batch["target"]}

        return table.map(encode, batched=True, remove_columns=table.column_names)

    def _with_tags(self, batch: dict[str, list[Any]]) -> dict[str, Any]:
        """Encoded words. The first token of a word has its tag, as in the example of transformers."""
        encoded = self.tokenizer(
            batch["text"], is_split_into_words=True, truncation=True, max_length=self.task["max_length"]
        )
        labels = []
        for n, tags in enumerate(batch["target"]):
            words = encoded.word_ids(n)
            firsts = [word is not None and word != before for word, before in zip(words, [None, *words], strict=False)]
            labels.append([tags[word] if first else NO_WORD for word, first in zip(words, firsts, strict=True)])
        return {**encoded, "labels": labels}

    def arguments(self, cell: dict[str, Any], folder: str) -> TrainingArguments:
        """The settings of the sweep, and Trainer's defaults for everything else. ``trainer-best`` adds settings for speed."""
        task = self.task
        fast: dict[str, Any] = {}
        if self.best:
            precision = this_machine(task["device"], task["precision"]).precision
            fast = {
                "bf16": precision == "bfloat16",
                "fp16": precision == "float16",
                "train_sampling_strategy": "group_by_length",  # also used in evaluation
                "per_device_eval_batch_size": max(BEST_EVAL_BATCH, task["per_device_eval_batch_size"]),
                "logging_strategy": "no",
                "disable_tqdm": True,
                "dataloader_pin_memory": torch.cuda.is_available(),
            }
        same = ("num_train_epochs", "per_device_train_batch_size", "lr_scheduler_type", "warmup_steps", "max_grad_norm")
        return TrainingArguments(
            output_dir=folder,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            seed=cell["seed"],
            use_cpu=task["device"] == "cpu" or not torch.cuda.is_available(),
            **{name: task[name] for name in same},
            **fast,
        )

    def run(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Run one cell; returns scores and the seconds of training, of evaluation, and of all with loading the model."""
        task, start = self.task, perf_counter()
        set_seed(cell["seed"])
        kind = AutoModelForTokenClassification if self.of_words else AutoModelForSequenceClassification
        model = kind.from_pretrained(task["model"], num_labels=len(task["labels"]) or 1, dtype=torch.float32)
        names = set(task["trained"][cell["k"]])
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in names)
        if self.best:
            _without_frozen_dropout(model)
        train = self.train.select(task["subsets"][str(cell["seed"])])

        def scores(prediction: Any) -> dict[str, float]:
            return score(prediction.label_ids, prediction.predictions, task["task_type"], task["labels"])

        collator = DataCollatorForTokenClassification if self.of_words else DataCollatorWithPadding
        with TemporaryDirectory() as folder:
            arguments = self.arguments(cell, folder)
            model.to(arguments.device)
            trainer = Trainer(
                model=model,
                args=arguments,
                train_dataset=list(train) if self.best else train,
                eval_dataset=list(self.validation) if self.best else self.validation,
                data_collator=collator(self.tokenizer),
                processing_class=self.tokenizer,
                compute_metrics=scores,
                optimizers=(self._optimizer(model, cell["rate"], cell["head_rate"]), None),
            )
            begun = perf_counter()
            trainer.train()
            seconds = perf_counter() - begun
        points = [entry for entry in trainer.state.log_history if f"eval_{task['metric']}" in entry]
        values = [entry[f"eval_{task['metric']}"] for entry in points]
        evaluation = sum(entry["eval_runtime"] for entry in points)
        return {
            **cell,
            "score": max(values),
            "last": values[-1],
            "training": seconds - evaluation,
            "evaluation": evaluation,
            "whole": perf_counter() - start,
        }

    def _optimizer(self, model: nn.Module, rate: float, head_rate: float) -> torch.optim.AdamW:
        """Fused AdamW with frostline's parameter groups: the head has its own learning rate; only matrices have weight decay."""
        task, head = self.task, set(self.task["head"])
        groups = []
        trained = [(name in head, p.dim() > 1, p) for name, p in model.named_parameters() if p.requires_grad]
        for inside, matrix in {(inside, matrix) for inside, matrix, _ in trained}:
            groups.append(
                {
                    "params": [p for *kind, p in trained if kind == [inside, matrix]],
                    "lr": head_rate if inside else rate,
                    "weight_decay": task["weight_decay"] if matrix else 0.0,
                }
            )
        betas = (task["adam_beta1"], task["adam_beta2"])
        return torch.optim.AdamW(groups, betas=betas, eps=task["adam_epsilon"], fused=True)


def _without_frozen_dropout(model: nn.Module) -> None:
    """Change ``model.train()`` so that it leaves frozen modules in eval mode."""

    def train(self: nn.Module, mode: bool = True) -> nn.Module:
        type(self).train(self, mode)
        for module in self.modules():
            held = list(module.parameters())
            if held and not any(parameter.requires_grad for parameter in held):
                module.eval()
        return self

    model.train = MethodType(train, model)  # type: ignore[method-assign]


def main() -> None:
    folder, path, side, repeat, began, numbers = sys.argv[1:]
    grid = Grid(Path(folder), best=side == "trainer-best")
    where = {"side": side, "repeat": int(repeat)}
    journal = Journal(Path(path))
    measured = [line["number"] for line in journal.lines() if line["kind"] == "cell" and where.items() <= line.items()]
    journal.add({"kind": "start-up", **where, "seconds": time.time() - float(began)})
    requested, parent = list(map(int, numbers.split(","))), os.getppid()
    if len(requested) < len(
        grid.task["cells"]
    ):  # a cell represents several, so a warm-up takes the costs of the first one
        _attempt(grid.run, grid.task["cells"][requested[0]])
    for number in requested:
        if os.getppid() != parent:
            sys.exit("the benchmark was killed")
        if number not in measured:
            journal.add({"kind": "cell", **where, "number": number, **_attempt(grid.run, grid.task["cells"][number])})


def _attempt(run: Callable[[dict[str, Any]], dict[str, Any]], cell: dict[str, Any]) -> dict[str, Any]:
    """Run a cell; a failure becomes part of the result, so the other cells continue."""
    try:
        return run(cell)
    except (RuntimeError, MemoryError, ValueError) as error:
        return {**cell, "failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}


if __name__ == "__main__":
    main()
