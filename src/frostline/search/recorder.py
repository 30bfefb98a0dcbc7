"""Keeps the record of a search and writes ``search.json`` after every change, so that a killed search can continue."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, Trial, Verdict, interim_analyses
from frostline.statistics.tune import name_of
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import SearchRecord, write_search
from frostline.sweep.results.store import Store
from frostline.training.specification import RunSpec


@dataclass(frozen=True)
class RecordedStep:
    """A finished step: the reason, the results on which it was decided, and the outcomes of its trials."""

    why: str
    results_before: list[dict[str, Any]]
    outcomes: Mapping[Trial, Outcome]


@dataclass
class Recorder:
    """The record of a search while it runs.

    Attributes:
        store: The folder of the search.
        runs: Every run that the search may train.
        board: The results so far.
        probes: The facts of the probes on frozen features, or None.
        estimates: The estimates of k by method.
        requested: Digests of the runs that this search, or an earlier one in this folder, requested.
        steps: The finished steps.
    """

    store: Store
    runs: Mapping[Trial, RunSpec]
    board: Scoreboard
    probes: Mapping[str, Any] | None
    estimates: Mapping[str, int | None]
    requested: set[str]
    steps: list[RecordedStep] = field(default_factory=list)

    @property
    def trials(self) -> list[Trial]:
        """The trials of all finished steps."""
        return [trial for step in self.steps for trial in step.outcomes]

    def add(self, why: str, outcomes: Mapping[Trial, Outcome]) -> None:
        """Add a finished step to the record and its outcomes to the board."""
        self.steps.append(RecordedStep(why, self._results_so_far(), outcomes))
        self.board.outcomes |= outcomes

    def write(self, verdict: Verdict | None = None, *, over: bool = False) -> None:
        """Write search.json.

        Args:
            verdict: Why the search ended or was interrupted; None while it continues.
            over: Whether the search has ended.
        """
        settings, tried = self.board.settings, {trial.tune for trial in self.trials}
        reference = name_of(settings.reference)
        record = SearchRecord(
            why=verdict.why if verdict else None,
            over=over,
            pending_reference=None if over or settings.reference in tried else reference,
            failed_reference=reference if verdict and verdict.no_reference else None,
            untried=name_of(verdict.untried) if verdict and verdict.untried is not None else None,
            skipped=[name_of(k) for k in settings.choices if k not in tried],
            requested=sorted(self.requested),
            abandoned=self._abandoned() if over else [],
            known=sorted(self.store.ended()) if over else [],
            estimates=[{"by": by, "k": k} for by, k in self.estimates.items() if k is not None],
            **self._settings(),
            **self._results(),
        )
        write_search(self.store.out, record)

    def _settings(self) -> dict[str, Any]:
        settings = self.board.settings
        return {
            "train_size": next(iter(self.runs.values())).train_size,
            "interim_analyses": interim_analyses(len(settings.seeds)),
            "operations": {name_of(k): settings.operations[k] for k in settings.choices},
            "learning_rates": settings.learning_rates,
            "head_learning_rates": settings.head_learning_rates,
            "probes": self.probes,
        }

    def _results(self) -> dict[str, Any]:
        rates = {k: self.board.best_learning_rate(k) for k in self.board.settings.choices}
        return {
            "budget_seconds": self.board.budget if self.board.budget_is_final else None,
            "spent_seconds": self.board.spent,
            "selected_learning_rates": {name_of(k): rate for k, rate in rates.items() if rate is not None},
            "results_so_far": self._results_so_far(),
            "steps": [self._step(step) for step in self.steps],
        }

    def _results_so_far(self) -> list[dict[str, Any]]:
        """See :meth:`frostline.search.scoreboard.Scoreboard.results_so_far`."""
        return [{"trainable": name_of(one.pop("tune")), **one} for one in self.board.results_so_far()]

    def _step(self, step: RecordedStep) -> dict[str, Any]:
        runs = [
            {
                "trainable": name_of(trial.tune),
                "learning_rate": trial.learning_rate,
                "seed": trial.seed,
                "score": outcome.score,
                "seconds": outcome.seconds / outcome.workers,
            }
            for trial, outcome in step.outcomes.items()
        ]
        seconds = self.board.step_seconds(tuple(step.outcomes))
        return {"why": step.why, "results_so_far": step.results_before, "seconds": seconds, "runs": runs}

    def _abandoned(self) -> list[str]:
        """Runs without a result that only an earlier search with other settings requested; nothing will finish them."""
        own: Set[str] = {self.runs[trial].digest for trial in self.trials}
        unfinished = {run.digest for run in Folder(self.store.out).requested} & self.requested - own
        return sorted(digest for digest in unfinished - self.store.failures().keys() if not self.store.has(digest))
