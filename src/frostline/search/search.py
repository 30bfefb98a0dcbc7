"""Runs a search on a model and a data set: it trains the steps of the race. The result is the folder of a sweep.

The runs that a search may train, how many of them are trained at the same time, and the settings of its race.

Keeps the record of a search and writes ``search.json`` after every change, so that a killed search can continue.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frostline.data.wording import duration
from frostline.fast.switch import objects_frozen
from frostline.report.finish import finish
from frostline.report.formatting import probability, score
from frostline.report.names import tuning
from frostline.report.rebuild import settings_of
from frostline.search.probing import fit_alternatives
from frostline.search.race import race
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import (
    NOTHING_LEARNED,
    Outcome,
    RaceSettings,
    Step,
    Trial,
    Verdict,
    in_words,
    interim_analyses,
    reference_failed,
)
from frostline.statistics.alternatives import Alternative
from frostline.statistics.answer import Answer
from frostline.statistics.decision import Rule
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.tune import Tune, name_of
from frostline.sweep.execution.execute import execute, prepare_hidden_states
from frostline.sweep.execution.ray_tasks import Driver
from frostline.sweep.execution.stacks import stack_size
from frostline.sweep.execution.workers import OtherGpus, workers_for
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.sweep.register import register
from frostline.sweep.results.folder import Folder, write_alternatives
from frostline.sweep.results.search_record import SearchRecord, read_search, write_search
from frostline.sweep.results.store import Store
from frostline.sweep.results.tensor_files import BestWeights
from frostline.sweep.settings import MoreRuns, Settings
from frostline.sweep.work.workload import Workload
from frostline.training.probes.alternatives import Alternatives
from frostline.training.specification import RunSpec
from frostline.training.step_profile import profile_step

Runs = Mapping[Trial, RunSpec]
STACK, FREE = 4, 1.5  # runs of a stack in a search on a GPU, and the most times as long as one run that it may take


def runs_of(prepared: Prepared) -> Runs:
    """Every run that the search may train."""
    return {
        Trial(run.tune, run.learning_rate, run.seed): run
        for run in expand(prepared.requested, prepared.identity)
        if run.learning_rate is not None
    }


def run_together(prepared: Prepared, runs: Runs, processes: int | None, ray: Driver | None) -> int | None:
    """How many runs are trained at the same time, by all processes; None if this one is alone."""
    if ray is not None:
        return processes or max(1, ray.capacity(list(runs.values())))
    processes = processes or prepared.plan.device.processes
    return None if processes == 1 else processes * run_here(prepared, runs)


def run_here(prepared: Prepared, runs: Runs) -> int:
    """How many long runs this process trains at the same time."""
    return workers_for(prepared, [run for run in runs.values() if run.tune == prepared.requested.tune[-1]][:2])


def stacked_on_gpu(prepared: Prepared, runs: Runs) -> int:
    """How many runs of one k a GPU trains as one stack in about the time of one: ``STACK``, or 1.

    A few steps of the reference are timed, alone and stacked. Every other k takes less time and memory.
    """
    spec, context = prepared.requested, prepared.context
    own = [run for trial, run in runs.items() if trial.tune == spec.tune[-1]]
    some = [run for run in own if run.learning_rate == own[0].learning_rate][:STACK]
    on_gpu = context.machine.device.type == "cuda"
    if not on_gpu or prepared.identity.folds or spec.stack != "auto" or len(some) < STACK:
        return 1
    if stack_size(some, context, "auto", lambda sentence: None) < STACK:
        return 1
    alone, together = (profile_step(stack, context)[0] for stack in (some[:1], some))
    return STACK if together <= FREE * alone < math.inf else 1  # infinite if no loss was finite


def sweep_of(spec: Settings, trials: Sequence[Trial]) -> Settings:
    """The sweep that consists of these trials."""
    seeds: dict[tuple[Tune, tuple[float, ...] | None], list[int]] = {}
    for trial in trials:  # k = 0 is trained at all of its own learning rates
        seeds.setdefault((trial.tune, (trial.learning_rate,) if trial.tune else None), []).append(trial.seed)
    first, *others = [
        MoreRuns(tune=(tune,), learning_rate=rates, seeds=tuple(dict.fromkeys(some)))
        for (tune, rates), some in seeds.items()
    ]
    return spec.model_copy(update={**first.values(), "grid": tuple(others)})


def race_settings(prepared: Prepared, runs: Runs, chance: float, budget: float | None) -> RaceSettings:
    """The settings of the race, without what the alternatives contribute."""
    spec = prepared.requested
    *ks, reference = spec.tune
    workload = Workload(prepared.context, prepared.plan.cached)
    return RaceSettings(
        ks=tuple(k for k in ks if isinstance(k, int)),
        reference=reference,
        learning_rates=tuple(sorted(spec.learning_rate)),
        head_learning_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(0) if rate is not None),
        seeds=spec.seeds,
        chance=chance,
        rule=Rule.of(settings_of(spec), chance),
        operations={tune: workload.operations(run) for tune, run in {r.tune: r for r in runs.values()}.items()},
        budget=budget,
        folds=prepared.identity.folds,
        workers=run_here(prepared, runs),
    )


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


INTERRUPTED = (KeyboardInterrupt, SystemExit)  # what Ctrl-C and SIGTERM raise


@dataclass
class Search:
    """A search, from the models that train no layer to the answer. Create it with :meth:`start`.

    Attributes:
        prepared: Model, data and cache, for one training-set size.
        progress: Where progress is reported.
        alternatives: Models without tuned layers, which compete with every k.
        runs: Every run that the search may train. The folder may have others.
        board: The results so far.
        recorder: Writes search.json.
        together: How many runs are trained at the same time, by all processes; None if this one is alone.
        ray: Trains the runs as tasks of Ray; None trains them here.
        others: The processes on other GPUs. Its context must be open until the search has ended.
    """

    prepared: Prepared
    progress: Progress
    alternatives: Alternatives
    runs: Runs
    board: Scoreboard
    recorder: Recorder
    together: int | None = None
    ray: Driver | None = None
    others: OtherGpus = field(init=False)

    def __post_init__(self) -> None:
        self.others = OtherGpus(self.prepared, self.progress, "--wait")

    @classmethod
    def start(
        cls,
        prepared: Prepared,
        progress: Progress,
        budget: float | None,
        *,
        processes: int | None = None,
        ray: Driver | None = None,
    ) -> Self:
        """Cache the hidden states, fit models that train no layer, and set up the race.

        Args:
            prepared: The grid of all runs that the search may train, with one training-set size.
            progress: Where progress is reported.
            budget: Wall-clock seconds for all runs; None: the default budget.
            processes: How many processes or tasks of Ray train the runs; None: this one, or all that fit into the cluster.
            ray: Trains the runs as tasks of Ray; None trains them here.
        """
        prepared.set_damage_aside(progress)
        runs = runs_of(prepared)
        fitted = _alternatives(prepared, runs, progress)
        together = run_together(prepared, runs, processes, ray)
        return cls._of(prepared, progress, runs, budget, *fitted, together=together, ray=ray)

    @classmethod
    def plan(cls, prepared: Prepared, progress: Progress, budget: float | None, *, exhaustive: bool) -> None:
        """Write the first step into the folder, which no result decides, so that other processes can begin with it."""
        search = cls.without_probes(prepared, progress, budget)
        search._request(search.whole_grid() if exhaustive else next(race(search.board)))

    @classmethod
    def without_probes(
        cls, prepared: Prepared, progress: Progress, budget: float | None, processes: int | None = None
    ) -> Self:
        """Set up the race before models that train no layer are fitted. Nothing is written.

        The estimates of k are those of an earlier search in the folder. Without one, learning rates are compared at the dearest
        k that probes may suggest.
        """
        runs, nothing = runs_of(prepared), Alternatives(None, None, {}, {}, {})
        together, earlier = run_together(prepared, runs, processes, None), read_search(prepared.store.out)
        estimates = (
            {one["by"]: one["k"] for one in earlier.estimates} if earlier else {"probes": prepared.identity.layers}
        )
        return cls._of(prepared, progress, runs, budget, nothing, estimates, together=together)

    @classmethod
    def _of(
        cls,
        prepared: Prepared,
        progress: Progress,
        runs: Runs,
        budget: float | None,
        alternatives: Alternatives,
        estimates: Mapping[str, int | None],
        *,
        together: int | None = None,
        ray: Driver | None = None,
    ) -> Self:
        """Set up the race."""
        earlier = read_search(prepared.store.out)
        identity, validation = prepared.identity, prepared.data.validation
        rows = Labelled(validation.targets, identity.task_type, identity.labels, identity.metric)
        settings = race_settings(prepared, runs, rows.chance, budget)
        if together:
            settings = replace(settings, workers=together)
        elif ray is None:
            settings = replace(settings, stacked=stacked_on_gpu(prepared, runs))
        if estimate := estimates.get("probes"):
            settings = replace(settings, start_k=min(estimate, -(-identity.layers // 2)))
        logits = _validation_logits(prepared, runs, alternatives.values)
        evidence = RunPredictions(rows, logits, interim_analyses(len(settings.seeds)))
        defined = {name: one for name, one in alternatives.values.items() if np.isfinite(evidence[name]).all()}
        alternatives, names = replace(alternatives, values=defined), tuple(defined)
        low = max((evidence.alone(name)["low"] for name in names), default=settings.alternative_score)
        board = Scoreboard(replace(settings, alternatives=names, alternative_score=low), evidence)
        requested = set(earlier.requested) if earlier else set()
        recorder = Recorder(prepared.store, runs, board, alternatives.facts, estimates, requested)
        return cls(prepared, progress, alternatives, runs, board, recorder, together, ray)

    def run(self, *, exhaustive: bool) -> Answer:
        """Run the race until it ends or is interrupted.

        Args:
            exhaustive: Train the whole grid instead of racing.

        Returns:
            The answer, as in answer.json.
        """
        if sentence := self.alternatives.sentence:
            self.progress.note(f"Linear probes{', on the first fold' if self.board.settings.folds else ''}: {sentence}")
        out = self.prepared.store.out
        write_alternatives(out, self.alternatives.values, self.alternatives.test)
        self.recorder.write()  # from now on the test scores are hidden until the search is over
        try:
            with objects_frozen():
                verdict = self._grid() if exhaustive else self._race()
        except INTERRUPTED:
            if self.prepared.store.read_spec() is None:  # no run was requested yet
                raise
            self.recorder.write(Verdict("The search was interrupted. The same command continues it."))
            answer = finish(self.prepared, self.progress, alternatives=self.alternatives, interrupted=True)
            saved = f" Model: {out / 'model'}" if (out / "model").is_dir() else ""
            self.progress.note(f"So far: {answer['sentence']} Report: {out / 'report.html'}{saved}")
            raise
        self.recorder.write(verdict, over=True)
        return finish(self.prepared, self.progress, alternatives=self.alternatives)

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

    def _grid(self) -> Verdict:
        """Train every run of the grid in one step."""
        step = self.whole_grid()
        self.board.steps.append(step.trials)
        self._train_step(step)
        trained, settings = "The whole grid was trained.", self.board.settings
        if self.board.best_learning_rate(settings.reference) is None:
            return Verdict(f"{trained} {reference_failed(settings.reference)}", no_reference=True)
        if not any(map(self.board.above_baseline, settings.choices)):
            return Verdict(f"{trained} {NOTHING_LEARNED}", nothing_learned=True)
        return Verdict(trained)

    def whole_grid(self) -> Step:
        return Step(tuple(self.runs), "Train the whole grid (--exhaustive).")

    def _train_step(self, step: Step) -> None:
        """Train the trials of a step that have no result yet, and record their outcomes."""
        self.progress.note(step.why)
        runs = self._request(step)
        store = self.prepared.store
        store.retry({run.digest for run in runs.values()}, ("failed",))
        try:
            self._train(list(runs.values()))
        except INTERRUPTED:
            finished = {trial: self.outcome(run) for trial, run in runs.items() if store.has(run.digest)}
            self.recorder.add(step.why, finished)
            raise
        self.recorder.add(step.why, {trial: self.outcome(run) for trial, run in runs.items()})
        self.recorder.write()
        self.progress.note(self._so_far())

    def _request(self, step: Step) -> Runs:
        """Write the runs of a step into the folder, where other processes find them."""
        runs = {trial: self.runs[trial] for trial in step.trials}
        self.recorder.requested |= {run.digest for run in runs.values()}
        self.recorder.write()  # if the search is killed now, the next one knows that these runs were its own
        spec = sweep_of(self.prepared.requested, [*self.recorder.trials, *step.trials])
        register(replace(self.prepared, spec=spec))
        return runs

    def _train(self, runs: Sequence[RunSpec]) -> None:
        weights = BestWeights.in_folder(self.prepared.store.out)
        if self.ray is None:
            self.others.start(len(self.prepared.missing(runs)))
            execute(self.prepared, runs, self.progress, weights=weights, shared=self.together is not None)
        else:
            self.ray.train(runs, weights)

    def outcome(self, run: RunSpec) -> Outcome:
        """The outcome of a run; a diverged run has no score."""
        if not self.prepared.store.has(run.digest):  # it ended in an error
            return Outcome(None, 0.0)
        facts = self.prepared.store.result(run.digest)
        score = facts["validation_best"] if facts["outcome"] != "diverged" else None
        own = facts["provenance"]["workers"]
        seconds, workers = facts["cost"]["run_seconds"] * own, max(own, self.together or 1)
        return Outcome(score, seconds, run.digest, workers, facts["outcome"])

    def _so_far(self) -> str:
        """A line of progress: the best choice so far and how sure that is, the time spent and the budget left."""
        board = self.board
        budget = f", and the budget is {duration(board.budget)}" if board.budget_is_final else ""
        spent = f"Trained for {duration(board.spent)}{budget}."
        outlook = board.outlook()
        if outlook is None:
            return f"  {in_words(board.settings.reference, capital=True)} has not run yet. {spent}"
        best, full = outlook.best, board.settings.reference
        if best is outlook.full:
            return f"  Best so far: {tuning(best.name)} ({score(best.score)}). {spent}"
        tune = next((k for k in board.settings.choices if name_of(k) == best.name), None)
        runs = [Alternative(best.name)] if tune is None else board.runs(tune)
        same = board.evidence.on_same_rows(runs, board.runs(full))
        scores = f"{score(same.ours)}; {in_words(full)} {score(same.theirs)}" if same else score(best.score)
        sure = f"{probability(outlook.probability(best))} sure to reach the target"
        return f"  Best so far: {tuning(best.name)} ({scores}), {sure}. {spent}"


def _alternatives(prepared: Prepared, runs: Runs, progress: Progress) -> tuple[Alternatives, Mapping[str, int | None]]:
    """Cache the hidden states for the first seeds, and fit models without tuned layers on their examples."""
    seeds, folds = prepared.requested.seeds, prepared.identity.folds
    early = [run for seed in seeds[: max(2, folds)] for trial, run in runs.items() if trial.seed == seed]
    prepare_hidden_states(prepared, early, progress)
    return fit_alternatives(prepared, list({run.fold: run for run in reversed(early)}.values())[::-1], progress)


def _validation_logits(
    prepared: Prepared, runs: Runs, alternatives: Mapping[str, NDArray[np.float32]]
) -> Callable[[str], NDArray[np.float32]]:
    """A function from the digest of a run, or the name of an alternative, to its logits on all validation rows, ``[rows, C]``.

    With cross-validation, rows outside of the run's own fold are NaN.
    """
    folds, by_digest = prepared.context.folds, {run.digest: run for run in runs.values()}

    def logits(name: str) -> NDArray[np.float32]:
        if name in alternatives:
            return alternatives[name]
        return prepared.store.predictions_on_all_rows(by_digest[name], folds)

    return logits
