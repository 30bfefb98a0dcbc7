"""The tables of one curve, which are those of one train size: a row for each k, each choice, each way to tune, or each target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from frostline.data.wording import capitalized
from frostline.report import formatting, names
from frostline.report.tables.table import Column, Ends, ReportTable, Row, Value
from frostline.statistics.answer import Cell, Choice, OperatingPoint, Rate, SizeAnswer
from frostline.statistics.cells import FAILURES, UNDEFINED
from frostline.statistics.curve import BEST_OF_FULL
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import ALTERNATIVES

TUNED = Column("tuned", "tuned", names.printed, of=lambda one: str(one.recipe), number=False, rank="place")
LEARNING_RATE = Column("learning_rate", "learning\nrate", formatting.learning_rate)
MOST_LAYERS = 10_000  # more than any model has
Read = Callable[[Any], Any]  # reads a value from the object of a row


def renamed(table: ReportTable, suffix: str, about: str) -> ReportTable:
    """The table with file names and a title that are unique on a page with several curves."""
    return replace(table, name=f"{table.name}{suffix}", title=f"{table.title}, {about}" if about else table.title)


def scores_table(curve: SizeAnswer, metric: str, *, tested: bool = False) -> ReportTable:
    """Mean and spread of the scores of each k, over the runs in its mean; ``tested``: whether test scores are known."""

    def spread(key: str, title: str = "", **more: Any) -> Column:
        return Column(key, title, formatting.score, of=f"validation.{key}", **more)

    def quartiles(cell: Cell) -> Ends:
        known = cell.validation
        return (known.lower_quartile, known.upper_quartile) if known.n > 1 else (None, None)

    def interval(cell: Cell) -> str:
        return formatting.interval(cell.validation.low, cell.validation.high)

    def of_all(cell: Cell) -> list[str]:
        return [] if cell.validation.n == cell.runs else [f"of {cell.runs}"]

    counts = {cell.validation_rows for cell in curve.cells if cell.in_mean}
    columns = (
        *(TUNED, spread("mean", "mean", strong=True)),
        *((_comparable(curve),) if names.rows_differ(curve.cells) else ()),
        *(spread("low", "95 % CI\nof the mean", whole=interval), spread("high")),
        *((Column("test", "mean\non test", formatting.score, of="test.mean"),) if tested else ()),
        spread("median", "median\n(quartiles)", ends=quartiles),
        *(spread(key, key) for key in ("std", "min", "max")),
        Column("last_epoch", "mean at the\nlast epoch", formatting.score, of="validation_last.mean"),
        Column("train", "mean\non train", formatting.score, of="train_last.mean"),
        Column("runs", "runs", of="validation.n", small=of_all),
        Column("validation_rows", "examples" if len(counts) > 1 else "", formatting.count),
        Column("finished_runs", of="runs"),
        Column("learning_rate", "learning\nrate", formatting.learning_rate, small=_tried),
        Column("learning_rates_tried", of=lambda cell: " ".join(f"{rate:g}" for rate in cell.learning_rates_tried)),
    )
    expected = (
        "The expected score of a choice is another number: it uses the scores of similar choices, too, the more so the fewer "
        "runs the choice has. "
        if curve.choices
        else ""
    )
    some_failed = any(cell.validation.n > cell.runs - cell.failures.failed for cell in curve.cells)
    failed = " (of all runs of a k if fewer than half did)" if some_failed else ""
    caption = (
        f"Scores on validation of the runs that succeeded{failed}, at the epoch that each run is evaluated at; CI: confidence "
        f"interval. {expected}{_what_is_shown(curve)}"
    )
    title = f"{capitalized(names.metric(metric))} by tuned layers"
    return ReportTable("scores", title, caption, columns, _by_k(curve))


def shares_table(curve: SizeAnswer, metric: str) -> ReportTable:
    """Each k compared with full fine-tuning: shares, and the difference with its p-value."""
    reference = curve.reference

    def part(name: str, which: str) -> Read:
        """Reads a part of a comparison. The reference's share of itself is exactly 1, and it has no difference."""

        def found_in(cell: Cell) -> Value:
            found = getattr(cell, name)
            if cell.recipe == reference:
                known = name != "difference" and found is not None and found.estimate is not None
                return 1.0 if known and which == "estimate" else None
            value: Value = getattr(found, which, None)
            return value

        return found_in

    def column(name: str, title: str, show: Callable[[Any], str]) -> Column:
        low, high = part(name, "low"), part(name, "high")
        ends = lambda cell: (low(cell), high(cell))  # noqa: E731
        return Column(name, title, show, of=part(name, "estimate"), ends=ends)

    columns = (
        TUNED,
        column("share", "share of\nthe score", formatting.percent),
        column("share_corrected", "share of\nthe gain", formatting.percent),
        column("difference", f"difference\nin {names.metric(metric)}", formatting.difference),
        Column("p", "p-value", formatting.p_value, of=part("difference", "p")),
        Column("p_holm", "p-value\n(Holm)", formatting.p_value, of=part("difference", "p_holm")),
    )
    compared = "Nothing was compared" if reference is None else f"Compared with {names.tuning(reference)}"
    caption = (
        f"{compared}, with 95 % confidence intervals. Gain: the score less that of the {names.baseline(metric)}. "
        f"Holm: the p-value adjusted for all comparisons. {_of_same_seeds(curve)}{_what_is_shown(curve)}"
    )
    whole = "full fine-tuning" if curve.reference_is_full or not reference else "the reference"
    return ReportTable("shares", f"Share of {whole} by tuned layers", caption, columns, _by_k(curve))


