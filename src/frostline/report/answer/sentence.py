"""The answer for one train size in sentences: what to tune, how it compares with full fine-tuning, and how sure that is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from frostline.data.wording import capitalized, ranges
from frostline.report import formatting, names
from frostline.report.formatting import points, probability, score
from frostline.report.names import tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Choice, Difference, SizeAnswer
from frostline.statistics.evidence import Evidence
from frostline.statistics.inference import Ratio
from frostline.statistics.recipe import NAMED, Recipe
from frostline.statistics.run_group import NO_SEARCH, SearchOutcome
from frostline.statistics.run_result import ALTERNATIVES, Alternative, Scored


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
        """All cells but that of named parts."""
        return {cell.recipe: cell for cell in self.curve.cells if cell.recipe != NAMED}

    @property
    def finished(self) -> int:
        """The number of finished runs."""
        return sum(cell.runs for cell in self.curve.cells)

    @property
    def baseline(self) -> str:
        """The name of the baseline that gains are measured from."""
        return names.baseline(self.evidence.metric)

    @property
    def of_gain(self) -> bool:
        """Whether shares are of the gain over the baseline instead of the score."""
        return self.settings.corrected and self.evidence.chance is not None

    @property
    def whole(self) -> str:
        """What shares are of."""
        return f"gain over the {self.baseline}" if self.of_gain else "score"

    def share(self, cell: Cell) -> Ratio | None:
        """The share of full fine-tuning that the sentence reports; None if it is undefined."""
        return cell.share_corrected if self.of_gain else cell.share

    def scored(self, value: float | None) -> str:
        """A score with the name of the metric."""
        return f"{names.metric(self.evidence.metric)} {score(value)}"

    def is_above_baseline(self, runs: Sequence[Scored], among: int | None = None) -> bool:
        """Whether runs are shown to be above the baseline; ``among``: the number of all finished runs."""
        return bool(self.evidence.learned(runs, self.finished if among is None else among))

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


def full_score(full: Cell, comparison: Comparison, beside: Choice | None = None) -> str:
    """The mean score of full fine-tuning as a clause; beside a choice, on the rows that both are scored on."""
    if beside is None or beside.reference_score is None:
        return f"{tuning(full.recipe)} reaches {comparison.scored(full.validation.mean)}"
    return f"{tuning(full.recipe)} reaches {comparison.scored(beside.reference_score)}{_on_same_rows(beside)}"


def _on_same_rows(choice: Choice) -> str:
    """A remark if the scores of a choice and of the reference are of a part of the rows that one of them is scored on."""
    return " on the same rows" if choice.part_of_rows else ""


def _seeds_shown(cell: Cell, seeds: int) -> str:
    """The seeds of a cell's mean, with the verb ``do``."""
    good = cell.validation.n
    if good == seeds:
        return "one seed does" if seeds == 1 else f"{seeds} seeds do"
    others = "failed" if cell.runs == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"


NEARLY_PERFECT = 0.95  # a score on training examples that leaves little to learn
UNFITTED = 2 / 3  # the error on training examples as a share of that on validation, from which more epochs help
LONGER = 3.3  # times as many epochs, which are then tried
CLEARLY_LONGER = 1.1  # times as long; fewer layers never take longer by themselves


def _numbers(names: Iterable[str]) -> list[int]:
    """The numbers of layers among these values of k."""
    return [k for name in names if (k := Recipe(name).k) is not None]


def _times_not_comparable(cells: Mapping[str, Cell], full: Cell) -> str:
    """A sentence if a k took clearly longer than a larger one, the reference; else empty.

    Fewer layers never take more operations. Measured times also hold what other programs took of the processor.
    """
    alike = [cell for cell in cells.values() if cell.recipe.is_k and cell.recipe.epochs == full.recipe.epochs]
    comparable = [cell for cell in alike if cell is not full and cell.times_cheaper]
    shares = {cell.recipe: float(cell.seconds or 0.0) / float(full.seconds or 1.0) for cell in comparable}
    longest = max(shares, key=lambda name: shares[name], default=None)
    if longest is None or shares[longest] < CLEARLY_LONGER:
        return ""
    return (
        f" Do not trust the training times: {tuning(longest)} took {100 * shares[longest]:.0f} % of the time of "
        f"{tuning(full.recipe)}, so other programs probably slowed some runs down."
    )


