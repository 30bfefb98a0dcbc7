"""The sentence on all tasks of one model: the smallest k that reaches the target in each of them."""

from collections.abc import Mapping
from typing import Any

from frostline.data.wording import capitalized
from frostline.report.names import tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.recipe import FULL


def task_sentence(tasks: Mapping[str, Any], layers: int | None, settings: AnalysisSettings) -> str:
    """The sentence on what :func:`frostline.statistics.train_sizes.across_tasks` found."""
    point = next(point for point in tasks["points"] if point["target"] == settings.target)
    sufficient, not_ruled_out = point["estimate" if settings.by_mean else "confident"], point["not_ruled_out"]
    of_layers, goal = f" of {layers}" if layers else "", _goal(tasks, settings)
    if sufficient not in (None, FULL):
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


def _goal(tasks: Mapping[str, Any], settings: AnalysisSettings) -> str:
    """The target, and the number of tasks in which it must be reached."""
    counted, raw = _counted(tasks), tasks["raw"]
    of_gain = settings.corrected and len(raw) < counted
    whole = "gain of full fine-tuning over the baseline" if of_gain else "score of full fine-tuning"
    where = "in the one task that counts" if counted == 1 else f"in each of {counted} tasks"
    return f"{100 * settings.target:g} % of the {whole} {where}"


def _exceptions(tasks: Mapping[str, Any]) -> str:
    """In parentheses, the tasks that do not count and those whose shares are of the score."""
    text = ""
    for why, names in (
        ("excluded by choice", tasks["left_out"]),
        ("full fine-tuning is not above the baseline", tasks["undefined"]),
    ):
        text += f" (without {' and '.join(names)}: {why})" if names else ""
    raw = tasks["raw"]
    if raw and len(raw) < _counted(tasks):
        text += f" (of the score in {' and '.join(raw)}, where the score of the baseline is unknown)"
    return text


def _counted(tasks: Mapping[str, Any]) -> int:
    return len(tasks["tasks"]) - len(tasks["left_out"]) - len(tasks["undefined"])
