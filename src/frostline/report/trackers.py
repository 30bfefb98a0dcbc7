"""``frostline.track``: every run of a sweep, and its answer, as a run of MLflow, TensorBoard or Weights & Biases.

They are written from the results in the folder, each one once under a name that its digest decides.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

from frostline import FrostlineError
from frostline.data.files import ELSEWHERE, create_file, file_name, locked, new_folder
from frostline.data.wording import comma_separated, first_line
from frostline.report.rebuild import answer_of_now
from frostline.statistics.run_result import RunResult
from frostline.sweeps.inputs import require_trackers
from frostline.sweeps.results.folder import Folder, folders_of
from frostline.training.run import Run

COST = ("trainable_parameters", "train_seconds", "cache_seconds", "peak_memory_bytes", "tuned_layers", "tuned_share")
SCORES = ("validation_best", "best_epoch", "test")
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100  # that MLflow takes


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What a tracker shows of one run, or of the answer.

    Attributes:
        key: The digest of the run, or of what the answer says of which runs.
        name: What a person reads.
        settings: Those of the run.
        scores: Those of each evaluation, by split and metric, and its ``epoch``.
        summary: The scores after the best epoch, and the cost.
        text: The sentence of the answer; empty for a run.
    """

    key: str
    name: str
    settings: Mapping[str, str | int | float | bool]
    scores: Sequence[Mapping[str, float]] = ()
    summary: Mapping[str, float]
    text: str = ""


def track(folder: str | Path, to: str | Sequence[str]) -> dict[str, int]:
    """Write the finished runs of a sweep, and its answer, into trackers. What is there already is not written again.

    TensorBoard's files are in ``FOLDER/tensorboard``. MLflow and W&B are configured by their own environment variables.
    The experiment of MLflow, or the group of W&B, has the name of the folder.

    Args:
        folder: The folder of a sweep or a search; of a search over several models, all of them are written.
        to: ``mlflow``, ``tensorboard``, ``wandb``, or several of them.

    Returns:
        How many runs were written into each, with the answer.

    Raises:
        FrostlineError: A package is missing, the folder has no results, its test scores are not known yet, or a tracker does not
            take them.
    """
    names = comma_separated(to) if isinstance(to, str) else to
    require_trackers(names)
    folders = folders_of(Path(folder).expanduser())
    counts = Counter[str](dict.fromkeys(names, 0))
    several = [*map(Folder, folders)]
    for read in several:
        if not read.is_complete and read.split("test") is not None:
            raise FrostlineError(
                f"{read.out} has runs that have not ended. A run is written once, with its test score, which is known when all "
                "have ended: finish the sweep first."
            )
    for read in several:
        out, found = read.out, [*_runs(read), *_answer(read)]
        with locked(out / ".track.lock", ELSEWHERE, inside=out):
            for name in names:
                try:
                    counts[name] += SINKS[name](out, found)
                except Exception as error:  # that of any library, or of its server
                    raise FrostlineError(
                        f"{name} does not take the results of {out} ({first_line(error)}): correct that, and run "
                        f"`frostline track {out} --to {name}`. The results themselves are complete."
                    ) from error
    return counts


def _runs(folder: Folder) -> Iterator[Tracked]:
    """The runs that have a result."""
    by_digest, scores = {run.digest: run for run in folder.runs}, dict[str, dict[float, dict[str, float]]]()
    for one in folder.scores():
        if one["value"] is not None and one["split"] != "test":
            of_run = scores.setdefault(one["run"], {}).setdefault(one["epoch"], {"epoch": one["epoch"]})
            of_run[f"{one['split']}/{one['metric']}"] = one["value"]
    for row in (row for row in folder.rows if row.status == "done"):
        evaluations = scores.get(row.run, {})
        rate = "" if row.learning_rate is None else f", lr {row.learning_rate:g}"
        yield Tracked(
            key=row.run,
            name=f"{row.recipe}, seed {row.seed}{rate}, {row.run[:8]}",
            settings=_settings(row, by_digest[row.run]),
            scores=[evaluations[epoch] for epoch in sorted(evaluations)],
            summary={name: value for name in (*SCORES, *COST) if (value := getattr(row, name)) is not None},
        )


