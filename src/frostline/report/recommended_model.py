"""Saves the recommended model: which weights, its folder as transformers and ``frostline predict`` read it, and its card."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from frostline import FrostlineError
from frostline.data.files import CARD, FILES, checksum, read_record, remove, require_recorded, unrecorded
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.wording import capitalized, first_line, in_markdown, kept_layers, model_name
from frostline.model.classifier import write_classifier
from frostline.model.loading import without_load_settings
from frostline.model.model_files import ESTIMATOR, RECORD, model_written, without_progress_bar
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OUTPUT_KEYS, opened_by
from frostline.model.ways import way_named
from frostline.report import formatting, names
from frostline.report.answer.recommended_classes import output_keys, output_sentences
from frostline.report.explanations import loading, sentence_without_command
from frostline.statistics.answer import Answer
from frostline.sweeps.execution.execute import prepare_hidden_states
from frostline.sweeps.execution.stacks import FAILURES
from frostline.sweeps.grid import Identity
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import DAMAGED, set_aside
from frostline.sweeps.results.tensor_files import UNUSABLE, BestWeights
from frostline.training.estimators import Estimator, Fitted, estimator_of
from frostline.training.experiment import Experiment
from frostline.training.forward import validation_rows
from frostline.training.result import TaskFacts
from frostline.training.run import Run
from frostline.training.saved_estimators import BASE, SavedEstimator, read_estimator, write_estimator
from frostline.training.start import write_adapter
from frostline.training.train import restore, run

SCHEMA_VERSION = 2
ADAPTER = "adapter"  # the folder of a LoRA run's adapter
# the largest difference of logits, or of numbers in the unit of the head, at which a saved model counts as unchanged
SAME = 0.01
ONLY_FINE_TUNED = (
    "A temperature and a threshold are saved with models of transformers only, and the recommended one is none: "
    "`frostline predict --threshold` sets a threshold."
)
TEMPLATE = Path(__file__).with_name("templates") / "card.md.j2"
TASKS = {  # the tag of the hub and the name of each task type
    CLASSIFICATION: ("text-classification", "Text classification"),
    MULTI_LABEL: ("text-classification", "Multi-label classification"),
    REGRESSION: ("text-classification", "Text regression"),
    TOKENS: ("token-classification", "Token classification"),
}
VERSIONS = ("frostline", "transformers", "torch", "safetensors")
PATH = re.compile(r"(^|\s)[~/]\S")  # a path of this machine, which must not be published


@dataclass(frozen=True)
class Saved:
    """The origin of the saved weights.

    Attributes:
        gap: The largest difference between their validation logits and those in the run's result; None: this is a refit.
        trained_again: Whether the run was trained a second time. Otherwise its weights had been stored.
        refit: Of a refit its digest and its number of training rows.
    """

    gap: float | None
    trained_again: bool
    refit: Mapping[str, Any] | None = None

    @classmethod
    def refit_by(cls, run: Run) -> Self:
        """The origin of weights that a refit has trained."""
        return cls(None, trained_again=False, refit={"run": run.digest, "rows": run.train_size})


def save_recommended(
    plan: Plan,
    answer: Answer,
    progress: Progress,
    alternatives: Mapping[str, Fitted] | None = None,
    *,
    interrupted: bool = False,
) -> None:
    """Save the recommended model: a Hugging Face model folder, or a model that trains no layer.

    The sweep stored the trained weights of the best runs. If they are missing, an earlier command may have saved the model of the
    same run. Otherwise the run is trained again. In each case the predictions are compared with those in the run's result, and
    the model card reports the largest difference. Nothing is saved if nothing is recommended, or if another process has added
    runs in the meantime.

    With ``refit``, the recipe is trained once more on all labelled rows except the test set, and that model is saved. If it
    diverges, or its way stops early, the run's own model is saved, as without.

    If the search was ``interrupted``, no run is trained again, and the stored weights are kept for the rest of it.
    """
    weights = BestWeights(plan.store.out)
    if plan.grown():
        progress.note("Another process has added runs to this folder: run the same command again to save the model.")
        return
    _set_changed_aside(plan.store.out / "model", progress)
    if (recommended := answer.sizes[0].recommended) is None:
        _save_untrained(plan, answer, progress, alternatives, interrupted=interrupted)
    else:
        spec = next(spec for spec in plan.runs if spec.digest == recommended.run)
        best = RecommendedRun(plan, answer, progress, spec)
        if best.estimator:
            _note_outputs(plan, progress)
        if interrupted or not best.save_refit():
            best.save(weights, interrupted=interrupted)
    if not interrupted:
        weights.remove()


def _save_untrained(
    plan: Plan, answer: Answer, progress: Progress, alternatives: Mapping[str, Fitted] | None, *, interrupted: bool
) -> None:
    """Save the recommended model that trains no layer, if one is recommended, and a search has fitted it now."""
    target, decision = plan.store.out / "model", answer.sizes[0].decision
    if decision is None:
        if alternatives is not None:  # what this search saved when it was interrupted is not recommended any more
            remove(target, inside=plan.store.out)
        return
    if alternatives is None:  # the search itself saved it, unless something else was recommended then
        before, sentence = read_estimator(target), sentence_without_command(answer)
        if before is None or before.facts.choice != decision.choice:
            remove(target, inside=plan.store.out)
            advice = "run the command of the search again to save it"
            progress.note(f"{capitalized(names.tuning(decision.choice))} is recommended: {advice}.")
        elif before.facts.sentence != sentence:
            _rewrite(before, sentence)
        return
    _note_outputs(plan, progress)
    fitted, facts, name = alternatives[decision.choice], None, decision.choice
    spec = plan.runs[0].model_copy(update={"recipe": name, "way": way_named(name), "learning_rate": None})
    if not interrupted and (estimator := estimator_of(spec.way)) and (again := _refit(plan, spec, progress)):
        prepare_hidden_states(replace(plan, experiment=again[1]), [again[0]], progress)
        fitted = estimator.fit(*again)
        facts = {**_shared_facts(plan.identity, answer, Saved.refit_by(again[0])), "run": name}
    save_fitted(plan, answer, fitted, facts)


def _note_outputs(plan: Plan, progress: Progress) -> None:
    """Say that no temperature and no threshold is saved, if the sweep's settings ask for one."""
    if plan.spec.calibrate or plan.spec.threshold is not None:
        progress.note(ONLY_FINE_TUNED)


