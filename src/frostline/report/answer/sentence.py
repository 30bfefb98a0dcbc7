"""The answer for one train size as a sentence: what to tune, how it compares with full fine-tuning, and how certain it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frostline.report.answer import remarks, undecided
from frostline.report.answer.comparison import Comparison
from frostline.report.answer.search_outcome import NO_SEARCH, SearchOutcome
from frostline.report.formatting import percent_number, score, times_number
from frostline.report.names import tuning
from frostline.statistics.cells import CellSummary
from frostline.statistics.operating_points import UNDECIDED
from frostline.statistics.tune import NAMED


@dataclass(frozen=True)
class Recommendation:
    """The recommended cell, the reference, and what is known about both."""

    answer: Mapping[str, Any]
    point: Mapping[str, Any]
    comparison: Comparison
    layers: int | None
    search: SearchOutcome
    cells: Mapping[str, CellSummary]  # without named parts
    cell: CellSummary
    full: CellSummary  # full fine-tuning, or the largest k with a score

    @property
    def undecided(self) -> bool:
        """Whether it is undecided, with several seeds, which k is the smallest that reaches the target."""
        return bool(self.answer["seeds"] > 1 and self.point["verdict"] == UNDECIDED)

    @property
    def skipped(self) -> list[int]:
        """Smaller values of k that a search did not train."""
        return remarks.smaller(self.cell, self.search.skipped) if self.search.chosen else []

    @property
    def without_score(self) -> list[str]:
        """Every k whose runs all failed."""
        return [name for name, cell in self.cells.items() if cell["runs"] and not cell["validation"]["n"]]

    @property
    def smaller_unknown(self) -> bool:
        """Whether some smaller k has no score."""
        return bool(self.skipped or remarks.smaller(self.cell, self.without_score))


def sentence(
    answer: Mapping[str, Any],
    point: Mapping[str, Any],
    comparison: Comparison,
    layers: int | None,
    search: SearchOutcome = NO_SEARCH,
) -> str:
    """The answer for one train size.

    Args:
        answer: The curve with its recommendation.
        point: The operating point that the answer is about.
        comparison: The quantity that k is compared by.
        layers: The number of layers of the model, if it is known.
        search: The outcome of a search, if one chose the k.
    """
    recommended = answer["recommended"]
    if recommended is None:
        return undecided.no_score(answer)
    named = next((cell for cell in answer["cells"] if cell["trainable"] == NAMED), None)
    if answer["reference"] is None:
        assert named is not None
        return remarks.named_parts_only(named, comparison, others=len(answer["cells"]) > 1)
    cells = {cell["trainable"]: cell for cell in answer["cells"] if cell is not named}
    cell, full = cells[recommended["trainable"]], cells[answer["reference"]]
    found = Recommendation(answer, point, comparison, layers, search, cells, cell, full)
    if len(cells) == 1 and comparison.evidence.rows is None:
        return f"Nothing was compared: {undecided.full_score(full, comparison)}, and the table holds no other k."
    if comparison.choices.by_mean:
        return _by_mean(found)
    if nothing_learned := undecided.nothing_learned(answer, cells, cell, full, comparison):
        return nothing_learned
    beside = remarks.named_parts(named, full, comparison) + remarks.full_not_run(cells, comparison)
    likely = cells.get(point["estimate"], full)
    if cell is full and found.undecided and likely is not full:
        return _likely_smaller(found, likely) + beside
    failed = remarks.failed_runs((cell["trainable"], full["trainable"], *found.without_score), cells)
    return f"{_recommendation(found)}{_certainty(found)}.{failed}{remarks.not_tried(found.skipped)}{beside}"


def _by_mean(found: Recommendation) -> str:
    """The answer of an analysis that decides by mean scores instead of intervals."""
    smallest = found.cells.get(found.point["estimate"])
    if smallest and smallest is not found.full:
        subject = f"By mean score, {tuning(smallest['trainable'])} reaches the target"
        return f"{subject}: {found.comparison.with_full(smallest, found.full)}."
    reached = f"{found.comparison.metric} {score(found.full['validation']['mean'])}"
    return f"By mean score, no smaller k than {tuning(found.full['trainable'])} reaches the target: {reached}."


def _likely_smaller(found: Recommendation, likely: CellSummary) -> str:
    """The answer if a smaller k reaches the target by its mean, but only full fine-tuning does with confidence."""
    comparison = found.comparison
    return (
        f"Whether {tuning(likely['trainable'])} reaches the target cannot be told from {_basis(found)}: it reaches "
        f"{comparison.with_full(likely, found.full)}. Its interval must lie above {comparison.threshold}; until then "
        f"{_instruction(found, 'tune')}."
    )


def _recommendation(found: Recommendation) -> str:
    """The main clause: what to tune, the scores of this k and of full fine-tuning, and what it saves."""
    cell, full, comparison = found.cell, found.full, found.comparison
    if cell is not full:
        return f"{_instruction(found)}: {comparison.with_full(cell, full)}{_savings(found)}"
    text = f"{_instruction(found)}: {comparison.metric} {score(cell['validation']['mean'])}"
    if len(found.cells) > 1:
        text += f"; {comparison.no_smaller_k(tried=found.smaller_unknown)}"
        text += " by its mean score" if found.undecided or found.answer["seeds"] == 1 else ""
    return text


def _savings(found: Recommendation) -> str:
    """What the recommended k saves compared with full fine-tuning."""
    cell, full, text = found.cell, found.full, ""
    if cell["times_cheaper"] and cell["times_cheaper"] >= 1.05:
        text += f", {times_number(cell['times_cheaper'])} times cheaper to train"
    elif found.search.chosen and cell["times_cheaper"] is None and (fewer := _fewer_operations(found)) >= 1.05:
        text += f", with {times_number(fewer)} times fewer operations to train"
    if found.search.chosen and cell["peak_memory_bytes"] and full["peak_memory_bytes"]:
        text += f", with {percent_number(cell['peak_memory_bytes'] / full['peak_memory_bytes'])} % of the peak memory"
    return text


def _fewer_operations(found: Recommendation) -> float:
    """The operations of full fine-tuning divided by those of the recommended k; 0 if they are unknown."""
    ours, theirs = (found.search.operations.get(cell["trainable"], 0.0) for cell in (found.cell, found.full))
    return theirs / ours if ours else 0.0


def _certainty(found: Recommendation) -> str:
    """A sentence on how certain the recommendation is; empty if it is certain and no search chose it."""
    if found.search.chosen:
        return f". {remarks.certainty(found.answer, found.point, found.comparison, unknown=found.smaller_unknown)}"
    if found.answer["seeds"] == 1:
        return ". One seed gives no confidence interval, so this is only an estimate: use --seeds 5"
    if found.undecided:
        return (
            f". Whether {tuning(found.point['not_ruled_out'])} reaches the target cannot be told from {_basis(found)}"
        )
    return ""


def _basis(found: Recommendation) -> str:
    """The numbers of seeds and of validation examples behind the answer."""
    cells: Sequence[CellSummary] = found.answer["cells"]
    runs = sorted({cell["runs"] for cell in cells if cell["runs"]})
    seeds = f"{runs[0]} to {runs[-1]} seeds" if len(runs) > 1 else "1 seed" if runs == [1] else f"{runs[0]} seeds"
    in_mean = (point["run"] for cell in cells for point in cell["points"] if point["in_mean"])
    rows = found.comparison.evidence.rows_of(in_mean)
    return seeds if rows is None else f"{seeds} and {rows:,} validation examples"


def _instruction(found: Recommendation, tune: str = "Tune") -> str:
    """What to tune, as an instruction."""
    recommended, layers = found.answer["recommended"], found.layers
    if recommended["tune_embeddings"]:
        return f"{tune} all layers and the embeddings"
    k = recommended["tuned_layers"]
    if k == 0:
        return f"{tune} the classifier head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"{tune} the last {'layer' if k == 1 else f'{k} layers'}"
    return f"{tune} the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"
