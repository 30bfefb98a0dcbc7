"""The rules that select k: the requirement of each rule, and its conclusion for a curve."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting
from frostline.report.names import COSTS, HEAD_ONLY, trainable, tuning
from frostline.statistics.alternatives import ALTERNATIVES
from frostline.statistics.curve import BEST_OF_FULL, Curve
from frostline.statistics.operating_points import DECIDED, UNDEFINED
from frostline.statistics.tune import is_k


def without_layers(curve: Curve) -> str:
    """A sentence if what is recommended trains no layer, so that it is in no table by k; else empty."""
    chosen = (curve["decision"] or {}).get("choice")
    if chosen not in ALTERNATIVES:
        return ""
    return f" The recommended {trainable(chosen)} trains no layer; it is in the table of choices."


def learning_rates(curve: Curve) -> str:
    """A sentence on the learning rates of a table by k. k = 0 (classifier head only) has its own learning rates."""
    by_k = {cell["trainable"]: set(cell["learning_rates_tried"]) for cell in curve["cells"]}
    of_head = by_k.pop(HEAD_ONLY, set()) if len(by_k) > 1 else set()
    tried = set().union(*by_k.values())
    if not tried | of_head:
        return "The learning rates are unknown."
    own = of_head if of_head != tried else set()
    if len(tried) < 2 and len(own) < 2:
        text = f"Learning rate {formatting.learning_rate(*(tried or of_head))}"
        return f"{text}; {formatting.learning_rate(*own)} for k = 0." if own and tried else f"{text}."
    if curve["learning_rate_rule"] == BEST_OF_FULL:
        text = "Every k is shown at the learning rate that is best for full fine-tuning"
        return f"{text}; k = 0 at its own best." if own else f"{text}."
    return "Each k is shown at its own best learning rate on validation."


def reference(curve: Curve) -> str:
    """A clause on the reference of every comparison."""
    return "Nothing was compared" if curve["reference"] is None else f"Compared with {tuning(curve['reference'])}"


def goal(point: Mapping[str, Any], curve: Curve) -> str:
    """The target of an operating point."""
    whole = "full" if curve["reference"] is None or curve["reference_is_full"] else trainable(curve["reference"])
    if point["margin"] is not None:
        return f"at most {point['margin']:g} below {whole}"
    of = "gain" if point["corrected"] else "score"
    return f"{formatting.target(point['target'])} of the {of} of {whole}"


def conclusion(point: Mapping[str, Any], curve: Curve) -> str:
    """The conclusion of an operating point: the smallest k that reaches the target."""
    by_mean, confident, not_ruled_out = (tuning(point[name]) for name in ("estimate", "confident", "not_ruled_out"))
    if curve["reference"] is None:
        return "Undefined: nothing was compared."
    if point["verdict"] == UNDEFINED:
        return f"Undefined: {tuning(curve['reference'])} is not shown to be above the baseline."
    if point["verdict"] == DECIDED and point["confident"] != point["not_ruled_out"]:
        return f"{capitalized(by_mean)} by mean score; intervals are not considered."
    if point["verdict"] == DECIDED:
        return _certain(point, curve)
    if all(cell["validation"]["n"] < 2 for cell in curve["cells"]):
        return f"{capitalized(by_mean)} by one seed, which gives no confidence interval."
    known = "no smaller k" if point["confident"] == curve["reference"] else confident
    seeds = next(cell["validation"]["n"] for cell in curve["cells"] if cell["trainable"] == point["not_ruled_out"])
    why = "is not ruled out" if seeds > 1 else "has one seed, so no interval rules it out"
    return f"Undecided: {known} reaches it with confidence, and {not_ruled_out} {why}."


def _certain(point: Mapping[str, Any], curve: Curve) -> str:
    """The conclusion if the smallest k with confidence is also the smallest that is not ruled out."""
    if point["confident"] == curve["reference"]:
        return f"No smaller k than {tuning(point['confident'])}."
    text = f"{capitalized(tuning(point['confident']))}: its whole interval lies above the target"
    smaller = takewhile(lambda cell: cell["trainable"] != point["confident"], curve["cells"])
    if all(cell["difference"] for cell in smaller if is_k(cell["trainable"])):
        return f"{text}, and that of every smaller k below it."
    return f"{text}; some smaller k has no results."


def other_rules(curve: Curve, main: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The other rules: the name, the result for this curve, and a definition in one sentence."""
    return [
        (
            "One standard error",
            _choice(curve["one_standard_error"], "unknown with one seed"),
            "The smallest k whose mean is within one standard error of the best mean (Breiman et al. 1984).",
        ),
        (
            "Knee",
            _choice(curve["knee"], "no clear bend"),
            "The k at which the curve of means bends most: more layers bring less than those before (Satopää et al. 2011).",
        ),
        (
            "Seeds needed",
            _seeds(curve, main),
            "Roughly how many seeds in total would probably decide whether the smallest k that is not ruled out reaches "
            f"{formatting.threshold(main)}. More are needed if that k is close to the target.",
        ),
    ]


def front(curve: Curve) -> str:
    """Every k on the Pareto front of score and cost, by cost."""
    fronts = [
        f"{COSTS[cost].name}: {', '.join(trainable(name) for name in names) or 'none'}"
        for cost, names in curve["pareto"].items()
    ]
    return "; ".join(fronts)


def _choice(name: str | None, unknown: str) -> str:
    return unknown if name is None else trainable(name)


def _seeds(curve: Curve, main: Mapping[str, Any]) -> str:
    if main["verdict"] == UNDEFINED:
        return UNDEFINED
    if sum(cell["validation"]["n"] > 0 for cell in curve["cells"]) < 2:
        return "unknown: only one k has a score"
    if main["verdict"] == DECIDED:
        return "no more: the conclusion is certain"
    if curve["seeds_to_decide"] is not None:
        return f"about {curve['seeds_to_decide']:,} or more"
    if curve["seeds"] < 2:
        return "unknown with one seed"
    if curve.get("folds"):
        return "more seeds will probably not decide"  # each of them is scored on other rows
    return "more seeds will probably not decide; more validation examples may"
