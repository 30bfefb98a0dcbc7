"""The printed plans of a sweep and of a search: the device, what fits into its memory, the forecast, and the budget."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import frostline
from frostline.api import find
from frostline.cli.find_and_sweep import print_search_plan
from frostline.model.device import DeviceMemory
from frostline.report.plan_text import forecast_lines, plan_lines, refit_seconds
from frostline.report.rebuild import write_report
from frostline.search.search_plan import SearchPlan
from frostline.statistics.decision import Lengths
from frostline.statistics.recipe import Recipe
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from pages import drawn
from tiny import QUICK, SMALL, contents, plan_of

T4 = DeviceMemory(total=15_600_000_000, free=14_600_000_000, held=0)
NAMES = ("head only", "last 1", "full")


@pytest.fixture(scope="module")
def plan(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> frostline.Plan:
    out = tmp_path_factory.mktemp("plan") / "o"
    return replace(
        plan_of(**{**SMALL, "model": tiny_bert, "train": tiny_table, "out": out, "tune": "0,1,all", "seeds": 8}),
        memory=T4,
    )


def rows_with(plan: frostline.Plan, *sizes: tuple[float, int], workers: int = 1) -> tuple[str, list[list[str]]]:
    """The printed plan with a forecast of these bytes and stacks for each k, and the cells of its table."""
    size, epochs = plan.runs[0].train_size, plan.runs[0].num_train_epochs
    cells = [
        KindForecast(name, size, 8, 2.0, memory, stack=stack, num_train_epochs=epochs)
        for name, (memory, stack) in zip(NAMES, sizes, strict=False)
    ]
    printed = "\n".join(plan_lines(replace(plan, forecast=Forecast(tuple(cells), 0.0, workers=workers))))
    lines = printed.splitlines()
    header = next(n for n, line in enumerate(lines) if line.startswith("tune "))
    return printed, [line.split() for line in lines[header : header + 4]]


def test_a_plan_names_its_device_and_what_fits(plan: frostline.Plan) -> None:
    printed, (header, *rows) = rows_with(plan, (1e9, 8), (14.6e9, 4), (14.7e9, 1))
    (device,) = (line for line in printed.splitlines() if line.startswith("Device: "))
    assert device.startswith(f"Device: CPU, {torch.get_num_threads()} thread")
    assert device.endswith(", 14.6 GB free of 15.6 GB, float32.") and header[-2:] == ["stack", "fits"]
    assert [row[-2:] for row in rows] == [["8", "yes"], ["4", "yes"], ["1", "no"]]
    assert "More memory than is free: full." in printed
    printed, (header, *rows) = rows_with(plan, (7e9, 1), (8e9, 1), (9e9, 1), workers=2)  # at the same time
    assert header[-1] == "fits" and "stack" not in header
    assert [row[-1] for row in rows] == ["yes", "no", "no"] and "More memory than is free: last 1, full." in printed
    assert "More memory" not in rows_with(plan, (7e9, 1))[0]  # the others are done


def test_a_plan_prints_its_forecast(settings: dict[str, Any]) -> None:
    made = frostline.plan(progress=Progress(), **settings | {"tune": "0,named,all", "tune_modules": "layer.1"})
    printed = "\n".join([*plan_lines(made), *forecast_lines(made.forecast)])
    for words in ("per run", "memory", "Forecast from timed steps", "transformers' Trainer and its defaults"):
        assert words in printed and words in repr(made)


def test_a_folder_takes_no_more_space_than_its_plan_says(
    finished_sweep: Path, tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    plan = plan_of(model=tiny_bert, train=tiny_table, tune="0,1,all", seeds=2, out=tmp_path / "o", **QUICK)
    with drawn():
        write_report(out := Path(shutil.copytree(finished_sweep, tmp_path / "o")))
    assert sum(map(len, contents(out).values())) <= plan.disk_bytes


def test_a_plan_promises_no_refit_of_a_way_that_stops_early(settings: dict[str, Any]) -> None:
    early = {"tune": "early,0", "way": {"early": {"tune": 1, "patience": 1}}, "refit": True}
    printed = "\n".join(plan_lines(plan := plan_of(**settings | early)))
    train = plan.requested[0].train_size
    cells = [
        KindForecast(Recipe(name), train, 1, seconds, 1e9) for name, seconds in (("early", 50.0), ("head only", 1.0))
    ]
    assert refit_seconds(replace(plan, forecast=Forecast(tuple(cells), 0.0))) == plan.refit_rows / train
    assert "labelled rows, beyond any budget. Not so that of early, which stops early." in printed


def forecast(*args: Any, **more: Any) -> Forecast:
    """A run of full fine-tuning takes 40 s."""
    return Forecast((KindForecast(Recipe("full"), 100, 9, 40.0, 1e9, 70.0, num_train_epochs=1.0),), 2.0)


@pytest.fixture(scope="module")
def made(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> SearchPlan:
    """A plan in which every step takes 3 s."""
    settings = {**SMALL, "model": tiny_bert, "train": tiny_table, "out": tmp_path_factory.mktemp("plan") / "o"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("frostline.search.search_plan.make_forecast", forecast)
        plan = find.plan(progress=Progress(), **settings)
    return replace(plan, steps=tuple(replace(step, seconds=3.0) for step in plan.steps))


def with_forecast(made: SearchPlan, found: Forecast | None) -> SearchPlan:
    return replace(made, plan=replace(made.plan, forecast=found))


def with_budget(made: SearchPlan, seconds: float) -> SearchPlan:
    return replace(made, seen=replace(made.seen, budget_given=seconds))


def for_three_epochs(made: SearchPlan) -> SearchPlan:
    """With training lengths of one epoch and of three."""
    recipes = tuple(one.for_epochs(1.0) for one in made.seen.space.recipes)
    space = replace(made.seen.space, recipes=recipes, lengths=Lengths(1.0, 3.0))
    return replace(made, seen=replace(made.seen, space=space))


SPENT = "A search in this folder has spent 30 s"


@pytest.mark.parametrize(
    ("change", "there"),
    [
        (
            lambda made: made,
            [
                "Full fine-tuning: about 40 s a run (70 s with transformers' Trainer) and 1.00 GB of memory.",
                "Budget: 2 min 40 s of training, the larger of 4 such runs and 120 s; --budget sets another.",
                *("k = 0 first: it is the cheapest.", "Train full fine-tuning.", "The output folder takes up to"),
                "Hidden states of the frozen layers:",
            ],
        ),
        (  # the default budget is for the longest training
            for_three_epochs,
            [
                "for 1 epoch: about 40 s a run",
                "Budget: 8 min of training, the larger of 4 such runs for 3 epochs and 120 s",
            ],
        ),
        (
            lambda made: with_budget(made, 45.0),
            [
                "45 s of training, as given. It probably ends before full fine-tuning has run",
                "about --budget 46s or more.",
            ],
        ),
        (
            lambda made: with_budget(made, 46.0),
            [
                "Budget: 46 s of training, as given. Hidden states and the saved model come on top: at most about 112 s in all"
            ],
        ),
        (lambda made: replace(with_budget(made, 56.0), spent=10.0), ["at most about 112 s in all, beside loading, probes"]),
        (
            lambda made: replace(with_budget(made, 75.0), spent=30.0),
            [f"{SPENT}; this one continues it.", "give about --budget 76s or more."],
        ),
        (lambda made: replace(made, spent=30.0, over=True), [f"{SPENT}, and has ended: only a larger budget trains more."]),
        (lambda made: with_forecast(made, Forecast((), 2.0)), ["no forecast, because all its runs are done."]),
        (lambda made: with_forecast(made, None), ["no step could be timed. Budget: the larger of 4 such runs and 120 s."]),
        (
            lambda made: replace(made, measured=50.0),
            ["50 s a run, as measured in this folder.", "3 min 20 s of training, the larger of 4 such runs and 120 s"],
        ),
        (lambda made: with_forecast(made, replace(forecast(), workers=2)), ["the larger of 4 such runs, 2 at a time, and 120 s"]),
        (
            lambda made: with_forecast(made, Forecast((replace(made.of_reference, memory_bytes=1e15),), 2.0)),
            ["That is more than is free: give --tune with fewer"],
        ),
        (lambda made: replace(made, exhaustive=True), ["--exhaustive"]),
    ],
)  # fmt: skip
def test_the_plan_of_a_search(
    made: SearchPlan, capsys: pytest.CaptureFixture[str], change: Callable[[SearchPlan], SearchPlan], there: list[str]
) -> None:
    print_search_plan(change(made))
    shown = " ".join(capsys.readouterr().out.split())
    assert [text for text in there if text not in shown] == [], shown
    assert ("nothing can be compared" in shown) == any(
        "--budget 46s" in text or "--budget 76s" in text for text in there
    )
