"""Records of runs that were never trained and of searches, for tests of what reads them."""

from pathlib import Path
from typing import Any

import numpy as np

from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import SearchRecord
from frostline.training.result import Failure, Result, RunRecord, TestRecord
from frostline.training.run import Run

USUAL = {"weights": "w", "vocabulary": "v", "data": "d", "metric": "accuracy", "precision": "float32"}
MACHINE = {"device": "cpu", "device_name": "x86", "instructions": "AVX2", "python": "3.11", "frostline": "1"}
VERSIONS = {"torch": "2.13", "transformers": "5", "numpy": "2"}
HOW = {"packed": True, "head_token": False, "stacked": 1, "micro_batch": 16, "continued_after": [], "workers": 1}


def spec_of_run(**changes: Any) -> Run:
    """The specification of a run; by default, one layer and seed 0."""
    usual = {**USUAL, "recipe": 1, "seed": 0, "train_size": 10, "learning_rate": 1e-4}
    return Run.model_validate({**usual, **changes})


def record(spec: Run | None = None, **changes: Any) -> RunRecord:
    """The record of a run without scores. A dictionary in ``changes`` changes these values of a part."""
    spec = spec or spec_of_run()
    seconds = dict.fromkeys(("train_seconds", "evaluation_seconds", "forward_pass_seconds", "run_seconds"), 0.0)
    usual: dict[str, Any] = {
        "digest": spec.digest,
        "spec": spec.model_dump(mode="json"),
        **{"outcome": "ok", "reason": "", "metric": "accuracy", "scores": []},
        **dict.fromkeys(("best_epoch", "validation_best", "validation_last", "train_last")),
        "cost": {**seconds, "peak_memory_bytes": 0, "steps": 0},
        "audit": {"parameters": 1, "trainable_parameters": 1, "tuned_share": 1.0, "by_place": {}},
        "provenance": {**MACHINE, **VERSIONS, **HOW, "threads": 1, "cut": None, "from_cache": False},
    }
    parts = {name: {**usual[name], **value} for name, value in changes.items() if isinstance(value, dict)}
    return RunRecord.model_validate({**usual, **changes, **parts})


def failure(spec: Run, reason: str = "out of memory", *, digest: str | None = None) -> Failure:
    """The record of a run that ended in an error."""
    return Failure(digest=digest or spec.digest, spec=spec, reason=reason, traceback=reason)


def failed(digest: str, reason: str = "out of memory") -> Failure:
    """The record of a run with any digest."""
    return failure(spec_of_run(), reason, digest=digest)


def result(digest: str, score: float = 0.5, *, test: bool = True, **changes: Any) -> Result:
    """A result with any digest, whose predictions are all ``score``."""
    logits = {name: np.full((3, 2), score, np.float32) for name in ("validation_best", "validation_last")}
    made = Result(record(digest=digest, validation_best=score, **changes), logits)
    if test:
        made.test = TestRecord(digest=digest, scores={"accuracy": score})
        made.test_logits = logits["validation_best"]
    return made


def runs_in(out: Path) -> dict[tuple[Any, ...], Any]:
    """The rows of results.csv by k, learning rate and seed."""
    return {(row.recipe, row.learning_rate, row.seed): row for row in Folder(out).rows}


def record_of(**more: Any) -> SearchRecord:
    """The record of a search that has just started; ``more`` replaces some values."""
    empty: dict[str, Any] = {
        **dict.fromkeys(("why", "budget_seconds", "failed_reference", "enough_budget", "probes", "estimated_k")),
        **{name: [] for name in ("results_so_far", "requested", "abandoned", "known", "steps")},
        **{"train_size": 20, "over": False, "pending_reference": "full", "interim_analyses": 3},
        **{"spent_seconds": 0.0, "elsewhere_seconds": 0.0, "operations": {"head only": 1.0, "full": 2.0}},
        **{"num_train_epochs": [3.0], "learning_rates": [1e-4], "head_learning_rates": [1e-3]},
        **{"selected_learning_rates": {}, "skipped": ["head only", "full"]},
    }
    return SearchRecord(**{**empty, **more})
