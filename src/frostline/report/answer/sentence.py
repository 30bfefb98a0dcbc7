"""The answer for one train size in sentences: what to tune, how it compares with full fine-tuning, and how sure that is."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

from frostline.data.wording import capitalized
from frostline.report.answer import remarks, undecided
from frostline.report.answer.comparison import Comparison
from frostline.report.answer.search_outcome import NO_SEARCH, SearchOutcome
from frostline.report.answer.undecided import on_same_rows
from frostline.report.formatting import points, probability, score
from frostline.report.names import tuning
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.recipe import NAMED, Recipe
from frostline.statistics.run_result import ALTERNATIVES, Alternative

NOT_ON_SAME_ROWS = "; {} was not scored on the same rows"
WORTH_A_MENTION = 0.95  # of full fine-tuning's memory


@dataclass(frozen=True)
class Recommendation:
    """The recommended cell, the reference, and what is known about both."""

    answer: Mapping[str, Any]
    comparison: Comparison
    layers: int | None
    cells: Mapping[str, Cell]  # without named parts
    cell: Cell
    full: Cell  # full fine-tuning, or the largest k with a score

    @property
    def full_name(self) -> str:
        """The reference, as a noun without a verb."""
        return _noun(self.full["recipe"])

    @property
    def runner_up(self) -> Mapping[str, Any] | None:
        """The best choice besides the recommended one; None if there is no other."""
        others = [one for one in self.answer["choices"] if one["choice"] != self.cell["recipe"]]
        by = "value" if self.comparison.settings.sure is None else "probability"
        return max(others, key=lambda one: float(one[by]), default=None)


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
    recommended = answer["recommended"]
    if recommended is None:
        return _without_training(answer, comparison) if answer["decision"] else undecided.no_score(answer)
    named = next((cell for cell in answer["cells"] if cell["recipe"] == NAMED), None)
    if answer["reference"] is None:
        if named is None:
            return undecided.only_ways(answer, recommended["recipe"], comparison)
        return remarks.named_parts_only(named, comparison, others=len(answer["cells"]) > 1)
    cells = {cell["recipe"]: cell for cell in answer["cells"] if cell is not named}
    cell, full = cells[recommended["recipe"]], cells[answer["reference"]]
    found = Recommendation(answer, comparison, layers, cells, cell, full)
    if len(cells) == 1 and comparison.evidence.rows is None:
        return f"Nothing was compared: {undecided.full_score(full, comparison)}, and the table holds no other k."
    if comparison.settings.by_mean:
        return _by_mean(found, cells.get(answer.deciding_point.estimate))
    no_answers = [name for name, one in cells.items() if remarks.only_constant(one)]
    if weak := undecided.not_learned(answer, cell, full, comparison):
        return f"{_beside_weak_reference(found, weak)}{remarks.failed_runs(no_answers, cells)}"
    failed = remarks.failed_runs((cell["recipe"], full["recipe"], *no_answers), cells)
    not_tried = remarks.not_tried(remarks.smaller(cell, search.skipped))
    beside = remarks.named_parts(named, full, comparison) + remarks.full_not_run(cells, comparison, search)
    beside += remarks.times_not_comparable(cells, full) + remarks.trained_too_little(full)
    return f"{_recommendation(found)}{failed}{not_tried}{beside}"


def _by_mean(found: Recommendation, smallest: Cell | None) -> str:
    """The answer of an analysis that decides by mean scores instead of probabilities."""
    if smallest and smallest is not found.full:
        subject = f"By mean score, {tuning(smallest['recipe'])} reaches the target"
        return f"{subject}: {found.comparison.with_full(smallest, found.full)}."
    reached = f"{found.comparison.metric} {score(found.full['validation']['mean'])}"
    return f"By mean score, no smaller k than {tuning(found.full['recipe'])} reaches the target: {reached}."


def _recommendation(found: Recommendation) -> str:
    """What to tune, its score beside full fine-tuning, its cost, and how sure it is to reach the target."""
    cell, full = found.cell, found.full
    largest = _largest(full, found.cells)
    begin = f"{_instruction(found)}{largest if cell is full else ''}: {found.comparison.metric}"
    choice = found.runner_up if cell is full else found.answer["decision"]
    if choice is None:
        return f"{begin} {_with_seeds(cell['validation']['mean'], cell['validation']['n'])}."
    subject, same, other = "It", choice["reference_score"], found.cells.get(choice["choice"])
    cost = _cost(other, full) if other else ""
    if cell is not full:
        begin += f" {_with_seeds(choice['score'], choice['compared_seeds'] or cell['validation']['n'])}"
        known = f" against {score(same)} with {found.full_name}{largest}{on_same_rows(choice)}"
        begin += f"{NOT_ON_SAME_ROWS.format(found.full_name) if same is None else known}{cost}."
    else:
        subject = capitalized(tuning(choice["choice"]))
        mean, seeds = (full["validation"][name] for name in ("mean", "n"))
        begin += (
            f" {_with_seeds(mean, seeds) if same is None else _with_seeds(same, min(seeds, choice['compared_seeds']))}"
        )
        known = f". {subject} reaches {score(choice['score'])}{on_same_rows(choice)}"
        begin += f"{NOT_ON_SAME_ROWS.format(subject) if same is None else known}{cost}."
    sure = f"{subject} is {probability(choice['probability'])} sure to {found.comparison.reached(found.full_name)}."
    return f"{begin} {_difference(choice, 'Its' if cell is full else 'The')} {sure}"


def _with_seeds(value: float, seeds: int) -> str:
    """A score, and that it is of one seed if it is."""
    return f"{score(value)} with one seed" if seeds == 1 else score(value)


def _largest(full: Cell, cells: Sized) -> str:
    """What the reference is, if it is not full fine-tuning and not the only k; else empty."""
    return "" if full["tune_embeddings"] or len(cells) == 1 else ", the largest k with a score"


def _beside_weak_reference(found: Recommendation, weak: str) -> str:
    """The answer if full fine-tuning has not learned the task: the recommended choice if that one has, else none.

    Args:
        found: The recommended cell and the reference.
        weak: Why full fine-tuning is not shown to be above the baseline, as a clause.
    """
    runs = sum(cell["runs"] for cell in found.cells.values())
    if found.cell is found.full or not undecided.is_above_baseline(found.cell, found.comparison, among=runs):
        return f"Undecided: {weak}. {undecided.LEARN_FIRST}"
    reached = f"{found.comparison.metric} {score(found.answer['decision']['score'])}"
    advice = "To compare fairly, train with more epochs, another learning rate or more examples."
    return f"{_instruction(found)}: {reached}, which is above the {found.comparison.baseline}. {capitalized(weak)}. {advice}"


def _without_training(answer: Mapping[str, Any], comparison: Comparison) -> str:
    """The recommendation of a model that trains no layer."""
    choice, full = answer["decision"], next((c for c in answer["cells"] if c["recipe"] == answer["reference"]), None)
    begin = f"Train no layer: {tuning(choice['choice'])} reaches {comparison.metric} {score(choice['score'])}"
    if full is None:
        return f"{begin}. No k can be compared with it: {undecided.no_usable_run(answer)}."
    if not comparison.evidence.learned([Alternative(choice["choice"])], among=len(answer["choices"])):
        reached = undecided.full_score(full, comparison, choice)
        best = f"The best so far is {tuning(choice['choice'])} ({score(choice['score'])})."
        return f"Undecided: {reached}, and nothing is shown to be above the {comparison.baseline}. {best} {undecided.LEARN_FIRST}"
    full_name = _noun(full["recipe"])
    if choice["reference_score"] is None:
        begin += f"{NOT_ON_SAME_ROWS.format(full_name)}."
    else:
        largest = _largest(full, answer["cells"])
        begin += f" against {score(choice['reference_score'])} with {full_name}{largest}{on_same_rows(choice)}."
    sure = f"It is {probability(choice['probability'])} sure to {comparison.reached(full_name)}."
    return f"{begin} {_difference(choice)} {sure}{remarks.trained_too_little(full)}"


def _noun(name: str) -> str:
    """A k without a verb: ``full fine-tuning``, ``the last 2 layers``."""
    return tuning(name).removeprefix("tuning ")


def _difference(choice: Mapping[str, Any], whose: str = "The") -> str:
    """A sentence with the 95 % interval of the points by which a choice is expected to differ from full fine-tuning."""
    worst, best = choice["high"], choice["low"]  # points below full fine-tuning
    if best > 0 or worst < 0:
        near, far = sorted((abs(worst), abs(best)))
        ends = f"{points(near)} to {points(far)} points {'below' if best > 0 else 'above'}"
    else:
        ends = f"{points(worst)} points below to {points(-best)} above"
    return f"{whose} expected difference is {ends} (95 % interval)."


def _cost(cell: Cell, full: Cell) -> str:
    """What a choice costs beside full fine-tuning; empty if costs cannot be compared."""
    text = f", at {100 / cell['times_cheaper']:.0f} % of the training time" if cell["times_cheaper"] else ""
    if text and cell["peak_memory_bytes"] and full["peak_memory_bytes"]:
        memory = cell["peak_memory_bytes"] / full["peak_memory_bytes"]
        text += f" and {100 * memory:.0f} % of the peak memory" if memory < WORTH_A_MENTION else ""
    return text


def _instruction(found: Recommendation) -> str:
    """What to tune, as an instruction."""
    recommended, layers = found.answer["recommended"], found.layers
    if recommended["recipe"] in ALTERNATIVES:
        return f"Train no layer, but fit {tuning(recommended['recipe'])}"
    if Recipe(recommended["recipe"]).is_way:
        return f"Tune with {recommended['recipe']}"
    if recommended["tune_embeddings"]:
        return "Tune all layers and the embeddings"
    k = recommended["tuned_layers"]
    if k == 0:
        return "Tune the classifier head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"Tune the last {'layer' if k == 1 else f'{k} layers'}"
    return f"Tune the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"