def costs_table(curve: SizeAnswer) -> ReportTable:
    """The cost of a run of each k."""

    def shared(cell: Cell) -> list[str]:
        return [f"+ {formatting.seconds(cell.shared_seconds)}"] if cell.shared_seconds else []

    columns = (
        TUNED,
        Column("trainable_parameters", "trainable\nparameters", formatting.parameters),
        Column("seconds", "training time\n(+ shared)", formatting.seconds, small=shared),
        Column("shared_seconds"),
        Column("times_cheaper", "times\ncheaper", formatting.times),
        Column("peak_memory_bytes", "peak\nmemory", formatting.size),
    )
    caption = (
        "Shared: a run's share of the forward pass over the frozen layers, which “times cheaper” includes. "
        f"{_what_is_shown(curve)}"
    )
    if len({cell.concurrent_runs for cell in curve.cells if cell.concurrent_runs}) > 1:
        caption += (
            " Some runs were trained concurrently and others alone. A run trained alone uses all cores, so its time is not "
            "comparable and is left out."
        )
    return ReportTable("costs", "Cost by tuned layers", caption, columns, _by_k(curve))


def failures_table(rates: Sequence[Rate]) -> ReportTable:
    """Failed runs, and means with and without them, by train size, k and learning rate."""
    sizes, learning_rates = ({getattr(row, key) for row in rates} for key in ("train_size", "learning_rate"))
    errors = any(row.errors for row in rates)
    columns = (
        *(TUNED, train_size_column(sizes)),
        replace(LEARNING_RATE, title=LEARNING_RATE.title if learning_rates != {None} else ""),
        *failure_columns(),
        Column("errors", "ended in\nan error" if errors else "", formatting.count, bad=lambda row: bool(row.errors)),
        Column("mean", "mean as\nshown", formatting.score),
        Column("mean_with_failures", "mean of all\nwith a score", formatting.score),
    )
    caption = (
        "Failed runs by kind, with the 95 % confidence interval (Clopper-Pearson) of the failure rate. The mean as "
        "shown leaves failed runs out, unless fewer than half of the runs succeeded: then it includes every run with a score."
    )
    return ReportTable("failures", "Failures by tuned layers", caption, columns, tuple(map(Row, rates)))


