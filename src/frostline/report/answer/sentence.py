"""The answer for one train size in sentences: what to tune, how it compares with full fine-tuning, and how sure that is."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass

from frostline.data.wording import capitalized, ranges
from frostline.report import formatting, names
from frostline.report.formatting import points, probability, score, score_interval
from frostline.report.names import tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Choice, Difference, SizeAnswer
from frostline.statistics.evidence import Evidence
from frostline.statistics.inference import Ratio
from frostline.statistics.recipe import NAMED, Recipe
from frostline.statistics.run_group import NO_SEARCH, SearchOutcome
from frostline.statistics.run_result import ALTERNATIVES, Alternative


@dataclass(frozen=True)
class Comparison:
    """The quantity that k is compared by: its share of full fine-tuning's score or gain, or the difference of their scores."""

    evidence: Evidence
    settings: AnalysisSettings

    @property
    def metric(self) -> str:
        """The printed name of the metric."""
        return names.metric(self.evidence.metric)

    @property
    def baseline(self) -> str:
        """The name of the baseline that gains are measured from."""
        return names.baseline(self.evidence.metric)

    @property
    def of_gain(self) -> bool:
        """Whether shares are of the gain over the baseline instead of the score."""
        return self.settings.corrected and self.evidence.chance is not None

    def share(self, cell: Cell) -> Ratio | None:
        """The share of full fine-tuning that the sentence reports; None if it is undefined."""
        return cell.share_corrected if self.of_gain else cell.share

    @property
    def threshold(self) -> str:
        """The value that the whole interval must lie above."""
        return f"−{self.settings.margin:g}" if self.settings.by_margin else f"{100 * self.settings.target:g} %"

    def reached(self, full: str) -> str:
        """What reaching the target means, after ``to``; ``full`` is the name of the reference."""
        if self.settings.by_margin:
            return f"come within {self.settings.margin:g} of {full}"
        possessive = f"{full}'" if full.endswith("s") else f"{full}'s"
        return f"reach {self.threshold} of {possessive} {self._whole}"

    def with_full(self, cell: Cell, full: Cell) -> str:
        """The scores of a cell and of full fine-tuning, and the share or difference with its interval."""
        assert cell.difference is not None
        ours, full_mean = cell.difference.means  # of the runs that are compared
        one_seed = cell.validation.n == 1 and full_mean != full.validation.mean
        scores = f"{self.metric} {formatting.score(ours)} against {formatting.score(full_mean)}"
        scores += f" with {names.tuning(full.recipe)}"
        if one_seed:
            scores += " on the one seed that both have"
        if self.settings.by_margin:
            difference = cell.difference
            interval = _interval(difference, formatting.difference)
            return f"{scores}, a difference of {formatting.difference(difference.estimate)}{interval}"
        share = self.share(cell)
        assert share is not None
        interval = _interval(share, formatting.percent_number)
        return f"{scores}, {formatting.percent_number(share.estimate)} % of the {self._whole}{interval}"

    @property
    def _whole(self) -> str:
        return f"gain over the {self.baseline}" if self.of_gain else "score"


def _interval(estimate: Ratio | Difference, show: Callable[[float], str]) -> str:
    """The confidence interval of an estimate in parentheses; empty if it is unknown."""
    low, high = estimate.low, estimate.high
    if low is None:
        return ""
    return f" (95 % confidence interval {show(low)} to {formatting.NO_BOUND if high is None else show(high)})"


LEARN_FIRST = "To learn the task, train with more epochs, another learning rate or more examples."


def no_score(answer: SizeAnswer) -> str:
    """The sentence if nothing has a usable score."""
    advice = f" {LEARN_FIRST}" if any(cell.runs for cell in answer.cells) else ""
    return f"There is no answer: {no_usable_run(answer)}.{advice}"


def no_usable_run(answer: SizeAnswer) -> str:
    """Why no run has a usable score, as a clause."""
    done = sum(cell.runs for cell in answer.cells)
    return f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"