def _trained_too_little(full: Cell, longest: float | None) -> str:
    """A sentence if the reference has not fitted the examples that it was trained on, in the longest training; else empty.

    Its error on them (1 - score) is then not much smaller than on validation. ``docs/log.md`` has the tasks behind the limit.
    """
    on_train, on_validation = full.train_last.mean, full.validation_last.mean
    trains_layers = full.tuned_layers or full.tune_embeddings
    if longest is not None and (full.recipe.epochs or longest) < longest:
        return ""
    if not trains_layers or on_train is None or on_validation is None or on_train >= NEARLY_PERFECT:
        return ""
    if 1 - on_train < UNFITTED * (1 - on_validation):
        return ""
    epochs = full.num_train_epochs or 3
    longer = f"--num-train-epochs {epochs:g},{ceil(LONGER * epochs)}"
    return (
        f" {capitalized(tuning(full.recipe))} scores {score(on_train)} on examples that it was trained on and "
        f"{score(on_validation)} on validation. It has not fitted its examples yet, so longer training may help: add {longer}."
    )


def _not_tried(ks: Sequence[int]) -> str:
    """A sentence that these values of k were not trained; empty if there are none."""
    parts = [
        tuning(Recipe(first)) if first == last else f"tuning the last {first} to {last} layers"
        for first, last in ranges(ks)
    ]
    return f" {capitalized(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def _failed_runs(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """A sentence on the number of failed runs of each of these k; empty if none failed."""
    parts = [
        f"{cell.failures.failed} of {cell.runs} runs of {tuning(cell.recipe)} failed"
        for cell in (cells[name] for name in dict.fromkeys(names))
        if cell.failures.failed
    ]
    return f" {' and '.join(parts)}." if parts else ""


NOT_ON_SAME_ROWS = "; {} was not scored on the same rows"
WORTH_A_MENTION = 0.95  # of full fine-tuning's memory


def sentence(comparison: Comparison, layers: int | None, search: SearchOutcome = NO_SEARCH) -> str:
    """The answer for one train size.

    Args:
        comparison: The curve with its decision and recommendation, and the quantity that k is compared by.
        layers: The number of layers of the model, if it is known.
        search: The outcome of a search, if there was one.
    """
    curve, cells = comparison.curve, comparison.cells
    recommended, named = curve.recommended, curve.cell(NAMED)
    if recommended is None:
        advice = f" {LEARN_FIRST}" if comparison.finished else ""
        return (
            _without_training(comparison) if curve.decision else f"There is no answer: {no_usable_run(curve)}.{advice}"
        )
    if curve.reference is None:
        if named:
            return _named_parts_only(named, comparison)
        reached = comparison.scored(cells[recommended.recipe].validation.mean)
        why = "no run of full fine-tuning or of the last k layers succeeded"
        return f"Nothing was compared: {why}. The best way, {recommended.recipe}, reaches {reached}."
    cell, full = cells[recommended.recipe], cells[curve.reference]
    of_table = comparison.evidence.rows is None
    if len(cells) == 1 and of_table:
        return f"Nothing was compared: {full_score(full, comparison)}, and the table holds no other k."
    if comparison.settings.by_mean:
        return _by_mean(comparison, cells.get(curve.deciding_point.estimate or ""), full)
    only_constant = [
        name for name, one in cells.items() if 0 < one.runs == one.failures.diverged + one.failures.degenerate
    ]
    if weak := _weak_reference(comparison, cell, full):
        return f"{_beside_weak_reference(comparison, cell, full, weak, layers)}{_failed_runs(only_constant, cells)}"
    text = _recommendation(comparison, cell, full, layers)
    text += _failed_runs((cell.recipe, full.recipe, *only_constant), cells)
    text += _not_tried([k for k in _numbers(search.skipped) if cell.tune_embeddings or k < (cell.tuned_layers or 0)])
    if named:
        share = comparison.share(named)
        known = share is not None and share.estimate is not None
        unknown = "cannot be compared: none of their runs has succeeded so far"
        text += f" The named parts {f'reach {comparison.with_full(named, full)}' if known else unknown}."
    if not (search.instead or len(cells) < 2 or any(one.tune_embeddings for one in cells.values())):
        text += " Full fine-tuning was not run here." if of_table else _add_full(cells, search)
    return text + _times_not_comparable(cells, full) + _trained_too_little(full, comparison.settings.longest)


def no_usable_run(curve: SizeAnswer) -> str:
    """Why no run has a usable score, as a clause."""
    done = sum(cell.runs for cell in curve.cells)
    return f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"


def reference_missing(reference: str, best: str | None, mean: float | None, metric: str) -> str:
    """The sentence while no run of the reference has ended; ``best`` is the best choice so far, with its mean score."""
    text = f"No answer yet: {tuning(reference)}, the reference of every comparison, has not run."
    return f"{text} The best so far, {tuning(best)}, reaches {names.metric(metric)} {score(mean)}." if best else text


def _named_parts_only(named: Cell, comparison: Comparison) -> str:
    """The answer if only named parts have a score."""
    scores, evidence = named.validation, comparison.evidence
    basis = "one seed" if scores.n == 1 else f"{scores.n} seeds"
    if scores.low is not None:
        basis += f", 95 % confidence interval {formatting.score_interval(scores.low, scores.high)}"
    if evidence.chance is not None:
        basis += f"; {comparison.baseline} {score(evidence.baseline(named.in_mean))}"
    others = (
        "no other run has succeeded so far"
        if comparison.cells
        else "add numbers of layers and full to --tune to compare"
    )
    return f"The named parts reach {comparison.scored(scores.mean)} ({basis}). Nothing was compared: {others}."


def _add_full(cells: Iterable[str], search: SearchOutcome) -> str:
    """A sentence that full fine-tuning was not run, so that it is not the reference, and how to add it."""
    ways = ", or full to --ways of `compare`" if any(Recipe(name).is_way for name in cells) else ""
    return (
        f" Full fine-tuning was not run: {f'add full to --tune{ways}' if search is NO_SEARCH else 'leave out --max-k'}."
    )


def _by_mean(comparison: Comparison, smallest: Cell | None, full: Cell) -> str:
    """The answer of an analysis that decides by mean scores instead of probabilities."""
    if smallest and smallest is not full:
        return f"By mean score, {tuning(smallest.recipe)} reaches the target: {comparison.with_full(smallest, full)}."
    reached = comparison.scored(full.validation.mean)
    return f"By mean score, no smaller k than {tuning(full.recipe)} reaches the target: {reached}."


def _recommendation(comparison: Comparison, cell: Cell, full: Cell, layers: int | None) -> str:
    """What to tune, its score beside full fine-tuning, its cost, and how sure it is to reach the target."""
    curve, largest = comparison.curve, _largest(full, len(comparison.cells))
    begin = f"{_instruction(cell, layers)}{largest if cell is full else ''}: "
    choice: Choice | None = curve.decision
    if cell is full:  # the next best choice follows
        others = [one for one in curve.choices if one.choice != cell.recipe]
        choice = max(
            others, key=lambda one: one.value if comparison.settings.sure is None else one.probability, default=None
        )
    if choice is None:
        return f"{begin}{comparison.scored(cell.validation.mean)}{_of_seeds(cell.validation.n)}."
    same, other, noun = choice.reference_score, comparison.cells.get(choice.choice), _noun(full.recipe)
    cost = _cost(other, full) if other else ""
    if cell is full:
        subject, whose = capitalized(tuning(choice.choice)), "Its"
        seeds, whole = full.validation.n, full.validation.mean
        ours, seeds = (whole, seeds) if same is None else (same, min(seeds, choice.compared_seeds or seeds))
        known = f". {subject} reaches {score(choice.score)}{_on_same_rows(choice)}"
        unknown = NOT_ON_SAME_ROWS.format(subject)
    else:
        subject, whose = "It", "The"
        ours, seeds = choice.score, choice.compared_seeds or cell.validation.n
        known = f" against {score(same)} with {noun}{largest}{_on_same_rows(choice)}"
        unknown = NOT_ON_SAME_ROWS.format(noun)
    begin += f"{comparison.scored(ours)}{_of_seeds(seeds)}{unknown if same is None else known}{cost}."
    sure = f"{subject} is {probability(choice.probability)} sure to {comparison.reached(noun)}."
    return f"{begin} {_difference(choice, whose)} {sure}"


def _beside_weak_reference(comparison: Comparison, cell: Cell, full: Cell, weak: str, layers: int | None) -> str:
    """The answer if full fine-tuning has not learned the task: the recommended choice if that one has, else none.

    ``weak`` says why full fine-tuning is not shown to be above the baseline, as a clause.
    """
    runs = sum(one.runs for one in comparison.cells.values())
    if cell is full or not comparison.is_above_baseline(cell.in_mean, runs):
        return f"Undecided: {weak}. {LEARN_FIRST}"
    decision = comparison.curve.decision
    reached = comparison.scored(decision.score if decision else None)
    advice = "To compare fairly, train with more epochs, another learning rate or more examples."
    above = f"which is above the {comparison.baseline}"
    return f"{_instruction(cell, layers)}: {reached}, {above}. {capitalized(weak)}. {advice}"


def _weak_reference(comparison: Comparison, cell: Cell, full: Cell) -> str:
    """Why full fine-tuning is not shown to be above the baseline, as a clause; empty if it is, or if the baseline is unknown.

    ``cell`` is the recommended one.
    """
    evidence, curve = comparison.evidence, comparison.curve
    if evidence.chance is None:
        return ""
    both = cell is not full and comparison.is_above_baseline(cell.in_mean)
    shown = [one.in_mean for one in ([full, cell] if both else [full])]
    fewest = min(shown, key=lambda runs: evidence.rows_of(run.run for run in runs) or 0)
    baseline = f"the {comparison.baseline} ({score(evidence.baseline(fewest))})"
    reached = full_score(full, comparison, curve.decision if both else None)
    if not curve.learned and (curve.seeds > 1 or evidence.rows is not None):
        return f"{reached}, and {_seeds_shown(full, curve.seeds)} not show that this is above {baseline}"
    share = comparison.share(cell)
    return f"{reached}, which is not above {baseline}" if share is None or share.estimate is None else ""


def _without_training(comparison: Comparison) -> str:
    """The recommendation of a model that trains no layer."""
    curve = comparison.curve
    choice, full = curve.decision, curve.cell(curve.reference)
    assert choice is not None
    begin = f"Train no layer: {tuning(choice.choice)} reaches {comparison.scored(choice.score)}"
    if full is None:
        return f"{begin}. No k can be compared with it: {no_usable_run(curve)}."
    if not comparison.is_above_baseline([Alternative(choice.choice)], len(curve.choices)):
        reached = full_score(full, comparison, choice)
        best = f"The best so far is {tuning(choice.choice)} ({score(choice.score)})."
        return f"Undecided: {reached}, and nothing is shown to be above the {comparison.baseline}. {best} {LEARN_FIRST}"
    noun, same = _noun(full.recipe), choice.reference_score
    known = f" against {score(same)} with {noun}{_largest(full, len(curve.cells))}{_on_same_rows(choice)}"
    begin += f"{NOT_ON_SAME_ROWS.format(noun) if same is None else known}."
    sure = f"It is {probability(choice.probability)} sure to {comparison.reached(noun)}."
    return f"{begin} {_difference(choice)} {sure}{_trained_too_little(full, comparison.settings.longest)}"


def _largest(full: Cell, count: int) -> str:
    """What the reference is, if it is not full fine-tuning and not the only k; else empty."""
    return "" if full.tune_embeddings or count == 1 else ", the largest k with a score"


def _noun(name: str) -> str:
    """A k without a verb: ``full fine-tuning``, ``the last 2 layers``."""
    return tuning(name).removeprefix("tuning ")


def _difference(choice: Choice, whose: str = "The") -> str:
    """A sentence with the 95 % interval of the points by which a choice is expected to differ from full fine-tuning."""
    worst, best = choice.high, choice.low  # points below full fine-tuning
    if best > 0 or worst < 0:
        near, far = sorted((abs(worst), abs(best)))
        ends = f"{points(near)} to {points(far)} points {'below' if best > 0 else 'above'}"
    else:
        ends = f"{points(worst)} points below to {points(-best)} above"
    return f"{whose} expected difference is {ends} (95 % interval)."


def _cost(cell: Cell, full: Cell) -> str:
    """What a choice costs beside full fine-tuning; empty if costs cannot be compared."""
    text = f", at {100 / cell.times_cheaper:.0f} % of the training time" if cell.times_cheaper else ""
    if text and cell.peak_memory_bytes and full.peak_memory_bytes:
        memory = cell.peak_memory_bytes / full.peak_memory_bytes
        text += f" and {100 * memory:.0f} % of the peak memory" if memory < WORTH_A_MENTION else ""
    return text


def _of_seeds(seeds: int) -> str:
    """That a score is of one seed, if it is."""
    return " with one seed" if seeds == 1 else ""


def _instruction(cell: Cell, layers: int | None) -> str:
    """What to tune, as an instruction, with the training length if there are several."""
    what, length = _what(cell, layers), cell.recipe.length
    return f"{what}{',' if ',' in what else ''} for {length}" if length else what


def _what(cell: Cell, layers: int | None) -> str:
    if cell.recipe in ALTERNATIVES:
        return f"Train no layer, but fit {tuning(cell.recipe)}"
    if cell.recipe.is_way:
        return f"Tune with {cell.recipe.trained}"
    if cell.tune_embeddings:
        return "Tune all layers and the embeddings"
    k = cell.tuned_layers or 0
    if k == 0:
        return "Tune the classifier head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"Tune the last {'layer' if k == 1 else f'{k} layers'}"
    return f"Tune the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"
