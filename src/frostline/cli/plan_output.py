"""Print the plan of a sweep or a search, its forecast and its parameter groups."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING, Any

from frostline.cli.printing import print_table, size_of, wrapped
from frostline.data.wording import capitalized, duration, duration_at_least
from frostline.search import FULL_RUNS, SECONDS
from frostline.statistics.recipe import Recipe

if TYPE_CHECKING:  # they import torch, which --help does not need
    from frostline.search.search_plan import SearchPlan
    from frostline.sweeps.parameter_groups import Group
    from frostline.sweeps.plan import Plan
    from frostline.sweeps.results.forecast_record import Forecast


def print_plan(plan: "Plan") -> None:
    """Print the runs of a plan, the hidden states that they share, and the disk space that they need."""
    for note in plan.notes:
        print(note)
    print_device(plan)
    missing = {run.digest for run in plan.missing(plan.runs)}
    done = len(plan.runs) - len(missing)
    print(f"{len(plan.runs)} runs, {done} of them done; {plan.parameters:,} parameters in the model.")
    rows = list(_plan_rows(plan, missing))
    print_table(rows, tuple(rows[0]))
    if too_large := [row["tune"] for row in rows if row.get("fits") == "no"]:
        print(
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
    print("", *wrapped(shared), sep="\n")
    if more := len(plan.states.wanted.cuts) - len(plan.cached.cuts):
        print(
            f"Not cached, because they do not fit into {size_of(plan.states.limit_bytes)}: hidden states after {more} more "
            f"{'layer' if more == 1 else 'layers'}. Runs that need them start from the nearest cached layer below."
        )
    print_space(plan)


def print_device(plan: "Plan") -> None:
    """Print the device that trains, and its memory."""
    machine, memory = plan.experiment.machine, plan.memory
    print(f"\nDevice: {machine.name}, {size_of(memory.free)} free of {size_of(memory.total)}, {machine.precision}.")
    if plan.processes > 1:
        print(f"{plan.processes} GPUs: one process trains on each.")


def print_space(plan: "Plan") -> None:
    """Print the disk space that is free and needed, and how many examples are truncated."""
    print(
        f"Free for the cache: {size_of(plan.states.free_bytes)}. The output folder takes up to {size_of(plan.disk_bytes)}."
    )
    if plan.refit_rows is not None:
        cells, workers = (plan.forecast.cells, plan.forecast.workers) if plan.forecast else ((), 1)
        seconds = max((workers * cell.seconds * plan.refit_rows / cell.train_size for cell in cells), default=None)
        time = "" if seconds is None else f": at most about {duration(seconds)}"
        print(
            f"The saved model is then trained once more on all {plan.refit_rows:,} labelled rows, beyond any budget{time}."
        )
    truncated = ", ".join(f"{100 * share:.1f} % of {split}" for split, share in plan.truncated.items())
    print(f"Examples truncated at {plan.runs[0].max_length} tokens, of those in use: {truncated}.")


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


def print_forecast(forecast: "Forecast | None") -> None:
    """Print how long all runs will take, and how long they would take with transformers' Trainer."""
    if forecast is None:
        print("\nNo forecast: no step could be timed.")
        return
    if not forecast.cells:
        print("\nAll requested runs are done: nothing is left to run.")
        return
    runs = forecast.seconds - forecast.forward_pass_seconds
    at_a_time = f", {forecast.workers} at a time" if forecast.workers > 1 else ""
    at_a_time += f", on {forecast.processes} GPUs" if forecast.processes > 1 else ""
    before = "hidden states are cached"
    if forecast.forward_pass_seconds:
        before = f"forward pass over the frozen layers {duration(forecast.forward_pass_seconds)}"
    print(
        f"\nForecast from timed steps: about {duration(forecast.seconds)} "
        f"({before},\nruns {duration(runs)}{at_a_time}) and at most "
        f"{size_of(forecast.memory_bytes)} of memory{' per run' if forecast.workers > 1 else ''}."
    )
    if forecast.trainer_seconds is not None:
        print(
            f"The same runs with transformers' Trainer and its defaults: about {duration(forecast.trainer_seconds)}, "
            f"{forecast.trainer_seconds / forecast.seconds:.1f} times as long\n(every layer of every padded batch, in float32, "
            "eight examples per evaluation batch)."
        )
    if between := [cell.recipe for cell in forecast.cells if not cell.timed]:
        print(f"Not timed, but estimated from the others: {', '.join(dict.fromkeys(between))}.")


