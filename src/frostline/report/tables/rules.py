"""The rules that choose a number of layers, in words: what each is, and what it says of a curve."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from frostline.report import formatting
from frostline.report.sentences import name_of, reference_of
from frostline.statistics.cells import NAMED

HEAD_ALONE = "last 0"  # as the results table calls it
COSTS = {"seconds": "time", "trainable_parameters": "parameters", "peak_memory_bytes": "memory"}


def rates(curve: Mapping[str, Any]) -> str:
    """Which learning rate a table by k shows. The head alone trains no layer, and has rates of its own."""
    by_k = {cell["trainable"]: set(cell["learning_rates_tried"]) for cell in curve["cells"]}
    of_head = by_k.pop(HEAD_ALONE, set()) if len(by_k) > 1 else set()
    tried = set().union(*by_k.values())
    if not tried | of_head:
        return "Which learning rates were tried is not known."
    apart = of_head if of_head != tried else set()
    if len(tried) < 2 and len(apart) < 2:
        said = f"One learning rate, {formatting.rate(*(tried or of_head))}, for every choice"
        return f"{said}; for the head alone {formatting.rate(*apart)}." if apart and tried else f"{said}."
    if curve["rates"].startswith("one"):
        said = "Every choice is shown at one learning rate, the best of full"
        return f"{said}; the head alone at its own best." if apart else f"{said}."
    return "Each choice is shown at its own learning rate, the best of those tried on validation."


def against(curve: Mapping[str, Any]) -> str:
    """What everything is compared with."""
    return "Nothing was compared" if curve["reference"] is None else f"Against {reference_of(curve)}"


def rule(point: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """What an operating point asks for."""
    whole = "full" if curve["reference"] is None or curve["reference_is_full"] else name_of(curve["reference"])
    if point["margin"] is not None:
        return f"at most {point['margin']:g} below {whole}"
    of = "gain over guessing" if point["corrected"] else "score"
    return f"{formatting.target(point['target'])} of {whole}’s {of}"


def point(point: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """What an operating point says: the smallest k that is enough."""
    by_mean, sure, possible = (name_of(point[name]) for name in ("estimate", "sure", "possible"))
    if curve["reference"] is None:
        return "Not defined: nothing was compared."
    if point["verdict"] == "undefined":
        return f"Not defined: {reference_of(curve)} is not surely better than guessing."
    if point["verdict"] == "holds" and point["sure"] != point["possible"]:
        return f"By the means {by_mean}; intervals are not asked."
    if point["verdict"] == "holds":
        if point["sure"] == curve["reference"]:
            return f"Nothing smaller than {sure}."
        said = f"{sure[0].upper()}{sure[1:]}: its whole interval lies above"
        smaller = list(takewhile(lambda cell: cell["trainable"] != point["sure"], curve["cells"]))
        known = all(cell["difference"] for cell in smaller if cell["trainable"] != NAMED)
        return (
            f"{said}, that of every smaller choice below."
            if known
            else f"{said}; of some smaller choice nothing is known."
        )
    if all(cell["validation"]["n"] < 2 for cell in curve["cells"]):
        return f"By its one seed {by_mean}; how sure that is, one seed cannot tell."
    return f"Cannot tell: surely {sure}, perhaps already {possible}."


def others(curve: Mapping[str, Any], main: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rules beside the operating points: name, what it says here, and what it is, in one sentence."""
    return [
        (
            "One standard error",
            _choice(curve["one_standard_error"], "not known from one seed"),
            "The smallest choice whose mean is at most one standard error of the best mean below it (Breiman et al. 1984).",
        ),
        (
            "The knee",
            _choice(curve["knee"], "no clear bend"),
            "Where the curve of the means bends most, so that layers beyond it bring less than those before "
            "(Satopää et al. 2011).",
        ),
        (
            "Seeds to tell",
            _seeds(curve, main),
            "The order of how many seeds in all would likely settle whether the smallest choice that is not ruled out reaches "
            f"{formatting.goal(main)}; near it it takes more (docs/statistics.md).",
        ),
    ]


def front(curve: Mapping[str, Any]) -> str:
    """Which choices are on the front of quality against each cost."""
    fronts = [
        f"{COSTS[cost]}: {', '.join(formatting.trainable(name) for name in names) or 'none'}"
        for cost, names in curve["pareto"].items()
    ]
    return "; ".join(fronts)


def _choice(name: str | None, unknown: str) -> str:
    return unknown if name is None else formatting.trainable(name)


def _seeds(curve: Mapping[str, Any], main: Mapping[str, Any]) -> str:
    if main["verdict"] == "undefined":
        return "not defined"
    if main["verdict"] == "holds":
        return "none more: it is settled"
    if curve["seeds_to_tell"] is not None:
        return f"about {curve['seeds_to_tell']:,}, or more"
    if curve["seeds"] < 2:
        return "not known from one seed"
    return "seeds alone will likely not tell; more validation rows may"
