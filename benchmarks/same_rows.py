"""The examples of a sweep as files, so that another library trains on and is scored on the same rows.

They are written before any timing and hold only the rows that some run reads. This favours the other side, because frostline
reads the whole table.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frostline.data.examples import Examples
from frostline.model.anatomy import HEAD, POOLER
from frostline.sweep.execution.progress import Progress
from frostline.sweep.prepare import prepare
from frostline.sweep.specification import make_spec
from frostline.training.rows import train_rows

KEPT = (
    *("num_train_epochs", "per_device_train_batch_size", "per_device_eval_batch_size"),
    *("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "lr_scheduler_type", "warmup_steps", "max_grad_norm"),
)


def write_task(settings: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Write train.jsonl, validation.jsonl and task.json; gives the content of task.json.

    ``cells`` has every run of the grid, and ``subsets`` its rows of train.jsonl by seed. ``trained`` names the parameters that
    each k trains. Those in ``head`` have a learning rate of their own.
    """
    spec = make_spec({**settings, "device": "cpu", "out": str(folder / "unused")})
    if spec.class_weights != "none" or spec.evaluations_per_epoch != 1 or spec.frozen_dropout:
        raise SystemExit("the other sides know no class weights, more evaluations in an epoch, or frozen dropout")
    prepared = prepare(spec, {}, Progress())
    context, plan, anatomy = prepared.context, prepared.plan, prepared.pretrained.anatomy
    if len({run.train_size for run in plan.runs}) > 1:
        raise SystemExit("one train size at a time: give --train-size one number")
    rows = {run.seed: train_rows(context, run) for run in plan.runs}
    union = np.unique(np.concatenate(list(rows.values())))
    _write(folder / "train.jsonl", prepared.data.train, union - context.splits["train"][0])
    _write(folder / "validation.jsonl", prepared.data.validation, np.arange(len(context.splits["validation"])))
    by_k = {str(run.tune): run for run in plan.runs}
    facts = {
        "model": str(prepared.pretrained.folder),
        "labels": list(prepared.identity.labels),
        "problem_type": prepared.identity.problem_type,
        "metric": prepared.identity.metric,
        "max_length": plan.max_length,
        "layers": anatomy.count,
        "train_size": plan.runs[0].train_size,
        "validation_rows": len(context.splits["validation"]),
        "device": settings.get("device", "auto"),
        **{name: getattr(spec, name) for name in KEPT},
        "cells": [
            {
                **{"k": str(run.tune), "seed": run.seed, "rate": run.learning_rate},
                "head_rate": run.head_learning_rate or run.learning_rate,
            }
            for run in plan.runs
        ],
        "subsets": {seed: np.searchsorted(union, some).tolist() for seed, some in rows.items()},
        "trained": {k: sorted(run.to_train.parameters(anatomy)) for k, run in by_k.items()},
        "head": [name for name, place in anatomy.places.items() if place in (HEAD, POOLER)],
    }
    (folder / "task.json").write_text(json.dumps(facts))
    return facts


def _write(path: Path, examples: Examples, rows: Any) -> None:
    """One JSON object for each row: text, second text of a pair, target."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            pair = {} if examples.pairs is None else {"pair": examples.pairs[row]}
            target = examples.targets[row].item()
            file.write(json.dumps({"text": examples.texts[row], **pair, "target": target}) + "\n")


def read_task(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Read what :func:`write_task` wrote: facts, training rows, validation rows."""
    tables = [
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("train.jsonl", "validation.jsonl")
    ]
    return json.loads((folder / "task.json").read_text()), tables[0], tables[1]