def print_groups(all_groups: "Mapping[Recipe, Sequence[Group]]") -> None:
    """Print every parameter group of each value of ``tune``."""
    for tune, groups in all_groups.items():
        trained = sum(group.parameters for group in groups if group.trained)
        whole = sum(group.parameters for group in groups)
        print(f"\ntune {tune}: {trained:,} of {whole:,} parameters are trained")
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


COLUMNS = ("first steps", "runs", "done", "time")


def print_search_plan(made: "SearchPlan") -> None:
    """Print the budget of a search, its first steps, and the time, memory and disk space that they need."""
    print_device(made.plan)
    print(*wrapped(f"{_of_reference(made)} {_of_budget(made)}"), "", sep="\n")
    print_table(list(_steps(made)), COLUMNS)
    if not made.exhaustive:
        print(
            "\nThen each step trains what is expected to gain the most, until more runs would hardly\n"
            "change the choice or the budget is spent. Probes choose the small k whose learning rates are\n"
            "compared; before they are fitted, the plan assumes the dearest one."
        )
    print(f"\nHidden states of the frozen layers: {size_of(made.plan.states.bytes)}.")
    print_space(made.plan)


def _of_reference(made: "SearchPlan") -> str:
    """The time and the memory of one run of the reference."""
    from frostline.report.names import tuning  # needs numpy

    cell, name = made.of_reference, capitalized(tuning(made.reference))
    forecast, seconds = made.plan.forecast, made.reference_seconds
    if made.measured is not None:
        return f"{name}: {duration(made.measured)} a run, as measured in this folder."
    if cell is None or forecast is None or seconds is None:
        return f"{name}: no forecast, because {'all its runs are done' if forecast else 'no step could be timed'}."
    trainer = "" if cell.trainer_seconds is None else f" ({duration(cell.trainer_seconds)} with transformers' Trainer)"
    text = f"{name}: about {duration(seconds)} a run{trainer} and {size_of(cell.memory_bytes)} of memory."
    if not made.plan.memory.fits(cell.memory_bytes, forecast.workers):
        text += " That is more than is free: give --max-k, fewer --workers or --gradient-checkpointing."
    return text


def _of_budget(made: "SearchPlan") -> str:
    """The budget, what is spent of it, and whether it allows the reference."""
    if made.exhaustive:
        return "The whole grid is trained, whatever the budget (--exhaustive)."
    at_a_time = made.plan.forecast.workers if made.plan.forecast else 1
    together = f", {at_a_time} at a time," if at_a_time > 1 else ""
    longest = f" for {made.lengths.longest:g} epochs" if made.reference.epochs else ""
    rule = f"the larger of {FULL_RUNS} such runs{longest}{together} and {SECONDS:g} s"
    if made.budget is None:
        text = f"Budget: {rule}."
    elif made.budget_given is not None:
        text = f"Budget: {duration(made.budget)} of training, as given."
    else:
        text = f"Budget: {duration(made.budget)} of training, {rule}; --budget sets another."
    if made.spent:
        text += f" A search in this folder has spent {duration(made.spent)}"
        text += "; this one continues it." if not made.over else ", and has ended: only a larger budget trains more."
    if made.budget is not None and made.enough is not None and made.enough > made.budget:
        from frostline.report.names import tuning

        name = tuning(made.reference)
        text += (
            f" It probably ends before {name} has run, and then nothing can be compared: give about "
            f"--budget {duration_at_least(made.enough)} or more."
        )
    return text


def _steps(made: "SearchPlan") -> Iterator[dict[str, Any]]:
    """A row for the hidden states, and one for each step."""
    forecast = made.plan.forecast
    if forecast and forecast.forward_pass_seconds:
        first = "Compute hidden states of the frozen layers; fit probes to them."
        yield dict(zip(COLUMNS, (first, "", "", duration(forecast.forward_pass_seconds)), strict=True))
    for step in made.steps:
        seconds = "unknown" if step.seconds is None else duration(step.seconds)
        yield dict(zip(COLUMNS, (step.why, step.runs, step.done, seconds), strict=True))
