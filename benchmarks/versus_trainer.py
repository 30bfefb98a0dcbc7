"""The same cells by frostline and by transformers' Trainer: scores cell by cell, and wall time.

Trainer gets what frostline's runs get: the same frozen set, parameter groups, head, subset, order of batches, schedule
and precision, and dropout off in the frozen part. What is left to differ is the dropout that each draws, and the order
of sums. Both sides score all validation rows after every epoch. Needs ``pip install accelerate``.

    python benchmarks/versus_trainer.py --model FOLDER --train FILE --validation FILE --tune 0,1,2,all --train-size 1000
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

from frostline import RunSpec, Sweep
from frostline.layers import HEAD, POOLER
from frostline.parts import trained
from frostline.pretrained import set_train_mode
from frostline.run import generator_seed, train_rows
from frostline.sweep.prepare import Prepared
from frostline.training import parameter_groups


class Rows(Dataset[dict[str, Any]]):
    """Rows of the pool as Trainer wants them; ``collate`` pads a batch."""

    def __init__(self, prepared: Prepared, rows: np.ndarray) -> None:
        self.prepared, self.rows = prepared, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        return int(self.rows[index])

    def collate(self, rows: list[int]) -> dict[str, torch.Tensor]:
        bench, where = self.prepared.bench, np.array(rows)
        return {**bench.tokens.batch(where), "labels": torch.from_numpy(bench.problem.targets[where])}


class SameBatches(Trainer):
    """Trainer with frostline's parameter groups and order of batches."""

    def __init__(self, spec: RunSpec, prepared: Prepared, groups: list[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.prepared, self.groups = spec, prepared, groups

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        s = self.spec
        self.optimizer = torch.optim.AdamW(
            self.groups, betas=(s.adam_beta1, s.adam_beta2), eps=s.adam_epsilon, fused=True
        )
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        order = torch.Generator().manual_seed(generator_seed(self.spec.seed, "order"))
        size, dataset = self.spec.per_device_train_batch_size, self.train_dataset

        class Batches:
            def __iter__(self) -> Iterator[list[int]]:
                yield from torch.randperm(len(dataset), generator=order).split(size)  # type: ignore[arg-type]

            def __len__(self) -> int:
                return -(-len(dataset) // size)  # type: ignore[arg-type]

        return DataLoader(dataset, batch_sampler=Batches(), collate_fn=dataset.collate)  # type: ignore[arg-type, union-attr]


def by_trainer(spec: RunSpec, prepared: Prepared) -> dict[str, Any]:
    """One cell by Trainer: the best and the last validation score, and seconds."""
    pretrained, bench = prepared.pretrained, prepared.bench
    names = trained(spec, pretrained.anatomy)
    parameters = pretrained.start(names, generator_seed(spec.seed, "head"))
    head = frozenset(name for name in names if pretrained.anatomy.places[name] in (HEAD, POOLER))
    model = pretrained.model

    def train_mode(self: Any, mode: bool = True) -> Any:
        if mode:
            set_train_mode(self, pretrained.anatomy, names)
        else:
            type(self).train(self, False)
        return self

    def scores(prediction: Any) -> dict[str, float]:
        return bench.problem.scores(prediction.predictions, bench.splits["validation"])

    validation = Rows(prepared, bench.splits["validation"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=spec.num_train_epochs,
            per_device_train_batch_size=spec.per_device_train_batch_size,
            per_device_eval_batch_size=spec.per_device_eval_batch_size,
            lr_scheduler_type=spec.lr_scheduler_type,
            warmup_steps=spec.warmup_steps,
            max_grad_norm=spec.max_grad_norm,
            eval_strategy="epoch",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            bf16=spec.precision == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            seed=spec.seed,
            remove_unused_columns=False,
        )
        trainer = SameBatches(
            spec,
            prepared,
            parameter_groups(parameters, head, spec, spec.learning_rate),
            model=model,
            args=arguments,
            train_dataset=Rows(prepared, train_rows(bench, spec)),
            eval_dataset=validation,
            data_collator=validation.collate,
            compute_metrics=scores,
        )
        trainer.remove_callback(PrinterCallback)
        if spec.tune != "all":  # else nothing is frozen
            model.train = MethodType(train_mode, model)
        start = perf_counter()
        try:
            trainer.train()
        finally:
            vars(model).pop("train", None)
        seconds = perf_counter() - start
    points = [log[f"eval_{bench.problem.metric}"] for log in trainer.state.log_history if "eval_loss" in log]
    return {"best": max(points), "last": points[-1], "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    known, rest = parser.parse_known_args()
    settings = {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(rest[::2], rest[1::2], strict=True)
    }
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="torch.utils.data")  # pinned memory without a GPU
    with tempfile.TemporaryDirectory() as out:
        settings.setdefault("out", str(Path(out) / "sweep"))
        sweep = Sweep(**settings)
        start = perf_counter()
        answer = sweep.run()
        wall = perf_counter() - start
        table = sweep.table()
        prepared = sweep._prepared
        assert prepared is not None
        cells = []
        for spec in prepared.plan.runs:
            cells.append({"trainable": spec.trainable, "seed": spec.seed, **by_trainer(spec, prepared)})
            print("Trainer:", json.dumps(cells[-1]), flush=True)
    rows = []
    for k in dict.fromkeys(cell["trainable"] for cell in cells):
        ours = table[table.trainable == k]
        theirs = [cell for cell in cells if cell["trainable"] == k]
        difference = ours.validation_best.to_numpy(float) - np.array([cell["best"] for cell in theirs])
        seconds = float((ours.train_seconds).mean())
        rows.append(
            {
                "trainable": k,
                "frostline": ours.validation_best.mean(),
                "std": ours.validation_best.std(),
                "trainer": float(np.mean([cell["best"] for cell in theirs])),
                "trainer_std": float(np.std([cell["best"] for cell in theirs], ddof=1)) if len(theirs) > 1 else None,
                "difference": float(difference.mean()),
                "largest_difference": float(abs(difference).max()),
                "seconds": seconds,
                "trainer_seconds": float(np.mean([cell["seconds"] for cell in theirs])),
            }
        )
        print("  ".join(f"{n} {v:.4f}" if isinstance(v, float) else f"{v}" for n, v in rows[-1].items()), flush=True)
    total = sum(cell["seconds"] for cell in cells)
    print(f"whole sweep {wall:.1f} s; the same runs by Trainer {total:.1f} s ({total / wall:.2f}x)")
    print(answer["sentence"])
    if known.json:
        facts = {"rows": rows, "cells": cells, "wall": wall, "trainer_wall": total, "sentence": answer["sentence"]}
        known.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
