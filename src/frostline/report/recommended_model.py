"""The recommended model, saved as a Hugging Face model folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from frostline.data.files import FILES, files_in, read_record, remove, require_recorded
from frostline.data.wording import capitalized
from frostline.model.model_files import RECORD
from frostline.model.terms import OUTPUT_KEYS, output_keys
from frostline.report.names import tuning
from frostline.sweep.execution.execute import prepare_hidden_states
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.store import DAMAGED, set_aside
from frostline.sweep.results.tensor_files import UNUSABLE, BestWeights
from frostline.training.estimators.by_name import estimator_of
from frostline.training.estimators.estimators import Estimator
from frostline.training.probes.alternatives import Alternatives
from frostline.training.probes.saved import FACTS as PROBE_FACTS
from frostline.training.probes.words import FACTS as WORDS_FACTS
from frostline.training.rows import validation_rows
from frostline.training.run import restore, run
from frostline.training.specification import RunSpec

SAME = 0.01  # the largest difference of logits at which a saved model counts as unchanged
ONLY_FINE_TUNED = (
    "A temperature and a threshold are saved with models of transformers only, and the recommended one is none: "
    "`frostline predict --threshold` sets a threshold."
)


def save_recommended(
    prepared: Prepared,
    answer: Mapping[str, Any],
    progress: Progress,
    alternatives: Alternatives | None = None,
    *,
    interrupted: bool = False,
) -> Path | None:
    """Save the recommended model, and return its folder: a Hugging Face model folder, or a model that trains no layer.

    The sweep stored the trained weights of the best runs. If they are missing, an earlier command may have saved the model of the
    same run. Otherwise the run is trained again. In each case the predictions are compared with those in the run's result, and
    the model card reports the largest difference. None if nothing is recommended, or if another process has added runs in the
    meantime.

    If the search was ``interrupted``, no run is trained again, and the stored weights are kept for the rest of it.
    """
    from frostline.report.card import Saved
    from frostline.report.model_folder import ADAPTER, save_model

    weights = BestWeights.in_folder(prepared.store.out)
    recommended, decision = answer["sizes"][0]["recommended"], answer["sizes"][0]["decision"]
    if prepared.grown():
        progress.note("Another process has added runs to this folder: run the same command again to save the model.")
        return None
    target = prepared.store.out / "model"
    _set_changed_aside(target, progress)
    if recommended is None:
        if not interrupted:
            weights.remove()
        if decision is None:
            if alternatives is not None:  # what this search saved when it was interrupted is not recommended any more
                remove(target, inside=prepared.store.out)
            return None
        if alternatives is None:  # the search itself saved it, unless something else was recommended then
            if not any((target / name).is_file() for name in (PROBE_FACTS, WORDS_FACTS)):
                remove(target, inside=prepared.store.out)
                advice = "run the command of the search again to save it"
                progress.note(f"{capitalized(tuning(decision['choice']))} is recommended: {advice}.")
            return None
        if prepared.requested.calibrate or prepared.requested.threshold is not None:
            progress.note(ONLY_FINE_TUNED)
        alternatives.save(decision["choice"], target)
        return target
    spec = next(spec for spec in Folder(prepared.store.out).runs if spec.digest == recommended["run"])
    if estimator := estimator_of(spec.way):
        _save_fitted(prepared, answer, progress, spec, estimator)
        weights.remove()
        return target
    adapter = prepared.requested.keep_adapter and spec.way.has_adapter
    if not _is_saved(target, recommended["run"], answer) or (adapter and not (target / ADAPTER).is_dir()):
        prepare_hidden_states(prepared, [spec], progress)
        learned = weights.load(spec.digest, progress.note) or _learned_before(target, spec, prepared)
        if learned is None and interrupted:
            remove(target, inside=prepared.store.out)
            progress.note(
                "The weights of the best run are not stored: the same command trains it again to save its model."
            )
            return None
        if learned is None:
            progress.note("The recommended run is trained again, to save its model.")
            logits = run(spec, prepared.context).logits["validation_best"]
        else:
            logits = restore(spec, prepared.context, learned)
        saved = Saved(_gap(prepared, spec, logits), trained_again=learned is None)
        pretrained = prepared.context.for_run(spec).pretrained
        save_model(target, pretrained, prepared.identity, answer, spec, saved, adapter=adapter)
    if not interrupted:
        weights.remove()
    return target


def _set_changed_aside(target: Path, progress: Progress) -> None:
    """Set a folder aside that is not what an earlier command saved there, or has files of somebody else."""
    if not target.exists():
        return
    records = [name for name in (RECORD, PROBE_FACTS, WORDS_FACTS) if (target / name).is_file()]
    try:
        if not records:
            raise ValueError("frostline did not write it")
        facts = read_record(target / records[0])
        require_recorded(target, facts, optional=lambda name: False)
        if others := files_in(target).keys() - {*facts[FILES], records[0]}:
            raise ValueError(f"frostline did not write {min(others)}")
    except (OSError, ValueError) as error:
        aside = set_aside(target, target.parent / DAMAGED)
        progress.note(f"{target} is not what was saved ({error}): it is now in {aside}.")


def _save_fitted(
    prepared: Prepared, answer: Mapping[str, Any], progress: Progress, spec: RunSpec, estimator: Estimator
) -> None:
    """Save the model of an estimator, restored from what its run learned, or fitted again."""
    from frostline.report.card import Saved
    from frostline.report.model_folder import save_fitted

    if prepared.requested.calibrate or prepared.requested.threshold is not None:
        progress.note(ONLY_FINE_TUNED)
    target, context = prepared.store.out / "model", prepared.context
    if _facts_in(target / RECORD) == (spec.digest, answer["sentence"]):
        return
    prepare_hidden_states(prepared, [spec], progress)
    learned = BestWeights.in_folder(prepared.store.out).load(spec.digest, progress.note)
    fitted = estimator.fit(spec, context) if learned is None else estimator.restore(spec, context, learned)
    gap = _gap(prepared, spec, fitted.logits(validation_rows(context, spec), "validation"))
    save_fitted(target, fitted, prepared.identity, answer, spec, Saved(gap, trained_again=learned is None))


def _gap(prepared: Prepared, spec: RunSpec, logits: NDArray[np.float32]) -> float:
    """The largest difference between these logits of the validation rows and those in the run's result."""
    return float(np.nanmax(abs(prepared.store.predictions(spec.digest)["validation_best"] - logits)))


