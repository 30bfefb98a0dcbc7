"""The answer in words: what to tune, how good that is against full, how sure it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frostline.data.folding import capital, stretches
from frostline.statistics.cells import FULL, NAMED
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence

Cell = Mapping[str, Any]
LAST = "last "  # how the printed name of a k begins


@dataclass(frozen=True)
class Searched:
    """What a search has to say of its answer."""

    named: str | None = None  # the k that it ended with: that is recommended, and how sure it is is said
    looks: int = 1  # so often, at most, it looked at intervals before it went on
    skipped: Sequence[str] = ()  # the k that it did not train
    operations: Mapping[str, float] = field(default_factory=dict)  # of a training of each k
    instead: str | None = None  # its sentence, where it ended without a k to recommend
    awaits: str | None = None  # the k that it is going to compare with, before that was trained
    train_size: int | None = None  # of its runs; of others it has nothing to say


NO_SEARCH = Searched()


@dataclass(frozen=True)
class Terms:
    """In what a cell is compared with full: shares of its score or its gain over guessing, or the difference."""

    evidence: Evidence
    choices: Choices

    @property
    def of_gain(self) -> bool:
        """Whether shares are of what is gained over guessing."""
        return self.choices.corrected and self.evidence.chance is not None

    def share(self, cell: Cell) -> Mapping[str, Any] | None:
        """The share of full that the sentence speaks of."""
        share: Mapping[str, Any] | None = cell["share_corrected" if self.of_gain else "share"]
        return share

    @property
    def line(self) -> str:
        """Where enough begins."""
        return f"{-self.choices.margin:g}" if self.choices.by_margin else f"{100 * self.choices.target:g} %"

    def nothing_smaller(self, *, tried: bool) -> str:
        """That nothing smaller than full is enough; ``tried``: of what was tried, which is not all."""
        nothing = "nothing smaller that was tried" if tried else "nothing smaller"
        if self.choices.by_margin:
            return f"{nothing} comes within {self.choices.margin:g} of it"
        return f"{nothing} reaches {self.line} of its {'gain over guessing' if self.of_gain else 'score'}"

    def compared(self, cell: Cell, full: Cell) -> str:
        """A cell beside full."""
        means = cell["difference"]["means"]  # of the runs that are compared
        ours, theirs = map(_number, means)
        one = cell["validation"]["n"] == 1 and means[1] != full["validation"]["mean"]
        on = " on the one seed that both have" if one else ""
        metric = self.evidence.metric
        if self.choices.by_margin:
            apart = cell["difference"]
            between = _interval(apart, "{:+.3f}".format)
            return f"{metric} {ours} against {theirs} by {_tuning(full)}, a difference of {apart['estimate']:+.3f}{between}{on}"
        kept = self.share(cell)
        assert kept is not None
        whole = f"what {_tuning(full)} gains over guessing" if self.of_gain else f"the score of {_tuning(full)}"
        return f"{_percent(kept['estimate'])} % of {whole}{_interval(kept, _percent)}, {metric} {ours} against {theirs}{on}"


def sentence(
    answer: Mapping[str, Any],
    point: Mapping[str, Any],
    terms: Terms,
    layers: int | None,
    search: Searched = NO_SEARCH,
) -> str:
    """What the answer for one train size says; ``point`` is the operating point that it is about, ``search`` what a search
    has to say, if one has named the k that is recommended."""
    searched = search.named is not None
    evidence, choices = terms.evidence, terms.choices
    recommended, seeds = answer["recommended"], answer["seeds"]
    if recommended is None:
        done = sum(cell["runs"] for cell in answer["cells"])
        why = f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"
        return f"There is no answer: {why}."
    named = next((cell for cell in answer["cells"] if cell["trainable"] == NAMED), None)
    if answer["reference"] is None:
        assert named is not None
        return _named_alone(named, evidence, compared=len(answer["cells"]) > 1)
    beside = _named_beside(named, answer, terms)
    cells = {cell["trainable"]: cell for cell in answer["cells"] if cell is not named}
    cell, full = cells[recommended["trainable"]], cells[answer["reference"]]
    full_name = _tuning(full)
    against = f"{full_name} reaches {evidence.metric} {_number(full['validation']['mean'])}"
    if len(cells) == 1 and evidence.rows is None:
        return f"Nothing was compared: {against}, and no other k is in the table."
    if choices.by_mean:
        enough = cells.get(point["estimate"])
        return (
            f"By the means {_tuning(enough)} is enough: {terms.compared(enough, full)}."
            if enough and enough is not full
            else f"By the means nothing smaller than {full_name} is enough: {against.partition('reaches ')[2]}."
        )
    if evidence.chance is not None:
        guessing = f"guessing ({_number(evidence.chance)})"
        if not answer["learned"] and (seeds > 1 or evidence.rows is not None):
            return (
                f"Cannot tell: {against}, which {_good(full, seeds)} not show to be above {guessing}."
                f"{_recommended_beside(cell, full, evidence, sum(c['runs'] for c in cells.values()))}"
            )
        kept = terms.share(cell)
        if kept is None or kept["estimate"] is None:
            return f"Cannot tell: {against}, which is not above {guessing}."
    likely = cells.get(point["estimate"], full)
    seen = _seen(answer["cells"], evidence)
    unsure = seeds > 1 and point["verdict"] == "cannot tell"
    left_out = _smaller(cell, search.skipped) if searched else []
    without_score = [name for name, one in cells.items() if one["runs"] and not one["validation"]["n"]]
    untold = bool(left_out or _smaller(cell, without_score))
    if cell is full and unsure and likely is not full:
        return (
            f"With {seen} it cannot be told whether {_tuning(likely)} is enough: it reaches "
            f"{terms.compared(likely, full)}. Enough is an interval above {terms.line}; until "
            f"then {_what(recommended, layers, 'tune')}.{beside}{_advice(cells, evidence)}"
        )
    if cell is full:
        said = f"{_what(recommended, layers)}: {evidence.metric} {_number(cell['validation']['mean'])}"
        if len(cells) > 1:
            said += f"; {terms.nothing_smaller(tried=untold)}"
            said += " by the means" if unsure or seeds == 1 else ""
    else:
        said = f"{_what(recommended, layers)}: {terms.compared(cell, full)}"
        if cell["times_cheaper"] and cell["times_cheaper"] >= 1.05:
            said += f", {_times(cell['times_cheaper'])} times cheaper to train"
        elif searched and cell["times_cheaper"] is None and (fewer := _fewer_operations(cell, full, search)) >= 1.05:
            said += f", with {_times(fewer)} times fewer operations to train"
        if searched and cell["peak_memory_bytes"] and full["peak_memory_bytes"]:
            said += f", with {_percent(cell['peak_memory_bytes'] / full['peak_memory_bytes'])} % of the memory"
    if searched:
        said += f". {_certainty(answer, point, terms, untold=untold)}"
    elif seeds == 1:
        said += ". One seed has no spread, so this is an estimate: run it with --seeds 5"
    elif unsure:
        said += f". With {seen} it cannot be told whether {_tuning(cells[point['possible']])} is enough"
    failed = _failed(dict.fromkeys((cell["trainable"], full["trainable"], *without_score)), cells)
    return f"{said}.{failed}{_not_tried(left_out)}{beside}{_advice(cells, evidence)}"


def _fewer_operations(cell: Cell, full: Cell, search: Searched) -> float:
    """How many times fewer than full; 0 where nobody knows."""
    ours, theirs = (search.operations.get(one["trainable"], 0.0) for one in (cell, full))
    return theirs / ours if ours else 0.0


def _smaller(cell: Cell, names: Iterable[str]) -> list[int]:
    """Of these k those that train less than a cell does."""
    ks = [int(name.removeprefix(LAST)) for name in names if name.startswith(LAST)]
    return [k for k in ks if cell["tune_embeddings"] or k < cell["tuned_layers"]]


def _not_tried(ks: Sequence[int]) -> str:
    """That these were not trained, in words; nothing where there are none."""
    parts = [
        tuning(f"{LAST}{first}") if first == last else f"tuning the last {first} to {last} layers"
        for first, last in stretches(ks)
    ]
    return f" {capital(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def _failed(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """Which of these k rest on fewer runs than were made, since the others failed."""
    parts = [
        f"{cell['runs'] - cell['validation']['n']} of {cell['runs']} runs of {_tuning(cell)} failed"
        for cell in (cells[name] for name in names)
        if cell["validation"]["n"] < cell["runs"]
    ]
    return f" {' and '.join(parts)}." if parts else ""


def unfinished(answer: Mapping[str, Any], awaited: str, metric: str) -> str:
    """What is said before any run of the k has ended that everything is compared with."""
    known = [c for c in answer["cells"] if c["trainable"] != NAMED and c["validation"]["mean"] is not None]
    best = max(known, key=lambda cell: cell["validation"]["mean"], default=None)
    said = f"No answer yet: {tuning(awaited)}, with which everything is compared, has not run."
    if best is not None:
        said += f" The best so far, {_tuning(best)}, reaches {metric} {_number(best['validation']['mean'])}."
    return said


def _certainty(answer: Mapping[str, Any], point: Mapping[str, Any], terms: Terms, *, untold: bool) -> str:
    """How sure it is that a search has named the right k; ``untold``: of some that are smaller nothing is known."""
    name, possible = answer["recommended"]["trainable"], point["possible"]
    seeds = f": about {answer['seeds_to_tell']} seeds would tell" if answer["seeds_to_tell"] else ""
    if name == point["sure"] == possible:
        if name == answer["reference"]:
            return "Of what was tried, that is sure" if untold else "That is sure"
        return f"That is sure, {'but not' if untold else 'and so is'} that nothing smaller is enough"
    if name == point["sure"] and possible:
        return f"Whether {tuning(possible)} is enough cannot be told{seeds}"
    cell = next(cell for cell in answer["cells"] if cell["trainable"] == name)
    if (cell["difference"] if terms.choices.by_margin else terms.share(cell))["low"] is not None:  # type: ignore[index]
        return f"That is likely, not sure: the interval reaches below {terms.line}{seeds if possible == name else ''}"
    full = next(cell for cell in answer["cells"] if cell["trainable"] == answer["reference"])
    one = next((c for c in (cell, full) if c["validation"]["n"] == 1), None)
    why = f"one seed of {_tuning(one)} has no interval" if one else f"the seeds of {_tuning(full)} lie too far apart"
    return f"That is likely, not sure: {why}{seeds if possible == name else ''}"


def _recommended_beside(cell: Cell, full: Cell, evidence: Evidence, among: int) -> str:
    """What the recommended k reaches, where full is not surely above guessing, but that is; ``among`` so many runs."""
    if cell is full or not evidence.learned([point for point in cell["points"] if point["in_mean"]], among):
        return ""
    name = _tuning(cell)
    return f" {capital(name)} reaches {_number(cell['validation']['mean'])}, which is above it."


def _named_alone(named: Mapping[str, Any], evidence: Evidence, *, compared: bool) -> str:
    """The answer where named parts are all that gave a score."""
    scores = named["validation"]
    seeds = "one seed" if scores["n"] == 1 else f"{scores['n']} seeds"
    between = "" if scores["low"] is None else f", 95 % interval {_number(scores['low'])} to {_number(scores['high'])}"
    guessing = "" if evidence.chance is None else f"; guessing {_number(evidence.chance)}"
    why = "no other run has succeeded so far" if compared else "add numbers of layers and all to --tune to compare"
    return (
        f"The named parts reach {evidence.metric} {_number(scores['mean'])} ({seeds}{between}{guessing}). "
        f"Nothing was compared: {why}."
    )


def _named_beside(named: Cell | None, answer: Mapping[str, Any], terms: Terms) -> str:
    """What named parts reach, beside the answer about the last layers."""
    if named is None:
        return ""
    kept = terms.share(named)
    if kept is None or kept["estimate"] is None:
        return " The named parts cannot be compared: none of their runs has succeeded so far."
    full = next(cell for cell in answer["cells"] if cell["trainable"] == answer["reference"])
    return f" The named parts reach {terms.compared(named, full)}."


def _seen(cells: Sequence[Mapping[str, Any]], evidence: Evidence) -> str:
    """What the answer rests on."""
    runs = sorted({cell["runs"] for cell in cells if cell["runs"]})
    seeds = f"{runs[0]} to {runs[-1]} seeds" if len(runs) > 1 else "1 seed" if runs == [1] else f"{runs[0]} seeds"
    rows = evidence.rows_of(point["run"] for cell in cells for point in cell["points"] if point["in_mean"])
    return seeds if rows is None else f"{seeds} and {rows:,} validation rows"


def _advice(cells: Mapping[str, Mapping[str, Any]], evidence: Evidence) -> str:
    if len(cells) < 2 or any(cell["tune_embeddings"] for cell in cells.values()):
        return ""
    return " Full fine-tuning was not run" + (": add all to --tune." if evidence.rows is not None else " here.")


def _good(cell: Mapping[str, Any], seeds: int) -> str:
    """The seeds that a cell's mean rests on, and the verb."""
    good = cell["validation"]["n"]
    if good == seeds:
        return "one seed does" if seeds == 1 else f"{seeds} seeds do"
    others = "failed" if cell["runs"] == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"


def _tuning(cell: Mapping[str, Any]) -> str:
    """What a cell does, within a sentence."""
    return tuning(cell["trainable"])


def tuning(trainable: str) -> str:
    """A k by its printed name, within a sentence."""
    if trainable == FULL:
        return "full fine-tuning"
    k = int(trainable.removeprefix(LAST))
    part = "the head only" if k == 0 else "the last layer" if k == 1 else f"the last {k} layers"
    return f"tuning {part}"


def _what(recommended: Mapping[str, Any], layers: int | None, tune: str = "Tune") -> str:
    if recommended["tune_embeddings"]:
        return f"{tune} all layers and the embeddings"
    k = recommended["tuned_layers"]
    if k == 0:
        return f"{tune} the head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"{tune} the last {'layer' if k == 1 else f'{k} layers'}"
    return f"{tune} the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"


def _times(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 9.95 else f"{factor:.1f}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.1f}"


def _interval(share: Mapping[str, Any], said: Callable[[Any], str]) -> str:
    """In brackets, where it is known; a side without a bound is a question mark."""
    low, high = share["low"], share["high"]
    if low is None:
        return ""
    return f" (95 % interval {said(low)} to {'?' if high is None else said(high)})"
