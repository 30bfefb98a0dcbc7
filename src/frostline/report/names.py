"""Names of models, metrics, baselines and values of k, as tables, figures and sentences print them.

What was trained is given by its name in results.csv: ``head only``, ``last 3``, ``full`` or ``named``.
"""

from collections.abc import Iterable

from frostline.statistics.answer import Cell, Decision, SizeAnswer
from frostline.statistics.metrics import CONSTANT_BASELINE, METRICS
from frostline.statistics.recipe import FULL, Recipe
from frostline.statistics.run_result import ALTERNATIVES, PROBE, WORDS

# that a probe reads
VECTORS = {
    "first": "first token",
    "mean": "mean of all tokens",
    "last": "last token",
    "word": "first token of each word",
    "apart": "means of both texts read alone",
}

GIVE_LAYERS = "if the model has more layers, give their number with --set layers=L"  # a table that lacks it, with full


def printed(name: str) -> str:
    """A choice as tables print it: a recipe by its name, ``linear probe`` or ``TF-IDF model``."""
    return "linear probe" if name == PROBE else "TF-IDF model" if name == WORDS else name


def mark_of_choice(decision: Decision | None) -> str:
    """What the chosen row is called: ``recommended``, or ``best so far`` if nothing is decided or above the baseline."""
    return "best so far" if decision is None or decision.above_baseline is False else "recommended"


def depth(recipe: Recipe) -> str:
    """The label of k on an axis: ``0``, ``3``, ``full``, ``named``; also ``probe`` and ``TF-IDF``. A length is below it."""
    return "TF-IDF" if recipe == WORDS else "\n".join(filter(None, (recipe.short, recipe.length)))


def tuning(recipe: Recipe | None) -> str:
    """What k trains, as the subject of a sentence: ``tuning the last 3 layers``, ``full fine-tuning``."""
    if recipe is None:
        return "no choice"
    if recipe in ALTERNATIVES:
        return {PROBE: "a linear probe on frozen features", WORDS: "a TF-IDF model"}[recipe]
    if recipe.epochs is not None:
        return f"{tuning(recipe.trained)} for {recipe.length}"
    if recipe.is_way:
        return f"tuning with {recipe}"
    k = recipe.k
    if k is None:
        return "full fine-tuning" if recipe == FULL else "tuning the named parts"
    part = "classifier head only" if k == 0 else "last layer" if k == 1 else f"last {k} layers"
    return f"tuning the {part}"


def whole(curve: SizeAnswer) -> str:
    """What the costs of choices are shares of: ``all layers``, or ``the last 4`` if that is the most that was tuned.

    With several training lengths it names the longest, too: ``all layers for 10 epochs``.

    Args:
        curve: One train size of an answer.
    """
    if curve.decision is None or curve.decision.reference is None:
        return "all layers"
    reference = curve.decision.reference
    layers = "all layers" if reference.is_full else f"the {reference.trained}"
    cost = next(one.cost_of_full for one in curve.choices if one.choice == reference)
    if not cost:  # k = 0 tunes no layer, for however long
        return "all layers"
    if reference.epochs is None:
        return layers
    longest = reference.epochs / cost
    return f"{layers} for {longest:.4g} epochs"


def metric(name: str) -> str:
    """The name of a metric in text; that of an unknown metric without underscores."""
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def baseline(metric: str) -> str:
    """The name of the best constant prediction, which the gain in this metric is measured from."""
    return METRICS[metric].baseline if metric in METRICS else CONSTANT_BASELINE


def score_title(name: str, cells: Iterable[Cell]) -> str:
    """The title of an axis with the comparable scores of cells, and what makes them so if their rows differ."""
    return f"{metric(name)}, without the effects of folds" if rows_differ(cells) else metric(name)


def rows_differ(cells: Iterable[Cell]) -> bool:
    """Whether the means of some cells are of other rows than those of others."""
    return any(cell.comparable != cell.validation.mean for cell in cells)
