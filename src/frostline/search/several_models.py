"""One search over several pretrained models with one budget: which of them takes the next step.

Each model has a search of its own, with its tokens, its cached hidden states, its posterior and its folder. All are scored on
the same rows, in the same unit of cost. First probes are fitted to the hidden states of every model, at the cost of one forward
pass each. The model with the best probe, less the price of its layers, trains its initial design. From then on each model offers
the next batch of its policy, and the batch with the highest net gain for its time is trained. A cheap first look at a model comes
before. A gain counts only as far as it exceeds the best value of the other models, so a model that cannot win any more gets no
more runs.

A model whose reference has no score yet has no posterior. The gain of its next batch is then that of the model as a whole: its
best value is normal around that of the best model, less what it is behind where both were measured alike. That is at their
probes, or, once it has runs, at the k with the same share of layers. A model that is not worth its next batch is left out.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.files import copy_folder, remove
from frostline.data.wording import duration
from frostline.fast.switch import objects_frozen
from frostline.model.anatomy import count_parameters
from frostline.report.answer.models_answer import answer_over_models
from frostline.report.formatting import score
from frostline.report.pages.models_page import write_models
from frostline.report.rebuild import finish
from frostline.search.policy import NEGLIGIBLE, Batch, Stop, policy, possible_gain, price_of
from frostline.search.search import INTERRUPTED, Search
from frostline.statistics.analysis_settings import POINT, PRICE
from frostline.statistics.answer import Answer, Decision, ModelAnswer
from frostline.statistics.decision import Option
from frostline.statistics.posterior import HIGHEST
from frostline.statistics.predictions import RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import ALTERNATIVES, PROBE, WORDS, Alternative, Scored
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.tensor_files import BestWeights

# standard deviations of the best value of a model around what is expected of it, at its probes and at a run of all layers
AT_PROBES, AT_RUNS = 0.04, 0.02
LEAST = 0.0005  # the expected gain below which a model gets no first run, however short, in score
LOOK = 0.05  # the share of the budget up to which first runs that are worth their time come before any other step
NOT_BETTER = "More runs would hardly change which model is the best."


@dataclass(eq=False)
class Contender:
    """A model of a search over several.

    Attributes:
        name: Of the model, as tables print it.
        search: Its own search. Costs are in units of full fine-tuning of the first model.
        inference: Operations for the predictions of all validation examples with the whole model.
        price: The score that an operation of predictions is worth; 0 unless predictions have a price.
        stop: Why it was trained no further; None while it may be.
        answer: About it alone, after the search; None if it has no runs.
    """

    name: str
    search: Search
    inference: float
    price: float = 0.0
    stop: Stop | None = None
    answer: Answer | None = None

    @property
    def decision(self) -> Decision | None:
        """What its answer decides."""
        return self.answer.decision if self.answer else None

    def inference_of(self, choice: Recipe) -> float:
        """Operations of predicting all validation examples with a choice. A probe needs only the layers that it reads."""
        if choice == WORDS:
            return 0.0
        report = self.search.alternatives.probes
        if choice == PROBE and report is not None:
            return self.inference * max(report.best.layers) / report.layers
        return self.inference

    @property
    def value(self) -> float | None:
        """The value of its best choice; None as long as nothing is known to reach anything."""
        seen, surrogate = self.search.seen, self.search.seen.surrogate()
        if surrogate is not None:
            return surrogate.rule.value(surrogate.best) - self.price * self.inference_of(surrogate.best.name)
        if self.stop is None or self.stop.nothing_learned:
            return None
        space, price = seen.space, seen.rule.price
        values = (one.mean - price * space.cost(one.recipe) for one in seen.results_so_far())
        known = max(seen.alternative_score, *values, -math.inf)
        return None if known == -math.inf else known - self.price * self.inference

    def expected(self, share: float) -> float | None:
        """The expected score of the k that tunes about this share of the layers; None before its reference has a score."""
        space, surrogate = self.search.seen.space, self.search.seen.surrogate()
        if surrogate is None:
            return None
        nearest = min(space.curve, key=lambda one: abs(space.share(one) - share))
        return float(surrogate.estimate.draws[:, surrogate.estimate.names.index(nearest)].mean())

    def runs(self, choice: Recipe) -> list[Scored]:
        """The runs that the mean of a choice is of."""
        if choice in self.search.seen.alternatives:
            return [Alternative(choice)]
        return [*self.search.seen.runs(choice)]

    def option(self, choice: Recipe) -> Option | None:
        """The posterior of a choice; None without one."""
        surrogate = self.search.seen.surrogate()
        return None if surrogate is None else surrogate.choice(choice)

    def best_run(self) -> tuple[float, float] | None:
        """The share of layers and the score of its best run of some last layers; None if none has learned anything."""
        seen = self.search.seen
        runs = [(one.recipe, run.score) for one, run in seen.known.items() if one.recipe.is_k and one.recipe.k != 0]
        scored = [
            (found, seen.space.share(recipe)) for recipe, found in runs if found is not None and found > seen.chance
        ]
        return max(scored)[::-1] if scored else None

    def behind(self, leader: "Contender") -> tuple[float, float, str]:
        """What its best value is expected to be below that of the leader, with its standard deviation, and the reason.

        The more layers its best run tunes, the more it tells. The standard deviation also has the error that the validation
        rows cause, as it is for the probes.
        """
        dearer = self.price * (self.inference - leader.inference)
        if (surrogate := leader.search.seen.surrogate()) is not None:
            dearer += (self.search.seen.rule.price - surrogate.rule.price) * surrogate.best.cost
        probes = [found for one in (self, leader) if (found := one.search.alternatives.probes) is not None]
        errors = [(one.high - one.low) / 3.92 for one in probes if one.high is not None and one.low is not None]
        of_rows = max(errors, default=0.0)
        if (run := self.best_run()) and (theirs := leader.expected(run[0])) is not None:
            why = f"It scores {score(run[1])} where {leader.name}, with as many of its layers, should score {score(theirs)}."
            spread = AT_PROBES + run[0] * (AT_RUNS - AT_PROBES)
            return theirs - run[1] + dearer, math.hypot(spread, of_rows), why
        scores = [one.best.validation for one in probes if one.best.validation is not None]
        if len(scores) < 2:
            return dearer, AT_PROBES, ""
        probe, theirs = scores
        why = f"Its best linear probe scores {score(probe)}, that of {leader.name} {score(theirs)}."
        return theirs - probe + dearer, math.hypot(AT_PROBES, of_rows), why


@dataclass
class SearchOverModels:
    """A search over several models.

    Attributes:
        contenders: The models, in the order in which they were given.
        out: The folder of all; that of each model is in it.
        progress: Where progress is reported.
        price: The score that full fine-tuning of the first model is worth.
        price_inference: The score that predictions with the first model are worth.
    """

    contenders: Sequence[Contender]
    out: Path
    progress: Progress
    price: float = PRICE
    price_inference: float = 0.0
    _shown: Contender | None = field(default=None, init=False)

    def run(self, *, exhaustive: bool) -> None:
        """Search until no model has a step that is worth its time. Every model with runs then has its answer, but no saved model.

        Args:
            exhaustive: Train the whole grid of every model instead.
        """
        for one in self.contenders:
            self._show(one)
            one.search.begin()
        try:
            with objects_frozen():
                for one in self.contenders if exhaustive else ():
                    self._show(one)
                    one.stop = one.search.train_grid()
                while not exhaustive:
                    if (step := self._next()) is None:
                        if self._lengthen() or any(one.search.learn_of_others() for one in self.contenders):
                            continue
                        break
                    one, batch = step
                    self._show(one)
                    seen = one.search.seen
                    self.progress.limit(seen.seconds_left if seen.budget_is_final else None)
                    one.search.train(batch)
                    one.search.report_progress()
        except INTERRUPTED:
            self._finish(interrupted=True)
            raise
        self._finish()

    def _finish(self, *, interrupted: bool = False) -> None:
        """Write the answer of each model that has runs, save the model that is recommended, and write the answer about all."""
        for one in self.contenders:
            if interrupted:
                one.stop = one.stop or Stop("The search was interrupted. The same command continues it.")
            assert one.stop is not None
            if one.search.has_runs:
                self.progress.begin(f"writing the answer about {one.name}")
                one.answer = one.search.interrupted() if interrupted else one.search.end(one.stop, save_model=False)
        answers = {one.name: one.answer for one in self.contenders if one.answer is not None}
        if not answers:
            return
        values = {
            one: decision.value - one.price * one.inference_of(decision.choice)
            for one in self.contenders
            if (decision := one.decision) is not None
        }
        best = max(values, key=lambda one: values[one], default=None)
        models = [_described(one, values.get(one), best) for one in self.contenders]
        answer = answer_over_models(models, answers, price=self.price, price_inference=self.price_inference)
        for one in self.contenders if not interrupted else ():
            if one is best:
                models_found = one.search.alternatives.models
                answers[one.name] = finish(one.search.plan, self.progress, alternatives=models_found)
            else:
                BestWeights(one.search.plan.store.out).remove()
        saved = best.search.plan.store.out / "model" if best else None
        if saved is not None and saved.is_dir():
            copy_folder(saved, self.out / "model", inside=self.out)
        else:
            remove(self.out / "model", inside=self.out)
        write_models(self.out, answer, answers)
        if interrupted:
            self.progress.note(f"So far: {answer.sentence} Report: {self.out / 'report.html'}")

    def _show(self, one: Contender) -> None:
        """Say which model the next lines are about."""
        if one is not self._shown:
            self.progress.note(f"{one.name}:")
        self._shown = one

    def _next(self) -> tuple[Contender, Batch] | None:
        """The model that takes the next step, with its batch; None if none is worth its time. ``stop`` then has the reasons."""
        self._share()
        offers: dict[Contender, Batch] = {}
        for one in self.contenders:
            offer = _offer(one.search)
            one.stop = offer if isinstance(offer, Stop) else None
            if isinstance(offer, Batch):
                offers[one] = offer
        leader = self._leader()
        if leader is None:  # the most promising model is the first to train
            first = next((one for one in self._by_promise() if one in offers), None)
            return None if first is None else (first, offers[first])
        nets: dict[Contender, float] = {}
        for one, batch in offers.items():
            net, why = batch.net, NOT_BETTER
            if one is not leader and math.isinf(net):
                behind, spread, why = one.behind(leader)
                gain = possible_gain(-behind, spread, HIGHEST - (leader.value or 0.0))
                seconds, seen = _predicted_seconds(one, leader, batch), one.search.seen
                net = gain - max(LEAST, price_of(seen, seconds))
                if net > NEGLIGIBLE and seconds > seen.seconds_left:
                    left = duration(max(0.0, seen.seconds_left))
                    why = f"The budget ended before its next runs: they take about {duration(seconds)}, and {left} are left."
                    one.stop = Stop(why, no_reference=True, enough=seconds + seen.budget_for(()))
                    continue
                why += f" Its next runs would gain {100 * gain:.2f} points on average, less than their time is worth."
            if net > NEGLIGIBLE or one is leader:
                nets[one] = net
            else:
                one.stop = Stop(why.strip(), no_reference=one.search.seen.surrogate() is None)

        def for_its_time(one: Contender) -> float:
            seconds = _predicted_seconds(one, leader, offers[one])
            is_look = one is not leader and math.isinf(offers[one].net) and seconds <= LOOK * one.search.seen.budget
            return math.inf if is_look else nets[one] / max(seconds, 1e-9)

        best = max(nets, key=for_its_time, default=None)
        return None if best is None else (best, offers[best])

    def _lengthen(self) -> bool:
        """Go on with longer trainings of all models if those of the best one, or of any while there is none, are too short.

        What was trained is observed at once, as far as the policy asks for it.

        Returns:
            Whether it goes on.
        """
        leader = self._leader()
        asked = [leader] if leader else self._by_promise()
        reasons = [one.search.too_short(one.stop) for one in asked if one.stop and one.search.has_runs]
        if not any(reasons):
            return False
        self.progress.note(next(filter(None, reasons)))
        for one in self.contenders:
            one.search = one.search.for_longer()
        self._share()
        for one in self.contenders:
            while isinstance(batch := _offer(one.search), Batch) and not one.search.is_new(batch):
                one.search.train(batch, show=False)
        return True

    def _leader(self) -> Contender | None:
        """The model with the highest value; None if none has a value."""
        valued = {one: value for one in self.contenders if (value := one.value) is not None}
        return max(valued, key=lambda one: valued[one], default=None)

    def _share(self) -> None:
        """Tell each search the best value and the time of the others, the budget of the best one, and the price of time."""
        values, leader = {one: one.value for one in self.contenders}, self._leader()
        budget = None
        if leader is not None:
            leader.search.seen.budget_of_leader = None
            budget = leader.search.seen.budget
        for one in self.contenders:
            seen, others = one.search.seen, [other for other in self.contenders if other is not one]
            seen.best_elsewhere = max((v for other in others if (v := values[other]) is not None), default=-math.inf)
            seen.best_elsewhere += one.price * one.inference
            seen.spent_elsewhere = sum(other.search.seen.spent for other in others)
            seen.budget_of_leader, seen.price_of_budget = budget, self.price

    def _by_promise(self) -> list[Contender]:
        """The models in the order in which they begin: by the score of the best probe, less what half of the layers cost."""

        def promise(one: Contender) -> float:
            report = one.search.alternatives.probes
            probe = -math.inf if report is None or report.best.validation is None else report.best.validation
            return probe - one.search.seen.rule.price / 2 - one.price * one.inference

        return sorted(self.contenders, key=promise, reverse=True)


def search_models(
    plans: Mapping[str, tuple[Plan, Plan | None]],
    out: Path,
    progress: Progress,
    budget: float | None,
    *,
    untrained: bool,
    named: Collection[Recipe],
    price_inference: float,
    exhaustive: bool,
) -> None:
    """Search over several models, and write the answers.

    Costs are in units of full fine-tuning of the first model, and of predictions with it.

    Args:
        plans: Of each model, by its name, with the same data; and with longer trainings, as for
            :meth:`frostline.search.search.Search.start`.
        out: The folder of all.
        progress: Where progress is reported.
        budget: As for :meth:`frostline.search.search.Search.start`, for all models together.
        untrained: The same.
        named: The same.
        price_inference: The score that predictions with the first model are worth.
        exhaustive: Train the whole grid of every model.
    """
    full = {
        name: max(
            plan.cost_model.operations(run)
            for run in plan.runs
            if run.recipe.is_k and run.num_train_epochs == min(plan.spec.num_train_epochs)
        )
        for name, (plan, _) in plans.items()
    }
    inference = {
        name: plan.cost_model.predicting(plan.experiment.splits["validation"], plan.spec.per_device_eval_batch_size)
        for name, (plan, _) in plans.items()
    }
    if not all(longer for _, longer in plans.values()):  # an earlier search has trained some of them for longer
        plans = {name: (longer or plan, None) for name, (plan, longer) in plans.items()}
    first, contenders = next(iter(plans)), []
    for name, (plan, longer) in plans.items():
        price = plan.spec.price * full[name] / full[first]
        priced, longer = _at_price(plan, price), longer and _at_price(longer, price)
        search = Search.start(priced, progress, budget, untrained=untrained, named=named, longer=longer)
        contenders.append(Contender(name, search, inference[name], price_inference / inference[first]))
    with ExitStack() as stack:
        for one in contenders:
            stack.enter_context(one.search.others)
        price = plans[first][0].spec.price / 100
        SearchOverModels(contenders, out, progress, price, price_inference).run(exhaustive=exhaustive)


def _at_price(plan: Plan, price: float) -> Plan:
    """The plan of a search in which full fine-tuning is worth another price."""
    return replace(plan, spec=plan.spec.model_copy(update={"price": price}))


def _described(one: Contender, value: float | None, best: Contender | None) -> ModelAnswer:
    """What the answer about all models says of one. ``best`` is the recommended one."""
    plan, report, answer, decision = one.search.plan, one.search.alternatives.probes, one.answer, one.decision
    below: tuple[float | None, ...] = (None, None, None)
    choice = rows = None
    if answer is not None and decision is not None and best is not None:
        choice = decision.choice
        cell = answer.sizes[0].cell(choice)
        rows = cell.validation_rows if cell and cell.validation_rows else answer.validation_rows
        below = (0.0, None, None) if one is best else _below(one, best)
    predictions = one.inference if choice is None else one.inference_of(choice)
    return ModelAnswer(
        model=one.name,
        folder=plan.store.out.name,
        layers=plan.identity.layers,
        parameters=count_parameters(plan.experiment.pretrained.model),
        probe=None if report is None else report.best.validation,
        choice=choice,
        expected=decision.expected if decision else None,
        above_baseline=decision.above_baseline if decision else None,
        rows=rows,
        **dict(zip(("below", "low", "high"), below, strict=True)),
        value=value,
        training_operations=None if choice is None else _training_operations(plan, choice),
        inference_operations=predictions / len(plan.experiment.splits["validation"]),
        runs=answer.runs.done + answer.runs.failed if answer else 0,
        seconds=one.search.seen.spent,
        why=one.stop.why if one.stop else "",
        enough=one.stop.enough if one.stop else None,
    )


def _training_operations(plan: Plan, choice: Recipe) -> float:
    """Operations of training a choice once, which a search or a sweep has trained in the folder; 0 if it trains no layer."""
    if choice in ALTERNATIVES:
        return 0.0
    folder, size = Folder(plan.store.out), plan.runs[0].train_size
    return next(
        plan.cost_model.operations(run)
        for run in folder.runs
        if run.train_size == size and run.named_among(folder.lengths) == choice
    )


def _offer(search: Search) -> Batch | Stop:
    """What the policy of a search would train next, or why it would stop."""
    try:
        return next(policy(search.seen))
    except StopIteration as end:
        stop: Stop = end.value
        return stop


def _predicted_seconds(one: Contender, leader: Contender, batch: Batch) -> float:
    """The seconds of a batch. A model without a run that tunes layers is as fast as the leader for each operation.

    Its runs of the head alone take hardly any time, which tells little about the time of others.
    """
    seen, pace = one.search.seen, leader.search.seen
    if any(found.recipe.k != 0 and run.score is not None for found, run in seen.known.items()):
        return seen.predicted_seconds(batch.candidates)
    reference = pace.space.reference
    seconds = pace.run_seconds(reference) / pace.space.operations[reference]
    return sum(seconds * seen.space.operations[found.recipe] for found in batch.candidates) / seen.workers


def _below(one: Contender, best: Contender) -> tuple[float, float | None, float | None]:
    """The points that what is best with one model is expected to be below that with another, with the 95 % interval.

    The variances are those of both posteriors. Errors that the same validation rows cause in both are no part of the difference.
    A search that ended before its reference was trained has no posterior. What trains no layer then varies by its rows, and the
    interval of anything else is not known.
    """
    decision, other = one.decision, best.decision
    assert decision is not None and other is not None
    below, both = (other.expected - decision.expected) / POINT, ((one, decision.choice), (best, other.choice))
    options = [contender.option(choice) for contender, choice in both]
    free = [choice in contender.search.seen.alternatives for contender, choice in both]
    if any(option is None and not known for option, known in zip(options, free, strict=True)):
        return below, None, None
    cells, sources = list[list[Scored]](), dict[str, tuple[Contender, str]]()
    for (contender, name), is_free in zip(both, free, strict=True):
        runs = contender.runs(name)
        if is_free:  # both models may have one
            runs = [Alternative(f"{name} of {contender.name}")]
        cells.append(runs)
        sources |= {run.run: (contender, name if isinstance(run, Alternative) else run.run) for run in runs}
    evidence = best.search.seen.evidence
    assert isinstance(evidence, RunPredictions)

    def logits(run: str) -> NDArray[Any]:
        contender, name = sources[run]
        own = contender.search.seen.evidence
        assert isinstance(own, RunPredictions)
        return own.logits(name)

    shared = RunPredictions(evidence.split, logits).observed(cells, [None, None]).row_covariance
    assert shared is not None
    variances = np.array([shared[n, n] if option is None else option.draws.var() for n, option in enumerate(options)])
    # a posterior can be surer than the rows alone: then as much of what they cause in both is left in it
    of_rows = np.maximum(shared.diagonal(), variances)
    common = shared[0, 1] * np.sqrt(np.divide(variances, of_rows, where=of_rows > 0, out=np.ones(2)).prod())
    variance = float(variances.sum() - 2 * common)
    half = 1.96 * math.sqrt(max(variance, 0.0)) / POINT
    return below, below - half, below + half