def _learned_before(folder: Path, spec: RunSpec, prepared: Prepared) -> dict[str, Tensor] | None:
    """What the run itself has learned, from its model that an earlier command saved.

    None if the folder does not hold that, or if somebody has changed the model since.
    """
    try:
        facts, stored = read_record(folder / RECORD), load_file(folder / "model.safetensors")
    except (*UNUSABLE, ValueError):
        return None
    if facts.get("run") != spec.digest or facts.get("trained_again") is not False:
        return None
    names = spec.to_train.parameters(prepared.context.for_run(spec).pretrained.anatomy)
    if not names <= stored.keys():
        return None
    learned = {name: stored[name] for name in names}
    return learned if _gap(prepared, spec, restore(spec, prepared.context, learned)) <= SAME else None


def _facts_in(path: Path) -> tuple[Any, Any] | None:
    """The run and the sentence of a saved model; None if there is none."""
    try:
        facts = read_record(path)
    except (OSError, ValueError):
        return None
    return facts.get("run"), facts.get("sentence")


def _is_saved(folder: Path, run: str, answer: Mapping[str, Any]) -> bool:
    """Whether the folder holds the model of this run, with this answer on its card, and this temperature and threshold."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    keys = {name: config[name] for name in OUTPUT_KEYS if name in config}
    return _facts_in(folder / RECORD) == (run, answer["sentence"]) and keys == output_keys(answer)