def only_ways(answer: SizeAnswer, best: str, comparison: Comparison) -> str:
    """The sentence if ways to tune have scores, but no k has one that they could be compared with."""
    cell = next(cell for cell in answer.cells if cell.recipe == best)
    reached = f"{comparison.metric} {score(cell.validation.mean)}"
    why = "no run of full fine-tuning or of the last k layers succeeded"
    return f"Nothing was compared: {why}. The best way, {best}, reaches {reached}."


def reference_missing(reference: str, best: str | None, mean: float | None, metric: str) -> str:
    """The sentence while no run of the reference has ended; ``best`` is the best choice so far, with its mean score."""
    text = f"No answer yet: {tuning(reference)}, the reference of every comparison, has not run."
    return f"{text} The best so far, {tuning(best)}, reaches {names.metric(metric)} {score(mean)}." if best else text


def not_learned(answer: SizeAnswer, cell: Cell, full: Cell, comparison: Comparison) -> str:
    """Why full fine-tuning is not shown to be above the baseline, as a clause; empty if it is, or if the baseline is unknown.

    Args:
        answer: The curve with its recommendation.
        cell: The recommended cell.
        full: The cell of full fine-tuning.
        comparison: The quantity that k is compared by.
    """
    evidence, seeds = comparison.evidence, answer.seeds
    if evidence.chance is None:
        return ""
    among = sum(one.runs for one in answer.cells)
    shown = [full, cell] if cell is not full and is_above_baseline(cell, comparison, among=among) else [full]
    fewest = min((one.in_mean for one in shown), key=lambda runs: evidence.rows_of(run.run for run in runs) or 0)
    baseline = f"the {comparison.baseline} ({score(evidence.baseline(fewest))})"
    reached = full_score(full, comparison, answer.decision if cell in shown[1:] else None)
    if not answer.learned and (seeds > 1 or evidence.rows is not None):
        return f"{reached}, and {_seeds_shown(full, seeds)} not show that this is above {baseline}"
    share = comparison.share(cell)
    return f"{reached}, which is not above {baseline}" if share is None or share.estimate is None else ""


def full_score(full: Cell, comparison: Comparison, beside: Choice | None = None) -> str:
    """The mean score of full fine-tuning as a clause; beside a choice, on the rows that both are scored on."""
    if beside is None or beside.reference_score is None:
        return f"{tuning(full.recipe)} reaches {comparison.metric} {score(full.validation.mean)}"
    return f"{tuning(full.recipe)} reaches {comparison.metric} {score(beside.reference_score)}{on_same_rows(beside)}"


def on_same_rows(choice: Choice) -> str:
    """A remark if the scores of a choice and of the reference are of a part of the rows that one of them is scored on."""
    return " on the same rows" if choice.part_of_rows else ""


def is_above_baseline(cell: Cell, comparison: Comparison, *, among: int) -> bool:
    """Whether a cell is shown to be above the baseline; ``among``: the number of all runs."""
    return bool(comparison.evidence.learned(cell.in_mean, among))


def _seeds_shown(cell: Cell, seeds: int) -> str:
    """The seeds of a cell's mean, with the verb ``do``."""
    good = cell.validation.n
    if good == seeds:
        return "one seed does" if seeds == 1 else f"{seeds} seeds do"
    others = "failed" if cell.runs == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"


NEARLY_PERFECT = 0.95  # a score on training examples that leaves little to learn
UNFITTED = 2 / 3  # the error on training examples as a share of that on validation, from which more epochs help
CLEARLY_LONGER = 1.1  # times as long; fewer layers never take longer by themselves


def smaller(cell: Cell, names: Iterable[str]) -> list[int]:
    """The numbers of layers among these values of k that are smaller than the k of the cell."""
    ks = [k for name in names if (k := Recipe(name).k) is not None]
    return [k for k in ks if cell.tune_embeddings or k < (cell.tuned_layers or 0)]


