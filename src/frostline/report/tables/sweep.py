"""The tables of a sweep beside those of its curves: its runs, its failure rates, its data, its audit, its mistakes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from frostline.report import formatting
from frostline.report.mistakes import Confusion
from frostline.report.sentences import trained_places
from frostline.report.tables.curve import TUNED, failed_columns, rate_of_failures, ways
from frostline.report.tables.table import Column, Row, Table, Values
from frostline.statistics.outcomes import FAILURES, failure_table
from frostline.training.specification import RunSpec

Run = Mapping[str, Any]
SIZE = Column("train_size", "train\nsize", formatting.count)
RATE = Column("learning_rate", "learning\nrate", formatting.rate)
CHECKS = {
    "optimizer_holds_exactly_the_trained": "optimizer holds\njust these",
    "each_parameter_in_one_place": "each has\none place",
    "frozen_bytes_unchanged": "frozen bytes\nunchanged",
    "frozen_gradients_none": "no gradient\nin the frozen",
    "frozen_in_eval_mode": "frozen in\neval mode",
}


def failure_rates(runs: Sequence[Run]) -> Table:
    """Failure rates by train size, k and learning rate, of finished runs that ``outcomes.judged`` has judged."""
    by = {"size": lambda run: -run["train_size"], "depth": _depth, "learning_rate": lambda run: run["learning_rate"]}
    rows = [
        Row(
            {
                **{"tuned": _named(group["depth"]), "place": n, "train_size": -group["size"]},
                **{"learning_rate": group["learning_rate"], **rate_of_failures(group)},
            }
        )
        for n, group in enumerate(failure_table(runs, by))
    ]
    caption = "Every learning rate that was tried, with Clopper and Pearson’s 95 % interval of the rate."
    columns = (TUNED, *_several(runs), RATE, *ways(), *failed_columns())
    return Table("failure_rates", "Failure rates by tuned layers and learning rate", caption, columns, tuple(rows))


def failed_runs(runs: Sequence[Run]) -> Table:
    """Every finished run that failed."""
    failed = sorted((run for run in runs if run["outcome"] in FAILURES), key=_in_order)
    columns = (
        *(TUNED, *_several(runs), Column("seed", "seed"), RATE),
        Column("validation_best", "score", formatting.score),
        Column("outcome", "what happened", number=False),
        Column("reason", "reason", number=False),
    )
    return Table("failed_runs", "Failed runs", "Each run that ended, but not well.", columns, _runs(failed))


def missing_runs(runs: Sequence[Run]) -> Table:
    """Every cell of the grid without a result."""
    missing = sorted((run for run in runs if run["status"] != "done"), key=_in_order)
    columns = (
        *(TUNED, *_several(runs), Column("seed", "seed"), RATE),
        Column("status", "status", number=False),
        Column("reason", "reason", number=False),
    )
    caption = f"Cells of the grid without a result: {len(missing)}. The same command again runs them."
    return Table("missing_runs", "Missing runs", caption, columns, _runs(missing))


def predicted(calls: Sequence[Mapping[str, Any]], results: Iterable[Mapping[str, Any]]) -> Table:
    """Seconds and memory as they were forecast, beside what was measured: a row for each cell, for the pass and in all.

    ``calls`` are what ``sweep.forecast`` has recorded; ``results`` are the facts of finished runs.
    """
    cells = {(cell["trainable"], cell["train_size"]): cell for call in calls for cell in call["predicted"]["cells"]}
    costs: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for facts in results:
        spec = RunSpec.model_validate(facts["spec"])
        if "run_seconds" in facts["cost"]:  # else of a sweep before there were forecasts
            costs.setdefault((spec.trainable, spec.train_size), []).append(facts["cost"])
    rows = []
    for (name, size), cell in sorted(cells.items(), key=lambda item: -item[0][1]):
        seen = costs.get((name, size), [])
        rows.append(
            {
                **{"tuned": name, "train_size": size, "runs": len(seen), "predicted": cell["seconds"]},
                "measured": sum(cost["run_seconds"] for cost in seen) / len(seen) if seen else None,
                "predicted_bytes": cell["memory_bytes"],
                "measured_bytes": max((cost["peak_memory_bytes"] for cost in seen), default=None),
            }
        )
    ended = [call for call in calls if call["measured"]]
    for name, key in (("pass", "pass_seconds"), ("total", "seconds")):
        if ended:
            said, took = (sum(call[which][key] for call in ended) for which in ("predicted", "measured"))
            rows.append({"tuned": name, "predicted": said, "measured": took})
    for place, row in enumerate(rows):
        row |= {"place": place, "ratio": row["predicted"] / row["measured"] if row["measured"] else None}
    several = len({size for _, size in cells}) > 1
    columns = (
        *(TUNED, SIZE if several else Column("train_size"), Column("runs", "runs", formatting.count)),
        Column("predicted", "predicted", formatting.seconds),
        Column("measured", "measured", formatting.seconds),
        Column("ratio", "predicted /\nmeasured", formatting.ratio, strong=True),
        Column("predicted_bytes", "memory,\npredicted", formatting.size),
        Column("measured_bytes", "memory,\nmeasured", formatting.size),
    )
    caption = (
        "Time of a run by tuned layers, of the pass that makes hidden states, and of all runs and the pass together. Predicted "
        "before the first run, from the operations of everything and the time of a few steps; memory at its peak."
    )
    return Table("predicted", "Predicted and measured", caption, columns, tuple(Row(row) for row in rows))


def search(found: Mapping[str, Any]) -> Table:
    """What a search trained, step by step, and why."""
    rows = []
    for n, step in enumerate(found["steps"], 1):
        scores = [run["score"] for run in step["runs"] if run["score"] is not None]
        names = list(dict.fromkeys(formatting.trainable(run["trainable"]) for run in step["runs"]))
        rates = list(dict.fromkeys(formatting.rate(run["learning_rate"]) for run in step["runs"]))
        rows.append(
            {
                **{"step": n, "why": step["why"], "tuned": ", ".join(names), "runs": len(step["runs"])},
                **{"rates": ", ".join(rates), "low": min(scores, default=None), "high": max(scores, default=None)},
                "seconds": step["seconds"],
            }
        )
    columns = (
        Column("step", "step", formatting.count),
        Column("why", "why", number=False),
        Column("tuned", "tuned", number=False),
        Column("rates", "learning\nrate", number=False),
        Column("runs", "runs", formatting.count),
        Column("low", "lowest\nscore", formatting.score),
        Column("high", "highest\nscore", formatting.score),
        Column("seconds", "time", formatting.seconds),
    )
    skipped = ", ".join(formatting.trainable(name) for name in found["skipped"])
    budget = found["budget_seconds"]
    caption = (
        f"Every step of the search and its reason; {formatting.seconds(found['spent_seconds'])} of training"
        + (f", of {formatting.seconds(budget)} that it could take. " if budget is not None else ". ")
        + (f"It ended so: {found['why']} " if found["why"] else "It has not ended. ")
        + (f"Not trained: {skipped}." if skipped else "Every k was trained.")
    )
    return Table("search", "The search", caption, columns, tuple(Row(row) for row in rows), sortable=False)


def guesses(found: Mapping[str, Any]) -> Table:
    """What cheap numbers said beforehand, and how near that came."""
    columns = (
        Column("by", "by", number=False),
        Column("k", "guessed k", formatting.count),
        Column("place", "place of the k\nthat was named", formatting.count),
    )
    caption = (
        "Numbers that cost next to nothing say where a search begins, never what it names. Each gives an order of all k, those "
        "nearest to its guess first; the place of what was named in it tells how good it was. Climbing, from the head alone up, "
        "is there to compare with."
    )
    return Table("guesses", "Guesses", caption, columns, tuple(Row(row) for row in found["guesses"]), sortable=False)


def splits(data: Mapping[str, Any]) -> Table:
    """Rows by split, with what the checks of the data counted."""
    report = data["report"]
    rows = [
        Row(
            {
                **{"split": name, "rows": split["rows"], "empty_texts": split["empty_texts"]},
                **{f"characters_{which}": split["characters"][which] for which in ("median", "percentile_95")},
                "truncated": data["truncated"].get(name),
                "repeated": report["repeated"].get(name, 0),
                "in_train": report["shared"].get(f"train/{name}"),
            }
        )
        for name, split in report["splits"].items()
    ]
    columns = (
        Column("split", "split", number=False),
        Column("rows", "rows", formatting.count),
        Column("characters_median", "characters,\nmedian", formatting.count),
        Column("characters_percentile_95", "characters,\n95th percentile", formatting.count),
        Column("truncated", "truncated", formatting.percent),
        Column("repeated", "repeated in\nthe split", formatting.count),
        Column("in_train", "text also\nin train", formatting.count),
        Column("empty_texts", "empty\ntexts", formatting.count),
    )
    caption = f"A text is truncated when it has more than {data['max_length']} tokens; the share is of the texts that are used."
    return Table("splits", "Rows by split", caption, columns, tuple(rows))


def classes(data: Mapping[str, Any], labels: Sequence[str]) -> Table:
    """Rows by class in each split."""
    found = data["report"]["splits"]

    def share(split: str) -> Callable[[Values], list[str]]:
        whole = found[split]["rows"]
        return lambda row: [formatting.percent(row[f"rows_{split}"] / whole)] if whole else []

    rows = [
        Row(
            {
                "class": label,
                "place": n,
                **{f"rows_{split}": found[split]["label_counts"].get(label, 0) for split in found},
                "truncated": data["truncated_by_class"].get(label),
            }
        )
        for n, label in enumerate(labels)
    ]
    columns = (
        Column("class", "class", number=False, rank=lambda row: row["place"], wrote="value"),
        *(Column(f"rows_{split}", split, formatting.count, small=share(split)) for split in found),
        Column("truncated", "truncated in train", formatting.percent),
    )
    caption = "With their share of the split."
    return Table("classes", "Rows by class", caption, columns, tuple(rows), look="classes")


def audit(samples: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """What was frozen stayed frozen: the audit of one run of each k."""
    names = ("trainable_parameters", "parameters", "clipped_parameters", *CHECKS)
    rows = [
        Row(
            {
                **{"tuned": name, "place": n, "trained": trained_places(found["by_place"])},
                **{key: found[key] for key in names},
            }
        )
        for n, (name, found) in enumerate(samples)
    ]
    columns = (
        TUNED,
        Column("trained", "trained", number=False),
        Column(
            *("trainable_parameters", "parameters", formatting.count),
            small=lambda row: [formatting.percent(row["trainable_parameters"] / row["parameters"])],
        ),
        Column("parameters"),
        *(Column(key, title, formatting.yes_no, bad=_failed(key)) for key, title in CHECKS.items()),
        Column("clipped_parameters", "tensors\nclipped", formatting.count),
    )
    caption = "One run of each number of tuned layers. In the optimizer and clipped: the trained, and nothing else."
    return Table("audit", "Audit", caption, columns, tuple(rows))


def confusion_matrix(found: Confusion) -> Table:
    """Counts of true by predicted class, each tinted by its share of the true class."""

    def shade(row: int, column: int) -> tuple[str, float]:
        return "right" if row == column else "", found.share(row, column)

    def shaded(column: int) -> Callable[[Values], tuple[str, float]]:
        return lambda values: shade(values["place"], column)

    rows = [
        Row(
            {
                **{"true": label, "place": n},
                **{f"predicted {other}": int(found.counts[n, m]) for m, other in enumerate(found.labels)},
            }
        )
        for n, label in enumerate(found.labels)
    ]
    columns = (
        Column("true", "true", number=False, wrote="value"),
        *(
            Column(f"predicted {label}", label, formatting.count, shade=shaded(n), wrote="title")
            for n, label in enumerate(found.labels)
        ),
    )
    caption = "A row for each true class, a column for each predicted one."
    if found.rest:
        caption += f" The classes that are confused most; {found.rest} others are added up."
    return Table("confusion", "Confusion matrix", caption, columns, tuple(rows), sortable=False, look="confusion")


def _runs(runs: Sequence[Run]) -> tuple[Row, ...]:
    names = ("train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
    return tuple(
        Row({"tuned": run["trainable"], "place": n, **{name: run[name] for name in names}})
        for n, run in enumerate(runs)
    )


def _several(runs: Sequence[Run]) -> tuple[Column, ...]:
    """The train size; on the page only where there are several."""
    return (SIZE,) if len({run["train_size"] for run in runs}) > 1 else (Column("train_size"),)


def _depth(run: Run) -> tuple[bool, int, bool]:
    return run["trainable"] == "named", run["tuned_layers"] or 0, run["trainable"] == "all"


def _named(depth: tuple[bool, int, bool]) -> str:
    named, k, everything = depth
    return "named" if named else "all" if everything else f"last {k}"


def _in_order(run: Run) -> tuple[Any, ...]:
    return -run["train_size"], _depth(run), run["learning_rate"], run["seed"]


def _failed(key: str) -> Callable[[Values], bool]:
    return lambda row: not row[key]
