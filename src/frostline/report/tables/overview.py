"""The tables of an analysis: what every model, task and train size say together, and what was published beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.report import formatting
from frostline.report.tables.curve import failed_columns, rate_of_failures, ways
from frostline.report.tables.table import Column, Row, Table, Value
from frostline.statistics.curve import main_point

Analysis = Mapping[str, Any]
Group = Mapping[str, Any]

MODEL, TASK = Column("model", "model", number=False), Column("task", "task", number=False)


def answers(analysis: Analysis) -> Table:
    """The smallest k that is enough, for every model and task."""
    choices = analysis["choices"]
    corrected = {group["sizes"][0]["decides"]["corrected"] for group in analysis["groups"]}
    rows = []
    for group in analysis["groups"]:
        size = group["sizes"][0]
        full = formatting.cell_of(size, size["reference"])
        point = main_point(size)
        rows.append(
            Row(
                {
                    **{name: group[name] for name in ("model", "task", "metric", "layers", "chance")},
                    "full": full["validation"]["mean"] if full else None,
                    "full_low": full["validation"]["low"] if full else None,
                    "full_high": full["validation"]["high"] if full else None,
                    **{name: point[name] for name in ("estimate", "sure", "possible", "verdict")},
                    "seeds_to_tell": size["seeds_to_tell"],
                    "reference": size["reference"],
                }
            )
        )
    layers = {row.values["layers"] for row in rows}
    columns = (
        *(MODEL, TASK, Column("metric", "metric", formatting.metric, number=False)),
        Column("layers", "layers" if len(layers) > 1 else ""),
        Column("chance", "guessing", formatting.score),
        Column("full", "full", formatting.score, small=_full),
        *(Column("full_low"), Column("full_high"), Column("reference", number=False)),
        Column("estimate", "by the\nmeans", formatting.trainable, number=False),
        Column("sure", "surely", formatting.trainable, number=False, strong=True),
        Column("possible", "not\nruled out", formatting.trainable, number=False),
        Column("verdict", number=False),
        Column("seeds_to_tell", "seeds that\nwould tell", formatting.count),
    )
    what = "of its gain over guessing" if corrected == {True} else "of its score"
    if len(corrected) > 1:
        what = "of its gain over guessing (of its score, where nobody says what guessing scores)"
    caption = (
        f"The smallest number of tuned layers that reaches {formatting.target(choices['target'])} of full, {what}: by the "
        "means; surely, with its whole 95 % interval above; and the smallest that the data do not rule out. The last "
        "column: about how many seeds in all, or more, would likely settle the question. "
        f" {_how(analysis)}"
    )
    return Table("answers", "Every task by itself", caption, columns, tuple(rows))


def over_tasks(model: Mapping[str, Any], analysis: Analysis, suffix: str) -> Table:
    """Each k over all tasks of a model: ranks, shares, the worst case."""
    found = model["tasks"]
    what = "gain" if analysis["choices"]["corrected"] else "score"
    columns = (
        Column("trainable", "tuned", formatting.trainable, number=False, rank=lambda row: row["place"]),
        Column("tuned_layers"),
        Column("mean_rank", "mean\nrank", lambda value: f"{value:.1f}"),
        Column("mean_share", f"mean share\nof full’s {what}", formatting.percent),
        Column("worst_share", "worst\nshare", formatting.percent),
        Column("worst_task", "where", number=False),
        Column("tasks", "tasks"),
    )
    rows = [Row({**row, "place": n}) for n, row in enumerate(found["rows"])]
    left = f" Left out by choice: {', '.join(found['left_out'])}." if found["left_out"] else ""
    caption = (
        f"{model['model']}{_layers(model)}, over {len(found['tasks'])} tasks. Rank 1 is the best mean of a task; ties "
        f"share their ranks. The share is the mean over tasks, and the worst stands beside it.{left}"
    )
    return Table(f"over_tasks{suffix}", f"{model['model']} over all tasks", caption, columns, tuple(rows))


def points_over_tasks(analysis: Analysis) -> Table:
    """The smallest k that is enough in every task, for each model."""
    rows = [
        Row(
            {
                **{name: model[name] for name in ("model", "layers")},
                **point,
                "left_out": ", ".join(model["tasks"]["left_out"]) or None,
            },
            chosen=point["target"] == analysis["choices"]["target"],
        )
        for model in analysis["models"]
        if model["tasks"]
        for point in model["tasks"]["points"]
    ]
    columns = (
        MODEL,
        Column("layers", "layers"),
        Column("target", "share\nof full", formatting.target),
        Column("estimate", "by the\nmeans", formatting.trainable, number=False),
        Column("sure", "surely", formatting.trainable, number=False, strong=True),
        Column("possible", "not\nruled out", formatting.trainable, number=False),
        Column("left_out", "tasks\nleft out", number=False),
    )
    caption = f"The smallest number of tuned layers that is enough in every task. {_how(analysis)}"
    return Table("points_over_tasks", "Enough for every task", caption, columns, tuple(rows))


def failures(analysis: Analysis) -> Table:
    """Failed runs of everything, by how much was trained."""
    rows = [Row({"what": row["what"], **rate_of_failures(row)}) for row in analysis["failures"]]
    columns = (Column("what", "trained", number=False), *ways(), *failed_columns())
    caption = (
        "Runs that failed, over all models and tasks, with Clopper and Pearson’s 95 % interval of the rate. Diverged: no "
        "score. Degenerate: the same prediction for every row, where predictions are known. At chance, and collapsed: far "
        "below the other runs of its cell; at chance with less than a tenth of the best run’s gain over guessing, collapsed "
        "with more; where the rows are known, only by more than they explain. Where nobody says what guessing "
        "scores, only lost scores can be seen. Runs that are not above guessing are "
        "counted apart, whether they failed or their whole cell is that weak."
    )
    return Table("failures_by_depth", "Failures by how much was trained", caption, columns, tuple(rows))


def rates(group: Group, suffix: str) -> Table:
    """Every learning rate of every k: failures, and the mean with and without them."""
    several = len({row["train_size"] for row in group["rates"]}) > 1
    rows = [
        Row(
            {
                **{
                    name: row[name]
                    for name in ("train_size", "trainable", "learning_rate", "mean", "mean_with_failures")
                },
                **rate_of_failures(row),
                "place": n,
            }
        )
        for n, row in enumerate(group["rates"])
    ]
    columns = (
        Column("trainable", "tuned", formatting.trainable, number=False, rank=lambda row: row["place"]),
        Column("train_size", "examples" if several else "", formatting.count),
        Column("learning_rate", "learning\nrate", formatting.rate),
        *ways(),
        *failed_columns(),
        Column("mean", "mean as\nshown", formatting.score),
        Column("mean_with_failures", "mean of all\nwith a score", formatting.score),
    )
    title = f"Failures by tuned layers and learning rate, {group['model']}, {group['task']}"
    caption = "Failed runs of each number of tuned layers and learning rate, with Clopper and Pearson’s 95 % interval."
    return Table(f"rates{suffix}", title, caption, columns, tuple(rows))


def above_full(analysis: Analysis) -> Table:
    """Every k whose mean is above full's."""
    rows = [Row(row) for row in sorted(analysis["above_full"], key=lambda row: (row["p_holm"] is None, row["p_holm"]))]
    columns = (
        *(MODEL, TASK, Column("trainable", "tuned", formatting.trainable, number=False)),
        *(Column("tuned_layers"), Column("layers")),
        Column("estimate", "above full", formatting.difference, small=_between("low", "high", difference=True)),
        *(Column("low"), Column("high")),
        Column("p", "p", formatting.p_value),
        Column("p_holm", "p after\nHolm", formatting.p_value),
    )
    caption = (
        "Where freezing raised the mean. Of many comparisons some come out above by luck: Holm’s p makes up for all "
        f"{analysis['comparisons']} of this page."
    )
    return Table("above_full", "Above full", caption, columns, tuple(rows))