def _refit(plan: Plan, spec: Run, progress: Progress) -> tuple[Run, Experiment] | None:
    """The refit of a run, with its experiment; None if none is wanted, or if its way has none."""
    if plan.refit_rows is None:
        return None
    if spec.way.patience:
        left = f"{spec.recipe} stops when its score on validation does not rise, and all labelled rows would leave no such rows"
        progress.note(f"{left}: the saved model is that of the best run.")
        return None
    refit, experiment = refit_of(spec, plan.experiment)
    if estimator := estimator_of(spec.way):
        try:
            estimator.require_suitable(refit, experiment.examples["train"])
        except FrostlineError as error:
            progress.note(f"The saved model is not trained on all labelled rows. {error}")
            return None
    return refit, experiment


@dataclass(frozen=True)
class RecommendedRun:
    """The recommended run of a sweep, whose model is saved in the sweep's folder."""

    plan: Plan
    answer: Answer
    progress: Progress
    spec: Run

    @property
    def target(self) -> Path:
        return self.plan.store.out / "model"

    @cached_property
    def estimator(self) -> Estimator | None:
        """What fits its model, if it is not trained in the loop."""
        return estimator_of(self.spec.way)

    @property
    def adapter(self) -> bool:
        return self.plan.spec.keep_adapter and bool(self.spec.way.low_rank)

    def save_refit(self) -> bool:
        """Train the run once more on all labelled rows and save that; False if that is not wanted, not possible, or failed."""
        if (again := _refit(self.plan, self.spec, self.progress)) is None:
            return False
        refit, experiment = again
        saved = Saved.refit_by(refit)
        if self._is_saved(saved.refit):
            return True
        prepare_hidden_states(replace(self.plan, experiment=experiment), [refit], self.progress)
        if self.estimator:
            self._write(experiment, saved, self.estimator.fit(refit, experiment))
            return True
        before = _saved_before(self.target, refit, experiment)
        if before and before[0].get("refit") == saved.refit:
            restore(refit, experiment, before[1])
        else:
            self.progress.begin(f"training {refit.recipe} on all {refit.train_size:,} labelled rows")
            try:
                record = run(refit, experiment).record
                failure = f"it is {record.outcome}: {record.reason}" if record.outcome != "ok" else ""
            except FAILURES as error:
                failure = first_line(error)
            if failure:
                kept = "the saved model is that of the best run instead"
                self.progress.note(f"Training on all {refit.train_size:,} labelled rows failed ({failure}); {kept}.")
                return False
        self._write(experiment, saved)
        return True

    def save(self, weights: BestWeights, *, interrupted: bool) -> None:
        """Save the model of the run itself, unless that needs training, and the search was ``interrupted``."""
        plan, spec, experiment = self.plan, self.spec, self.plan.experiment
        if self._is_saved(None):
            return
        prepare_hidden_states(plan, [spec], self.progress)
        learned, fitted = weights.load(spec.digest, self.progress.note), None
        if self.estimator:
            fitted = self.estimator.fit(spec, experiment, learned)
            logits = fitted.logits(validation_rows(experiment, spec), "validation")
        elif learned := learned or self._learned_before():
            logits = restore(spec, experiment, learned)
        elif interrupted:
            remove(self.target, inside=plan.store.out)
            advice = "the same command trains it again to save its model"
            self.progress.note(f"The weights of the best run are not stored: {advice}.")
            return
        else:
            self.progress.note("The recommended run is trained again, to save its model.")
            logits = run(spec, experiment).logits["validation_best"]
        self._write(experiment, Saved(self._gap(logits), trained_again=learned is None), fitted)

    def _write(self, experiment: Experiment, saved: Saved, fitted: Fitted | None = None) -> None:
        """Write the model that ``experiment`` holds, or that an estimator has ``fitted``."""
        identity, answer, spec = self.plan.identity, self.answer, self.spec
        facts = _facts(identity, answer, spec, saved)
        if fitted is not None:
            save_fitted(self.plan, answer, fitted, facts)
            return
        pretrained = experiment.for_run(spec).pretrained
        card = str(model_card(pretrained, identity, answer, spec, saved))
        facts["card"] = checksum(card.encode())  # the user may edit the card, so the record has what was written
        with model_written(self.target, "model", facts) as aside:
            with _as_published(pretrained, identity.max_length):
                write_classifier(aside, pretrained.model, identity.max_length)
                pretrained.tokenizer.save_pretrained(aside)
            if self.adapter:
                write_adapter(aside / ADAPTER, spec, pretrained)
            if keys := output_keys(answer):
                config = {**json.loads((aside / "config.json").read_bytes()), **keys}
                text = json.dumps(config, indent=2, sort_keys=True) + "\n"
                (aside / "config.json").write_text(text, encoding="utf-8")
            (aside / CARD).write_text(card, encoding="utf-8")

    def _is_saved(self, refit: Mapping[str, Any] | None) -> bool:
        """Whether the model of this run, or of its refit, is saved with all that would be written now."""
        target, plan, answer, spec = self.target, self.plan, self.answer, self.spec
        try:
            facts = read_record(target / RECORD)
            config = {} if self.estimator else json.loads((target / "config.json").read_bytes())
        except (OSError, ValueError):
            return False
        saved = Saved(facts.get("logit_gap"), facts.get("trained_again") is True, refit)
        as_before = {name: facts[name] for name in ("versions", "card", FILES) if name in facts}
        if facts != json.loads(json.dumps({**_facts(plan.identity, answer, spec, saved), **as_before})):
            return False
        if self.estimator:
            return (target / BASE).is_dir() == (plan.spec.embed and self.estimator.reads_model)
        keys = {name: config[name] for name in OUTPUT_KEYS if name in config}
        wanted = model_card(plan.experiment.for_run(spec).pretrained, plan.identity, answer, spec, saved)
        as_asked = keys == output_keys(answer) and facts.get("card") == checksum(str(wanted).encode())
        return as_asked and (not self.adapter or (target / ADAPTER).is_dir())

    def _learned_before(self) -> dict[str, Tensor] | None:
        """What the run itself has learned, from its model that an earlier command saved.

        None if the folder does not hold that, or if somebody has changed the model since.
        """
        facts, learned = _saved_before(self.target, self.spec, self.plan.experiment) or ({}, {})
        if facts.get("run") != self.spec.digest or facts.get("trained_again") is not False or facts.get("refit"):
            return None
        gap = self._gap(restore(self.spec, self.plan.experiment, learned))
        return learned if gap <= SAME * self.plan.experiment.problem.unit.scale else None

    def _gap(self, logits: NDArray[np.float32]) -> float:
        """The largest difference between these logits of the validation rows and those in the run's result."""
        return float(np.nanmax(abs(self.plan.store.predictions(self.spec.digest)["validation_best"] - logits)))


