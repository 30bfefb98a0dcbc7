"""The search for an answer: a race carried out on a model and a table. Its folder is a sweep's, with every decision beside."""

import math
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.files import make_folder
from frostline.data.parsing import parse_duration
from frostline.data.wording import duration
from frostline.fast.garbage_collection import objects_frozen
from frostline.frozen.selection import POOLED
from frostline.model.tune import Tune
from frostline.report.finish import finish
from frostline.report.probe_sentence import probe_sentence
from frostline.report.rebuild import choices_of
from frostline.report.recommended_model import best_weights
from frostline.search.guesses import by_layer, judged, logme
from frostline.search.race import (
    NOTHING_LEARNED,
    Board,
    Course,
    Outcome,
    Step,
    Trial,
    Verdict,
    failed_throughout,
    looks,
    race,
    said,
)
from frostline.statistics.metrics import METRICS
from frostline.statistics.predictions import Labelled, Predictions, among_all
from frostline.sweep.execution.execute import execute, prepare_hidden_states
from frostline.sweep.execution.progress import Progress, suitable_progress
from frostline.sweep.execution.workers import workers_for
from frostline.sweep.forecast.workload import Workload
from frostline.sweep.grids import MoreRuns
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.register import register
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import PROBE, has_probe, read_search, write_search
from frostline.sweep.specification import CHOSEN_BY_SEARCH, SweepSpec
from frostline.training.probes.fitting import Probed, fit_probes
from frostline.training.rows import train_rows, validation_rows
from frostline.training.specification import HEAD_LEARNING_RATE, RunSpec

DEFAULTS = {
    "learning_rate": (5e-5, 1e-4, 2e-4),  # that may be tried
    "head_learning_rate": (
        HEAD_LEARNING_RATE,
        3e-3,
        1e-2,
        3e-2,
    ),  # the first beside layers, all where the head is trained alone
    "seeds": 5,  # of any k, at most
    "folds": "auto",
    "evaluations_per_epoch": 0,  # a best epoch, chosen on the rows that it is judged by, costs scorings and flatters
}
PROBED = 5000  # training rows that probes see, at most: what they say is a guess


def find(
    *,
    budget: float | str | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Look for the smallest k that is enough, training as little as that takes; gives the answer.

    Takes the settings of :class:`frostline.Sweep` but for ``tune``, ``tune_modules`` and ``grid``, with one train size; those in
    ``DEFAULTS`` have other defaults. ``learning_rate`` are the rates that may be tried,
    ``head_learning_rate`` those of the head alone (every other k has the first), ``seeds`` the most of any k. ``budget``:
    seconds of training, or a text as in 90s, 10min, 2h; by default what four full fine-tunings take. ``max_k``:
    train no more layers than these; the deepest then stands for full. ``exhaustive``: train the whole grid. The same call
    again goes on where it stopped, and Ctrl-C leaves the best answer so far.

    Raises:
        FrostlineError: whatever a user can put right.
    """
    for name in CHOSEN_BY_SEARCH:
        if settings.get(name) is not None:
            raise FrostlineError(f"A search chooses {name} itself: leave it out, or run `frostline sweep`.")
    if isinstance(budget, str):
        budget = parse_duration(budget)
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    if max_k is not None and max_k < 1:
        raise FrostlineError(f"max_k cannot be {max_k}: give 1 or more; of the head alone there is nothing to choose.")
    given = {**DEFAULTS, **settings, "tune": 0}
    sweep = Sweep(**given)
    if sweep.spec.train_size and len(sweep.spec.train_size) > 1:
        raise FrostlineError(
            "A search has one train size: give one --train-size, or run `frostline sweep` for several."
        )
    shown = progress or suitable_progress()
    try:
        prepared = prepare(
            sweep.spec, sweep.sources, shown, tunes=lambda layers: _candidates(layers, max_k), probes=True
        )
        tunes = _candidates(prepared.identity.layers, max_k)
        make_folder(prepared.store.out)
        for note in prepared.plan.notes:
            shown.note(note)
        return _Search(prepared, sweep.spec.model_copy(update={"tune": tunes}), shown, budget).carry_out(
            exhaustive=exhaustive
        )
    finally:
        shown.close()


def _candidates(layers: int, max_k: int | None) -> tuple[Tune, ...]:
    if max_k is None:
        return (*range(layers + 1), "all")
    if max_k > layers:
        raise FrostlineError(f"max_k = {max_k} is more than the {layers} layers of the model: give at most {layers}.")
    return tuple(range(max_k + 1))


@dataclass
class _Search:
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
        """What frozen features can do alone, on the examples of the first seed, and what that lets guess; nothing where
        there was no room for them."""
        prepared, context = self.prepared, self.prepared.context
        first_two = [run for trial, run in self.runs.items() if trial.seed in self.spec.seeds[:2]]
        prepare_hidden_states(prepared, first_two, self.progress)
        states = context.states
        if states is None or not states.selection.pooled:
            return
        self.progress.begin("probing the frozen layers")
        first = next(run for trial, run in self.runs.items() if trial.seed == self.spec.seeds[0])
        rows = {"train": train_rows(context, first)[:PROBED], "validation": validation_rows(context, first)}
        examples = prepared.data.train.take(rows["train"] - context.splits["train"][0])
        scored = prepared.data.validation.take(rows["validation"] - context.splits["validation"][0])
        data = replace(prepared.data, train=examples, validation=scored)
        identity, seen, classes = prepared.identity, rows["train"], len(prepared.identity.labels)
        self.probed = fit_probes(
            data,
            states,
            rows,
            pretrained=prepared.pretrained,
            machine=context.machine,
            metric=identity.metric,
            max_length=identity.max_length,
            describe=probe_sentence,
        )
        logmes = {
            n: logme(states.pooled(n, seen)[:, POOLED.index("mean")].numpy(), examples.targets, classes)
            for n in states.selection.pooled
        }
        self.guesses = {"probes": _by_probes(self.probed.facts), "LogME": by_layer(logmes, 0.0)}

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
                "steps": [
                    {
                        "why": step["why"],
                        "standing": step["standing"],
                        "seconds": self.board.took(tuple(step["trials"])),
                        "runs": [
                            {
                                "trainable": self.printed[trial.tune],
                                "learning_rate": trial.rate,
                                "seed": trial.seed,
                                "score": outcome.score,
                                "seconds": outcome.seconds / outcome.abreast,
                            }
                            for trial, outcome in step["trials"].items()
                        ],
                    }
                    for step in self.steps
                ],
            },
        )


def _by_probes(facts: Mapping[str, Any]) -> int | None:
    """The guess that probes of single layers allow, on training rows that they had not seen."""
    scores: dict[int, float] = {}
    for probe in facts["probes"]:
        if len(probe["layers"]) == 1 and probe["unseen"] is not None:
            scores[probe["layers"][0]] = max(scores.get(probe["layers"][0], -math.inf), probe["unseen"])
    best = max(scores.values(), default=0.0)
    spread = 1 - best**2 if METRICS[facts["metric"]].lowest < 0 else math.sqrt(max(best * (1 - best), 0.0))
    return by_layer(scores, spread / math.sqrt(facts["train_rows"]))