def pays(group: Group, suffix: str) -> Table:
    """From how many examples on more tuning pays, and how the distance to full goes with them."""
    learning = group["learning"]
    slopes = {row["trainable"]: row for row in learning["interaction"]}
    spreads = {row["trainable"]: row for row in learning["spread"]}
    rows = [
        Row(
            {
                "trainable": row["trainable"],
                "surely_better": row["surely_better"],
                **_named("slope", slopes.get(row["trainable"]), ("slope", "low", "high", "p", "p_holm")),
                **_named("spread", spreads.get(row["trainable"]), ("ratio", "p", "p_holm")),
                "place": n,
            }
        )
        for n, row in enumerate(learning["pays_from"])
    ]
    columns = (
        Column("trainable", "tuned", formatting.trainable, number=False, rank=lambda row: row["place"]),
        Column("surely_better", "full surely better\nfrom so many on", formatting.count),
        Column(
            *("slope_slope", "distance to full,\nper ten times\nthe examples", formatting.difference),
            small=_between("slope_low", "slope_high", difference=True),
        ),
        *(Column("slope_low"), Column("slope_high"), Column("slope_p")),
        Column("slope_p_holm", "its p after\nHolm", formatting.p_value),
        Column("spread_ratio", "spread between\nseeds, of full’s", formatting.times),
        Column("spread_p"),
        Column("spread_p_holm", "its p after\nHolm", formatting.p_value),
    )
    caption = (
        "Against full, over all train sizes. The distance is k less full: a negative slope says that full gains more from "
        "more examples than this k does. The spread is the standard deviation between seeds, failed runs included, pooled "
        "over the sizes: below 1 this k is steadier than full."
    )
    return Table(f"sizes{suffix}", f"Train sizes, {group['model']}, {group['task']}", caption, columns, tuple(rows))


