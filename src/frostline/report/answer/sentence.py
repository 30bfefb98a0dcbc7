"""The answer for one train size: three sentences (what to tune, how good that is, how sure), and remarks."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized, ranges
from frostline.model.ways import MEAN_POOLED
from frostline.report import formatting, names
from frostline.report.answer.next_command import has_not_fitted
from frostline.report.formatting import points, probability, score
from frostline.report.names import tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Choice, Difference, SizeAnswer
from frostline.statistics.decision import Rule
from frostline.statistics.inference import Ratio
from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import FULL, NAMED, Recipe
from frostline.statistics.run_group import NO_SEARCH, SearchOutcome
from frostline.statistics.run_result import ALTERNATIVES


@dataclass(frozen=True)
class Comparison:
    """What the sentences are about: a curve, and the quantity that its k are compared by.

    That is the share of full fine-tuning's score or gain, or the difference of their scores.
    """

    curve: SizeAnswer
    evidence: Evidence
    settings: AnalysisSettings

    @property
    def cells(self) -> dict[str, Cell]:
        """All cells but those of named parts."""
        return {cell.recipe: cell for cell in self.curve.cells if cell.recipe.trained != NAMED}

    @property
    def of_gain(self) -> bool:
        """Whether shares are of the gain over the baseline instead of the score."""
        return self.settings.corrected and self.evidence.chance is not None

    @property
    def whole(self) -> str:
        """What shares are of."""
        return f"gain over the {names.baseline(self.evidence.metric)}" if self.of_gain else "score"

    def rows(self, choice: str) -> str:
        """The validation examples on which a choice was scored, of all; empty if they are unknown."""
        cell, every = self.curve.cell(choice), self.evidence.rows
        if not every:
            return ""
        count = (cell.validation_rows if cell else self.evidence.rows_of([choice])) or every
        some = "" if count == every else f"{count:,} of "
        return f" on {some}{every:,} validation example{'s' if every > 1 else ''}"

    @property
    def baseline(self) -> str:
        """The name of the baseline, with its score."""
        known = self.evidence.chance
        return f"the {names.baseline(self.evidence.metric)}{'' if known is None else f' ({score(known)})'}"

    def may_win(self, full: Cell) -> bool:
        """Whether full fine-tuning would be worth more than what is recommended if it had the highest possible score."""
        cost = next(one.cost_of_full for one in self.curve.choices if one.choice == full.recipe)
        decision, rule = self.curve.decision, Rule.of(self.settings, self.evidence.chance)
        return decision is None or rule.may_win(cost, decision.value)

    def share(self, cell: Cell) -> Ratio | None:
        """The share of full fine-tuning that the sentence reports; None if it is undefined."""
        return cell.share_corrected if self.of_gain else cell.share

    def scored(self, value: float | None) -> str:
        """A score with the name of the metric."""
        return f"{names.metric(self.evidence.metric)} {score(value)}"

    def reached(self, full: str) -> str:
        """What reaching the target means, after ``to``; ``full`` is the name of the reference."""
        if self.settings.by_margin:
            return f"come within {self.settings.margin:g} of {full}"
        possessive = f"{full}'" if full.endswith("s") else f"{full}'s"
        whose = f"the {self.whole} of {full}" if " epoch" in full else f"{possessive} {self.whole}"
        return f"reach {100 * self.settings.target:g} % of {whose}"

    def with_full(self, cell: Cell, full: Cell) -> str:
        """The scores of a cell and of full fine-tuning, and the share or difference with its interval."""
        assert cell.difference is not None
        ours, full_mean = cell.difference.means  # of the runs that are compared
        scores = f"{self.scored(ours)} against {score(full_mean)} with {tuning(full.recipe)}"
        if cell.validation.n == 1 and full_mean != full.validation.mean:
            scores += " on the one seed that both have"
        if self.settings.by_margin:
            difference = cell.difference
            interval = _interval(difference, formatting.difference)
            return f"{scores}, a difference of {formatting.difference(difference.estimate)}{interval}"
        share = self.share(cell)
        assert share is not None
        interval = _interval(share, formatting.percent_number)
        return f"{scores}, {formatting.percent_number(share.estimate)} % of the {self.whole}{interval}"


def _interval(estimate: Ratio | Difference, show: Callable[[float], str]) -> str:
    """The confidence interval of an estimate in parentheses; empty if it is unknown."""
    low, high = estimate.low, estimate.high
    if low is None:
        return ""
    return f" (95 % confidence interval {show(low)} to {formatting.NO_BOUND if high is None else show(high)})"


LEARN_FIRST = "To learn the task, train with more epochs, another learning rate or more examples."
CLEARLY_LONGER = 1.1  # times as long; fewer layers never take longer by themselves
WORTH_A_MENTION = 0.95  # of full fine-tuning's memory


def sentence(comparison: Comparison, layers: int | None, search: SearchOutcome = NO_SEARCH) -> str:
    """The answer for one train size.

    Args:
        comparison: The curve with its decision and recommendation, and the quantity that k is compared by.
        layers: The number of layers of the model, if it is known.
        search: The outcome of a search, if there was one.
    """
    curve, cells = comparison.curve, comparison.cells
    decision, full = curve.decision, cells.get(curve.reference or "")
    chosen = curve.recommended.recipe if curve.recommended else decision.choice if decision else None
    if chosen is None:
        done = [cell.failures for cell in curve.cells if cell.runs]
        why = f"all finished runs diverged or predict a constant. {LEARN_FIRST}" if done else "no run has finished."
        if done and all(one.undefined == one.runs for one in done):
            why = "the metric is not defined on validation examples with equal numbers. Give others with --validation."
        return f"There is no answer: {why}"
    of_table = comparison.evidence.rows is None
    if full and of_table and len(cells) == 1:
        reached = comparison.scored(full.validation.mean)
        return f"Nothing was compared: {tuning(chosen)} reaches {reached}, and the table holds no other k."
    if full and comparison.settings.by_mean:
        return _by_mean(comparison, cells.get(curve.deciding_point.estimate or ""), full)
    weak = full is not None and _is_weak(comparison, full)
    if full and weak and (chosen == full.recipe or not (decision and decision.above_baseline)):
        saved = [one for one in curve.choices if decision and one.choice == decision.choice]  # the model that is saved
        best = max(saved or curve.choices, key=lambda one: one.expected)
        text = _undecided(comparison, best.choice, best.expected)
    elif full is None or len(curve.choices) < 2:
        text = _alone(comparison, chosen, layers)
    else:
        text = _recommendation(comparison, chosen, full, layers, weak=weak)
    failed = [name for name, one in cells.items() if 0 < one.runs == one.failures.diverged + one.failures.degenerate]
    text += _failed_runs((chosen, curve.reference or "", *failed), cells)
    if full is None:
        return text
    cell = curve.cell(chosen)
    depth = 0 if cell is None else math.inf if cell.tune_embeddings else cell.tuned_layers or 0
    # heads on the mean are the search's own idea
    named_ways = [one.trained for one in search.skipped if one.is_way and not one.trained.startswith(MEAN_POOLED)]
    text += _not_tried([one.k for one in search.skipped if one.k is not None and one.k < depth], named_ways)
    if (largest := taken_for_all_layers(curve, layers)) and comparison.settings.sure is None:
        text += f" {capitalized(tuning(largest))} is taken to cost as much as full fine-tuning: {names.GIVE_LAYERS}."
    for named in (one for one in curve.cells if one.recipe.trained == NAMED):
        share, length = comparison.share(named), named.recipe.length
        known = share is not None and share.estimate is not None
        unknown = "cannot be compared: none of their runs has succeeded so far"
        parts = f"The named parts{f', trained for {length},' if length else ''}"
        text += f" {parts} {f'reach {comparison.with_full(named, full)}' if known else unknown}."
    if not (search.instead or len(cells) < 2 or any(one.tune_embeddings for one in cells.values())):
        text += (
            " Full fine-tuning was not run here." if of_table else " Full fine-tuning was not run: add full to --tune."
        )
    text += _times_not_comparable(cells, full)
    if has_not_fitted(full, search.longest) and comparison.may_win(full):
        text += (
            f" At the end of training, {tuning(full.recipe)} scores {score(full.train_last.mean)} on examples that it was "
            f"trained on and {score(full.validation_last.mean)} on validation. It has not fitted its examples yet, so longer "
            "training may help."
        )
    return text


def reference_missing(reference: Recipe, best: Recipe | None, mean: float | None, metric: str) -> str:
    """The sentence while no run of the reference has ended; ``best`` is the best choice so far, with its mean score."""
    text = f"No answer yet: {tuning(reference)}, the reference of every comparison, has not run."
    return f"{text} The best so far, {tuning(best)}, reaches {names.metric(metric)} {score(mean)}." if best else text


def _alone(comparison: Comparison, chosen: Recipe, layers: int | None) -> str:
    """The answer if nothing can be compared."""
    cell, cells = comparison.curve.cell(chosen), comparison.cells
    mean = cell.validation.mean if cell else next(one.score for one in comparison.curve.choices if one.choice == chosen)
    runs = sum(one.runs for one in comparison.curve.cells)
    if comparison.curve.reference is None and cell and comparison.evidence.learned(cell.in_mean, runs) is False:
        return _undecided(comparison, chosen, mean)
    interval = formatting.interval(cell.validation.low, cell.validation.high) if cell else formatting.UNKNOWN
    basis = "" if interval == formatting.UNKNOWN else f" (95 % confidence interval {interval})"
    if not any(name != chosen for name in cells):
        others = "add more numbers of layers and full to --tune"
    elif chosen.is_k or chosen.trained == NAMED:
        others = "no other run has succeeded so far"
    else:
        others = "no run of full fine-tuning or of the last k layers succeeded"
    return (
        f"{_instruction(chosen, cell, layers)}. Expect {comparison.scored(mean)}{basis}{comparison.rows(chosen)}. "
        f"Nothing was compared: {others}."
    )


def _by_mean(comparison: Comparison, smallest: Cell | None, full: Cell) -> str:
    """The answer of an analysis that decides by mean scores instead of probabilities."""
    if smallest and smallest is not full:
        return f"By mean score, {tuning(smallest.recipe)} reaches the target: {comparison.with_full(smallest, full)}."
    reached = comparison.scored(full.validation.mean)
    return f"By mean score, no smaller k than {tuning(full.recipe)} reaches the target: {reached}."


def _is_weak(comparison: Comparison, full: Cell) -> bool:
    """Whether the reference is not shown to be above the baseline; False if that cannot be known."""
    curve = comparison.curve
    known = curve.seeds > 1 or comparison.evidence.rows is not None
    return comparison.evidence.chance is not None and known and not curve.learned


def _undecided(comparison: Comparison, best: Recipe, expected: float | None) -> str:
    """The answer if nothing is shown to have learned the task."""
    return (
        f"Undecided: nothing is shown to be above {comparison.baseline}. The best so far is {tuning(best)}: "
        f"expect {comparison.scored(expected)}{comparison.rows(best)}. {LEARN_FIRST}"
    )


def _recommendation(comparison: Comparison, chosen: Recipe, full: Cell, layers: int | None, *, weak: bool) -> str:
    """What to tune; the expected scores of it and of the reference, or of the next best choice; and how sure that is."""
    curve, cells = comparison.curve, comparison.cells
    choices = {one.choice: one for one in curve.choices}
    others = [one for one in curve.choices if one.choice != full.recipe]
    by_value = comparison.settings.sure is None
    is_full = chosen == full.recipe  # the next best choice follows
    beside = max(others, key=lambda one: one.value if by_value else one.probability) if is_full else choices[chosen]
    scores = []
    for name in (chosen, beside.choice if is_full else full.recipe):
        cost = "" if name == full.recipe or name not in cells else _cost(cells[name], full)
        scores.append((score(choices[name].expected), _noun(name), cost))
    (ours, _, our_cost), (theirs, other, their_cost) = scores
    expected = (
        f"Expect {names.metric(comparison.evidence.metric)} {ours}{our_cost}, against {theirs} with {other}{their_cost}"
    )
    rows = comparison.rows(chosen)
    rows = f",{rows}" if rows else ""
    if weak:
        verb = "are" if (full.recipe.k or 0) > 1 else "is"  # the last 2 layers
        above = f"{_noun(full.recipe)} {verb} not yet shown to be above {comparison.baseline}"
        sure = f"The difference is {_difference(beside)} (95 % interval), but {above}"
    else:
        goal = f"{probability(beside.probability)} sure to {comparison.reached(_noun(full.recipe))}"
        subject = capitalized(tuning(beside.choice)) if is_full else "It"
        sure = f"{subject} is {goal} (95 % interval of the difference: {_difference(beside)})"
        if curve.decision and curve.decision.above_baseline is False:
            sure += f". It is not yet shown to be above {comparison.baseline}"
    return f"{_instruction(chosen, curve.cell(chosen), layers)}. {expected}{rows}. {sure}."


def _noun(recipe: Recipe) -> str:
    """A choice without a verb: ``full fine-tuning``, ``the last 2 layers``, ``lora-2``."""
    return tuning(recipe).removeprefix("tuning ").removeprefix("with ")


def _difference(choice: Choice) -> str:
    """The 95 % interval of the points by which a choice is expected to differ from the reference."""
    worst, best = choice.high, choice.low  # points below full fine-tuning
    if best > 0 or worst < 0:
        near, far = sorted((abs(worst), abs(best)))
        return f"{points(near)} to {points(far)} points {'below' if best > 0 else 'above'}"
    return f"{points(worst)} points below to {points(-best)} above"


def _cost(cell: Cell, full: Cell) -> str:
    """What a choice costs beside full fine-tuning; empty if costs cannot be compared, or if the reference tunes no layer."""
    if full.recipe.k == 0:
        return ""
    text = f", at {100 / cell.times_cheaper:.0f} % of the training time" if cell.times_cheaper else ""
    if text and cell.peak_memory_bytes and full.peak_memory_bytes:
        memory = cell.peak_memory_bytes / full.peak_memory_bytes
        text += f" and {100 * memory:.0f} % of the peak memory" if memory < WORTH_A_MENTION else ""
    return text


def _instruction(recipe: Recipe, cell: Cell | None, layers: int | None) -> str:
    """What to tune and for how long, as an instruction."""
    what, epochs = _what(recipe, layers), cell.num_train_epochs if cell and not recipe.is_way else None
    length = recipe.length or (epochs and recipe.for_epochs(epochs).length)
    return f"{what}{',' if ',' in what else ''} for {length}" if length else what


def _what(recipe: Recipe, layers: int | None) -> str:
    if recipe in ALTERNATIVES:
        return f"Train no layer, but fit {tuning(recipe)}"
    if recipe.trained == NAMED:
        return "Tune the named parts"
    pooled = re.fullmatch(rf"{MEAN_POOLED}(?:-(\d+))?", recipe.trained)
    if pooled:  # a search tries them without being asked to
        return f"{_what(Recipe(pooled[1] or FULL), layers)} with a head that reads the mean of all tokens ({recipe.trained})"
    if recipe.is_way:
        return f"Tune with {recipe.trained}"
    k = recipe.k
    if k is None:
        return "Tune all layers and the embeddings"
    if k == 0:
        return "Tune the classifier head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"Tune the last {'layer' if k == 1 else f'{k} layers'}"
    return f"Tune the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"


def _times_not_comparable(cells: Mapping[str, Cell], full: Cell) -> str:
    """A sentence if a k took clearly longer than a larger one, the reference; else empty.

    Fewer layers never take more operations. Measured times also hold what other programs took of the processor.
    """
    smaller = [cell for cell in cells.values() if cell.recipe.is_k and cell.recipe.order < full.recipe.order]
    comparable = [cell for cell in smaller if cell.recipe.epochs == full.recipe.epochs and cell.times_cheaper]
    shares = {cell.recipe: float(cell.seconds or 0.0) / float(full.seconds or 1.0) for cell in comparable}
    longest = max(shares, key=lambda name: shares[name], default=None)
    if longest is None or shares[longest] < CLEARLY_LONGER:
        return ""
    return (
        f" Do not trust the training times: {tuning(longest)} took {100 * shares[longest]:.0f} % of the time of "
        f"{tuning(full.recipe)}, so other programs probably slowed some runs down."
    )


def _not_tried(ks: Sequence[int], ways: Sequence[Recipe]) -> str:
    """A sentence that these values of k, and these ways that the user named, were not trained; empty if there are none."""
    parts = [
        tuning(Recipe(first)) if first == last else f"tuning the last {first} to {last} layers"
        for first, last in ranges(ks)
    ]
    parts += map(tuning, ways)
    return f" {capitalized(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def taken_for_all_layers(curve: SizeAnswer, layers: int | None) -> Recipe | None:
    """The largest k beside full fine-tuning, whose cost is taken for that of all layers because their number is unknown."""
    if layers is not None or curve.reference is None or not curve.reference.is_full:
        return None
    most = max(cell.recipe.k or 0 for cell in curve.cells)
    return Recipe(most) if most else None


def _failed_runs(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """A sentence on the number of failed runs of each of these k; empty if none failed."""
    of_count: dict[tuple[int, int], list[str]] = {}
    for cell in (cells[name] for name in dict.fromkeys(names) if name in cells):
        if cell.failures.failed:
            of_count.setdefault((cell.failures.failed, cell.runs), []).append(tuning(cell.recipe))
    parts = [
        f"{failed} of {runs} runs {'each ' * (len(which) > 1)}of {' and '.join(filter(None, (', '.join(which[:-1]), which[-1])))}"
        for (failed, runs), which in of_count.items()
    ]
    return f" {', and '.join(parts)} failed." if parts else ""