def _set_changed_aside(target: Path, progress: Progress) -> None:
    """Set a folder aside that is not what an earlier command saved there, or has files of somebody else."""
    if not target.exists():
        return
    records = [name for name in (RECORD, ESTIMATOR) if (target / name).is_file()]
    try:
        if not records:
            raise ValueError("frostline did not write it")
        recorded = read_record(target / records[0])[FILES]
        require_recorded(target, recorded)
        if others := unrecorded(target, records[0], recorded):
            raise ValueError(f"frostline did not write {others[0]}")
    except (OSError, ValueError) as error:
        aside = set_aside(target, target.parent / DAMAGED)
        progress.note(f"{target} is not what was saved ({error}): it is now in {aside}.")


def _saved_before(
    folder: Path, spec: Run, experiment: Experiment
) -> tuple[Mapping[str, Any], dict[str, Tensor]] | None:
    """What frostline.json says of the model that an earlier command saved, and what a run would have learned of it by name.

    None if the folder does not hold such a model.
    """
    try:
        facts, stored = read_record(folder / RECORD), load_file(folder / "model.safetensors")
    except (*UNUSABLE, ValueError):
        return None
    names = spec.parameters(experiment.for_run(spec).pretrained.anatomy)
    return (facts, {name: stored[name] for name in names}) if names <= stored.keys() else None


