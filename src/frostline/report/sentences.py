"""What the numbers of an answer say, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.data.folding import capital, stretches
from frostline.report import formatting


def cannot_tell(size: Mapping[str, Any], main: Mapping[str, Any], seeds: int, *, searched: bool) -> str | None:
    """What "cannot tell" means for this size; None where everything can be told. ``searched``: a search has chosen what to
    train, and recommends by the means."""
    line = formatting.goal(main)
    if size["reference"] and not size["learned"] and seeds > 1:
        name = reference_of(size)
        return (
            f"{capital(name)} is not surely above guessing, so a share of its gain means nothing yet. More "
            "training examples, more epochs or another learning rate would have to show first that the task is learned."
        )
    if main["verdict"] != "cannot tell":
        return None
    if seeds == 1:
        return (
            "One seed has no spread: nobody can say how much of a difference between two choices is luck of the draw. The "
            "recommendation rests on the scores as they stand; five seeds would give them an interval."
        )
    possible, sure = name_of(main["possible"]), name_of(main["sure"])
    of = "of the gain of" if main["margin"] is None else "of the score less that of"
    if main["sure"] == size["reference"]:
        surely = f"No smaller choice has its whole interval above {line} {of} {sure}, so none is surely enough."
    else:
        surely = f"The whole interval of {sure} lies above {line} {of} {reference_of(size)}: that is surely enough."
    enough = "enough by its mean" if searched else "surely enough"
    return (
        f"{surely} {capital(possible)} is not ruled out, so it may be enough; these seeds and validation rows "
        f"cannot tell. What is recommended is the smallest choice that is {enough}. More seeds make the intervals "
        "narrower, and so do more validation rows."
    )


def tested(size: Mapping[str, Any], metric: str) -> list[str]:
    """What test says of the recommended k, for a size that was tested."""
    recommended = size["recommended"]
    cell, full = (formatting.cell_of(size, name) for name in (recommended["trainable"], size["reference"]))
    assert cell is not None
    test = cell["test"]
    seeds = "1 seed" if test["n"] == 1 else f"{test['n']} seeds"
    known = f", 95 % interval {formatting.score_interval(test['low'], test['high'])}" if test["low"] is not None else ""
    said = [
        f"{capital(metric)} {formatting.score(test['mean'])} on test with {name_of(cell['trainable'])} tuned "
        f"(mean of {seeds}{known})."
    ]
    if full is not None and cell is not full:
        name = reference_of(size)
        said.append(f"{capital(name)} reaches {formatting.score(full['test']['mean'])}.")
        share = recommended.get("test_share_corrected")
        if share and share["estimate"] is not None:
            between = formatting.percent_interval(share["low"], share["high"])
            known = f" (95 % interval {between})" if between != formatting.UNKNOWN else ""
            said.append(
                f"That is {formatting.percent(share['estimate'])} of what {name} gains over guessing on test{known}."
            )
    return said


def trained_places(by_place: Mapping[str, Mapping[str, int]]) -> str:
    """Which parts of the model were trained, with runs of layers drawn together."""
    trained = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [int(place.removeprefix("layer ")) for place in trained if place.startswith("layer ")]
    others = [place for place in trained if not place.startswith("layer ")]
    if layers:
        found = stretches(layers)
        names = [f"{first + 1} to {last + 1}" if last > first else str(first + 1) for first, last in found]
        others.insert(
            1 if others[0] == "embeddings" else 0, f"layer{'s' if len(layers) > 1 else ''} {' and '.join(names)}"
        )
    return ", ".join(others)


def machines(provenances: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the runs were made with; where runs differ, every value with the number of its runs."""
    found: dict[str, dict[str, int]] = {}
    for provenance in provenances:
        for name, value in provenance.items():
            if name != "cut":
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
    return {
        name.replace("_", " "): next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))
        for name, counts in found.items()
    }


def name_of(trainable: str | None) -> str:
    """k within a sentence."""
    known = {None: "none", "all": "everything", "last 0": "the head alone"}
    return known.get(trainable) or f"the {formatting.trainable(str(trainable))}"


def reference_of(size: Mapping[str, Any]) -> str:
    """What everything is compared with, within a sentence."""
    return "full fine-tuning" if size["reference_is_full"] else f"tuning {name_of(size['reference'])}"


def headline(sentence: str) -> tuple[str, str]:
    """The answer itself, and what is said beside it."""
    head, stop, rest = formatting.unbroken(sentence).partition(". ")
    return (f"{head}.", rest) if stop else (head, "")
