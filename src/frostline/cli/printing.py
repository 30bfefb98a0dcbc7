"""What the terminal shows: plain columns of text."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from frostline.data.folding import lasting
from frostline.report import formatting


def print_table(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> None:
    """Rows as plain columns of text, numbers to the right."""
    cells = [[_text(row[name]) for name in columns] for row in rows]
    widths = [max(len(name), *(len(row[n]) for row in cells)) if cells else len(name) for n, name in enumerate(columns)]
    right = [all(row[n][:1] in "-0123456789" for row in cells) for n in range(len(columns))]
    for row in [list(columns), *cells]:
        parts = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        print("  ".join(parts).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 100 else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)


def size_of(count: float) -> str:
    """Bytes as a terminal shows them."""
    return formatting.size(count).replace(formatting.UNBROKEN, " ")


def answer_row(cell: Mapping[str, Any], full: str) -> dict[str, Any]:
    """What the terminal shows of a cell."""
    return {
        "tune": cell["trainable"],
        "rate": f"{cell['learning_rate']:g}",
        "runs": cell["runs"],
        **{name: cell["validation"][name] for name in ("mean", "median", "std", "min", "max")},
        f"% of {full}": _share(cell["share"]),
        "% of gain": _share(cell["share_corrected"]),
        "parameters": cell["trainable_parameters"],
        "seconds": None if cell["seconds"] is None else f"{cell['seconds']:.2g}",
        "+ shared": None if cell["seconds"] is None else f"{cell['shared_seconds']:.2g}",
        "memory": cell["peak_memory_bytes"] and size_of(cell["peak_memory_bytes"]),
        "failed": cell["failures"]["failed"] + cell["errors"],
    }


def _share(share: Mapping[str, float | None] | None) -> str:
    if share is None or share["estimate"] is None:
        return "-"
    between = (
        ""
        if share["low"] is None or share["high"] is None
        else f" ({100 * share['low']:.0f} to {100 * share['high']:.0f})"
    )
    return f"{100 * share['estimate']:.1f}{between}"


def print_plan(plan: Any) -> None:

    for note in plan.notes:
        print(note)
    print(f"\n{len(plan.runs)} runs, {len(plan.done)} of them done; {plan.parameters:,} parameters in the model.")
    rows = list(_plan_rows(plan))
    print_table(rows, tuple(rows[0]))
    states = [f"of all tokens after layer {cut}" for cut in plan.kept.cuts]
    states += ["of the token that the head reads"] * plan.kept.head
    if states:
        print(
            f"\nShared: one pass of {plan.rows:,} texts ({plan.tokens:,} tokens) through the frozen layers keeps hidden"
        )
        print(f"states {', '.join(states)}: {size_of(plan.cache_bytes)} of cache.")
    else:
        print("\nShared: nothing; every run computes its frozen layers itself.")
    if left_out := len(plan.wanted.cuts) - len(plan.kept.cuts):
        print(
            f"Not kept, since they do not fit into {size_of(plan.limit_bytes)}: the states after {left_out} more "
            f"{'layer' if left_out == 1 else 'layers'}; runs that want them go on from the nearest that are kept."
        )
    print(f"Free for the cache: {size_of(plan.free_bytes)}. The output folder takes up to {size_of(plan.disk_bytes)}.")
    cut = ", ".join(f"{100 * share:.1f} % of {split}" for split, share in plan.truncated.items())
    print(f"Texts cut at {plan.max_length} tokens, of those that are used: {cut}.")


def _plan_rows(plan: Any) -> Iterator[dict[str, Any]]:
    """A row for each k; where train sizes are several and a forecast is made, one for each of both."""
    cells = {(cell.trainable, cell.train_size): cell for cell in plan.forecast.cells} if plan.forecast else {}
    sizes = sorted({run.train_size for run in plan.runs})
    several = len(sizes) > 1 and bool(cells)
    for k in plan.trainable:
        for size in sizes if several else [None]:
            runs = [run for run in plan.runs if run.tune == k and size in (None, run.train_size)]
            if not runs:
                continue
            cell = cells.get((runs[0].trainable, runs[0].train_size))
            yield {
                "tune": runs[0].trainable,
                **({"examples": f"{size:,}"} if several else {}),
                "runs": len(runs),
                "done": sum(run.digest in plan.done for run in runs),
                "trainable parameters": f"{plan.trainable[k]:,}",
                **(_costs(cell) if cells else {}),
            }


def _costs(cell: Any) -> dict[str, str]:
    """What a plan's table says of the time and memory of a cell; None: all its runs are done."""

    if cell is None:
        return dict.fromkeys(("a run", "in all", "memory", "a run by Trainer"), "")
    return {
        "a run": lasting(cell.seconds),
        "in all": lasting(cell.runs * cell.seconds),
        "memory": size_of(cell.memory_bytes),
        "a run by Trainer": "" if cell.trainer_seconds is None else lasting(cell.trainer_seconds),
    }


