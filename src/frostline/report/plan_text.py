"""The plan of a sweep as text: its runs, hidden states, disk space, forecast and parameter groups."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING, Any

from frostline.data.wording import counted, duration
from frostline.report.plain_text import size_of, table_lines, wrapped
from frostline.statistics.recipe import Recipe

if TYPE_CHECKING:  # they import torch, which --help does not need
    from frostline.sweeps.parameter_groups import Group
    from frostline.sweeps.plan import Plan
    from frostline.sweeps.results.forecast_record import Forecast


def plan_lines(plan: "Plan") -> Iterator[str]:
    """The runs of a plan, the hidden states that they share, and the disk space that they need."""
    yield from plan.notes
    yield from device_lines(plan)
    missing = {run.digest for run in plan.missing(plan.runs)}
    done = len(plan.runs) - len(missing)
    yield f"{counted(len(plan.runs), 'run')}, {done} of them done; {plan.parameters:,} parameters in the model."
    rows = list(_plan_rows(plan, missing))
    yield from table_lines(rows, tuple(rows[0]))
    if too_large := [row["tune"] for row in rows if row.get("fits") == "no"]:
        yield (
            f"\nMore memory than is free: {', '.join(dict.fromkeys(too_large))}. If memory runs out, frostline tries smaller\n"
            "stacks and micro-batches. --gradient-checkpointing, a smaller k and fewer --workers take less."
        )
    states = [f"of all tokens, after layer {cut}" for cut in plan.cached.cuts]
    states += ["of the token that the head reads, after the last layer"] * plan.cached.head
    states += ["of first, mean and last token, after every layer"] * bool(plan.cached.pooled)
    shared = "Shared: nothing; every run computes its frozen layers itself."
    if states:
        shared = (
            f"Shared: one forward pass of {plan.states.rows:,} different examples ({plan.states.tokens:,} tokens) through the "
            f"frozen layers caches hidden states {'; '.join(states)}: {size_of(plan.states.bytes)}."
        )
    yield from ("", *wrapped(shared))
    if more := len(plan.states.wanted.cuts) - len(plan.cached.cuts):
        yield (
            f"Not cached, because they do not fit into {size_of(plan.states.limit_bytes)}: hidden states after {more} more "
            f"{'layer' if more == 1 else 'layers'}. Runs that need them start from the nearest cached layer below."
        )
    yield from space_lines(plan)


def device_lines(plan: "Plan") -> Iterator[str]:
    """The device that trains, and its memory."""
    machine, memory = plan.experiment.machine, plan.memory
    yield f"\nDevice: {machine.name}, {size_of(memory.free)} free of {size_of(memory.total)}, {machine.precision}."
    if plan.processes > 1:
        yield f"{plan.processes} GPUs: one process trains on each."


def refit_seconds(plan: "Plan") -> float | None:
    """The most seconds that the training of the saved model on all rows takes, by the forecast; None if that is unknown."""
    if plan.refit_rows is None:
        return 0.0
    cells, workers = (plan.forecast.cells, plan.forecast.workers) if plan.forecast else ((), 1)
    cells = tuple(cell for cell in cells if not plan.spec.way_of(cell.recipe).patience)
    return max((workers * cell.seconds * plan.refit_rows / cell.train_size for cell in cells), default=None)


def space_lines(plan: "Plan") -> Iterator[str]:
    """The disk space that is free and needed, and how many examples are truncated."""
    yield (
        f"Free for the cache: {size_of(plan.states.free_bytes)}. The output folder takes up to {size_of(plan.disk_bytes)}."
    )
    if plan.refit_rows is not None:
        seconds = refit_seconds(plan)
        early = [k for k in plan.trained if plan.spec.way_of(k).patience]
        time = "" if seconds is None else f": at most about {duration(seconds)}"
        but = f" Not so that of {', '.join(early)}, which stops early." if early else ""
        yield (
            f"The saved model is then trained once more on all {plan.refit_rows:,} labelled rows, beyond any budget{time}."
            f"{but}"
        )
    truncated = ", ".join(f"{100 * share:.1f} % of {split}" for split, share in plan.truncated.items())
    yield f"Examples truncated at {plan.runs[0].max_length} tokens, of those in use: {truncated}."


def _plan_rows(plan: "Plan", missing: Set[str]) -> Iterator[dict[str, Any]]:
    """A row for each k and training length; with a forecast of several train sizes, for each of these and size."""
    forecast = plan.forecast
    cells = forecast.by_kind if forecast else {}
    stacked = any(cell.stack > 1 for cell in cells.values())
    sizes = sorted({run.train_size for run in plan.runs})
    several = len(sizes) > 1 and bool(cells)
    lengths = sorted({run.num_train_epochs for run in plan.runs})
    for k in plan.trained:
        for length, size in product(lengths, sizes if several else [None]):
            of_length = [run for run in plan.runs if (run.recipe, run.num_train_epochs) == (k, length)]
            runs = [run for run in of_length if size in (None, run.train_size)]
            if not runs:
                continue
            row: dict[str, Any] = {"tune": runs[0].named_among(lengths)} | (
                {"examples": f"{size:,}"} if several else {}
            )
            row |= {"runs": len(runs), "done": sum(run.digest not in missing for run in runs)}
            row["trainable parameters"] = f"{plan.trained[k]:,}"
            if forecast and cells:
                cell = cells.get(runs[0].kind)  # None if all these runs are done
                names = ["per run", "in total", "memory", "per run with Trainer", *["stack"] * stacked, "fits"]
                row |= dict.fromkeys(names, "")
                if cell:
                    row |= {"per run": duration(cell.seconds), "in total": duration(cell.runs * cell.seconds)}
                    row["memory"] = size_of(cell.memory_bytes)
                    if cell.trainer_seconds is not None:
                        row["per run with Trainer"] = duration(cell.trainer_seconds)
                    row |= {"stack": cell.stack} if stacked else {}
                    row["fits"] = "yes" if plan.memory.fits(cell.memory_bytes, forecast.workers) else "no"
            yield row


def forecast_lines(forecast: "Forecast") -> Iterator[str]:
    """How long all runs will take, and how long they would take with transformers' Trainer."""
    if not forecast.cells:
        yield "\nAll requested runs are done: nothing is left to run."
        return
    runs = forecast.seconds - forecast.forward_pass_seconds
    at_a_time = f", {forecast.workers} at a time" if forecast.workers > 1 else ""
    at_a_time += f", on {forecast.processes} GPUs" if forecast.processes > 1 else ""
    before = "hidden states are cached"
    if forecast.forward_pass_seconds:
        before = f"forward pass over the frozen layers {duration(forecast.forward_pass_seconds)}"
    yield (
        f"\nForecast from timed steps: about {duration(forecast.seconds)} "
        f"({before},\nruns {duration(runs)}{at_a_time}) and at most "
        f"{size_of(forecast.memory_bytes)} of memory{' per run' if forecast.workers > 1 else ''}."
    )
    if forecast.trainer_seconds is not None:
        yield (
            f"The same runs with transformers' Trainer and its defaults: about {duration(forecast.trainer_seconds)}, "
            f"{forecast.trainer_seconds / forecast.seconds:.1f} times as long\n(every layer of every padded batch, in float32, "
            "eight examples per evaluation batch)."
        )
    if between := [cell.recipe for cell in forecast.cells if not cell.timed]:
        yield f"Not timed, but estimated from the others: {', '.join(dict.fromkeys(between))}."


def group_lines(all_groups: "Mapping[Recipe, Sequence[Group]]") -> Iterator[str]:
    """Every parameter group of each value of ``tune``."""
    for tune, groups in all_groups.items():
        trained = sum(group.parameters for group in groups if group.trained)
        whole = sum(group.parameters for group in groups)
        yield f"\ntune {tune}: {trained:,} of {whole:,} parameters are trained"
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
        yield from table_lines(rows, tuple(rows[0]))
