"""Writes the examples of a sweep into files, so that another library trains and is scored on the same rows.

The files are written before any timing and contain only the rows that some run reads. This favours the other library, because
frostline reads the whole table.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frostline.data.examples import Examples
from frostline.data.tags import words_of
from frostline.model.terms import HEAD, POOLER
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import make_settings
from frostline.training.forward import train_rows

SETTINGS = (
    *("num_train_epochs", "per_device_train_batch_size", "per_device_eval_batch_size"),
    *("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "lr_scheduler_type", "warmup_steps", "max_grad_norm"),
)


def write_task(settings: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Write train.jsonl, validation.jsonl and task.json; returns the content of task.json.

    ``cells`` has every run of the grid, and ``subsets`` the rows of train.jsonl for each seed. ``trained`` names the parameters
    that each k trains. The parameters in ``head`` have their own learning rate.
    """
    spec = make_settings({**settings, "device": "cpu", "out": str(folder / "unused")})
    if spec.class_weights != "none" or spec.evaluations_per_epoch != 1 or spec.frozen_dropout:
        raise SystemExit(
            "the other sides support neither class weights, nor frozen dropout, nor several evaluations per epoch"
        )
    plan = prepare(spec, {}, Progress())
    experiment, anatomy = plan.experiment, plan.experiment.pretrained.anatomy
    if len({run.train_size for run in plan.runs}) > 1:
        raise SystemExit("give one --train-size")
    rows = {run.seed: train_rows(experiment, run) for run in plan.runs}
    union = np.unique(np.concatenate(list(rows.values())))
    _write(folder / "train.jsonl", plan.data.train, union - experiment.splits["train"][0])
    _write(folder / "validation.jsonl", plan.data.validation, np.arange(len(experiment.splits["validation"])))
    by_k = {run.recipe.short: run for run in plan.runs}
    facts = {
        "model": str(plan.experiment.pretrained.folder),
        "labels": list(plan.identity.labels),
        "task_type": plan.identity.task_type,
        "metric": plan.identity.metric,
        "max_length": plan.runs[0].max_length,
        "layers": anatomy.count,
        "train_size": plan.runs[0].train_size,
        "validation_rows": len(experiment.splits["validation"]),
        **{name: settings.get(name, "auto") for name in ("device", "precision")},
        **{name: getattr(plan.runs[0], name) for name in SETTINGS},
        "cells": [
            {
                **{"k": run.recipe.short, "seed": run.seed, "rate": run.learning_rate},
                "head_rate": run.head_learning_rate or run.learning_rate,
            }
            for run in plan.runs
        ],
        "subsets": {seed: np.searchsorted(union, some).tolist() for seed, some in rows.items()},
        "trained": {k: sorted(run.parameters(anatomy)) for k, run in by_k.items()},
        "head": [name for name, place in anatomy.places.items() if place in (HEAD, POOLER)],
    }
    (folder / "task.json").write_text(json.dumps(facts))
    return facts


def _write(path: Path, examples: Examples, rows: Any) -> None:
    """Write one JSON object for each row: the text or its words, the second text of a pair, the target or one for each word."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            pair = {} if examples.pairs is None else {"pair": examples.pairs[row]}
            text, target = examples.texts[row], examples.targets[row].tolist()
            if examples.of_words:
                text = words_of(text)
                target = target[: len(text)]
            file.write(json.dumps({"text": text, **pair, "target": target}) + "\n")


def read_task(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Read what :func:`write_task` wrote: facts, training rows, validation rows."""
    tables = [
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("train.jsonl", "validation.jsonl")
    ]
    return json.loads((folder / "task.json").read_text()), tables[0], tables[1]