def train_size_column(sizes: Iterable[int | None]) -> Column:
    """The column of the train size. A page shows it if there are several."""
    return Column("train_size", "train\nsize" if len(set(sizes)) > 1 else "", formatting.count)


def failure_columns() -> list[Column]:
    """Columns of the failed runs, with their kinds, and of the failure rate."""
    kinds = [name.replace(" ", "_") for name in (*FAILURES, UNDEFINED)]

    def counted(key: str, title: str = "", **more: Any) -> Column:
        return Column(key, title, formatting.count, of=f"failures.{key}", **more)

    def by_kind(row: Rate) -> list[str]:
        return [f"{count} {kind.replace('_', ' ')}" for kind in kinds if (count := getattr(row.failures, kind))]

    def rate(row: Rate) -> float | None:
        return row.failures.failed / row.failures.runs if row.failures.runs else None

    def interval(row: Rate) -> Ends:
        return row.failures.interval or (None, None)

    def both(row: Rate) -> str:
        return f"{row.failures.failed} of {row.failures.runs}"

    return [
        counted("failed", "failed\nruns", bad=lambda row: bool(row.failures.failed), whole=both, small=by_kind),
        *map(counted, (*kinds, "runs")),
        Column("failure_rate", "failure\nrate", formatting.percent, rate, ends=interval),
        counted("not_above_baseline", "not above\nbaseline"),
    ]


def choices_table(curve: SizeAnswer, *, price: float) -> ReportTable:
    """Each choice beside full fine-tuning: expected points lost, cost, and the probability of each usual target.

    ``price`` is the score that the training time of full fine-tuning is worth.
    """
    decision, choices = curve.decision, curve.choices
    chosen, mark = (decision.choice, names.mark_of_choice(decision)) if decision else (None, "")

    def tags(choice: Choice) -> tuple[str, ...]:
        if choice.choice == chosen:
            return (mark,)
        return (f"dominated by {names.printed(choice.dominated_by)}",) if choice.dominated_by else ()

    def probability(key: str) -> Read:
        return lambda choice: choice.probabilities[key]

    targets = {"gain_90": "90 %\nof gain", "gain_95": "95 %\nof gain", "gain_99": "99 %\nof gain", "margin": "margin"}
    columns = (
        Column("choice", "tuned", names.printed, number=False, strong=True),
        Column("expected", "expected\nscore", formatting.score),
        Column("below_full", "expected\npoints lost", formatting.points, ends=("low", "high")),
        Column("cost_of_full", "layers\n(cost)", formatting.percent),
        Column("value", "value", formatting.score),
        *(Column(key, title, formatting.short_probability, of=probability(key)) for key, title in targets.items()),
        Column("better_than_previous", "better than the\nnext smaller k", formatting.short_probability),
        Column("dominated_by"),
    )
    margin = next(point.margin for point in curve.operating_points if point.margin is not None)
    times = ", times the number of epochs," if any(cell.recipe.epochs for cell in curve.cells) else ""
    caption = (
        f"The value of a choice is its expected score less {price:g} times its cost. The highest value is recommended, unless a "
        f"probability of reaching the target is wanted. The cost is the number of tuned layers{times} as a share of "
        f"{names.whole(curve)}; training time is roughly proportional to it. Expected scores and probabilities come from the "
        f"joint posterior of all mean scores, given the runs and the validation examples. The margin is {margin:g}. Below the "
        "points lost: their 95 % interval, which is the posterior's. It also uses the scores of similar choices. The 95 % "
        "confidence intervals of other tables use only the runs of the k themselves."
    )
    rows = tuple(Row(choice, tags(choice), choice.choice == chosen) for choice in choices)
    return ReportTable("choices", "Choices", caption, columns, rows)


