"""Print the plan of a search."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from frostline.data.wording import capitalized, duration, duration_at_least
from frostline.report.plain_text import print_table, size_of, wrapped
from frostline.report.plan_text import device_lines, space_lines
from frostline.search import FULL_RUNS, SECONDS

if TYPE_CHECKING:  # they import torch, which --help does not need
    from frostline.search.search_plan import SearchPlan

COLUMNS = ("first steps", "runs", "done", "time")


def print_search_plan(made: "SearchPlan") -> None:
    """Print the budget of a search, its first steps, and the time, memory and disk space that they need."""
    print(*device_lines(made.plan), sep="\n")
    print(*wrapped(f"{_of_reference(made)} {_of_budget(made)}"), "", sep="\n")
    print_table(list(_steps(made)), COLUMNS)
    if not made.exhaustive:
        print(
            "\nThen each step trains what is expected to gain the most, until more runs would hardly\n"
            "change the choice or the budget is spent. Probes choose the small k whose learning rates are\n"
            "compared; before they are fitted, the plan assumes the dearest one."
        )
    print(f"\nHidden states of the frozen layers: {size_of(made.plan.states.bytes)}.")
    print(*space_lines(made.plan), sep="\n")


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
