"""The tables of one curve: what ``frostline.statistics.curve.compare`` found, a row for each number of tuned layers.

Each function takes the curve (a size of an answer) and gives a :class:`Table`; ``suffix`` sets its name apart from those of
other curves on the same page.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from frostline.data.folding import capital
from frostline.report import formatting
from frostline.report.tables import rules
from frostline.report.tables.table import Column, Row, Table, Value, Values
from frostline.statistics.outcomes import FAILURES

Curve = Mapping[str, Any]
Cell = Mapping[str, Any]

WAYS = tuple(name.replace(" ", "_") for name in FAILURES)  # of failing
TUNED = Column("tuned", "tuned", formatting.trainable, number=False, rank=lambda row: row["place"])

FAILED = Column(
    *("failed", "failed\nruns"),
    bad=lambda row: bool(row["failed"]),
    whole=lambda row: f"{row['failed']} of {row['runs']}",
)


def scores(curve: Curve, metric: str, *, tested: bool = False, suffix: str = "") -> Table:
    """The spread of the scores of each k, of the runs that its mean is of."""

    def values(cell: Cell) -> dict[str, Value]:
        spread = cell["validation"]
        return {
            **_rates(cell),
            **{"runs": spread["n"], "finished_runs": cell["runs"]},
            **{name: spread[name] for name in ("mean", "low", "high", "median", "lower_quartile", "upper_quartile")},
            **{name: spread[name] for name in ("std", "min", "max")},
            **{"last_epoch": cell["validation_last"]["mean"], "train": cell["train_last"]["mean"]},
            **({"test": cell["test"]["mean"]} if tested else {}),
        }

    columns = (
        *(TUNED, Column("mean", "mean", formatting.score, strong=True)),
        *_interval("95 % interval\nof the mean", "low", "high", formatting.score_interval),
        *((Column("test", "mean\non test", formatting.score),) if tested else ()),
        Column("median", "median\n(quartiles)", formatting.score, small=_quartiles),
        *(Column("lower_quartile"), Column("upper_quartile")),
        *(Column(name, name, formatting.score) for name in ("std", "min", "max")),
        Column("last_epoch", "mean at the\nlast epoch", formatting.score),
        Column("train", "mean\non train", formatting.score),
        *(Column("runs", "runs", small=_of_all), Column("finished_runs")),
        Column("learning_rate", "learning\nrate", formatting.rate, small=_tried),
        Column("learning_rates_tried", number=False),
    )
    caption = f"Of the runs that succeeded; mean to max: validation, at the epoch that a run is judged by. {rules.rates(curve)}"
    return Table(
        f"scores{suffix}",
        _about(f"{capital(metric)} by tuned layers", curve, suffix),
        caption,
        columns,
        _rows(curve, values),
    )


def shares(curve: Curve, metric: str, *, suffix: str = "") -> Table:
    """Each k against full: shares, the difference with its p-value, and what pairing gained."""

    def values(cell: Cell) -> dict[str, Value]:
        itself = cell["trainable"] == curve["reference"]
        whole = {"estimate": 1.0, "low": None, "high": None}
        found: dict[str, Value] = {}
        for name in ("share", "share_corrected"):
            known = cell[name] is not None and cell[name]["estimate"] is not None
            found |= _three(name, whole if itself and known else cell[name])
        difference = {} if itself else cell["difference"] or {}
        return {
            **found,
            **_three("difference", difference),
            **{"p": difference.get("p"), "p_holm": difference.get("p_holm"), "pairing_gain": cell["pairing_gain"]},
        }

    def share(name: str, title: str) -> tuple[Column, ...]:
        between = _small(f"{name}_low", f"{name}_high", formatting.percent_interval)
        return Column(name, title, formatting.percent, small=between), Column(f"{name}_low"), Column(f"{name}_high")

    between = _small("difference_low", "difference_high", formatting.difference_interval)
    columns = (
        TUNED,
        *share("share", "share of\nthe score"),
        *share("share_corrected", "share of\nthe gain"),
        Column("difference", f"difference\nin {metric}", formatting.difference, small=between),
        *(Column("difference_low"), Column("difference_high")),
        Column("p", "p of the\ndifference", formatting.p_value),
        Column("p_holm", "p after\nHolm", formatting.p_value),
        Column("pairing_gain", "pairing\nnarrows", formatting.times),
    )
    caption = (
        f"{rules.against(curve)}, with 95 % intervals. “Gain” is what is left of a score when guessing is "
        "taken off. p: how often a difference this large would come by luck if both were equally good; Holm’s makes up "
        "for comparing many choices. “Pairing narrows”: how many times wider the interval would be if seeds were not "
        f"compared each with itself. {rules.rates(curve)}"
    )
    title = f"Share of {'full' if curve['reference_is_full'] or not curve['reference'] else 'the reference'}"
    return Table(
        f"shares{suffix}", _about(f"{title} by tuned layers", curve, suffix), caption, columns, _rows(curve, values)
    )


def costs(curve: Curve, *, suffix: str = "") -> Table:
    """What a run of each k costs, beside what it keeps of full, and how many runs failed."""

    def values(cell: Cell) -> dict[str, Value]:
        names = ("trainable_parameters", "seconds", "shared_seconds", "times_cheaper", "peak_memory_bytes")
        return {
            "mean": cell["validation"]["mean"],
            **{name: cell[name] for name in names},
            **rate_of_failures(cell["failures"]),
        }

    def shared(row: Values) -> list[str]:
        return [f"+ {formatting.seconds(float(row['shared_seconds']))}"] if row["shared_seconds"] else []

    columns = (
        TUNED,
        Column("mean", "mean\nscore", formatting.score),
        Column("trainable_parameters", "trainable\nparameters", formatting.parameters),
        Column("seconds", "time of a run\n(+ shared)", formatting.seconds, small=shared),
        Column("shared_seconds"),
        Column("times_cheaper", "times\ncheaper", formatting.times),
        Column("peak_memory_bytes", "peak\nmemory", formatting.size),
        replace(FAILED, small=lambda row: failure_interval(row) if row["failed"] else []),
        *(Column(name) for name in ("runs", "failure_rate", "failure_low", "failure_high")),
    )
    caption = (
        "Failed runs have the 95 % interval of their rate below. “Shared” is a run’s share of the pass that "
        f"makes hidden states; it counts for how many times cheaper a run is. {rules.rates(curve)}"
    )
    if len({cell["abreast"] for cell in curve["cells"] if cell["abreast"]}) > 1:
        caption += (
            " Runs went in different company: one by itself has all cores, and its time is no share of the clock."
        )
    return Table(
        f"costs{suffix}",
        _about("Cost and failures by tuned layers", curve, suffix),
        caption,
        columns,
        _rows(curve, values),
    )


def failures(curve: Curve, *, suffix: str = "") -> Table:
    """Failed runs of each k by the way they failed, and its mean with and without them."""

    def values(cell: Cell) -> dict[str, Value]:
        return {
            **rate_of_failures(cell["failures"]),
            **{"mean": cell["validation"]["mean"], "in_mean": cell["validation"]["n"]},
            "mean_with_failures": cell["validation_with_failures"]["mean"],
            "in_mean_with_failures": cell["validation_with_failures"]["n"],
            "errors": cell["errors"],
        }

    columns = (
        TUNED,
        *ways(),
        *failed_columns(),
        Column("mean", "mean as\nshown", formatting.score, small=lambda row: [f"of {row['in_mean']}"]),
        Column("in_mean"),
        Column(
            *("mean_with_failures", "mean of all\nwith a score", formatting.score),
            small=lambda row: [f"of {row['in_mean_with_failures']}"],
        ),
        Column("in_mean_with_failures"),
        Column("errors", "ended in\nan error", formatting.count, bad=lambda row: bool(row["errors"])),
    )
    caption = (
        "How runs failed, and what that does to the mean. A failed run is left out of the mean as shown, "
        f"unless less than half of the runs succeeded: then every run with a score is in it. {rules.rates(curve)}"
    )
    return Table(
        f"failures{suffix}", _about("Failures by tuned layers", curve, suffix), caption, columns, _rows(curve, values)
    )


def points(curve: Curve, main: Mapping[str, Any], *, suffix: str = "") -> Table:
    """The operating points: the smallest k that is enough, for every share of full and within the margin."""
    order = {cell["trainable"]: n for n, cell in enumerate(curve["cells"])}

    def place(name: str) -> Callable[[Values], Value]:
        return lambda row: order.get(str(row[name]))

    found = sorted(curve["operating_points"], key=lambda point: (point["margin"] is not None, not point["corrected"]))
    rows = [
        Row(
            {
                "rule": rules.rule(point, curve),
                "of": "margin" if point["margin"] is not None else "gain" if point["corrected"] else "score",
                **{name: point[name] for name in ("target", "margin", "estimate", "sure", "possible", "verdict")},
                "words": rules.point(point, curve),
                "place": n,
            },
            tags=("decides",) if point is main else (),
            chosen=point is main,
        )
        for n, point in enumerate(found)
    ]
    columns = (
        Column("rule", "what must be reached", number=False, rank=lambda row: row["place"]),
        *(Column("of", number=False), Column("target"), Column("margin")),
        Column("estimate", "by the\nmeans", formatting.trainable, number=False, rank=place("estimate")),
        Column("sure", "surely", formatting.trainable, number=False, rank=place("sure"), strong=True),
        Column("possible", "not\nruled out", formatting.trainable, number=False, rank=place("possible")),
        Column("verdict", number=False),
        Column("words", "in words", number=False),
    )
    caption = (
        "The smallest number of tuned layers: by the means alone; surely, with its whole interval above; and not ruled out, "
        f"with an interval that reaches above. {rules.rates(curve)}"
    )
    return Table(
        f"operating_points{suffix}",
        _about("Operating points", curve, suffix),
        caption,
        columns,
        tuple(rows),
        look="prose",
    )


def ways() -> tuple[Column, ...]:
    """How many runs failed, each way; the values are those of ``comparison.outcomes.failures``."""
    kinds = {name: name.replace("_", " ") for name in WAYS}
    columns = (Column(name, title, formatting.count, bad=_is(name)) for name, title in kinds.items())
    return (*columns, Column("not_above_guessing", "not above\nguessing", formatting.count))


def failed_columns() -> tuple[Column, ...]:
    """Failed of all runs, and the rate with its interval, from what :func:`rate_of_failures` gives."""
    rate = Column("failure_rate", "failure\nrate", formatting.percent, small=failure_interval)
    return FAILED, Column("runs"), rate, Column("failure_low"), Column("failure_high")


def failure_interval(row: Values) -> list[str]:
    """The interval of a failure rate, as small print."""
    return [formatting.percent_interval(row["failure_low"], row["failure_high"])]


def rate_of_failures(failed: Mapping[str, Any]) -> dict[str, Value]:
    """What ``comparison.outcomes.failures`` counted, as values of a row."""
    low, high = failed["interval"] or (None, None)
    rate = failed["failed"] / failed["runs"] if failed["runs"] else None
    counts = {name: failed[name] for name in (*WAYS, "failed", "runs", "not_above_guessing")}
    return {**counts, "failure_rate": rate, "failure_low": low, "failure_high": high}


def _about(title: str, curve: Curve, suffix: str) -> str:
    """The title of a table, so that no two on a page are alike: with what an analysis says the curve is about, or for a
    further train size of a sweep with its examples."""
    about = curve.get("about") or (f"{curve['train_size']:,} examples" if suffix else "")
    return f"{title}, {about}" if about else title


def _rows(curve: Curve, values: Callable[[Cell], Mapping[str, Value]]) -> tuple[Row, ...]:
    """A row for each k; the recommended one set off."""
    recommended = curve.get("recommended")
    rows = []
    for place, cell in enumerate(curve["cells"]):
        name = cell["trainable"]
        chosen = bool(recommended and recommended["trainable"] == name)
        tags = ["recommended"] if chosen else []
        if name == curve["reference"]:
            tags.append("full" if cell["tune_embeddings"] else "reference")
        rows.append(Row({"tuned": name, "place": place, **values(cell)}, tuple(tags), chosen))
    return tuple(rows)


def _interval(title: str, low: str, high: str, show: Callable[[Any, Any], str]) -> tuple[Column, ...]:
    whole = Column(low, title, whole=lambda row: show(row[low], row[high]))
    return whole, Column(high)


def _small(low: str, high: str, show: Callable[[Any, Any], str]) -> Callable[[Values], list[str]]:
    return lambda row: [show(row[low], row[high])]


def _quartiles(row: Values) -> list[str]:
    low, high = row["lower_quartile"], row["upper_quartile"]
    return [f"{formatting.score(low)} to {formatting.score(high)}"] if row["runs"] not in (0, 1) else []


def _rates(cell: Cell) -> dict[str, Value]:
    tried = " ".join(f"{rate:g}" for rate in cell["learning_rates_tried"])
    return {"learning_rate": cell["learning_rate"], "learning_rates_tried": tried}


def _tried(row: Values) -> list[str]:
    tried = [formatting.rate(float(rate)) for rate in str(row["learning_rates_tried"]).split()]
    two = [", ".join(tried[n : n + 2]) for n in range(0, len(tried), 2)]  # in a line: the table is no wider for them
    return ",\n".join([f"of {two[0]}", *two[1:]]).splitlines() if len(tried) > 1 else []


def _of_all(row: Values) -> list[str]:
    return [] if row["runs"] == row["finished_runs"] else [f"of {row['finished_runs']}"]


def _three(name: str, found: Mapping[str, Any] | None) -> dict[str, Value]:
    known = found or {}
    keys = {"estimate": name, "low": f"{name}_low", "high": f"{name}_high"}
    return {key: known.get(which) for which, key in keys.items()}


def _is(name: str) -> Callable[[Values], bool]:
    return lambda row: bool(row[name])