def ways_table(curve: SizeAnswer, in_words: Mapping[str, str]) -> ReportTable:
    """A row for each way to tune. ``in_words`` says what each of them changes, if that is known."""
    choices = {choice.choice: choice for choice in curve.choices}
    recommended = curve.recommended

    def beside(key: str) -> Read:
        """Reads the comparison of a way with the last k layers at the same cost."""

        def found_in(cell: Cell) -> Value:
            choice = choices.get(cell.recipe)
            value: Value = getattr(choice.beside_k, key) if choice and choice.beside_k else None
            return value

        return found_in

    def interval(cell: Cell) -> Ends:
        return beside("low")(cell), beside("high")(cell)

    ways = [cell for cell in curve.cells if cell.recipe.is_way]
    alone = [way.recipe for way in ways if not beside("choice")(way)]
    caption = (
        "Each way beside the largest k that costs at most as much, by the share of layers that run in training: the points that "
        "it is expected to score above that k, their 95 % interval, and the probability that it scores higher. Time and memory "
        "are measured. Each way that tunes layers has as many learning rates as every k above 0. Ways that train only a head "
        "have learning rates of their own. Each is shown at its best one. Before any run, a way is expected to score as that k, "
        "because the best of many ways partly looks best by luck."
    )
    if any(way in choices for way in alone):
        caption += " Where nothing is beside a way, no k costs as little: add head, or fewer last layers, to --tune."
    if any(way not in choices for way in alone):
        caption += " A way that has no usable run is beside nothing."
    columns = (
        Column("way", "way", of="recipe", number=False, strong=True, user_text="value"),
        Column(
            "fields", "what it changes" if in_words else "", of=lambda cell: in_words.get(cell.recipe, ""), number=False
        ),
        _comparable(curve, "score"),
        Column("k", "beside", names.printed, of=beside("choice"), number=False),
        Column("above", "expected\npoints above", formatting.points, beside("above"), ends=interval),
        Column("probability", "probability\nof more", formatting.short_probability, of=beside("probability")),
        Column("trainable_parameters", "trainable\nparameters", formatting.parameters),
        Column("seconds", "training\ntime", formatting.seconds),
        Column("peak_memory_bytes", "peak\nmemory", formatting.size),
    )
    chosen = {way.recipe: bool(recommended and recommended.recipe == way.recipe) for way in ways}
    mark = names.mark_of_choice(curve.decision)
    rows = (Row(way, (mark,) * chosen[way.recipe], chosen[way.recipe]) for way in ways)
    return ReportTable("ways", "Ways to tune", caption, columns, tuple(rows))


def operating_points_table(curve: SizeAnswer) -> ReportTable:
    """The smallest k that reaches each share of full fine-tuning, and the smallest k within the margin."""
    reference, main = curve.reference, curve.deciding_point
    whole = "full" if reference is None or curve.reference_is_full else names.printed(reference)

    def of(point: OperatingPoint) -> str:
        return "margin" if point.margin is not None else "gain" if point.corrected else "score"

    def goal(point: OperatingPoint) -> str:
        if point.margin is not None:
            return f"at most {point.margin:g} below {whole}"
        return f"{formatting.target(point.target or 0.0)} of the {of(point)} of {whole}"

    columns = (
        Column("rule", "target", of=goal, number=False, rank="place"),
        *(Column("of", of=of), Column("target"), Column("margin")),
        *sufficient_columns(),
        Column("verdict", "verdict", number=False),
    )
    caption = (
        f"The smallest number of tuned layers that reaches each target. {THREE_WAYS} The recommendation does not need that to be "
        "decided: it rests on probabilities. "
    )
    caption += _of_same_seeds(curve)
    points = sorted(curve.operating_points, key=lambda point: (point.margin is not None, not point.corrected))
    rows = tuple(Row(point, ("the target",) if point == main else (), chosen=point == main) for point in points)
    return ReportTable("operating_points", "Operating points", f"{caption}{_what_is_shown(curve)}", columns, rows)


THREE_WAYS = (
    "By mean: its mean score does. With confidence: its whole 95 % confidence interval lies above the target. Not ruled out: "
    "a part of the interval does. The verdict is decided if the last two agree, and undefined if the reference is not shown "
    "to be above the baseline."
)