def times_not_comparable(cells: Mapping[str, Cell], full: Cell) -> str:
    """A sentence if a k took clearly longer than a larger one, the reference; else empty.

    Fewer layers never take more operations. Measured times also hold what other programs took of the processor.
    """
    comparable = [cell for name, cell in cells.items() if Recipe(name).is_k and cell is not full and cell.times_cheaper]
    shares = {cell.recipe: float(cell.seconds or 0.0) / float(full.seconds or 1.0) for cell in comparable}
    longest = max(shares, key=lambda name: shares[name], default=None)
    if longest is None or shares[longest] < CLEARLY_LONGER:
        return ""
    return (
        f" Do not trust the training times: {tuning(longest)} took {100 * shares[longest]:.0f} % of the time of "
        f"{tuning(full.recipe)}, so other programs probably slowed some runs down."
    )


def trained_too_little(full: Cell) -> str:
    """A sentence if the reference has not fitted the examples that it was trained on; else empty.

    Its error on them (1 - score) is then not much smaller than on validation. ``docs/log.md`` has the tasks behind the limit.
    """
    on_train, on_validation = full.train_last.mean, full.validation_last.mean
    trains_layers = full.tuned_layers or full.tune_embeddings
    if not trains_layers or on_train is None or on_validation is None or on_train >= NEARLY_PERFECT:
        return ""
    if 1 - on_train < UNFITTED * (1 - on_validation):
        return ""
    return (
        f" {capitalized(tuning(full.recipe))} scores {score(on_train)} on examples that it was trained on and "
        f"{score(on_validation)} on validation. It has not fitted its examples yet, so a higher --num-train-epochs may help."
    )


def not_tried(ks: Sequence[int]) -> str:
    """A sentence that these values of k were not trained; empty if there are none."""
    parts = [
        tuning(Recipe(first)) if first == last else f"tuning the last {first} to {last} layers"
        for first, last in ranges(ks)
    ]
    return f" {capitalized(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def only_constant(cell: Cell) -> bool:
    """Whether a cell has finished runs, and all of them diverged or predict a constant."""
    return bool(0 < cell.runs == cell.failures.diverged + cell.failures.degenerate)


