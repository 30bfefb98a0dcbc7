"""Runs a search on a model and a data set: it trains what the policy asks for. The result is the folder of a sweep.

``search.json`` is written after every change, so that a killed search can continue.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frostline.data.wording import duration
from frostline.fast.switch import objects_frozen
from frostline.report.formatting import probability, score
from frostline.report.names import tuning
from frostline.report.rebuild import finish, settings_of
from frostline.search.observations import Candidate, Observation, Observations, SearchSpace, in_words, interim_analyses
from frostline.search.policy import NOTHING_LEARNED, Batch, Stop, policy, reference_failed
from frostline.search.probing import Alternatives, fit_alternatives, mean_is_better
from frostline.statistics.answer import Answer
from frostline.statistics.decision import Lengths, Rule
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweeps.execution.execute import Driver, execute, prepare_hidden_states
from frostline.sweeps.execution.stacks import stack_size
from frostline.sweeps.execution.workers import OtherGpus, workers_for
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder, register, write_alternatives
from frostline.sweeps.results.search_record import SearchRecord, Step, Tried, read_search, write_search
from frostline.sweeps.results.store import DAMAGED, SEARCH, DamagedError, set_aside
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.sweeps.settings import MoreRuns, Settings
from frostline.training.audit import share_of_lstm
from frostline.training.run import Run, tuned_share
from frostline.training.train import profile_step

Runs = Mapping[Candidate, Run]
STACK, FREE = 4, 1.5  # runs of a stack in a search on a GPU, and the most times as long as one run that it may take
INTERRUPTED = (KeyboardInterrupt, SystemExit)  # what Ctrl-C and SIGTERM raise


def runs_of(plan: Plan, without: Collection[Recipe] = ()) -> Runs:
    """Every run that the search may train, ``without`` some recipes."""
    lengths = {run.num_train_epochs for run in plan.runs}  # as those of the folder are named
    heads = [rate for rate, _ in plan.spec.learning_rate_pairs(HEAD_ONLY) if rate is not None]
    found = {}
    for run in plan.requested:
        if run.recipe in without:
            continue
        assert run.learning_rate is not None
        rates = {
            run.way.learning_rate(rate): rate for rate in (heads if run.way.head_only else plan.spec.learning_rate)
        }
        found[Candidate(run.named_among(lengths), rates[run.learning_rate], run.seed)] = run
    return found


def unnamed_ways(plan: Plan, named: Collection[Recipe]) -> list[Recipe]:
    """The ways of a plan that the user has not named: heads that read the mean of all tokens.

    They are tried only if probes score better on this mean.
    """
    return [one for one in plan.spec.tune if one.is_way and one not in named]


def run_together(plan: Plan, runs: Runs, processes: int | None, driver: Driver | None) -> int | None:
    """How many runs are trained at the same time, by all processes; None if this one is alone."""
    if driver is not None:
        return processes or max(1, driver.capacity(list(runs.values())))
    processes = processes or plan.processes
    return None if processes == 1 else processes * run_here(plan, runs)


def run_here(plan: Plan, runs: Runs) -> int:
    """How many long runs this process trains at the same time."""
    return workers_for(plan, [run for run in runs.values() if run.recipe == plan.spec.tune[-1]][:2])


def stacked_on_gpu(plan: Plan, runs: Runs) -> int:
    """How many runs of one k a GPU trains as one stack in about the time of one: ``STACK``, or 1.

    A few steps of the reference are timed, alone and stacked. Every other k takes less time and memory.
    """
    spec, experiment = plan.spec, plan.experiment
    own = [
        run
        for run in runs.values()
        if (run.recipe, run.num_train_epochs) == (spec.tune[-1], min(spec.num_train_epochs))
    ]
    some = [run for run in own if run.learning_rate == own[0].learning_rate][:STACK]
    on_gpu = experiment.machine.device.type == "cuda"
    if not on_gpu or plan.identity.folds or spec.stack != "auto" or len(some) < STACK:
        return 1
    if stack_size(some, experiment, "auto", lambda sentence: None) < STACK:
        return 1
    alone, together = (profile_step(stack, experiment)[0] for stack in (some[:1], some))
    return STACK if together <= FREE * alone < math.inf else 1  # infinite if no loss was finite


def sweep_of(spec: Settings, candidates: Sequence[Candidate]) -> Settings:
    """The sweep that consists of these candidates."""
    seeds: dict[tuple[Recipe, tuple[float, ...] | None], list[int]] = {}
    for one in candidates:  # what trains a head only is trained at all learning rates of the head
        rates = None if spec.way_of(one.recipe).head_only else (one.learning_rate,)
        seeds.setdefault((one.recipe, rates), []).append(one.seed)
    first, *others = [
        MoreRuns(
            tune=(recipe.trained,),
            num_train_epochs=(recipe.epochs or min(spec.num_train_epochs),),
            learning_rate=rates,
            seeds=tuple(dict.fromkeys(some)),
        )
        for (recipe, rates), some in seeds.items()
    ]
    return spec.model_copy(update={**first.values(), "grid": tuple(others)})


class Search:
    """A search, from the models that train no layer to the answer. Nothing is written before it begins.

    Attributes:
        runs: Every run that the search may train. The folder may have others.
        seen: The results so far.
        requested: Digests of the runs that this search, or an earlier one in this folder, requested.
        together: How many runs are trained at the same time, by all processes; None if this one is alone.
        steps: What was trained, for the record.
        best: The best choice so far; None before the reference has run.
        others: The processes on other GPUs. Its context must be open until the search has ended.
    """

    def __init__(
        self,
        plan: Plan,
        progress: Progress,
        budget: float | None,
        alternatives: Alternatives,
        *,
        without: Collection[Recipe] = (),
        processes: int | None = None,
        driver: Driver | None = None,
        longer: Plan | None = None,
    ) -> None:
        """Set up the observations. :meth:`start` fits the alternatives.

        Args:
            plan: The grid of all runs that the search may train, with one training-set size.
            progress: Where progress is reported.
            budget: Wall-clock seconds for all runs; None: the default budget.
            alternatives: Models without tuned layers, which compete with every k.
            without: Recipes of the plan that it does not train.
            processes: How many processes or tasks train the runs; None: this one, or all that fit into the cluster.
            driver: Trains the runs elsewhere; None trains them here.
            longer: The same plan with longer trainings, which are tried if those of ``plan`` turn out to be too short.
        """
        self.plan, self.progress, self.processes, self.driver, self.longer = plan, progress, processes, driver, longer
        self.runs = runs = runs_of(plan, without)
        self.together = together = run_together(plan, runs, processes, driver)
        earlier, spec = read_search(plan.store.out), plan.spec
        self.requested = set(earlier.requested) if earlier else set[str]()
        self.steps = list[Step]()
        self.best: str | None = None
        self.others = OtherGpus(plan, progress, "--wait")
        identity, validation = plan.identity, plan.data.validation
        rows = Labelled.of(validation, identity.task_type, identity.labels, identity.metric)
        fitted, by_digest = alternatives.values, {run.digest: run for run in runs.values()}

        def logits(name: str) -> NDArray[np.float32]:
            """Of a run, by its digest, or of an alternative, on all validation rows; NaN on rows of other folds."""
            if name in fitted:
                return fitted[name]
            return plan.store.predictions_on_all_rows(by_digest[name], plan.experiment.folds)

        evidence = RunPredictions(rows, logits, interim_analyses(len(spec.seeds)))
        defined = {name: one for name, one in alternatives.values.items() if np.isfinite(evidence[name]).all()}
        lows = [evidence.alone(name).low for name in defined]
        costs, shortest, space = plan.cost_model, min(spec.num_train_epochs), {}
        one_each, anatomy = {one.recipe: run for one, run in runs.items()}, plan.experiment.pretrained.anatomy

        def share(run: Run) -> float:
            """The share of the layers that run in training, as an audit finds it."""
            own = share_of_lstm(plan.experiment.for_run(run).pretrained) if run.way.lstm_width else 0.0
            return tuned_share(run, anatomy) + own

        most = max(share(run) for one, run in one_each.items() if one.is_k)  # of the reference
        if estimate := alternatives.estimated_k:
            space = {"start_k": min(estimate, -(-identity.layers // 2))}
        self.alternatives = replace(alternatives, values=defined)
        self.seen = Observations(
            SearchSpace(
                recipes=tuple(sorted(one_each, key=lambda one: (one.epochs or shortest, one.order))),
                layers=round(most * identity.layers),
                lengths=Lengths(shortest, max(spec.num_train_epochs), next(iter(runs.values())).train_size),
                learning_rates=tuple(sorted(spec.learning_rate)),
                head_learning_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(HEAD_ONLY) if rate is not None),
                seeds=spec.seeds,
                operations={one: costs.operations(run) for one, run in one_each.items()},
                shares={one: min(1.0, share(run) / most) for one, run in one_each.items() if one.is_way},
                head_ways={one.trained for one, run in one_each.items() if one.is_way and run.way.head_only},
                **space,
            ),
            Rule.of(settings_of(spec), rows.chance),
            evidence,
            budget_given=budget,
            own_rows=bool(identity.folds),
            alternatives=tuple(map(Recipe, defined)),
            alternative_score=max((low for low in lows if low is not None), default=-math.inf),
            workers=together or run_here(plan, runs),
            stacked=1 if together or driver is not None else stacked_on_gpu(plan, runs),
        )

    @classmethod
    def start(
        cls,
        plan: Plan,
        progress: Progress,
        budget: float | None,
        *,
        untrained: bool = True,
        named: Collection[Recipe] = (),
        processes: int | None = None,
        driver: Driver | None = None,
        longer: Plan | None = None,
    ) -> Self:
        """Cache the hidden states, fit models that train no layer, and set up the observations.

        Args:
            plan, progress, budget, processes, driver, longer: Those of the class.
            untrained: Whether a model that trains no layer may be recommended.
            named: The recipes that the user named (:func:`unnamed_ways`).
        """
        for damage in plan.store.check():
            progress.note(damage)
        try:
            read_search(plan.store.out)
        except DamagedError as error:  # this search writes it
            aside = set_aside(plan.store.out / SEARCH, plan.store.out / DAMAGED)
            progress.note(f"{error} It is now in {aside}.")
        runs = runs_of(plan)
        # hidden states for the first seeds, on whose examples the models without tuned layers are fitted
        seeds = plan.spec.seeds[: max(2, plan.identity.folds)]
        early = [run for seed in seeds for run in runs.values() if run.seed == seed]
        prepare_hidden_states(plan, early, progress)
        of_folds = list({run.fold: run for run in reversed(early)}.values())[::-1]
        fitted = fit_alternatives(plan, of_folds, progress)
        if not untrained:
            fitted = replace(fitted, models={}, values={})
        better = fitted.probes is not None and mean_is_better(fitted.probes, plan.experiment.head_reads)
        unnamed = unnamed_ways(plan, named)
        if unnamed and better:
            progress.note(
                "Probes score better on the mean of all tokens than on what the head of this model reads. The search therefore "
                f"also tries {', '.join(unnamed)}."
            )
        without = () if better else unnamed
        more: dict[str, Any] = {"processes": processes, "driver": driver, "longer": longer}
        return cls(plan, progress, budget, fitted, without=without, **more)

    def request_first_step(self, *, exhaustive: bool) -> None:
        """Write the first step into the folder, which no result decides, so that other processes can begin with it."""
        self._request(self.whole_grid() if exhaustive else next(policy(self.seen)))

    def run(self, *, exhaustive: bool) -> Answer:
        """Search until the policy stops or is interrupted.

        Args:
            exhaustive: Train the whole grid instead.

        Returns:
            The answer, as in answer.json.
        """
        self.begin()
        return self._run(exhaustive=exhaustive)

    def _run(self, *, exhaustive: bool) -> Answer:
        try:
            with objects_frozen():
                stop = self.train_grid() if exhaustive else self._follow_policy()
        except INTERRUPTED:
            if (answer := self.interrupted()) is not None:
                out = self.plan.store.out
                saved = f" Model: {out / 'model'}" if (out / "model").is_dir() else ""
                self.progress.note(f"So far: {answer.sentence} Report: {out / 'report.html'}{saved}")
            raise
        if not exhaustive and (why := self.too_short(stop)):
            self.progress.note(why)
            return self.for_longer()._run(exhaustive=False)
        return self.end(stop)

    def too_short(self, stop: Stop) -> str:
        """Why the search goes on with longer trainings, after it has stopped; empty if it does not, or has no time."""
        seen, reference = self.seen, self.seen.space.reference
        if self.longer is None or (seen.budget_given is not None and stop.enough is not None):
            return ""
        if not seen.may_win(reference) or not (stop.nothing_learned or seen.is_unfitted(reference)):
            return ""
        unfitted = f"{in_words(reference, capital=True)} has not fitted its examples yet."
        why = stop.why if stop.nothing_learned else unfitted
        return f"{why} The search goes on with {max(self.longer.spec.num_train_epochs):g} epochs, too."

    def for_longer(self) -> "Search":
        """The search with longer trainings, too. It observes what this one has trained when its policy asks for that."""
        assert self.longer is not None
        plan = self.longer
        without = {run.recipe for run in plan.requested} - {run.recipe for run in self.runs.values()}
        own: dict[str, Any] = {"processes": self.processes, "driver": self.driver}
        search = Search(plan, self.progress, self.seen.budget_given, self.alternatives, without=without, **own)
        search.others = self.others
        search.observe_others()
        return search

    def observe_others(self) -> None:
        """Observe what a sweep has trained in this folder: it is known, and takes nothing of the budget."""
        self.progress.done_before(sum(self.plan.store.has(run.digest) for run in self.runs.values()))
        self.learn_of_others(but=self.requested)

    def begin(self) -> None:
        """Say what is known, and write it into the folder. From now on the test scores are hidden until the search is over."""
        self.observe_others()
        if probes := self.alternatives.probes:
            self.progress.note(f"Linear probes{', on the first fold' if self.seen.own_rows else ''}: {probes.sentence}")
        rows, models = self.plan.experiment.splits.get("test"), self.alternatives.models
        test = {} if rows is None else {name: model.logits(rows, "test") for name, model in models.items()}
        write_alternatives(self.plan.store.out, self.alternatives.values, test)
        self._write()

    def learn_of_others(self, but: Collection[str] = ()) -> bool:
        """Observe finished runs that no batch of this search has, which take nothing of its budget; whether there are any.

        An earlier search with other settings has requested them, or a sweep. The answer is about them, too.
        """
        known, has = self.seen.known, self.plan.store.has
        others = {
            one: run for one, run in self.runs.items() if one not in known and run.digest not in but and has(run.digest)
        }
        known |= {one: self.observation(run) for one, run in others.items()}
        return bool(others)

    def interrupted(self) -> Answer | None:
        """Write the answer so far; None if no run was requested yet."""
        if not self.has_runs:
            return None
        self._write(Stop("The search was interrupted. The same command continues it."))
        return finish(self.plan, self.progress, alternatives=self.alternatives.models, interrupted=True)

    def end(self, stop: Stop, *, save_model: bool = True) -> Answer:
        """Write why the search ended, and its answer."""
        self._write(stop, over=True)
        return finish(self.plan, self.progress, save_model=save_model, alternatives=self.alternatives.models)

    @property
    def has_runs(self) -> bool:
        """Whether a run was requested in the folder, by this search or before."""
        return self.plan.store.read_spec() is not None

    def _follow_policy(self) -> Stop:
        """Train what the policy asks for until it stops."""
        batches = policy(self.seen)
        while True:
            try:
                batch = next(batches)
            except StopIteration as end:
                stop: Stop = end.value
                if self.too_short(stop) or not self.learn_of_others():
                    return stop
                batches = policy(self.seen)
                continue
            new = self.is_new(batch)
            if self.steps and new:  # after the last one, the answer says what is best
                self.report_progress()
            self.progress.limit(self.seen.seconds_left if self.seen.budget_is_final else None)
            self.train(batch, show=new)

    def is_new(self, batch: Batch) -> bool:
        """Whether any of its runs is still to be trained."""
        return bool(self.plan.missing([self.runs[one] for one in batch.candidates]))

    def train_grid(self) -> Stop:
        """Train every run of the grid in one batch."""
        self.train(self.whole_grid())
        trained, space = "The whole grid was trained.", self.seen.space
        if self.seen.best_learning_rate(space.reference) is None:
            return Stop(f"{trained} {reference_failed(space.reference)}", no_reference=True)
        if not any(map(self.seen.above_baseline, space.recipes)):
            return Stop(f"{trained} {NOTHING_LEARNED}", nothing_learned=True)
        return Stop(trained)

    def whole_grid(self) -> Batch:
        return Batch(tuple(self.runs), "Train the whole grid (--exhaustive).")

    def train(self, batch: Batch, *, show: bool = True) -> None:
        """Train the candidates that have no result yet, and observe them all."""
        if show:
            self.progress.note(batch.why)
        self.seen.batches.append(batch.candidates)
        runs = self._request(batch)
        store = self.plan.store
        store.retry({run.digest for run in runs.values()}, ("failed",))
        try:
            self._train(list(runs.values()))
        except INTERRUPTED:
            self._observe(batch.why, {one: run for one, run in runs.items() if store.has(run.digest)})
            raise
        self._observe(batch.why, runs)
        self._write()

    def _request(self, batch: Batch) -> Runs:
        """Write the runs of a batch into the folder, where other processes find them."""
        runs = {one: self.runs[one] for one in batch.candidates}
        self.requested |= {run.digest for run in runs.values()}
        self._write()  # if the search is killed now, the next one knows that these runs were its own
        spec = sweep_of(self.plan.spec, [*self.seen.known, *batch.candidates])
        register(replace(self.plan, spec=spec))
        return runs

    def _train(self, runs: Sequence[Run]) -> None:
        weights = BestWeights(self.plan.store.out)
        if self.driver is None:
            self.others.start(len(self.plan.missing(runs)))
        shared = self.together is not None
        execute(self.plan, runs, self.progress, driver=self.driver, weights=weights, shared=shared)

    def _observe(self, why: str, runs: Runs) -> None:
        """Add what became of these runs to the record and to the observations."""
        before, new = self.seen.results_so_far(), {one: self.observation(run) for one, run in runs.items()}
        self.seen.known |= new
        tried = [
            Tried(
                recipe=one.recipe,
                learning_rate=runs[one].learning_rate,
                seed=one.seed,
                score=found.score,
                seconds=found.seconds / found.workers,
            )
            for one, found in new.items()
        ]
        seconds = self.seen.batch_seconds(tuple(new))
        self.steps.append(Step(why=why, results_so_far=before, seconds=seconds, runs=tried))

    def observation(self, run: Run) -> Observation:
        """What became of a run; a diverged run has no score."""
        if not self.plan.store.has(run.digest):  # it ended in an error
            return Observation(None, 0.0)
        result = self.plan.store.result(run.digest)
        score = result.validation_best if result.outcome != "diverged" else None
        own = result.provenance.workers
        seconds, workers = result.cost.run_seconds * own, max(own, self.together or 1)
        last = result.train_last, result.validation_last
        return Observation(score, seconds, run.digest, workers, result.outcome, *last)

    def report_progress(self) -> None:
        """Say what the best choice is between two steps, and why it changed."""
        self.progress.note(self._so_far())
        if why := self._why_changed():
            self.progress.note(f"  {why}")

    def _so_far(self) -> str:
        """A line of progress: the best choice so far and how sure that is, the time spent and the budget left."""
        seen, full = self.seen, self.seen.space.reference
        budget = f", and the budget is {duration(seen.budget)}" if seen.budget_is_final else ""
        spent = f"Trained for {duration(seen.spent)}{budget}."
        surrogate = seen.surrogate()
        if surrogate is None:
            return f"  {in_words(full, capital=True)} has not run yet. {spent}"
        best = surrogate.best
        if best is surrogate.full:
            return f"  Best so far: {tuning(best.name)} (expected {score(best.expected)}). {spent}"
        of_full = f"{in_words(surrogate.full.name)} {score(surrogate.full.expected)}"
        scores = f"expected {score(best.expected)}; {of_full}"
        sure = f"{probability(surrogate.probability(best))} sure to reach the target"
        return f"  Best so far: {tuning(best.name)} ({scores}), {sure}. {spent}"

    def _why_changed(self) -> str:
        """Why the best choice so far is another one than after the step before; empty if it is not."""
        surrogate = self.seen.surrogate()
        if surrogate is None:
            return ""
        best, before = surrogate.best, self.best
        self.best = best.name
        earlier = surrogate.choice(before)
        if earlier is None or earlier is best:
            return ""
        points, cost = 100 * (earlier.expected - best.expected), 100 * (earlier.cost - best.cost)
        differences = []
        if abs(points) >= 0.05:
            differences.append(f"is now expected to score {abs(points):.1f} points {'more' if points > 0 else 'less'}")
        if abs(cost) >= 0.5:
            reference = in_words(self.seen.space.reference)
            differences.append(f"costs {abs(cost):.0f} % of {reference} {'more' if cost > 0 else 'less'}")
        return f"It replaces {tuning(earlier.name)}, which {' and '.join(differences)}." if differences else ""

    def _write(self, stop: Stop | None = None, *, over: bool = False) -> None:
        """Write search.json. ``stop`` says why the search ended or was interrupted; None while it continues.

        Until its first step, a search that continues another one keeps the steps of that one.
        """
        seen, space, store = self.seen, self.seen.space, self.plan.store
        earlier, train_size = read_search(store.out), next(iter(self.runs.values())).train_size
        if earlier and earlier.train_size == train_size and not self.steps and not over:
            now = {"why": stop.why if stop else None, "over": False, "requested": sorted(self.requested)}
            write_search(store.out, earlier.model_copy(update={**now, "abandoned": [], "known": []}))
            return
        rates = {
            one: own
            for one in space.recipes
            if (rate := seen.best_learning_rate(one)) is not None
            and (own := self.runs[Candidate(one, rate, space.seeds[0])].learning_rate) is not None
        }
        reference, untried = space.reference, [one for one in space.recipes if not seen.tried(one)]
        record = SearchRecord(
            train_size=train_size,
            why=stop.why if stop else None,
            over=over,
            pending_reference=reference if not over and space.reference in untried else None,
            interim_analyses=interim_analyses(len(space.seeds)),
            budget_seconds=seen.budget if seen.budget_is_final else None,
            spent_seconds=seen.spent,
            elsewhere_seconds=seen.spent_elsewhere,
            operations={recipe: space.operations[recipe] for recipe in space.recipes},
            num_train_epochs=list(self.plan.spec.num_train_epochs),
            learning_rates=list(space.learning_rates),
            head_learning_rates=list(space.head_learning_rates),
            selected_learning_rates=rates,
            results_so_far=seen.results_so_far(),
            skipped=[one for one in untried if space.lengths.is_shortest(one) and {*space.longer(one)} <= {*untried}],
            failed_reference=reference if stop and stop.no_reference else None,
            enough_budget=stop.enough if stop else None,
            requested=sorted(self.requested),
            abandoned=self._abandoned() if over else [],
            known=sorted(store.ended()) if over else [],
            probes=self.alternatives.probes,
            estimated_k=self.alternatives.estimated_k,
            steps=self.steps,
        )
        write_search(store.out, record)

    def _abandoned(self) -> list[str]:
        """Runs without a result that only an earlier search with other settings requested; nothing will finish them."""
        store, own = self.plan.store, {self.runs[one].digest for one in self.seen.known}
        unfinished = {run.digest for run in Folder(store.out).requested} & self.requested - own
        return sorted(digest for digest in unfinished - store.failures().keys() if not store.has(digest))
