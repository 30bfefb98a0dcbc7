"""The recommended model as a folder that transformers, the hub and ``frostline predict`` read."""

import html
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import SafetensorError
from transformers.utils import logging

from frostline import FrostlineError
from frostline.model.pretrained import Pretrained
from frostline.report import formatting
from frostline.sweep.plan import Identity
from frostline.training.specification import RunSpec

SCHEMA_VERSION = 1
TEMPLATE = Path(__file__).with_name("templates") / "card.md.j2"
OF_THE_LOAD = ("name_or_path", "is_local", "local_files_only", "max_length")  # how the tokenizer came, not what it is
VERSIONS = ("frostline", "transformers", "torch", "safetensors")
MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
PATH = re.compile(r"(^|\s)[~/]\S")  # as they are on this machine: nobody else's concern


@dataclass(frozen=True)
class Saved:
    """How the weights that are saved came into the model."""

    gap: float  # the largest difference between their logits of the validation rows and those in the run's result
    trained_again: bool  # or kept since the run


def save_model(
    target: Path,
    pretrained: Pretrained,
    identity: Identity,
    answer: Mapping[str, Any],
    spec: RunSpec,
    saved: Saved,
) -> Path:
    """Write the model, as it stands, with tokenizer, card and ``frostline.json`` into the folder ``target``.

    ``pretrained.model`` must hold the weights of the run ``spec``; ``saved`` says how they came there. The folder appears
    whole or not at all; an older one is removed only after the new one stands.

    Raises:
        FrostlineError: the folder cannot be written.
    """
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        aside.mkdir(parents=True)
        pretrained.have(None)
        with _as_published(pretrained, identity.max_length):
            pretrained.model.save_pretrained(aside)
            pretrained.tokenizer.save_pretrained(aside)
        facts = _facts(identity, answer, spec, saved)
        (aside / "frostline.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        readme = aside / "README.md"
        readme.write_text(str(model_card(pretrained, identity, answer, spec, saved)), encoding="utf-8")
        for file in aside.iterdir():
            file.chmod(readme.stat().st_mode)  # the weights are written for their owner's eyes only
        _swap_in(aside, target)
    except (OSError, SafetensorError) as error:
        raise FrostlineError(
            f"The model could not be written to {target} ({error}): make room or choose another --out, and run the "
            "same command again; finished runs are kept."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def model_card(
    pretrained: Pretrained, identity: Identity, answer: Mapping[str, Any], spec: RunSpec, saved: Saved
) -> ModelCard:
    """The card: what was trained, how it was chosen, and how good it is."""
    size = answer["sizes"][0]
    recommended = size["recommended"]
    base, name = _hub_name(pretrained.name), formatting.model_name(pretrained.name)
    data = ModelCardData(
        base_model=base,
        license=_license(pretrained.folder),
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["frostline"],
        metrics=[identity.metric],
        model_name=f"{name}, {recommended['trainable']} tuned on {identity.task}",
        eval_results=_eval_results(identity, recommended),
    )
    labels = dict(enumerate(identity.labels)) if identity.labels else {}
    return ModelCard.from_template(  # type: ignore[no-any-return]
        data,
        template_path=str(TEMPLATE),
        title=_plain(f"{name}, fine-tuned on {identity.task}"),
        base=base,
        name=_plain(name),
        task=_plain(identity.task),
        sentence=_plain(answer["sentence"]),
        notes=[_plain(note) for note in answer["notes"] if not PATH.search(note)],
        splits={name: split["rows"] for name, split in answer["data"]["report"]["splits"].items()},
        trainable=formatting.trainable(recommended["trainable"]),
        named=[_plain(part) for part in spec.tune_modules or ()],
        labels=json.dumps(labels, indent=1, ensure_ascii=False),
        size=size,
        cells=size["cells"],
        recommended=recommended,
        identity=identity,
        answer=answer,
        spec=spec,
        settings={
            key: _plain(str(value))
            for key, value in spec.model_dump(mode="json", exclude={"weights", "vocabulary", "data"}).items()
        },
        saved=saved,
        versions={name: version(name) for name in VERSIONS},
        formatting=formatting,
    )


def _facts(identity: Identity, answer: Mapping[str, Any], spec: RunSpec, saved: Saved) -> dict[str, Any]:
    """frostline.json: what ``frostline predict`` and later sweeps need to know of this model."""
    recommended = answer["sizes"][0]["recommended"]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": spec.digest,
        "sentence": answer["sentence"],
        "task": identity.task,
        "problem_type": identity.problem_type,
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


@contextmanager
def _as_published(pretrained: Pretrained, max_length: int) -> Iterator[None]:
    """While the folder is written: the length limit of the sweep, and no setting that only training needed."""
    tokenizer, config = pretrained.tokenizer, pretrained.model.config
    longest, init, bars = tokenizer.model_max_length, tokenizer.init_kwargs, logging.is_progress_bar_enabled()
    tokenizer.model_max_length = max_length
    tokenizer.init_kwargs = {name: value for name, value in init.items() if name not in OF_THE_LOAD}
    logging.disable_progress_bar()
    if pretrained.use_cache is not None:
        config.use_cache = pretrained.use_cache
    try:
        yield
    finally:
        tokenizer.model_max_length, tokenizer.init_kwargs = longest, init
        if pretrained.use_cache is not None:
            config.use_cache = False
        if bars:
            logging.enable_progress_bar()


def _swap_in(aside: Path, target: Path) -> None:
    """Put the finished folder in the place of ``target``; what was there goes once the new one stands."""
    if not target.exists():
        os.rename(aside, target)
        return
    old = aside.with_suffix(".old")
    os.rename(target, old)
    try:
        os.rename(aside, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _eval_results(identity: Identity, recommended: Mapping[str, Any]) -> list[EvalResult]:
    """Scores of these very weights, not means over seeds."""
    scores = {"validation": recommended["validation_best"], "test": recommended.get("test")}
    return [
        EvalResult(
            task_type="text-classification",
            task_name="Regression on texts" if identity.problem_type == "regression" else "Text classification",
            dataset_type=identity.task,
            dataset_name=identity.task,
            dataset_split=split,
            metric_type=identity.metric,
            metric_name=identity.metric,
            metric_value=value,
        )
        for split, value in scores.items()
        if value is not None
    ]


def _hub_name(name: str) -> str | None:
    """The name on the hub, where the model came from there."""
    return None if Path(name).expanduser().is_dir() else name


def _license(folder: Path) -> str | None:
    """What the base model's own card says, where it lies beside the weights."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    try:
        said = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict().get("license")
    except (ValueError, OSError):
        return None
    return said if isinstance(said, str) else None


def _plain(text: str) -> str:
    """Text of a user as Markdown shows it unchanged: no markup, no HTML, one line."""
    return MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
