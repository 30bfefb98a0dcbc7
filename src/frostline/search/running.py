"""Carries a race out on a model and a table. It writes the folder of a sweep, with a record of every decision."""

import math
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.wording import duration
from frostline.fast.garbage_collection import objects_frozen
from frostline.model.tune import Tune
from frostline.report.finish import finish
from frostline.report.rebuild import choices_of
from frostline.report.recommended_model import best_weights
from frostline.search.guesses import judged
from frostline.search.probing import probe_frozen_layers
from frostline.search.race import race
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import (
    NOTHING_LEARNED,
    Outcome,
    RaceSettings,
    Step,
    Trial,
    Verdict,
    interim_analyses,
    name_of,
    reference_failed,
)
from frostline.statistics.predictions import Labelled, Predictions, among_all
from frostline.sweep.execution.execute import execute, prepare_hidden_states
from frostline.sweep.execution.progress import Progress
from frostline.sweep.execution.workers import workers_for
from frostline.sweep.forecast.workload import Workload
from frostline.sweep.grids import MoreRuns
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared
from frostline.sweep.register import register
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import PROBE, has_probe, read_search, write_search
from frostline.sweep.specification import SweepSpec
from frostline.training.probes.fitting import Probed
from frostline.training.specification import RunSpec


@dataclass
class Search:
    """A search, from the probes on frozen layers to the answer.

    Attributes:
        prepared: Model, data and cache, for one training-set size.
        spec: Every run that this search may train. Its folder may hold others.
        progress: Where it reports what it does.
        budget: Wall-clock seconds for all runs; None: the default budget.
        steps: The record of every step so far.
        requested: Digests of the runs that this search, or an earlier one in this folder, asked for.
    """

    prepared: Prepared
    spec: SweepSpec
    progress: Progress
    budget: float | None
    steps: list[dict[str, Any]] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        prepared, spec = self.prepared, self.spec
        earlier = read_search(prepared.store.out)
        self.requested |= set(earlier["asked"] if earlier else ())
        self.runs = {Trial(run.tune, run.learning_rate, run.seed): run for run in expand(spec, prepared.identity)}
        self._folds = {run.digest: run.fold for run in self.runs.values()}
        self.printed = {run.tune: run.trainable for run in self.runs.values()}
        *ks, reference = spec.tune
        identity, validation = prepared.identity, prepared.data.validation
        rows = Labelled(validation.targets, identity.problem_type, identity.labels, identity.metric)
        self.probed: Probed | None = None
        self.guesses: dict[str, int | None] = {}
        self._probe()
        workload = Workload(prepared.context, prepared.plan.cached)
        settings = RaceSettings(
            ks=tuple(k for k in ks if isinstance(k, int)),
            reference=reference,
            learning_rates=tuple(sorted(spec.learning_rate)),
            head_learning_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(0)),
            seeds=spec.seeds,
            chance=rows.chance,
            highest_score=1.0,
            goal=choices_of(spec).goal(rows.chance),
            operations={
                tune: workload.operations(run) for tune, run in {r.tune: r for r in self.runs.values()}.items()
            },
            budget=self.budget,
            folds=identity.folds,
            workers=workers_for(prepared, [run for run in self.runs.values() if run.tune == reference][:2]),
        )
        if self.probed:
            settings = replace(
                settings, probe_score=-math.inf if (low := self.probed.facts["best"]["low"]) is None else low
            )
        if guess := self.guesses.get("probes"):
            settings = replace(settings, start_k=min(guess, -(-identity.layers // 2)))
        self.board = Scoreboard(settings, Predictions(rows, self._predictions, interim_analyses(len(spec.seeds))))

    def _predictions(self, digest: str) -> NDArray[np.float32]:
        """Logits of a run on the validation rows, ``[rows, C]``; NaN in rows of another fold than its own."""
        found, folds = self.prepared.store.predictions(digest)["validation_best"], self.prepared.context.folds
        return found if folds is None else among_all(found, folds == self._folds[digest])

    def _probe(self) -> None:
        """Fit probes on the examples of the first seed and estimate k from them; nothing if hidden states could not be cached."""
        of_two_seeds = [run for trial, run in self.runs.items() if trial.seed in self.spec.seeds[:2]]
        prepare_hidden_states(self.prepared, of_two_seeds, self.progress)
        first = next(run for trial, run in self.runs.items() if trial.seed == self.spec.seeds[0])
        found = probe_frozen_layers(self.prepared, first, self.progress)
        if found:
            self.probed, self.guesses = found

    def carry_out(self, *, exhaustive: bool) -> dict[str, Any]:
        """Run the race until it ends or is interrupted; returns the answer."""
        if self.probed:
            self.progress.note(f"Linear probes, no layer trained: {self.probed.sentence}")
        self._write(None)  # from now on the test scores are hidden until the search is over
        try:
            with objects_frozen():
                verdict = self._grid() if exhaustive else self._race()
        except KeyboardInterrupt:
            smallest = self.board.smallest_reaching_goal()
            self._write(Verdict(smallest, "The search was interrupted. The same command continues it."))
            self._save_probe(smallest)
            answer = finish(self.prepared, self.progress, save_model=False)
            self.progress.note(f"So far: {answer['sentence']} Report: {self.prepared.store.out / 'report.html'}")
            raise
        self._save_probe(None if verdict.by_probe else verdict.tune)
        if self.probed and verdict.unlearned and self.board.settings.probe_score > self.board.settings.chance:
            score = self.probed.facts["best"]["score"]
            advice = "Train for more epochs (--num-train-epochs) or at higher learning rates (--learning-rate)."
            verdict = replace(
                verdict, why=f"{verdict.why} But a linear probe scores {score:.3f}, above the baseline. {advice}"
            )
        self._write(verdict, over=True)
        return finish(self.prepared, self.progress)

    def _save_probe(self, recommended: Tune | None) -> None:
        """Save the best probe if it is above the baseline with 95 % confidence and better than the recommended k.

        Otherwise remove the probe of an earlier or interrupted call.
        """
        settings, mean = self.board.settings, None if recommended is None else self.board.mean(recommended)
        folder, probed = self.prepared.store.out / PROBE, self.probed
        if probed and settings.probe_score > settings.chance and (mean is None or probed.facts["best"]["score"] > mean):
            probed.save(folder)
        elif has_probe(self.prepared.store.out):
            shutil.rmtree(folder)

    def _race(self) -> Verdict:
        """Carry out the steps of the race until its verdict."""
        steps = race(self.board)
        try:
            step = next(steps)
            while True:
                self._take(step)
                step = next(steps)
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict

    def _grid(self) -> Verdict:
        """Train every run of the grid in one step."""
        self.board.steps.append(tuple(self.runs))
        self._take(Step(self.board.steps[-1], "Train the whole grid (--exhaustive)."))
        trained, settings = "The whole grid was trained.", self.board.settings
        if self.board.best_learning_rate(settings.reference) is None:
            return Verdict(None, f"{trained} {reference_failed(settings.reference)}", alone=True)
        if not any(map(self.board.above_baseline, (settings.reference, *settings.ks))):
            return Verdict(None, f"{trained} {NOTHING_LEARNED}", unlearned=True)
        return Verdict(self.board.smallest_reaching_goal(), trained)

    def _take(self, step: Step) -> None:
        """Train the trials of a step that have no result yet."""
        self.progress.note(step.why)
        runs = {trial: self.runs[trial] for trial in step.trials}
        known = [trial for step in self.steps for trial in step["trials"]]
        self.requested |= {run.digest for run in runs.values()}
        self._write(None)  # if the search is killed, its runs are still known as its own
        register(replace(self.prepared, spec=self._spec_of([*known, *step.trials])))
        try:
            execute(self.prepared, list(runs.values()), self.progress, weights=best_weights(self.prepared.store.out))
        except KeyboardInterrupt:
            self._record(step, {trial: run for trial, run in runs.items() if self.prepared.store.has(run.digest)})
            raise
        self._record(step, runs)
        self._write(None)
        self.progress.note(self._so_far())

    def _record(self, step: Step, runs: Mapping[Trial, RunSpec]) -> None:
        """Record the outcomes of a step and the results that it was decided on."""
        outcomes = {trial: self._outcome(run) for trial, run in runs.items()}
        self.steps.append({"why": step.why, "standing": self._standing(), "trials": outcomes})
        self.board.outcomes |= outcomes

    def _so_far(self) -> str:
        """A line of progress: the smallest k that reaches the target so far, the time spent and the budget left."""
        board, reference = self.board, self.board.settings.reference
        left = f", {duration(max(0.0, board.budget - board.spent))} of the budget left" if board.budget_is_final else ""
        spent = f"Trained for {duration(board.spent)}{left}."
        *smaller, smallest = board.candidates()
        if smallest == reference and board.best_learning_rate(reference) is None:
            return f"  The target is unknown until {name_of(reference)} has run. {spent}"
        perhaps = f" ({name_of(smaller[0])} to {name_of(smaller[-1])} uncertain)" if len(smaller) > 1 else ""
        perhaps = perhaps or (f" ({name_of(smaller[0])} uncertain)" if smaller else "")
        return f"  Smallest that reaches the target so far: {name_of(smallest)}{perhaps}. {spent}"

    def _outcome(self, run: RunSpec) -> Outcome:
        """The outcome of a run; a diverged run has no score."""
        if not self.prepared.store.has(run.digest):  # it ended in an error
            return Outcome(None, 0.0)
        facts = self.prepared.store.result(run.digest)
        score = facts["validation_best"] if facts["outcome"] != "diverged" else None
        workers = facts["provenance"]["workers"]
        return Outcome(score, facts["cost"]["run_seconds"] * workers, run.digest, workers, facts["outcome"])

    def _given_up(self, own: Set[str]) -> list[str]:
        """Runs without a result that an earlier search with other settings requested and nobody will finish.

        They are neither this search's own nor requested by a sweep.
        """
        store = self.prepared.store
        unfinished = {run.digest for run in Folder(store.out).asked} & self.requested - own - store.failures().keys()
        return sorted(digest for digest in unfinished if not store.has(digest))

    def _standing(self) -> list[dict[str, Any]]:
        """The results so far by k: see :meth:`frostline.search.scoreboard.Scoreboard.standing`."""
        return [{"trainable": self.printed[one.pop("tune")], **one} for one in self.board.standing()]

    def _spec_of(self, trials: Sequence[Trial]) -> SweepSpec:
        """The sweep that consists of these trials."""
        seeds: dict[tuple[Tune, tuple[float, ...] | None], list[int]] = {}
        for trial in trials:  # k = 0 is trained at all of its own learning rates
            seeds.setdefault((trial.tune, (trial.learning_rate,) if trial.tune else None), []).append(trial.seed)
        first, *others = [
            MoreRuns(tune=(tune,), learning_rate=rates, seeds=tuple(dict.fromkeys(some)))
            for (tune, rates), some in seeds.items()
        ]
        return self.spec.model_copy(update={**first.values(), "grid": tuple(others)})

    def _write(self, verdict: Verdict | None, *, over: bool = False) -> None:
        """Write search.json: the settings, every step so far, and the verdict if there is one."""
        tune = verdict.tune if verdict else None
        tune = None if tune is None or self.board.mean(tune) is None else tune
        settings, trained = self.board.settings, [trial for step in self.steps for trial in step["trials"]]
        raced, tried = (*settings.ks, settings.reference), {trial.tune for trial in trained}
        write_search(
            self.prepared.store.out,
            {
                "train_size": next(iter(self.runs.values())).train_size,
                "named": None if tune is None else self.printed[tune],
                "why": verdict.why if verdict else None,
                "by_probe": bool(verdict and verdict.by_probe),
                "over": over,
                "awaits": None if over or settings.reference in tried else self.printed[settings.reference],
                "looks": interim_analyses(len(settings.seeds)),
                "budget_seconds": self.board.budget if self.board.budget_is_final else None,
                "spent_seconds": self.board.spent,
                "operations": {self.printed[tune]: settings.operations[tune] for tune in raced},
                "rates": settings.learning_rates,
                "head_rates": settings.head_learning_rates,
                "chosen_rates": {
                    self.printed[k]: rate for k in raced if (rate := self.board.best_learning_rate(k)) is not None
                },
                "standing": self._standing(),
                "skipped": [self.printed[k] for k in raced if k not in tried],
                "lacks": self.printed[settings.reference] if verdict and verdict.alone else None,
                "asked": sorted(self.requested),
                "given_up": self._given_up({self.runs[trial].digest for trial in trained}) if over else [],
                "probes": self.probed.facts if self.probed else None,
                "guesses": judged(
                    self.guesses, [k for k in raced if isinstance(k, int)], tune if isinstance(tune, int) else None
                ),
                "steps": [self._step_record(step) for step in self.steps],
            },
        )

    def _step_record(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """A step in search.json: the reason, the results before it, and its runs."""
        runs = [
            {
                "trainable": self.printed[trial.tune],
                "learning_rate": trial.learning_rate,
                "seed": trial.seed,
                "score": outcome.score,
                "seconds": outcome.seconds / outcome.workers,
            }
            for trial, outcome in step["trials"].items()
        ]
        seconds = self.board.step_seconds(tuple(step["trials"]))
        return {"why": step["why"], "standing": step["standing"], "seconds": seconds, "runs": runs}
