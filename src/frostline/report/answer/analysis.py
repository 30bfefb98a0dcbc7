"""The analysis of many results: an answer for every model, task and train size, and summaries over all. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized
from frostline.report.answer.make_answer import answer_task
from frostline.report.names import tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import TaskAnswer
from frostline.statistics.curve import adjust
from frostline.statistics.run_group import RunGroup
from frostline.statistics.train_sizes import OverTasks, across_tasks

SCHEMA_VERSION = 7


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The analysis of many results.

    Attributes:
        groups: The answer of each model on each task, with the largest train size that has an answer first.
        comparisons: The number of comparisons that Holm's method adjusts for.
        over_tasks: The summary over all tasks of each model with enough tasks.
    """

    schema_version: int
    settings: AnalysisSettings
    groups: list[TaskAnswer]
    comparisons: int
    over_tasks: list[OverTasks]


def analyze(groups: Sequence[RunGroup], settings: AnalysisSettings) -> Analysis:
    """The analysis of the groups.

    P-values of differences are adjusted by Holm's method over all comparisons of the analysis.
    """
    found = [answer_task(group, settings) for group in groups]
    for group in found:
        group.sizes.sort(key=lambda size: size.recommended is None)
        first = group.sizes[0]
        several = len(group.sizes) > 1 and first.train_size
        group.sentence = f"With {first.train_size:,} examples: {first.sentence}" if several else first.sentence
    comparisons = adjust([size for group in found for size in group.sizes])
    models = dict.fromkeys(group.model for group in found)
    over_tasks = [across_tasks([group for group in found if group.model == model], settings) for model in models]
    known = [tasks for tasks in over_tasks if tasks]
    for tasks in known:
        tasks.sentence = task_sentence(tasks, settings)
    return Analysis(
        schema_version=SCHEMA_VERSION, settings=settings, groups=found, comparisons=comparisons, over_tasks=known
    )


def shares_of_head_only(groups: Sequence[TaskAnswer]) -> list[float]:
    """The share of full fine-tuning's score that k = 0 reaches, at the first train size of each group whose runs are its own."""
    sizes = [group.sizes[0] for group in groups if not group.same_runs and group.sizes[0].reference_is_full]
    known = [cell.share for size in sizes for cell in size.cells if cell.recipe.k == 0 and cell.difference]
    return [share.estimate for share in known if share and share.estimate is not None]


def task_sentence(tasks: OverTasks, settings: AnalysisSettings) -> str:
    """The sentence on what :func:`frostline.statistics.train_sizes.across_tasks` found."""
    point = next(point for point in tasks.points if point.target == settings.target)
    sufficient, not_ruled_out = point.estimate if settings.by_mean else point.confident, point.not_ruled_out
    of_layers, goal = f" of {tasks.layers}" if tasks.layers else "", _goal_in_tasks(tasks, settings)
    if sufficient is not None and not sufficient.is_full:
        certainty = "by mean score" if settings.by_mean else "with 95 % confidence"
        text = f"{capitalized(tuning(sufficient))}{of_layers} reaches {goal}, {certainty}"
    elif settings.by_mean:
        text = f"No k below full fine-tuning reaches {goal}, by mean score"
    else:
        text = f"No k below full fine-tuning is shown with 95 % confidence to reach {goal}"
    text += _exceptions(tasks)
    if not_ruled_out not in (sufficient, None) and not settings.by_mean:
        text += f"; {tuning(not_ruled_out)}{of_layers} is not ruled out"
    return f"{text}."


def _goal_in_tasks(tasks: OverTasks, settings: AnalysisSettings) -> str:
    """The target, and the number of tasks in which it must be reached."""
    counted, raw = tasks.counted, tasks.raw
    of_gain = settings.corrected and len(raw) < counted
    whole = "gain of full fine-tuning over the baseline" if of_gain else "score of full fine-tuning"
    where = "in the one task that counts" if counted == 1 else f"in each of {counted} tasks"
    return f"{100 * settings.target:g} % of the {whole} {where}"


def _exceptions(tasks: OverTasks) -> str:
    """In parentheses, the tasks that do not count, each with the reason, and those whose shares are of the score."""
    text = ""
    for why, names in (
        ("excluded by choice", tasks.left_out),
        ("full fine-tuning has no usable score", tasks.without_full),
        ("full fine-tuning is not above the baseline", tasks.undefined),
    ):
        text += f" (without {' and '.join(names)}: {why})" if names else ""
    raw = tasks.raw
    if raw and len(raw) < tasks.counted:
        text += f" (of the score in {' and '.join(raw)}, where the score of the baseline is unknown)"
    return text
