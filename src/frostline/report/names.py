"""Names of models, metrics, baselines and choices of k, as tables, figures and sentences print them."""

import os
from pathlib import PurePath

from frostline.statistics.cells import FULL, NAMED

HEAD_ONLY, LAST = "last 0", "last "  # in ``trainable`` of results.csv

METRICS = {
    "f1": "F1",
    "f1_macro": "macro F1",
    "matthews_correlation": "Matthews correlation",
    "spearmanr": "Spearman’s ρ",
}
BASELINES = {
    "accuracy": "majority-class baseline",
    **dict.fromkeys(("pearson", "spearmanr", "r2"), "mean baseline"),
}


def trainable(name: str) -> str:
    """The name of k in tables, from its ``trainable`` in results.csv (``last 0``, ``last 3``, ``all`` or ``named``)."""
    return {HEAD_ONLY: "head only", "last 1": "last layer", NAMED: "named parts"}.get(name, name)


def depth(name: str) -> str:
    """The label of k on an axis: 0, 3, all or named."""
    return name.removeprefix(LAST)


def tuning(name: str | None) -> str:
    """What k trains, as the subject of a sentence: ``tuning the last 3 layers``, ``full fine-tuning``."""
    fixed = {None: "no choice", FULL: "full fine-tuning", NAMED: "tuning the named parts"}
    if name in fixed:
        return fixed[name]
    k = int(str(name).removeprefix(LAST))
    part = "the head only" if k == 0 else "the last layer" if k == 1 else f"the last {k} layers"
    return f"tuning {part}"


def metric(name: str) -> str:
    """The name of a metric in text."""
    return METRICS.get(name, name.replace("_", " "))


def baseline(metric: str) -> str:
    """The name of the best constant prediction, which a metric's gain is measured from."""
    return BASELINES.get(metric, "constant baseline")


def model_name(model: str) -> str:
    """The name of a model; of a local folder only the last telling part, so that no path of a machine is shown."""
    if not (os.path.isabs(model) or model.startswith((".", "~")) or "\\" in model):
        return model
    parts = [part for part in PurePath(model).parts if part not in ("model", "/", ".", "..", "~")]
    return parts[-1] if parts else "model"
