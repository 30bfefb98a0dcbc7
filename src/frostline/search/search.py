"""Runs a search on a model and a data set: it trains the steps of the race. The result is the folder of a sweep."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frostline.data.wording import duration
from frostline.fast.garbage_collection import objects_frozen
from frostline.report.finish import finish
from frostline.report.rebuild import choices_of
from frostline.search.probing import probe_frozen_layers
from frostline.search.race import race, untried_sentence
from frostline.search.recorder import Recorder
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
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.tune import Tune
from frostline.sweep.execution.best_weights import BestWeights
from frostline.sweep.execution.execute import execute, prepare_hidden_states
from frostline.sweep.execution.workers import workers_for
from frostline.sweep.grids import MoreRuns
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.sweep.register import register
from frostline.sweep.results.search_record import PROBE, has_probe, read_search
from frostline.sweep.specification import SweepSpec
from frostline.sweep.work.workload import Workload
from frostline.training.probes.fitting import Probed
from frostline.training.specification import RunSpec

Runs = Mapping[Trial, RunSpec]


SHORT = 60.0  # seconds that the values of k between may take, whatever the default budget


@dataclass
class Search:
    """A search, from the fitted probes to the answer. Create it with :meth:`start`.

    Attributes:
        prepared: Model, data and cache, for one training-set size.
        progress: Where progress is reported.
        probed: The probes on frozen layers; None if their hidden states could not be cached.
        runs: Every run that the search may train. The folder may have others.
        board: The results so far.
        recorder: Writes search.json.
    """

    prepared: Prepared
    progress: Progress
    probed: Probed | None
    runs: Runs
    board: Scoreboard
    recorder: Recorder

    @classmethod
    def start(cls, prepared: Prepared, progress: Progress, budget: float | None) -> Self:
        """Cache the hidden states, fit probes on them, and set up the race.

        Args:
            prepared: The grid of all runs that the search may train, with one training-set size.
            progress: Where progress is reported.
            budget: Wall-clock seconds for all runs; None: the default budget.
        """
        earlier = read_search(prepared.store.out)
        runs = {
            Trial(run.tune, run.learning_rate, run.seed): run for run in expand(prepared.requested, prepared.identity)
        }
        probed, estimates = _probe(prepared, runs, progress) or (None, {})
        identity, validation = prepared.identity, prepared.data.validation
        rows = Labelled(validation.targets, identity.problem_type, identity.labels, identity.metric)
        settings = _race_settings(prepared, runs, rows.chance, budget)
        if probed:
            low = probed.facts["best"]["low"]
            settings = replace(settings, probe_score=-math.inf if low is None else low)
        if estimate := estimates.get("probes"):
            settings = replace(settings, start_k=min(estimate, -(-identity.layers // 2)))
        evidence = RunPredictions(rows, _validation_logits(prepared, runs), interim_analyses(len(settings.seeds)))
        board = Scoreboard(settings, evidence)
        requested = set(earlier.requested) if earlier else set()
        recorder = Recorder(prepared.store, runs, board, probed.facts if probed else None, estimates, requested)
        return cls(prepared, progress, probed, runs, board, recorder)

    def run(self, *, exhaustive: bool) -> dict[str, Any]:
        """Run the race until it ends or is interrupted.

        Args:
            exhaustive: Train the whole grid instead of racing.

        Returns:
            The answer, as in answer.json.
        """
        if self.probed:
            self.progress.note(f"Linear probes, no layer trained: {self.probed.sentence}")
        self.recorder.write()  # from now on the test scores are hidden until the search is over
        try:
            with objects_frozen():
                verdict = self._grid() if exhaustive else self._race()
                if verdict.tune is not None:
                    verdict = self._try_between(verdict)
        except KeyboardInterrupt:
            smallest = self.board.smallest_reaching_goal()
            self.recorder.write(Verdict(smallest, "The search was interrupted. The same command continues it."))
            self._save_probe(smallest)
            answer = finish(self.prepared, self.progress, save_model=False)
            self.progress.note(f"So far: {answer['sentence']} Report: {self.prepared.store.out / 'report.html'}")
            raise
        self._save_probe(None if verdict.by_probe else verdict.tune)
        if self.probed and verdict.nothing_learned and self.board.settings.probe_score > self.board.settings.chance:
            score = self.probed.facts["best"]["score"]
            advice = "Train for more epochs (--num-train-epochs) or at higher learning rates (--learning-rate)."
            verdict = replace(
                verdict, why=f"{verdict.why} But a linear probe scores {score:.3f}, above the baseline. {advice}"
            )
        self.recorder.write(verdict, over=True)
        return finish(self.prepared, self.progress)

    def _race(self) -> Verdict:
        """Train the steps of the race until its verdict."""
        steps = race(self.board)
        try:
            step = next(steps)
            while True:
                self._train_step(step)
                step = next(steps)
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict

    def _try_between(self, verdict: Verdict) -> Verdict:
        """Train one seed of every k that was not tried, or of the smallest ones; returns the verdict with them.

        The race climbs only as far as the target asks for, but a larger k may be worth more. A given budget is kept. The default
        budget may be exceeded if that takes less than ``SHORT`` seconds.
        """
        board, settings = self.board, self.board.settings
        of_small, of_full = map(board.best_learning_rate, (settings.learning_rate_k, settings.reference))
        if of_small is None or of_full is None:
            return verdict
        tried = {trial.tune for trial in board.outcomes}
        half = (settings.ks[-1] + 1) / 2
        untried = [k for k in settings.ks if k not in tried]
        trials = [Trial(k, of_full if k > half else of_small, board.pairing_seed) for k in untried]
        limit = board.budget - board.spent
        limit = limit if settings.budget is not None else max(SHORT, limit)
        while trials and board.predicted_seconds(trials) > limit:
            trials.pop()
        if not trials:
            return verdict
        why = verdict.why.removesuffix(untried_sentence(board))
        board.steps.append(tuple(trials))
        self._train_step(Step(tuple(trials), "Try the values of k that are left: a larger k may be worth its cost."))
        return replace(verdict, tune=board.smallest_reaching_goal(), why=f"{why}{untried_sentence(board)}")

    def _grid(self) -> Verdict:
        """Train every run of the grid in one step."""
        self.board.steps.append(tuple(self.runs))
        self._train_step(Step(self.board.steps[-1], "Train the whole grid (--exhaustive)."))
        trained, settings = "The whole grid was trained.", self.board.settings
        if self.board.best_learning_rate(settings.reference) is None:
            return Verdict(None, f"{trained} {reference_failed(settings.reference)}", no_reference=True)
        if not any(map(self.board.above_baseline, (settings.reference, *settings.ks))):
            return Verdict(None, f"{trained} {NOTHING_LEARNED}", nothing_learned=True)
        return Verdict(self.board.smallest_reaching_goal(), trained)

    def _train_step(self, step: Step) -> None:
        """Train the trials of a step that have no result yet, and record their outcomes."""
        self.progress.note(step.why)
        runs = {trial: self.runs[trial] for trial in step.trials}
        self.recorder.requested |= {run.digest for run in runs.values()}
        self.recorder.write()  # if the search is killed now, the next one knows that these runs were its own
        spec = _sweep_of(self.prepared.requested, [*self.recorder.trials, *step.trials])
        register(replace(self.prepared, spec=spec))
        store = self.prepared.store
        try:
            execute(self.prepared, list(runs.values()), self.progress, weights=BestWeights.in_folder(store.out))
        except KeyboardInterrupt:
            finished = {trial: self._outcome(run) for trial, run in runs.items() if store.has(run.digest)}
            self.recorder.add(step.why, finished)
            raise
        self.recorder.add(step.why, {trial: self._outcome(run) for trial, run in runs.items()})
        self.recorder.write()
        self.progress.note(self._so_far())

    def _outcome(self, run: RunSpec) -> Outcome:
        """The outcome of a run; a diverged run has no score."""
        if not self.prepared.store.has(run.digest):  # it ended in an error
            return Outcome(None, 0.0)
        facts = self.prepared.store.result(run.digest)
        score = facts["validation_best"] if facts["outcome"] != "diverged" else None
        workers = facts["provenance"]["workers"]
        return Outcome(score, facts["cost"]["run_seconds"] * workers, run.digest, workers, facts["outcome"])

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


def _probe(prepared: Prepared, runs: Runs, progress: Progress) -> tuple[Probed, dict[str, int | None]] | None:
    """Cache the hidden states for two seeds, and fit probes on the examples of the first seed."""
    seeds = prepared.requested.seeds
    prepare_hidden_states(prepared, [run for trial, run in runs.items() if trial.seed in seeds[:2]], progress)
    first = next(run for trial, run in runs.items() if trial.seed == seeds[0])
    return probe_frozen_layers(prepared, first, progress)


def _race_settings(prepared: Prepared, runs: Runs, chance: float, budget: float | None) -> RaceSettings:
    """The settings of the race, without what the probes contribute."""
    spec = prepared.requested
    *ks, reference = spec.tune
    workload = Workload(prepared.context, prepared.plan.cached)
    return RaceSettings(
        ks=tuple(k for k in ks if isinstance(k, int)),
        reference=reference,
        learning_rates=tuple(sorted(spec.learning_rate)),
        head_learning_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(0)),
        seeds=spec.seeds,
        chance=chance,
        highest_score=1.0,
        goal=choices_of(spec).goal(chance),
        operations={tune: workload.operations(run) for tune, run in {r.tune: r for r in runs.values()}.items()},
        budget=budget,
        folds=prepared.identity.folds,
        workers=workers_for(prepared, [run for run in runs.values() if run.tune == reference][:2]),
    )


def _validation_logits(prepared: Prepared, runs: Runs) -> Callable[[str], NDArray[np.float32]]:
    """A function from the digest of a run to its logits on all validation rows, ``[rows, C]``.

    With cross-validation, rows outside of the run's own fold are NaN.
    """
    folds, by_digest = prepared.context.folds, {run.digest: run for run in runs.values()}
    return lambda digest: prepared.store.predictions_on_all_rows(by_digest[digest], folds)


def _sweep_of(spec: SweepSpec, trials: Sequence[Trial]) -> SweepSpec:
    """The sweep that consists of these trials."""
    seeds: dict[tuple[Tune, tuple[float, ...] | None], list[int]] = {}
    for trial in trials:  # k = 0 is trained at all of its own learning rates
        seeds.setdefault((trial.tune, (trial.learning_rate,) if trial.tune else None), []).append(trial.seed)
    first, *others = [
        MoreRuns(tune=(tune,), learning_rate=rates, seeds=tuple(dict.fromkeys(some)))
        for (tune, rates), some in seeds.items()
    ]
    return spec.model_copy(update={**first.values(), "grid": tuple(others)})
