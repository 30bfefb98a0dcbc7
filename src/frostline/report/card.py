"""The model card of the recommended model: what was trained, how it was chosen, and how good it is."""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.model.pretrained import Pretrained
from frostline.model.terms import opened_by
from frostline.report import formatting, names
from frostline.report.answer.output_sentences import output_sentences
from frostline.report.next_steps import loading
from frostline.sweep.plan import Identity
from frostline.training.specification import RunSpec

TEMPLATE = Path(__file__).with_name("templates") / "card.md.j2"
TASKS = {  # the tag of the hub and the name of each task type
    CLASSIFICATION: ("text-classification", "Text classification"),
    MULTI_LABEL: ("text-classification", "Multi-label classification"),
    REGRESSION: ("text-classification", "Text regression"),
    TOKENS: ("token-classification", "Token classification"),
}
VERSIONS = ("frostline", "transformers", "torch", "safetensors")
MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
PATH = re.compile(r"(^|\s)[~/]\S")  # a path of this machine, which must not be published


@dataclass(frozen=True)
class Saved:
    """The origin of the saved weights.

    Attributes:
        gap: The largest difference between their validation logits and those in the run's result.
        trained_again: Whether the run was trained a second time. Otherwise its weights had been stored.
    """

    gap: float
    trained_again: bool


def model_card(
    pretrained: Pretrained, identity: Identity, answer: Mapping[str, Any], spec: RunSpec, saved: Saved
) -> ModelCard:
    """The model card of the recommended run ``spec``; ``saved`` is the origin of its weights."""
    size = answer["sizes"][0]
    recommended = size["recommended"]
    base, name = _hub_name(pretrained.name), names.model_name(pretrained.name)
    data = ModelCardData(
        base_model=base,
        license=_license(pretrained.folder),
        library_name=opened_by(pretrained.head),
        pipeline_tag=TASKS[identity.task_type][0],
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
        trainable=names.trainable(recommended["trainable"]),
        named=[_plain(part) for part in spec.tune_modules or ()],
        classes=[{**one, "label": _plain(one["label"])} for one in answer["classes"] or ()],
        outputs=[_plain(text) for text in output_sentences(answer)],
        labels=json.dumps(labels, indent=1, ensure_ascii=False),
        size=size,
        cells=size["cells"],
        recommended=recommended,
        identity=identity,
        code=loading(answer, Path("path/to/this/folder")),
        of_words=identity.task_type == TOKENS,
        of_label_sets=identity.task_type == MULTI_LABEL,
        opened_by=opened_by(pretrained.head),
        answer=answer,
        spec=spec,
        settings={
            key: _plain(str(value))
            for key, value in spec.model_dump(
                mode="json", exclude={"weights", "vocabulary", "data", "way", "phase"}
            ).items()
        },
        way=_plain(spec.way.in_words),
        saved=saved,
        versions={name: version(name) for name in VERSIONS},
        formatting=formatting,
        names=names,
        baseline=names.baseline(identity.metric),
        best=size.cell(recommended["trainable"]),
    )


def _eval_results(identity: Identity, recommended: Mapping[str, Any]) -> list[EvalResult]:
    """The scores of the saved weights. They are scores of one run, not means over seeds."""
    scores = {"validation": recommended["validation_best"], "test": recommended.get("test")}
    tag, name = TASKS[identity.task_type]
    return [
        EvalResult(
            task_type=tag,
            task_name=name,
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
    """The name of the model on the hub; None for a local folder."""
    return None if Path(name).expanduser().is_dir() else name


def _license(folder: Path) -> str | None:
    """The license in the base model's own card, if the card is in the folder of the weights."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    try:
        license_ = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict().get("license")
    except (ValueError, OSError):
        return None
    return license_ if isinstance(license_, str) else None


def _plain(text: str) -> str:
    """Text from a user on one line, escaped so that Markdown shows it unchanged."""
    return MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