def published(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Each published number with what was measured."""
    sized = any(row["train_size"] for row in rows)
    printed, measured = ({row[name] for row in rows} - {None} for name in ("model", "measured_model"))
    counts = {row.get("measured_size") for row in rows} - {None}
    others = any(row["measured_model"] not in (row["model"], None) for row in rows)
    resized = any(row["train_size"] and row.get("measured_size") not in (row["train_size"], None) for row in rows)
    made = [
        Row(
            {
                **{
                    name: row.get(name)
                    for name in ("table", "model", "task", "train_size", "statistic", "value", "gap")
                },
                "tuned": None if row["tuned"] is None else _depth(row["tuned"]),
                "of_layers": row["of_layers"],
                **{
                    name: row.get(name)
                    for name in ("measured_model", "measured_tuned", "measured_size", "measured", "runs")
                },
                "place": n,
            }
        )
        for n, row in enumerate(rows)
    ]
    columns = (
        Column("table", "in", number=False, rank=lambda row: row["place"]),
        Column("model", "model" if len(printed) > 1 else "", number=False),
        TASK,
        Column("train_size", "examples" if sized else "", formatting.count),
        Column("tuned", "tuned", formatting.trainable, number=False),
        Column("of_layers", "of\nlayers"),
        Column("statistic", "what", lambda text: text.replace("_", " "), number=False),
        Column("value", "published", _number, strong=True),
        Column("measured_model", "measured\non" if others and len(measured) > 1 else "", number=False),
        Column("measured_tuned", "tuned\nthere" if others else "", formatting.trainable, number=False),
        Column("measured_size", "examples\nthere" if resized and len(counts) > 1 else "", formatting.count),
        Column("measured", "measured", _number, small=_runs),
        Column("runs"),
        Column("gap", "" if others else "measured less\npublished, points", _points),
    )
    caption = "Every published number that was measured too."
    if len(printed) == 1:
        caption += f" Published for {printed.pop()}."
    if others:
        names = f" ({measured.pop()})" if len(measured) == 1 else ""
        caption += f" Another model{names} is compared at the same share of its layers: its scores are not meant to be the same."
    if resized and len(counts) == 1:
        caption += f" Measured with {counts.pop():,} examples."
    return Table("published", "Published and measured", caption, columns, tuple(made))


def _layers(model: Mapping[str, Any]) -> str:
    return f", {model['layers']} layers" if model["layers"] else ""


def _full(row: Mapping[str, Any]) -> list[str]:
    """The interval of full; where full was not run, what stands for it."""
    instead = "" if row["reference"] in ("all", None) else f"here {formatting.trainable(row['reference'])}"
    return [formatting.score_interval(row["full_low"], row["full_high"]), instead]


def _how(analysis: Analysis) -> str:
    """The choices behind a table, in a sentence."""
    choices = analysis["choices"]
    said = [
        "one learning rate for every k, the best of full" if choices["one_rate"] else "the best learning rate of each k"
    ]
    if choices["failed_below"] is not None:
        share = formatting.target(choices["failed_below"])
        said.append(f"runs at most {share} of the best of their cell left out")
    if choices["by_mean"]:
        said.append("decided by the means")
    if choices["leave_out"]:
        said.append(f"without {' and '.join(choices['leave_out'])} where tasks are taken together")
    words = "; ".join(said)
    return f"{words[0].upper()}{words[1:]}."


def _depth(tuned: int | str) -> str:
    return f"last {tuned}" if isinstance(tuned, int) else tuned


def _named(prefix: str, row: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Value]:
    return {f"{prefix}_{name}": None if row is None else row[name] for name in names}


def _between(low: str, high: str, *, difference: bool = False) -> Any:
    show = formatting.difference_interval if difference else formatting.score_interval
    return lambda row: [show(row[low], row[high])]


def _number(value: float) -> str:
    """A score, a count, or what else a publication prints."""
    return f"{value:,.0f}" if abs(value) >= 1000 or (value == int(value) and value > 1) else formatting.score(value)


def _runs(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['runs']} {'run' if row['runs'] == 1 else 'runs'}"] if row["runs"] else []


def _points(gap: float) -> str:
    """A difference of scores in hundredths; of other numbers as it is."""
    return f"{100 * gap:+.2f}".replace("-", "−") if abs(gap) < 1 else f"{gap:+,.0f}".replace("-", "−")
