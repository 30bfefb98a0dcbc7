"""The recommended model, saved as a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.sweep.execution.best_weights import BestWeights
from frostline.sweep.execution.execute import make_ready
from frostline.sweep.execution.progress import Progress
from frostline.sweep.prepare import Prepared
from frostline.sweep.results.folder import Folder
from frostline.training.run import restore, run


def save_recommended(prepared: Prepared, answer: Mapping[str, Any], progress: Progress) -> Path | None:
    """Save the model of the recommended run as a Hugging Face folder.

    What the best runs have learned was kept while the sweep ran; where that is not so, the run is trained once more.
    Either way its predictions are compared with those in its result, and the model's card says how far they are.
    """
    from frostline.report.card import Saved, save_model

    weights = best_weights(prepared.store.out)
    recommended = answer["sizes"][0]["recommended"]
    if prepared.grown():
        progress.note("Another call has added runs to this folder meanwhile: the same command again saves the model.")
        return None
    if recommended is None:
        weights.drop()
        return None
    target = prepared.store.out / "model"
    if not _is_saved(target, recommended["run"], answer["sentence"]):
        spec = next(spec for spec in Folder(prepared.store.out).runs if spec.digest == recommended["run"])
        make_ready(prepared, [spec], progress)
        learned = weights.of(spec.digest)
        if learned is None:
            logits = run(spec, prepared.bench).logits["validation_best"]
        else:
            logits = restore(spec, prepared.bench, learned)
        gap = float(abs(prepared.store.predictions(spec.digest)["validation_best"] - logits).max())
        saved = Saved(gap, trained_again=learned is None)
        save_model(target, prepared.pretrained, prepared.identity, answer, spec, saved)
    weights.drop()
    return target


def best_weights(out: Path) -> BestWeights:
    """Where a sweep keeps what the best runs have learned."""
    return BestWeights(out / "weights")


def _is_saved(folder: Path, run: str, sentence: str) -> bool:
    """Whether the folder holds the model of this run, with a card that says the same."""
    try:
        facts = json.loads((folder / "frostline.json").read_bytes())
    except (OSError, ValueError):
        return False
    return (facts["run"], facts["sentence"]) == (run, sentence)