def refit_of(spec: Run, experiment: Experiment) -> tuple[Run, Experiment]:
    """The run that is a refit of the recommended run ``spec``, and the experiment that it trains in: all labelled rows but test.

    It has the settings, the seed, the epochs and the whole schedule of that run. No validation rows are left to choose the best
    evaluation. A training that is cut off while the learning rate is high varies more over seeds (``docs/log.md``). Its only
    evaluation is on rows that it was trained on. That shows whether it diverged, and is no score.
    """
    validation, examples = experiment.splits["validation"], experiment.examples["validation"]
    rows = validation  # with folds these are all rows
    if experiment.folds is None:
        rows = np.concatenate([experiment.splits["train"], validation])
        examples = experiment.examples["train"].with_more(examples)
    whole = {"folds": 0, "train_size": len(rows), "evaluations_per_epoch": 0, "load_best_model_at_end": False}
    refit, micro_batches = spec.model_copy(update=whole), experiment.worker.micro_batches
    if spec.stack_key in micro_batches:  # memory ran out with more
        micro_batches[refit.stack_key] = micro_batches[spec.stack_key]
    splits = {"train": rows, "validation": validation}
    return refit, replace(experiment, splits=splits, examples={**experiment.examples, "train": examples}, folds=None)


def _rewrite(saved: SavedEstimator, sentence: str) -> None:
    """Write the model of an estimator again, with another sentence about it."""
    try:
        facts = {name: one for name, one in read_record(saved.folder / RECORD).items() if name != FILES}
    except (OSError, ValueError):  # no refit
        facts = {}
    with model_written(saved.folder, "model", {**facts, "sentence": sentence} if facts else None) as aside:
        base = saved.folder / BASE
        about = saved.facts.model_copy(update={"sentence": sentence})
        write_estimator(aside, about, saved.arrays, base if base.is_dir() else None)


def save_fitted(plan: Plan, answer: Answer, fitted: Fitted, facts: Mapping[str, Any] | None) -> None:
    """Write a model that an estimator has fitted, for ``frostline predict``; with the ``facts`` of frostline.json, if any."""
    about = {name: getattr(plan.identity, name) for name in ("task", "task_type", "labels", "max_length")}
    with model_written(plan.store.out / "model", "model", facts) as aside:
        task = TaskFacts(**about, columns=answer.columns or {}, sentence=sentence_without_command(answer))
        fitted.save(aside, task, plan.spec.embed)


def _facts(identity: Identity, answer: Answer, spec: Run, saved: Saved) -> dict[str, Any]:
    """The content of frostline.json, which ``frostline predict`` and later sweeps read."""
    recommended = answer.sizes[0].recommended
    assert recommended is not None
    return {
        **_shared_facts(identity, answer, saved),
        "run": spec.digest,
        "metric": identity.metric,
        "validation": recommended.validation_best,
        "precision": identity.precision,
        "logit_gap": saved.gap,
        "trained_again": saved.trained_again,
        "spec": spec.model_dump(mode="json"),
        "versions": {name: version(name) for name in VERSIONS},
    }