def failed_runs(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """A sentence on the number of failed runs of each of these k; empty if none failed."""
    parts = [
        f"{cell.failures.failed} of {cell.runs} runs of {tuning(cell.recipe)} failed"
        for cell in (cells[name] for name in dict.fromkeys(names))
        if cell.failures.failed
    ]
    return f" {' and '.join(parts)}." if parts else ""


def named_parts_only(named: Cell, comparison: Comparison, *, others: bool) -> str:
    """The answer if only named parts have a score; ``others``: whether some k has finished or pending runs."""
    scores = named.validation
    basis = "one seed" if scores.n == 1 else f"{scores.n} seeds"
    if scores.low is not None:
        basis += f", 95 % confidence interval {score_interval(scores.low, scores.high)}"
    if comparison.evidence.chance is not None:
        runs = [point for point in named.points if point.in_mean]
        basis += f"; {comparison.baseline} {score(comparison.evidence.baseline(runs))}"
    why = "no other run has succeeded so far" if others else "add numbers of layers and full to --tune to compare"
    reached = f"{comparison.metric} {score(scores.mean)}"
    return f"The named parts reach {reached} ({basis}). Nothing was compared: {why}."


def named_parts(named: Cell | None, full: Cell, comparison: Comparison) -> str:
    """A sentence on the named parts, after the answer about k; empty if there are none."""
    if named is None:
        return ""
    share = comparison.share(named)
    if share is None or share.estimate is None:
        return " The named parts cannot be compared: none of their runs has succeeded so far."
    return f" The named parts reach {comparison.with_full(named, full)}."


def full_not_run(cells: Mapping[str, Cell], comparison: Comparison, search: SearchOutcome) -> str:
    """A sentence that full fine-tuning was not run, so that it is not the reference; empty if it was run.

    A search that could not run it has a sentence of its own.
    """
    if search.instead or len(cells) < 2 or any(cell.tune_embeddings for cell in cells.values()):
        return ""
    if comparison.evidence.rows is None:
        return " Full fine-tuning was not run here."
    remedy = "add full to --tune" + (
        ", or full to --ways of `compare`" if any(Recipe(name).is_way for name in cells) else ""
    )
    return f" Full fine-tuning was not run: {remedy if search is NO_SEARCH else 'leave out --max-k'}."


NOT_ON_SAME_ROWS = "; {} was not scored on the same rows"
WORTH_A_MENTION = 0.95  # of full fine-tuning's memory


@dataclass(frozen=True)
class Recommendation:
    """The recommended cell, the reference, and what is known about both."""

    answer: SizeAnswer
    comparison: Comparison
    layers: int | None
    cells: Mapping[str, Cell]  # without named parts
    cell: Cell
    full: Cell  # full fine-tuning, or the largest k with a score

    @property
    def full_name(self) -> str:
        """The reference, as a noun without a verb."""
        return _noun(self.full.recipe)

    @property
    def runner_up(self) -> Choice | None:
        """The best choice besides the recommended one; None if there is no other."""
        others = [one for one in self.answer.choices if one.choice != self.cell.recipe]
        return max(
            others,
            key=lambda one: one.value if self.comparison.settings.sure is None else one.probability,
            default=None,
        )


def sentence(
    answer: SizeAnswer,
    comparison: Comparison,
    layers: int | None,
    search: SearchOutcome = NO_SEARCH,
) -> str:
    """The answer for one train size.

    Args:
        answer: The curve with its decision and recommendation.
        comparison: The quantity that k is compared by.
        layers: The number of layers of the model, if it is known.
        search: The outcome of a search, if there was one.
    """
    recommended = answer.recommended
    if recommended is None:
        return _without_training(answer, comparison) if answer.decision else no_score(answer)
    named = next((cell for cell in answer.cells if cell.recipe == NAMED), None)
    if answer.reference is None:
        if named is None:
            return only_ways(answer, recommended.recipe, comparison)
        return named_parts_only(named, comparison, others=len(answer.cells) > 1)
    cells: dict[str, Cell] = {cell.recipe: cell for cell in answer.cells if cell is not named}
    cell, full = cells[recommended.recipe], cells[answer.reference]
    found = Recommendation(answer, comparison, layers, cells, cell, full)
    if len(cells) == 1 and comparison.evidence.rows is None:
        return f"Nothing was compared: {full_score(full, comparison)}, and the table holds no other k."
    if comparison.settings.by_mean:
        return _by_mean(found, cells.get(answer.deciding_point.estimate or ""))
    no_answers = [name for name, one in cells.items() if only_constant(one)]
    if weak := not_learned(answer, cell, full, comparison):
        return f"{_beside_weak_reference(found, weak)}{failed_runs(no_answers, cells)}"
    failed = failed_runs((cell.recipe, full.recipe, *no_answers), cells)
    left_out = not_tried(smaller(cell, search.skipped))
    beside = named_parts(named, full, comparison) + full_not_run(cells, comparison, search)
    beside += times_not_comparable(cells, full) + trained_too_little(full)
    return f"{_recommendation(found)}{failed}{left_out}{beside}"


def _by_mean(found: Recommendation, smallest: Cell | None) -> str:
    """The answer of an analysis that decides by mean scores instead of probabilities."""
    if smallest and smallest is not found.full:
        subject = f"By mean score, {tuning(smallest.recipe)} reaches the target"
        return f"{subject}: {found.comparison.with_full(smallest, found.full)}."
    reached = f"{found.comparison.metric} {score(found.full.validation.mean)}"
    return f"By mean score, no smaller k than {tuning(found.full.recipe)} reaches the target: {reached}."


def _recommendation(found: Recommendation) -> str:
    """What to tune, its score beside full fine-tuning, its cost, and how sure it is to reach the target."""
    cell, full = found.cell, found.full
    largest = _largest(full, found.cells)
    begin = f"{_instruction(found)}{largest if cell is full else ''}: {found.comparison.metric}"
    choice = found.runner_up if cell is full else found.answer.decision
    if choice is None:
        return f"{begin} {_with_seeds(cell.validation.mean, cell.validation.n)}."
    subject, same, other = "It", choice.reference_score, found.cells.get(choice.choice)
    cost = _cost(other, full) if other else ""
    if cell is not full:
        begin += f" {_with_seeds(choice.score, choice.compared_seeds or cell.validation.n)}"
        known = f" against {score(same)} with {found.full_name}{largest}{on_same_rows(choice)}"
        begin += f"{NOT_ON_SAME_ROWS.format(found.full_name) if same is None else known}{cost}."
    else:
        subject = capitalized(tuning(choice.choice))
        mean, seeds = full.validation.mean, full.validation.n
        begin += f" {_with_seeds(mean, seeds) if same is None else _with_seeds(same, min(seeds, choice.compared_seeds or seeds))}"
        known = f". {subject} reaches {score(choice.score)}{on_same_rows(choice)}"
        begin += f"{NOT_ON_SAME_ROWS.format(subject) if same is None else known}{cost}."
    sure = f"{subject} is {probability(choice.probability)} sure to {found.comparison.reached(found.full_name)}."
    return f"{begin} {_difference(choice, 'Its' if cell is full else 'The')} {sure}"


def _with_seeds(value: float | None, seeds: int) -> str:
    """A score, and that it is of one seed if it is."""
    return f"{score(value)} with one seed" if seeds == 1 else score(value)


def _largest(full: Cell, cells: Sized) -> str:
    """What the reference is, if it is not full fine-tuning and not the only k; else empty."""
    return "" if full.tune_embeddings or len(cells) == 1 else ", the largest k with a score"


def _beside_weak_reference(found: Recommendation, weak: str) -> str:
    """The answer if full fine-tuning has not learned the task: the recommended choice if that one has, else none.

    Args:
        found: The recommended cell and the reference.
        weak: Why full fine-tuning is not shown to be above the baseline, as a clause.
    """
    runs = sum(cell.runs for cell in found.cells.values())
    if found.cell is found.full or not is_above_baseline(found.cell, found.comparison, among=runs):
        return f"Undecided: {weak}. {LEARN_FIRST}"
    decision = found.answer.decision
    reached = f"{found.comparison.metric} {score(decision.score if decision else None)}"
    advice = "To compare fairly, train with more epochs, another learning rate or more examples."
    return f"{_instruction(found)}: {reached}, which is above the {found.comparison.baseline}. {capitalized(weak)}. {advice}"


def _without_training(answer: SizeAnswer, comparison: Comparison) -> str:
    """The recommendation of a model that trains no layer."""
    choice, full = answer.decision, answer.cell(answer.reference)
    assert choice is not None
    begin = f"Train no layer: {tuning(choice.choice)} reaches {comparison.metric} {score(choice.score)}"
    if full is None:
        return f"{begin}. No k can be compared with it: {no_usable_run(answer)}."
    if not comparison.evidence.learned([Alternative(choice.choice)], among=len(answer.choices)):
        reached = full_score(full, comparison, choice)
        best = f"The best so far is {tuning(choice.choice)} ({score(choice.score)})."
        return f"Undecided: {reached}, and nothing is shown to be above the {comparison.baseline}. {best} {LEARN_FIRST}"
    full_name = _noun(full.recipe)
    if choice.reference_score is None:
        begin += f"{NOT_ON_SAME_ROWS.format(full_name)}."
    else:
        largest = _largest(full, answer.cells)
        begin += f" against {score(choice.reference_score)} with {full_name}{largest}{on_same_rows(choice)}."
    sure = f"It is {probability(choice.probability)} sure to {comparison.reached(full_name)}."
    return f"{begin} {_difference(choice)} {sure}{trained_too_little(full)}"


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


def _instruction(found: Recommendation) -> str:
    """What to tune, as an instruction."""
    recommended, layers = found.cell, found.layers
    if recommended.recipe in ALTERNATIVES:
        return f"Train no layer, but fit {tuning(recommended.recipe)}"
    if Recipe(recommended.recipe).is_way:
        return f"Tune with {recommended.recipe}"
    if recommended.tune_embeddings:
        return "Tune all layers and the embeddings"
    k = recommended.tuned_layers or 0
    if k == 0:
        return "Tune the classifier head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"Tune the last {'layer' if k == 1 else f'{k} layers'}"
    return f"Tune the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"
