"""The folder of the saved model, as transformers, the hub and ``frostline predict`` read it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers.utils import logging

from frostline import FrostlineError
from frostline.data.files import files_in, new_folder, write_record
from frostline.model.classifier import save_files, write_pooled, write_recurrent
from frostline.model.loading import without_load_settings
from frostline.model.model_files import RECORD
from frostline.model.pretrained import Pretrained
from frostline.model.terms import opened_by, output_keys
from frostline.report.card import VERSIONS, Saved, model_card
from frostline.sweep.plan import Identity
from frostline.training.estimators.estimators import Fitted
from frostline.training.specification import RunSpec
from frostline.training.ways.adapter import write_adapter

SCHEMA_VERSION = 2
ADAPTER = "adapter"  # the folder of a LoRA run's adapter


def save_model(
    target: Path,
    pretrained: Pretrained,
    identity: Identity,
    answer: Mapping[str, Any],
    spec: RunSpec,
    saved: Saved,
    *,
    adapter: bool = False,
) -> Path:
    """Write the model with its tokenizer, card and ``frostline.json`` into the folder ``target``, and return the folder.

    The folder is written atomically. An older one is removed only after the new one is complete.

    Args:
        target: The folder.
        pretrained: The model, which holds the weights of the run ``spec``.
        identity: The task, labels and metric of the sweep.
        answer: The answer of the sweep.
        spec: The recommended run.
        saved: The origin of its weights.
        adapter: Whether to write the low-rank updates of the run as an adapter, too.

    Raises:
        FrostlineError: The folder cannot be written.
    """
    with _replacing(target) as aside:
        with _as_published(pretrained, identity.max_length):
            _write_model(aside, pretrained, identity.max_length)
            pretrained.tokenizer.save_pretrained(aside)
        if adapter:
            write_adapter(aside / ADAPTER, spec, pretrained)
        _add_output_keys(aside / "config.json", output_keys(answer))
        readme = aside / "README.md"
        readme.write_text(str(model_card(pretrained, identity, answer, spec, saved)), encoding="utf-8")
        for file in (path for path in aside.rglob("*") if path.is_file()):
            file.chmod(readme.stat().st_mode)  # the weights are written readable by their owner only
        write_record(aside / RECORD, _facts(identity, answer, spec, saved), files_in(aside).values(), inside=aside)
    return target


def save_fitted(
    target: Path, fitted: Fitted, identity: Identity, answer: Mapping[str, Any], spec: RunSpec, saved: Saved
) -> Path:
    """Write a model that an estimator has fitted, for ``frostline predict``; the arguments are those of :func:`save_model`."""
    about = {
        **{name: getattr(identity, name) for name in ("task", "task_type", "labels", "max_length")},
        **{name: answer[name] for name in ("columns", "sentence")},
    }
    with _replacing(target) as aside:
        fitted.save(aside, about)
        write_record(aside / RECORD, _facts(identity, answer, spec, saved), files_in(aside).values(), inside=aside)
    return target


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``target``, in the folder of the sweep, when this is closed.

    Raises:
        FrostlineError: The folder cannot be written.
    """
    try:
        with new_folder(target, inside=target.parent, replace=True) as aside:
            yield aside
    except (OSError, SafetensorError) as error:
        raise FrostlineError(
            f"The model could not be written to {target} ({error}): free disk space or choose another --out, and run "
            "the same command again. Finished runs are not repeated."
        ) from error


def _write_model(folder: Path, pretrained: Pretrained, max_length: int) -> None:
    """Write the model in the format of the library that opens it."""
    match opened_by(pretrained.head):
        case "transformers":
            save_files(pretrained.model, folder)
        case "sentence-transformers":
            write_pooled(folder, pretrained.model, max_length)
        case _:
            write_recurrent(folder, pretrained.model)


def _facts(identity: Identity, answer: Mapping[str, Any], spec: RunSpec, saved: Saved) -> dict[str, Any]:
    """The content of frostline.json, which ``frostline predict`` and later sweeps read."""
    recommended = answer["sizes"][0]["recommended"]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": spec.digest,
        "sentence": answer["sentence"],
        "task": identity.task,
        "task_type": identity.task_type,
        "labels": list(identity.labels),
        "metric": identity.metric,
        "validation": recommended["validation_best"],
        "max_length": identity.max_length,
        "precision": identity.precision,
        "columns": answer.get("columns"),
        "logit_gap": saved.gap,
        "trained_again": saved.trained_again,
        "spec": spec.model_dump(mode="json"),
        "versions": {name: version(name) for name in VERSIONS},
    }


def _add_output_keys(path: Path, keys: Mapping[str, Any]) -> None:
    """Add the temperature and the threshold to config.json, if there are any."""
    if keys:
        config = {**json.loads(path.read_bytes()), **keys}
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def _as_published(pretrained: Pretrained, max_length: int) -> Iterator[None]:
    """While this is open, tokenizer and configuration have the settings to publish: the length limit, none of the training."""
    tokenizer, config = pretrained.tokenizer, pretrained.model.config
    longest, bars = tokenizer.model_max_length, logging.is_progress_bar_enabled()
    tokenizer.model_max_length = max_length
    logging.disable_progress_bar()
    if pretrained.use_cache is not None:
        config.use_cache = pretrained.use_cache
    try:
        with without_load_settings(tokenizer):
            yield
    finally:
        tokenizer.model_max_length = longest
        if pretrained.use_cache is not None:
            config.use_cache = False
        if bars:
            logging.enable_progress_bar()