def print_forecast(forecast: Any) -> None:
    """How long it all takes, and how long plain transformers would."""

    if forecast is None:
        print("\nHow long it takes is not known: no step could be timed.")
        return
    if not forecast.cells:
        print("\nEverything that is asked for is done: nothing is left to run.")
        return
    for remark in forecast.remarks:
        print(remark)
    runs = forecast.seconds - forecast.pass_seconds
    print(
        f"\nPredicted, from steps timed here: about {lasting(forecast.seconds)} (the pass "
        f"{lasting(forecast.pass_seconds)}, runs {lasting(runs)}"
        + (f", {forecast.workers} at a time" if forecast.workers > 1 else "")
        + f") and at most {size_of(forecast.memory_bytes)} of memory{' a run' if forecast.workers > 1 else ''}."
    )
    if forecast.trainer_seconds is not None:
        print(
            f"The same runs by transformers' Trainer as it comes: about {lasting(forecast.trainer_seconds)}, "
            f"{forecast.trainer_seconds / forecast.seconds:.1f} times as long (every layer of every batch,\npadded, in float32; "
            "validation eight texts at a time)."
        )
    if between := [cell.trainable for cell in forecast.cells if not cell.timed]:
        print(f"Not timed but calculated from the others: {', '.join(dict.fromkeys(between))}.")


def print_groups(all_groups: Mapping[Any, Any]) -> None:
    """Every parameter group of each value of tune."""
    for tune, groups in all_groups.items():
        name = f"last {tune}" if isinstance(tune, int) else tune
        trained = sum(group.parameters for group in groups if group.trained)
        whole = sum(group.parameters for group in groups)
        print(f"\ntune {name}: {trained:,} of {whole:,} parameters are trained")
        rows = [
            {
                "": "trained" if group.trained else "frozen",
                "place": ", ".join(group.places),
                "parameters": f"{group.parameters:,}",
                "tensors": group.tensors,
                "learning rate": ", ".join(f"{rate:g}" for rate in group.learning_rates),
                "weight decay": "" if group.weight_decay is None else f"{group.weight_decay:g}",
                "modules": ", ".join(group.modules),
            }
            for group in groups
        ]
        print_table(rows, tuple(rows[0]))


def print_probes(facts: Mapping[str, Any]) -> None:
    """The validation scores of probes, a row for each layer, a column for each vector."""
    rows: dict[str, dict[str, Any]] = {}
    vectors = ("first", "mean", "last")
    for one in facts["probes"]:
        layers = one["layers"]
        name = formatting.layers(layers)
        best = facts["best"]["layers"] == layers and facts["best"]["vector"] == one["vector"]
        rows.setdefault(name, {"after layer": name, **dict.fromkeys(vectors, "")})[one["vector"]] = (
            "-" if one["validation"] is None else f"{one['validation']:.3f}"
        ) + (" *" if best else "")
    print(
        f"\n{facts['columns']['label']}: {formatting.metric(facts['metric'])} on {facts['validation_rows']:,} validation rows"
    )
    print_table(rows.values(), ("after layer", *vectors))
    print("* the best on training rows that its fit had not seen")
