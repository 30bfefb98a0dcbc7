"""A search: the race, carried out on a model and a table. Its folder is that of a sweep, with every decision recorded."""

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
from frostline.search.board import Board
from frostline.search.course import (
    NOTHING_LEARNED,
    Course,
    Outcome,
    Step,
    Trial,
    Verdict,
    failed_throughout,
    looks,
    said,
)
from frostline.search.guesses import judged
from frostline.search.probing import probe_frozen_layers
from frostline.search.race import race
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
    prepared: Prepared
    spec: SweepSpec  # every run that this search may train; its folder may hold others
    progress: Progress
    budget: float | None
    steps: list[dict[str, Any]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)  # runs that this search or an earlier one wanted

    def __post_init__(self) -> None:
        prepared, spec = self.prepared, self.spec
        earlier = read_search(prepared.store.out)
        self.asked |= set(earlier["asked"] if earlier else ())
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
        course = Course(
            ks=tuple(k for k in ks if isinstance(k, int)),
            reference=reference,
            rates=tuple(sorted(spec.learning_rate)),
            head_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(0)),
            seeds=spec.seeds,
            chance=rows.chance,
            best=1.0,
            goal=choices_of(spec).goal(rows.chance),
            operations={
                tune: workload.operations(run) for tune, run in {r.tune: r for r in self.runs.values()}.items()
            },
            budget=self.budget,
            folds=identity.folds,
            abreast=workers_for(prepared, [run for run in self.runs.values() if run.tune == reference][:2]),
        )
        if self.probed:
            course = replace(course, frozen=-math.inf if (low := self.probed.facts["best"]["low"]) is None else low)
        if guess := self.guesses.get("probes"):
            course = replace(course, first=min(guess, -(-identity.layers // 2)))
        self.board = Board(course, Predictions(rows, self._predictions, looks(len(spec.seeds))))

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
        """Run the race to its end, or to where it is interrupted; gives the answer."""
        if self.probed:
            self.progress.note(f"No layer trained: {self.probed.sentence}")
        self._write(None)  # from now on nobody looks at test before it is over
        try:
            with objects_frozen():
                verdict = self._grid() if exhaustive else self._race()
        except KeyboardInterrupt:
            self._write(Verdict(self.board.found(), "It was interrupted; the same command goes on."))
            self._keep_probe(self.board.found())
            answer = finish(self.prepared, self.progress, save_model=False)
            self.progress.note(f"So far: {answer['sentence']} The page: {self.prepared.store.out / 'report.html'}")
            raise
        self._keep_probe(None if verdict.by_probe else verdict.tune)
        if self.probed and verdict.unlearned and self.board.course.frozen > self.board.course.chance:
            score = self.probed.facts["best"]["score"]
            verdict = replace(
                verdict,
                why=f"{verdict.why} But a probe on frozen features is, at {score:.3f}: there is something to learn, so "
                "train longer (--num-train-epochs), or at higher rates (--learning-rate).",
            )
        self._write(verdict, over=True)
        return finish(self.prepared, self.progress)

    def _keep_probe(self, named: Tune | None) -> None:
        """Save the best probe where it is surely above guessing and scores more than the mean of what is named, if a k is; else
        none is to be there, of an earlier call or of one that was stopped."""
        course, mean = self.board.course, None if named is None else self.board.mean(named)
        folder, probed = self.prepared.store.out / PROBE, self.probed
        if probed and course.frozen > course.chance and (mean is None or probed.facts["best"]["score"] > mean):
            probed.save(folder)
        elif has_probe(self.prepared.store.out):
            shutil.rmtree(folder)

    def _race(self) -> Verdict:
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
        self.board.steps.append(tuple(self.runs))
        self._take(Step(self.board.steps[-1], "The whole grid, as was asked."))
        trained, course = "The whole grid was trained.", self.board.course
        if self.board.rate(course.reference) is None:
            return Verdict(None, f"{trained} {failed_throughout(course.reference)}", alone=True)
        if not any(map(self.board.learned, (course.reference, *course.ks))):
            return Verdict(None, f"{trained} {NOTHING_LEARNED}", unlearned=True)
        return Verdict(self.board.found(), trained)

    def _take(self, step: Step) -> None:
        """Train what a step wants and has no result yet."""
        self.progress.note(step.why)
        asked = {trial: self.runs[trial] for trial in step.trials}
        known = [trial for step in self.steps for trial in step["trials"]]
        self.asked |= {run.digest for run in asked.values()}
        self._write(None)  # that they are a search's own, whatever becomes of it
        register(replace(self.prepared, spec=self._asked([*known, *step.trials])))
        try:
            execute(self.prepared, list(asked.values()), self.progress, weights=best_weights(self.prepared.store.out))
        except KeyboardInterrupt:
            self._record(step, {trial: run for trial, run in asked.items() if self.prepared.store.has(run.digest)})
            raise
        self._record(step, asked)
        self._write(None)
        self.progress.note(self._so_far())

    def _record(self, step: Step, runs: Mapping[Trial, RunSpec]) -> None:
        """What these runs of a step have come to, and on what it was decided."""
        outcomes = {trial: self._outcome(run) for trial, run in runs.items()}
        self.steps.append({"why": step.why, "standing": self._standing(), "trials": outcomes})
        self.board.outcomes |= outcomes

    def _so_far(self) -> str:
        """Where the answer lies, what has been spent on it and how much is left."""
        board, reference = self.board, self.board.course.reference
        left = f", at most {duration(max(0.0, board.budget - board.spent))} left" if board.budget_stands else ""
        spent = f"Trained for {duration(board.spent)}{left}."
        *smaller, found = board.candidates()
        if found == reference and board.rate(reference) is None:
            return f"  What is enough is not known before {said(reference)} has run. {spent}"
        perhaps = f", perhaps less ({said(smaller[0])} to {said(smaller[-1])})" if len(smaller) > 1 else ""
        perhaps = perhaps or (f", perhaps {said(smaller[0])}" if smaller else "")
        return f"  Enough so far: {said(found)}{perhaps}. {spent}"

    def _outcome(self, run: RunSpec) -> Outcome:
        if not self.prepared.store.has(run.digest):  # it ended in an error
            return Outcome(None, 0.0)
        facts = self.prepared.store.result(run.digest)
        score = facts["validation_best"] if facts["outcome"] != "diverged" else None
        abreast = facts["provenance"]["workers"]
        return Outcome(score, facts["cost"]["run_seconds"] * abreast, run.digest, abreast, facts["outcome"])

    def _given_up(self, own: Set[str]) -> list[str]:
        """Runs that an earlier search began, with other settings, and that nobody is to finish: they have no result, and this
        one did not want them. What a sweep has asked for may go on."""
        store = self.prepared.store
        there = {run.digest for run in Folder(store.out).asked} & self.asked - own - store.failures().keys()
        return sorted(digest for digest in there if not store.has(digest))

    def _standing(self) -> list[dict[str, Any]]:
        """What decisions rest on: see :meth:`frostline.search.race.Board.standing`."""
        return [{"trainable": self.printed[one.pop("tune")], **one} for one in self.board.standing()]

    def _asked(self, trials: Sequence[Trial]) -> SweepSpec:
        """The sweep whose runs are just these."""
        seeds: dict[tuple[Tune, tuple[float, ...] | None], list[int]] = {}
        for trial in trials:  # the head alone has rates of its own, all of them
            seeds.setdefault((trial.tune, (trial.rate,) if trial.tune else None), []).append(trial.seed)
        first, *others = [
            MoreRuns(tune=(tune,), learning_rate=rates, seeds=tuple(dict.fromkeys(some)))
            for (tune, rates), some in seeds.items()
        ]
        return self.spec.model_copy(update={**first.values(), "grid": tuple(others)})

    def _write(self, verdict: Verdict | None, *, over: bool = False) -> None:
        tune = verdict.tune if verdict else None
        tune = None if tune is None or self.board.mean(tune) is None else tune
        course, trained = self.board.course, [trial for step in self.steps for trial in step["trials"]]
        raced, tried = (*course.ks, course.reference), {trial.tune for trial in trained}
        write_search(
            self.prepared.store.out,
            {
                "train_size": next(iter(self.runs.values())).train_size,
                "named": None if tune is None else self.printed[tune],
                "why": verdict.why if verdict else None,
                "by_probe": bool(verdict and verdict.by_probe),
                "over": over,
                "awaits": None if over or course.reference in tried else self.printed[course.reference],
                "looks": looks(len(course.seeds)),
                "budget_seconds": self.board.budget if self.board.budget_stands else None,
                "spent_seconds": self.board.spent,
                "operations": {self.printed[tune]: course.operations[tune] for tune in raced},
                "rates": course.rates,
                "head_rates": course.head_rates,
                "chosen_rates": {self.printed[k]: rate for k in raced if (rate := self.board.rate(k)) is not None},
                "standing": self._standing(),
                "skipped": [self.printed[k] for k in raced if k not in tried],
                "lacks": self.printed[course.reference] if verdict and verdict.alone else None,
                "asked": sorted(self.asked),
                "given_up": self._given_up({self.runs[trial].digest for trial in trained}) if over else [],
                "probes": self.probed.facts if self.probed else None,
                "guesses": judged(
                    self.guesses, [k for k in raced if isinstance(k, int)], tune if isinstance(tune, int) else None
                ),
                "steps": [self._step_record(step) for step in self.steps],
            },
        )

    def _step_record(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """A step as the record has it: why, the evidence before it, its runs."""
        runs = [
            {
                "trainable": self.printed[trial.tune],
                "learning_rate": trial.rate,
                "seed": trial.seed,
                "score": outcome.score,
                "seconds": outcome.seconds / outcome.abreast,
            }
            for trial, outcome in step["trials"].items()
        ]
        seconds = self.board.took(tuple(step["trials"]))
        return {"why": step["why"], "standing": step["standing"], "seconds": seconds, "runs": runs}