def _shared_facts(identity: Identity, answer: Answer, saved: Saved) -> dict[str, Any]:
    """What frostline.json has of every model: the task, the answer, and its refit if it is one."""
    return {
        "schema_version": SCHEMA_VERSION,
        "sentence": sentence_without_command(answer),
        "task": identity.task,
        "task_type": identity.task_type,
        "labels": list(identity.labels),
        "max_length": identity.max_length,
        "depth": answer.depth,
        "columns": answer.columns,
        **({"refit": dict(saved.refit)} if saved.refit else {}),
    }


@contextmanager
def _as_published(pretrained: Pretrained, max_length: int) -> Iterator[None]:
    """While this is open, tokenizer and configuration have the settings to publish: the length limit, none of the training."""
    tokenizer, config = pretrained.tokenizer, pretrained.model.config
    longest, tokenizer.model_max_length = tokenizer.model_max_length, max_length
    if pretrained.use_cache is not None:
        config.use_cache = pretrained.use_cache
    try:
        with without_load_settings(tokenizer), without_progress_bar():
            yield
    finally:
        tokenizer.model_max_length = longest
        if pretrained.use_cache is not None:
            config.use_cache = False


def model_card(pretrained: Pretrained, identity: Identity, answer: Answer, spec: Run, saved: Saved) -> ModelCard:
    """The model card of the recommended run ``spec``; ``saved`` is the origin of its weights."""
    size = answer.sizes[0]
    recommended, (tag, task_type) = size.recommended, TASKS[identity.task_type]
    assert recommended is not None
    scores = {"validation": recommended.validation_best, "test": recommended.test}  # of one run, not means
    name = model_name(pretrained.name)
    data = ModelCardData(
        base_model=None if Path(pretrained.name).expanduser().is_dir() else pretrained.name,  # on the hub
        license=_license(pretrained.folder),
        library_name=opened_by(pretrained.head),
        pipeline_tag=tag,
        tags=["frostline"],
        metrics=[identity.metric],
        model_name=f"{name}, {recommended.recipe} tuned on {identity.task}",
        eval_results=None
        if saved.refit
        else [
            EvalResult(
                task_type=tag,
                task_name=task_type,
                dataset_type=identity.task,
                dataset_name=identity.task,
                dataset_split=split,
                metric_type=identity.metric,
                metric_name=identity.metric,
                metric_value=value,
            )
            for split, value in scores.items()
            if value is not None
        ],
    )
    labels = dict(enumerate(identity.labels)) if identity.labels else {}
    return ModelCard.from_template(  # type: ignore[no-any-return]
        data,
        template_path=str(TEMPLATE),
        title=in_markdown(f"{name}, fine-tuned on {identity.task}"),
        name=in_markdown(name),
        kept=kept_layers(pretrained.depth),
        task=in_markdown(identity.task),
        sentence=in_markdown(sentence_without_command(answer)),
        notes=[in_markdown(note) for note in answer.notes if not PATH.search(note)],
        splits={name: split["rows"] for name, split in answer.data["report"]["splits"].items()},
        named=[in_markdown(part) for part in spec.way.modules or ()],
        classes=[replace(one, label=in_markdown(one.label)) for one in answer.classes or ()],
        outputs=[in_markdown(text) for text in output_sentences(answer)],
        labels=json.dumps(labels, indent=1, ensure_ascii=False),
        size=size,
        rows=saved.refit["rows"] if saved.refit else size.train_size,
        recommended=recommended,
        identity=identity,
        code=loading(answer, Path("path/to/this/folder")),
        of_words=identity.task_type == TOKENS,
        of_label_sets=identity.task_type == MULTI_LABEL,
        opened_by=opened_by(pretrained.head),
        answer=answer,
        spec=spec,
        settings={name: in_markdown(str(value)) for name, value in spec.shown_settings().items()},
        way=in_markdown(spec.way.in_words) if spec.recipe.is_way else "",
        saved=saved,
        versions={name: version(name) for name in VERSIONS},
        formatting=formatting,
        names=names,
        best=size.cell(recommended.recipe),
    )


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
