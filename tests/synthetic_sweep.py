"""Writes the folder of a sweep with synthetic results. Everything computed from these results is real."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from frostline.data.checks import report_on
from frostline.data.columns import Columns
from frostline.data.examples import Examples
from frostline.data.files import write_sealed
from frostline.data.task import Task
from frostline.report.rebuild import write_report
from frostline.report.tables.sweep_tables import CHECKS
from frostline.statistics.metrics import score
from frostline.statistics.recipe import Recipe
from frostline.sweeps.grid import Identity, expand
from frostline.sweeps.results.folder import write_rows
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings
from frostline.training.result import Result, TestRecord
from frostline.training.run import Run
from records import failure, record

HOSTILE = ("<script>alert(1)</script>", "=1+1", "w" * 300, "مرحبا بالعالم", "😀 {{ 7 * 7 }} | `x` $y$")
LAYERS = 6
REASONS = {
    "diverged": "the loss of step 7 is not finite (diverged)",
    "degenerate": "a constant prediction (degenerate)",
}
Runs = Sequence[tuple[int | str, int]]  # pairs of k and seed


@dataclass(frozen=True)
class Texts:
    """The examples of a synthetic sweep."""

    labels: Sequence[str] = ("negative", "positive")  # empty for regression
    texts: Sequence[str] = tuple(f"a fine film, part {n}" for n in range(1_000))
    rows: int = 300  # of validation and of test
    test: bool = True

    def draw(self, rng: np.random.Generator, name: str, rows: int) -> Examples:
        """Examples with random targets."""
        targets = rng.integers(0, len(self.labels), rows) if self.labels else rng.normal(size=rows).round(2)
        return Examples(
            texts=tuple(self.texts[n % len(self.texts)] for n in range(rows)),
            pairs=None,
            rows=np.arange(2, rows + 2),
            name=name,
            targets=targets,
        )


def make_folder(
    out: Path,
    *,
    tune: Sequence[int | str] = (0, 1, 2, 3, 4, 6, "full"),
    seeds: int = 3,
    sizes: Sequence[int] = (1000,),
    diverged: Runs = (),
    degenerate: Runs = (),
    missing: Runs = (),
    errors: Runs = (),
    notes: Sequence[str] = (),
    task: str = "reviews",
    tune_modules: Sequence[str] | None = None,
    learning_rates: Sequence[float] = (5e-5,),
    lengths: Sequence[float] = (3,),
    **texts: Any,
) -> Path:
    """Write the folder of a sweep as its runs would write it, and return it. Quality rises with k and saturates.

    ``diverged``, ``degenerate`` (a constant prediction), ``missing`` and ``errors`` list the runs with this outcome. ``texts``
    are fields of :class:`Texts`.
    """
    kind, rng, store = Texts(**texts), np.random.default_rng(0), Store(out)
    labels = tuple(kind.labels)
    task_type = "text-classification" if labels else "regression"
    spec = Settings(
        model="org/model",
        train="train.csv",
        tune=tuple(tune),
        tune_modules=tune_modules and tuple(tune_modules),
        seeds=seeds,
        train_size=tuple(sizes),
        learning_rate=tuple(learning_rates),
        num_train_epochs=tuple(lengths),
        task=task,
        out=str(out),
    )
    metric = "accuracy" if labels else "spearmanr"
    identity = Identity("w", "v", "d", LAYERS, metric, "float32", 128, max(sizes), 0, task, task_type, labels)
    splits = {name: kind.draw(rng, name, kind.rows) for name in ("validation", "test")[: 2 if kind.test else 1]}
    store.write_spec({**spec.model_dump(mode="json"), "identity": {**vars(identity), "labels": list(labels)}})
    for name, examples in splits.items():
        write_rows(out, name, examples)
    outcomes = dict.fromkeys(places(diverged), "diverged") | dict.fromkeys(places(degenerate), "degenerate")
    for run in expand(spec, identity):
        place = (run.recipe, run.seed)
        if place in places(errors):
            store.fail(failure(run, "RuntimeError: <b>no</b> memory"))
        elif place not in places(missing):
            store.publish(_result(run, outcomes.get(place, "ok"), splits, identity, rng))
    _write_data(out, identity, {"train": kind.draw(rng, "train", max(sizes)), **splits}, notes)
    write_report(out)
    return out


def places(runs: Runs) -> set[tuple[Recipe, int]]:
    return {(Recipe(k), seed) for k, seed in runs}


def _write_data(out: Path, identity: Identity, splits: Mapping[str, Examples], notes: Sequence[str]) -> None:
    columns = Columns(text="text", label="label")
    task = Task(name=identity.task, task_type=identity.task_type, labels=identity.labels, columns=columns)
    facts = {
        "columns": {"text": "text", "text_pair": None, "label": "label"},
        "notes": list(notes),
        "report": report_on(splits, task).model_dump(),
        "max_length": 128,
        "truncated": {"train": 0.013, "validation": 0.0},
        "truncated_by_class": {label: 0.01 * n for n, label in enumerate(identity.labels)},
    }
    write_sealed(out / "data.json", facts, inside=out)


def _logits(rng: np.random.Generator, run: Run, outcome: str, examples: Examples, classes: int) -> np.ndarray:
    k = {"full": LAYERS + 1, "named": 3}.get(run.recipe, run.recipe.k)
    skill = 0.9 + 1.1 * (1 - np.exp(-k / 2)) + 0.1 * np.log10(run.train_size / 1000)
    noise = rng.normal(size=(len(examples), max(1, classes)))
    if outcome == "degenerate":
        return np.tile(noise[:1], (len(examples), 1)).astype(np.float32)
    if not classes:
        return (skill * examples.targets[:, None] + 0.7 * noise).astype(np.float32)
    return (skill * 1.3 * np.eye(classes)[examples.targets] + noise).astype(np.float32)


def _result(
    run: Run, outcome: str, splits: Mapping[str, Examples], identity: Identity, rng: np.random.Generator
) -> Result:
    """The result of a run. The audited model has 1,000 parameters in each of its parts."""
    k = {"full": LAYERS, "named": 3}.get(run.recipe, run.recipe.k)
    predicted = outcome != "diverged"
    logits = {
        name: _logits(rng, run, outcome, part, len(identity.labels)) for name, part in splits.items() if predicted
    }
    scores = {name: score(splits[name].targets, some, identity.task_type) for name, some in logits.items()}
    scores = {name: {m: float(v) if np.isfinite(v) else None for m, v in some.items()} for name, some in scores.items()}
    best = scores["validation"][identity.metric] if predicted else None
    made = record(
        run,
        outcome=outcome,
        reason=REASONS.get(outcome, ""),
        metric=identity.metric,
        best_epoch=3.0 if predicted else None,
        validation_best=best,
        validation_last=best,
        train_last=min(1.0, best + 0.02 * k) if outcome == "ok" else None,
        cost={
            "train_seconds": 0.2 + 2.0 * k + 4 * (run.recipe == "full") + 0.1 * run.seed,
            "evaluation_seconds": 1.0,
            "peak_memory_bytes": 700_000_000 + 150_000_000 * k,
            "steps": 12,
        },
        audit=_audit(run, k),
        provenance={"cut": LAYERS - k, "from_cache": True},
    )
    validation = {f"validation_{which}": logits["validation"] for which in ("best", "last")} if predicted else {}
    result = Result(made, validation)
    if "test" in logits:
        result.test = TestRecord(digest=run.digest, scores=scores["test"])
        result.test_logits = logits["test"]
    return result


def _audit(run: Run, k: int) -> dict[str, Any]:
    layers = {3, 5} if run.recipe == "named" else range(LAYERS - k, LAYERS)
    places = {"embeddings": run.recipe == "full", **{f"layer {n}": n in layers for n in range(LAYERS)}, "head": True}
    trained = 1000 * sum(places.values())
    return {
        "parameters": 1000 * len(places),
        "trainable_parameters": trained,
        "tuned_share": (LAYERS - min(layers, default=LAYERS)) / LAYERS,
        "by_place": {p: {"trained": 1000 * t, "frozen": 1000 * (not t)} for p, t in places.items()},
        "checks": dict.fromkeys(CHECKS, True),
        "clipped_parameters": trained // 1000,
    }