def _settings(row: RunResult, run: Run) -> dict[str, str | int | float | bool]:
    """The settings of a run that have a value."""
    own = {"model": row.model, "task": row.task, "outcome": row.outcome, "digest": row.run}
    given = {**own, **run.shown_settings()}
    plain = {name: value for name, value in given.items() if value is not None}
    return {name: one if isinstance(one, str | int | float) else json.dumps(one) for name, one in plain.items()}


def _answer(folder: Folder) -> Iterator[Tracked]:
    """The answer: anew after more runs, or if the settings that decide it have changed."""
    answer = answer_of_now(folder.out)
    size, done = answer.sizes[0], sorted(row.run for row in folder.rows if row.status == "done")
    summary, settings = {"runs": float(answer.runs.done)}, {"model": answer.model, "task": answer.task}
    if decision := size.decision:
        settings["recommended"] = decision.choice
        numbers = ("expected", "probability", "cost_of_full")
        summary |= {name: value for name in numbers if (value := getattr(decision, name)) is not None}
    key = hashlib.sha256(json.dumps([answer.sentence, settings, summary, done]).encode()).hexdigest()[:20]
    yield Tracked(key=key, name=f"answer, {key[:8]}", settings=settings, summary=summary, text=answer.sentence)


def _tensorboard(out: Path, found: Sequence[Tracked]) -> int:
    """Folders in ``tensorboard/``. Their names end with the begin of the key, because more training lengths rename a recipe."""
    from torch.utils.tensorboard import SummaryWriter

    new = [one for one in found if not any((out / "tensorboard").glob(f"*-{one.key[:8]}"))]
    for one in new:
        path = out / "tensorboard" / file_name(one.name)
        with new_folder(path, inside=out) as aside, SummaryWriter(str(aside)) as writer:
            for step, scores in enumerate(one.scores, start=1):
                for name, value in scores.items():
                    writer.add_scalar(name, value, step)
            if one.text:
                writer.add_text("answer", one.text)
            summary = {f"summary/{name}": value for name, value in one.summary.items()}
            writer.add_hparams(dict(one.settings), summary, run_name=".")
    return len(new)


def _mlflow(out: Path, found: Sequence[Tracked]) -> int:
    """Runs of an experiment with the name of the folder. One that was cut off is written again."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client, written, now = MlflowClient(), 0, int(1000 * time())
    name = out.resolve().name
    experiment = client.get_experiment_by_name(name)
    within = experiment.experiment_id if experiment else client.create_experiment(name)
    for one in found:
        known = client.search_runs([within], f"tags.`frostline.digest` = '{one.key}'")
        if any(run.info.status == "FINISHED" for run in known):
            continue
        for run in known:
            client.delete_run(run.info.run_id)
        tags = {"frostline.digest": one.key, **({"mlflow.note.content": one.text} if one.text else {})}
        run_id = client.create_run(within, run_name=one.name, tags=tags).info.run_id
        metrics = [
            Metric(name, value, now, step) for step, at in enumerate(one.scores, 1) for name, value in at.items()
        ]
        metrics += [Metric(name, value, now, 0) for name, value in one.summary.items()]
        params = [Param(name, str(value)) for name, value in one.settings.items()]
        for n in range(0, len(metrics), METRICS_AT_ONCE):
            client.log_batch(run_id, metrics=metrics[n : n + METRICS_AT_ONCE])
        for n in range(0, len(params), PARAMS_AT_ONCE):
            client.log_batch(run_id, params=params[n : n + PARAMS_AT_ONCE])
        client.set_terminated(run_id)
        written += 1
    return written


def _wandb(out: Path, found: Sequence[Tracked]) -> int:
    """Runs of a group with the name of the folder. Their files are in ``wandb/``, where a mark says that one is complete.

    W&B overwrites a run of the same id, so that one that was cut off is not there twice.
    """
    import wandb

    new = [(one, mark) for one in found if not (mark := out / "wandb" / f"{one.key}.written").exists()]
    for one, mark in new:
        run = wandb.init(
            id=one.key,
            name=one.name,
            group=out.resolve().name,
            notes=one.text or None,
            config=dict(one.settings),
            dir=out,
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False
            ),
        )
        for step, scores in enumerate(one.scores, start=1):
            run.log(dict(scores), step=step)
        run.summary.update(dict(one.summary))
        run.finish()
        create_file(mark, b"", inside=out)
    return len(new)


SINKS: Mapping[str, Callable[[Path, Sequence[Tracked]], int]] = {
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