def place_of(choice: Recipe | None) -> int | None:
    """The number of tuned layers, for sorting: more than any k for full fine-tuning, less for an alternative; None: no choice."""
    if choice in ALTERNATIVES:
        return -1
    return None if choice is None else MOST_LAYERS if choice.is_full else choice.k


def sufficient_columns(of: Read = lambda point: point) -> list[Column]:
    """The smallest k by mean, with confidence, and not ruled out; ``of`` reads the point of a row."""

    def column(key: str, title: str, *, strong: bool = False) -> Column:
        def found(row: Any) -> Recipe | None:
            recipe: Recipe | None = getattr(of(row), key)
            return recipe

        def rank(row: Any) -> int | None:
            return place_of(found(row))

        return Column(key, title, names.printed, of=found, number=False, rank=rank, strong=strong)

    return [
        column("estimate", "by\nmean"),
        column("confident", "with\nconfidence", strong=True),
        column("not_ruled_out", "not\nruled out"),
    ]


def _by_k(curve: SizeAnswer) -> tuple[Row, ...]:
    """A row for the cell of each k. The recommended row is highlighted."""
    recommended = curve.recommended
    rows = []
    for cell in curve.cells:
        chosen = bool(recommended and recommended.recipe == cell.recipe)
        tags = [names.mark_of_choice(curve.decision)] if chosen else []
        if cell.recipe == curve.reference:
            tags.append("reference")
        rows.append(Row(cell, tuple(tags), chosen))
    return tuple(rows)


def _comparable(curve: SizeAnswer, key: str = "comparable") -> Column:
    """The mean score of each k, to be compared with those of others: with folds, without the effects of its folds."""
    title = "mean without\nfold effects" if names.rows_differ(curve.cells) else "mean\nscore"
    return Column(key, title, formatting.score, of="comparable")


def _tried(cell: Cell) -> list[str]:
    """The learning rates that were tried, two on each line so that the column stays narrow."""
    tried = [formatting.learning_rate(rate) for rate in cell.learning_rates_tried]
    lines = [", ".join(tried[n : n + 2]) for n in range(0, len(tried), 2)]
    return ",\n".join([f"of {lines[0]}", *lines[1:]]).splitlines() if len(tried) > 1 else []


def _of_same_seeds(curve: SizeAnswer) -> str:
    """A sentence if shares and differences are not those of the mean scores; else empty."""
    if len({cell.validation.n for cell in curve.cells if cell.validation.n}) < 2:
        return ""
    return "Shares and differences compare runs of the same seeds, so they can differ from those of the mean scores. "


def _what_is_shown(curve: SizeAnswer) -> str:
    """Sentences on the learning rates of a table by k, and on a recommended model that is in no such table."""
    decision, rates = curve.decision, learning_rates(curve)
    if decision is None or decision.choice not in ALTERNATIVES:
        return rates
    return f"{rates} The recommended {names.printed(decision.choice)} trains no layer; it is in the table of choices."


def learning_rates(curve: SizeAnswer) -> str:
    """A sentence on the learning rates of a table by k. k = 0 (classifier head only) has its own learning rates."""
    by_k = {cell.recipe: set(cell.learning_rates_tried) for cell in curve.cells}
    heads = [k for k in by_k if k.k == 0]
    of_head = set().union(*(by_k.pop(k) for k in heads)) if len(by_k) > len(heads) else set()
    tried = set().union(*by_k.values())
    if not tried | of_head:
        return "The learning rates are unknown."
    own = of_head if of_head != tried else set()
    if len(tried) < 2 and len(own) < 2:
        text = f"Learning rate {formatting.learning_rate(*(tried or of_head))}"
        return f"{text}; {formatting.learning_rate(*own)} for k = 0." if own and tried else f"{text}."
    if curve.learning_rate_rule == BEST_OF_FULL:
        text = "Every k is shown at the learning rate that is best for full fine-tuning"
        return f"{text}; k = 0 at its own best." if own else f"{text}."
    return "Each k is shown at its own best learning rate on validation."
