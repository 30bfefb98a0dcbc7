"""The rules that select a number of layers: what each one asks for, and what it concludes for a curve."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import HEAD_ONLY, trainable, tuning
from frostline.statistics.cells import NAMED

COSTS = {"seconds": "time", "trainable_parameters": "parameters", "peak_memory_bytes": "memory"}


def learning_rates(curve: Mapping[str, Any]) -> str:
    """A sentence on the learning rates that a table by k shows. The head alone (k = 0) has rates of its own."""
    by_k = {cell["trainable"]: set(cell["learning_rates_tried"]) for cell in curve["cells"]}
    of_head = by_k.pop(HEAD_ONLY, set()) if len(by_k) > 1 else set()
    tried = set().union(*by_k.values())
    if not tried | of_head:
        return "The learning rates are unknown."
    own = of_head if of_head != tried else set()
    if len(tried) < 2 and len(own) < 2:
        text = f"Learning rate {formatting.learning_rate(*(tried or of_head))}"
        return f"{text}; {formatting.learning_rate(*own)} for k = 0." if own and tried else f"{text}."
    if curve["rates"].startswith("one"):
        text = "Every k is shown at the learning rate that is best for full fine-tuning"
        return f"{text}; k = 0 at its own best." if own else f"{text}."
    return "Each k is shown at its own best learning rate on validation."


def reference(curve: Mapping[str, Any]) -> str:
    """What every k is compared with."""
    return "Nothing was compared" if curve["reference"] is None else f"Compared with {tuning(curve['reference'])}"


def goal(point: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """What an operating point asks for."""
    whole = "full" if curve["reference"] is None or curve["reference_is_full"] else trainable(curve["reference"])
    if point["margin"] is not None:
        return f"at most {point['margin']:g} below {whole}"
    of = "gain" if point["corrected"] else "score"
    return f"{formatting.target(point['target'])} of the {of} of {whole}"


def conclusion(point: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """The conclusion of an operating point: the smallest k that reaches the target."""
    by_mean, sure, possible = (tuning(point[name]) for name in ("estimate", "sure", "possible"))
    if curve["reference"] is None:
        return "Undefined: nothing was compared."
    if point["verdict"] == "undefined":
        return f"Undefined: {tuning(curve['reference'])} is not shown to be above the baseline."
    if point["verdict"] == "holds" and point["sure"] != point["possible"]:
        return f"{capitalized(by_mean)} by mean score; intervals are not considered."
    if point["verdict"] == "holds":
        return _certain(point, curve)
    if all(cell["validation"]["n"] < 2 for cell in curve["cells"]):
        return f"{capitalized(by_mean)} by one seed, which gives no confidence interval."
    return f"Cannot tell: {sure} reaches it with confidence, and {possible} is not ruled out."


def _certain(point: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """The conclusion where the smallest k with confidence is also the smallest that is not ruled out."""
    if point["sure"] == curve["reference"]:
        return f"Nothing smaller than {tuning(point['sure'])}."
    text = f"{capitalized(tuning(point['sure']))}: its whole interval lies above"
    smaller = takewhile(lambda cell: cell["trainable"] != point["sure"], curve["cells"])
    if all(cell["difference"] for cell in smaller if cell["trainable"] != NAMED):
        return f"{text}, that of every smaller choice below."
    return f"{text}; some smaller choice has no results."


def other_rules(curve: Mapping[str, Any], main: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rules beside the operating points: the name, the result for this curve, and a definition in one sentence."""
    return [
        (
            "One standard error",
            _choice(curve["one_standard_error"], "unknown with one seed"),
            "The smallest k whose mean is at most one standard error of the best mean below it (Breiman et al. 1984).",
        ),
        (
            "Knee",
            _choice(curve["knee"], "no clear bend"),
            "Where the curve of means bends most: further layers bring less than those before (Satopää et al. 2011).",
        ),
        (
            "Seeds needed",
            _seeds(curve, main),
            "Roughly how many seeds in total would likely decide whether the smallest k that is not ruled out reaches "
            f"{formatting.threshold(main)}. It takes more if that k is close to the target (docs/statistics.md).",
        ),
    ]


def front(curve: Mapping[str, Any]) -> str:
    """The k on the Pareto front of quality against each cost."""
    fronts = [
        f"{COSTS[cost]}: {', '.join(trainable(name) for name in names) or 'none'}"
        for cost, names in curve["pareto"].items()
    ]
    return "; ".join(fronts)


def _choice(name: str | None, unknown: str) -> str:
    return unknown if name is None else trainable(name)


def _seeds(curve: Mapping[str, Any], main: Mapping[str, Any]) -> str:
    if main["verdict"] == "undefined":
        return "undefined"
    if main["verdict"] == "holds":
        return "no more: the conclusion is certain"
    if curve["seeds_to_tell"] is not None:
        return f"about {curve['seeds_to_tell']:,} or more"
    if curve["seeds"] < 2:
        return "unknown with one seed"
    return "more seeds will likely not decide; more validation examples may"
